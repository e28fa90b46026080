"""Requests to a judge: rate limit, retries and cache."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_eval.judges import endpoint
from otel_eval.judges.endpoint import AnswerCache, RateLimiter, RetryableJudgeError
from otel_eval.scorers.judge import JudgeError
from tests.support.virtual_time import VirtualTime


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> VirtualTime:
    """The time of the rate limiter and of the loop that it waits on."""
    virtual = VirtualTime()
    monkeypatch.setattr(endpoint, "time", virtual)
    return virtual


class Attempts:
    """Fails `failures` times, then answers; records the time of each attempt."""

    def __init__(self, clock: VirtualTime, failures: int = 0, after_s: float | None = None) -> None:
        self.times: list[float] = []
        self._clock, self._failures, self._after_s = clock, failures, after_s

    async def __call__(self) -> str:
        self.times.append(self._clock.now)
        if len(self.times) <= self._failures:
            raise RetryableJudgeError("judge_unavailable", "not yet", self._after_s)
        return "yes"


def test_no_window_has_more_attempts_than_the_budget(clock: VirtualTime):
    """Concurrent requests do not exceed the budget, and use all of it."""
    limits, attempts = RateLimiter(per_minute=4), Attempts(clock)

    async def ask() -> None:
        await asyncio.gather(*[limits.repeat(attempts) for _ in range(12)])

    clock.run(ask())
    assert attempts.times == pytest.approx([0.0] * 4 + [60.0] * 4 + [120.0] * 4, abs=0.1)


def test_a_repetition_counts_against_the_budget(clock: VirtualTime):
    """A retry is counted like a first attempt."""
    limits, attempts = RateLimiter(per_minute=2, retries=3), Attempts(clock, failures=2)
    clock.run(limits.repeat(attempts))
    assert len(attempts.times) == 3
    assert attempts.times[2] == pytest.approx(60.0, abs=0.1)


def test_a_request_that_gives_up_waiting_takes_nothing_from_the_budget(clock: VirtualTime):
    """Requests that are cancelled while they wait do not delay later ones."""
    limits, attempts = RateLimiter(per_minute=1), Attempts(clock)

    async def ask(timeout_s: float) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(limits.repeat(attempts), timeout_s)

    async def impatient_then_one() -> None:
        await asyncio.gather(*[ask(30.0) for _ in range(20)])
        await ask(100.0)

    clock.run(impatient_then_one())
    assert attempts.times == pytest.approx([0.0, 60.0], abs=0.1)


def test_waits_between_repetitions_grow_and_end(clock: VirtualTime):
    """Each delay is about twice the one before, with jitter; the last error is raised."""
    limits, attempts = RateLimiter(retries=4), Attempts(clock, failures=9)
    with pytest.raises(JudgeError, match="not yet"):
        clock.run(limits.repeat(attempts))
    waits = [
        later - earlier for earlier, later in zip(attempts.times, attempts.times[1:], strict=False)
    ]
    assert len(waits) == 4
    for number, wait_s in enumerate(waits):
        assert 0.5 * 0.5 * 2**number <= wait_s <= 1.5 * 0.5 * 2**number


@pytest.mark.parametrize("after_s", [float("inf"), 1_700_000_000.0, 7200.0])
def test_a_judge_is_tried_again_after_an_hour_whatever_it_says(clock: VirtualTime, after_s: float):
    """Some endpoints send the time of day instead of a number of seconds."""
    limits, attempts = RateLimiter(), Attempts(clock, failures=1, after_s=after_s)
    for pause_s in (0.0, 3500.0):
        clock.advance(pause_s)
        with pytest.raises(JudgeError):
            clock.run(limits.repeat(attempts))
    clock.advance(101.0)
    assert (clock.run(limits.repeat(attempts)), len(attempts.times)) == ("yes", 2)


def test_an_error_that_will_not_pass_is_not_repeated():
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


def test_answers_that_are_looked_up_stay_in_the_cache():
    """The answers that were not looked up are evicted."""
    cache = AnswerCache(4)
    for number in range(20):
        cache.put(b"kept", "kept")
        assert cache.get(b"kept") == "kept"
        cache.put(bytes([number]), "x")
    assert cache.get(bytes([0])) is None
