"""How often a judge may be asked, and how often again after a retryable error.

Everything that asks one judge shares its limits. There is no lock: two threads that ask at the very same moment may at worst
make one attempt too many.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from otel_eval.scorers.judge import JudgeError

__all__ = ["RateLimiter", "RetryableJudgeError"]

T = TypeVar("T")

_FIRST_S: Final = 0.5
_LONGEST_S: Final = 60.0
_LONGEST_PAUSE_S: Final = 3600.0  # then it is tried once more: some endpoints send the time of day
_CHANCE: Final = random.SystemRandom()  # the program's own random numbers stay as they are


class RetryableJudgeError(JudgeError):
    """There was no answer, but there may be one later.

    Attributes:
        after_s: how many seconds later, if the judge said so.
    """

    def __init__(self, kind: str, message: str, after_s: float | None = None, status: int | None = None) -> None:
        super().__init__(kind, message, status)
        self.after_s = after_s


class RateLimiter:
    """A budget of attempts, and their repetition.

    Args:
        per_minute: attempts in any `window_s` seconds, or None for any number.
        retries: attempts after the first one.
        first_s: the wait before the first of them, doubled each time, where the judge does not say how long.
    """

    def __init__(
        self, per_minute: int | None = None, retries: int = 2, *, window_s: float = 60.0, first_s: float = _FIRST_S
    ) -> None:
        self._retries, self._window_s, self._first_s = retries, window_s, first_s
        self._begun: Final[deque[float] | None] = deque(maxlen=per_minute) if per_minute else None
        self._paused_until = 0.0  # from `Retry-After`

    async def repeat(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """What an attempt returns.

        Raises:
            JudgeError: no attempt gave an answer; that of the last one.
        """
        for number in range(self._retries + 1):
            await self._turn()
            try:
                return await attempt()
            except RetryableJudgeError as again:
                wait_s = again.after_s if again.after_s is not None else self._backoff(number)
                if again.after_s is not None:
                    self._paused_until = max(self._paused_until, time.monotonic() + min(again.after_s, _LONGEST_PAUSE_S))
                if number == self._retries or wait_s > _LONGEST_S:
                    raise
                await asyncio.sleep(wait_s)
        raise AssertionError("unreachable")

    def _backoff(self, number: int) -> float:
        longest = min(self._first_s * 2.0**number, _LONGEST_S)
        return float(_CHANCE.uniform(longest / 2, longest))

    async def _turn(self) -> None:
        """Wait until the judge may be asked. A cancelled wait takes nothing from the budget."""
        while (wait_s := self._to_wait()) > 0:
            await asyncio.sleep(wait_s)
        if self._begun is not None:
            self._begun.append(time.monotonic())

    def _to_wait(self) -> float:
        now = time.monotonic()
        pause_s = self._paused_until - now
        if pause_s > _LONGEST_S:
            raise JudgeError("judge_rate_limited", "the judge asked for a longer pause than is waited for")
        if self._begun is None or len(self._begun) < (self._begun.maxlen or 0):
            return pause_s
        return max(pause_s, self._begun[0] + self._window_s - now)
