"""Requests to a judge: rate limit, retries and cache."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_eval.judges.endpoint import AnswerCache, RateLimiter, RetryableJudgeError
from otel_eval.scorers.judge import JudgeError


class Attempts:
    """Fails `failures` times, then answers; records the time of each attempt."""

    def __init__(self, failures: int = 0, after_s: float | None = None) -> None:
        self.times: list[float] = []
        self._failures, self._after_s = failures, after_s

    async def __call__(self) -> str:
        self.times.append(time.monotonic())
        if len(self.times) <= self._failures:
            raise RetryableJudgeError("judge_unavailable", "not yet", self._after_s)
        return "yes"


def test_no_window_has_more_attempts_than_the_budget():
    """Concurrent requests do not exceed the budget, and use all of it."""
    limits, attempts = RateLimiter(per_minute=4, window_s=0.5), Attempts()

    async def ask() -> None:
        await asyncio.gather(*[limits.repeat(attempts) for _ in range(12)])

    began = time.monotonic()
    asyncio.run(ask())
    times = attempts.times
    assert len([at for at in times if at - began < 0.3]) == 4
    assert all(later - earlier >= 0.4 for earlier, later in zip(times, times[4:], strict=False))
    assert time.monotonic() - began < 2.0


def test_a_repetition_counts_against_the_budget():
    """A retry is counted like a first attempt."""
    limits, attempts = (
        RateLimiter(per_minute=2, retries=3, window_s=0.4, first_s=0.001),
        Attempts(failures=2),
    )
    began = time.monotonic()
    asyncio.run(limits.repeat(attempts))
    assert (len(attempts.times), attempts.times[2] - began >= 0.35) == (3, True)


def test_who_gives_up_waiting_takes_nothing_from_the_budget():
    """Requests that are cancelled while they wait do not delay later ones."""
    limits, attempts = RateLimiter(per_minute=1, window_s=0.2), Attempts()

    async def ask(timeout_s: float) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(limits.repeat(attempts), timeout_s)

    async def impatient_then_one() -> None:
        await asyncio.gather(*[ask(0.1) for _ in range(20)])
        await ask(1.0)

    asyncio.run(impatient_then_one())
    assert len(attempts.times) == 2


def test_waits_grow_and_end():
    """Each delay is at most twice the one before."""
    limits, attempts = RateLimiter(retries=4, first_s=0.02), Attempts(failures=9)
    with pytest.raises(JudgeError, match="not yet"):
        asyncio.run(limits.repeat(attempts))
    gaps = [
        later - earlier for earlier, later in zip(attempts.times, attempts.times[1:], strict=False)
    ]
    assert len(attempts.times) == 5
    assert all(gap >= 0.01 * 2**number for number, gap in enumerate(gaps))


@pytest.mark.parametrize("after_s", [float("inf"), 1_700_000_000.0, 7200.0])
def test_a_judge_is_tried_again_after_an_hour_whatever_it_says(
    after_s: float, monkeypatch: pytest.MonkeyPatch
):
    """Some endpoints send the time of day instead of a number of seconds."""
    limits, attempts, began = RateLimiter(), Attempts(failures=1, after_s=after_s), time.monotonic()
    for elapsed_s in (0, 3500):
        monkeypatch.setattr(time, "monotonic", lambda now=began + elapsed_s: now)
        with pytest.raises(JudgeError):
            asyncio.run(limits.repeat(attempts))
    monkeypatch.setattr(time, "monotonic", lambda: began + 3601)
    assert (asyncio.run(limits.repeat(attempts)), len(attempts.times)) == ("yes", 2)


def test_what_is_no_trouble_that_passes_is_not_repeated():
    """An error that is not retryable is raised at once."""
    times: list[float] = []

    async def refused() -> str:
        times.append(0.0)
        raise JudgeError("judge_refused")

    with pytest.raises(JudgeError):
        asyncio.run(RateLimiter(retries=5).repeat(refused))
    assert len(times) == 1


@given(st.integers(0, 9), st.lists(st.integers(0, 20)))
def test_a_cache_never_holds_more_than_it_may_and_never_another_answer(size: int, keys: list[int]):
    """A cache of at least one answer always has the one that was put last."""
    cache = AnswerCache(size)
    for key in keys:
        found = cache.get(bytes([key]))
        assert found in (None, str(key))
        cache.put(bytes([key]), str(key))
        assert cache.get(bytes([key])) == (str(key) if size else None)
    held = [key for key in range(21) if cache.get(bytes([key])) is not None]
    assert len(held) <= size + size % 2


def test_what_is_looked_up_stays():
    """The answers that were not looked up are evicted."""
    cache = AnswerCache(4)
    for number in range(20):
        cache.put(b"kept", "kept")
        assert cache.get(b"kept") == "kept"
        cache.put(bytes([number]), "x")
    assert cache.get(bytes([0])) is None
