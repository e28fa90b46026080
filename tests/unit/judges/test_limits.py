"""How often a judge is asked: in a budget, again after trouble, and not twice the same."""

from __future__ import annotations

import asyncio
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_eval.judges.cache import Cache
from otel_eval.judges.limits import Again, Limits
from otel_eval.scorers.judging import JudgeError


class Attempts:
    """Fails so often, then answers; keeps when it was made."""

    def __init__(self, failures: int = 0, after_s: float | None = None) -> None:
        self.times: list[float] = []
        self._failures, self._after_s = failures, after_s

    async def __call__(self) -> str:
        self.times.append(time.monotonic())
        if len(self.times) <= self._failures:
            raise Again("judge_unavailable", "not yet", self._after_s)
        return "yes"


def test_no_window_has_more_attempts_than_the_budget():
    """Whatever was asked at once; the budget is used up, though."""
    limits, attempts = Limits(per_minute=4, window_s=0.5), Attempts()

    async def ask() -> None:
        await asyncio.gather(*[limits.repeat(attempts) for _ in range(12)])

    began = time.monotonic()
    asyncio.run(ask())
    times = attempts.times
    assert len([at for at in times if at - began < 0.3]) == 4
    assert all(later - earlier >= 0.4 for earlier, later in zip(times, times[4:], strict=False))
    assert time.monotonic() - began < 2.0


def test_a_repetition_counts_against_the_budget():
    """Every attempt is paid for."""
    limits, attempts = Limits(per_minute=2, retries=3, window_s=0.4, first_s=0.001), Attempts(failures=2)
    began = time.monotonic()
    asyncio.run(limits.repeat(attempts))
    assert (len(attempts.times), attempts.times[2] - began >= 0.35) == (3, True)


def test_waits_grow_and_end():
    """Each is up to twice the one before."""
    limits, attempts = Limits(retries=4, first_s=0.02), Attempts(failures=9)
    with pytest.raises(JudgeError, match="not yet"):
        asyncio.run(limits.repeat(attempts))
    gaps = [later - earlier for earlier, later in zip(attempts.times, attempts.times[1:], strict=False)]
    assert len(attempts.times) == 5
    assert all(gap >= 0.01 * 2**number for number, gap in enumerate(gaps))


def test_what_is_no_trouble_that_passes_is_not_repeated():
    """A refusal stays one."""
    times: list[float] = []

    async def refused() -> str:
        times.append(0.0)
        raise JudgeError("judge_refused")

    with pytest.raises(JudgeError):
        asyncio.run(Limits(retries=5).repeat(refused))
    assert len(times) == 1


@given(st.integers(0, 9), st.lists(st.integers(0, 20)))
def test_a_cache_never_holds_more_than_it_may_and_never_another_answer(size: int, keys: list[int]):
    """And always what was put last, if it holds anything."""
    cache = Cache(size)
    for key in keys:
        found = cache.get(bytes([key]))
        assert found in (None, str(key))
        cache.put(bytes([key]), str(key))
        assert cache.get(bytes([key])) == (str(key) if size else None)
    held = [key for key in range(21) if cache.get(bytes([key])) is not None]
    assert len(held) <= size + size % 2


def test_what_is_looked_up_stays():
    """The other half makes room."""
    cache = Cache(4)
    for number in range(20):
        cache.put(b"kept", "kept")
        assert cache.get(b"kept") == "kept"
        cache.put(bytes([number]), "x")
    assert cache.get(bytes([0])) is None
