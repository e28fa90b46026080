"""Waits that take no time: an event loop whose clock jumps to what is due next, and an event."""

from __future__ import annotations

import asyncio
import selectors
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class RecordedWaits(threading.Event):
    """An event on which every wait ends at once.

    Attributes:
        durations_s: how long each wait would have been, in seconds.
    """

    def __init__(self) -> None:
        super().__init__()
        self.durations_s: list[float] = []

    def wait(self, timeout: float | None = None) -> bool:
        """Record the wait."""
        assert timeout is not None
        self.durations_s.append(timeout)
        return self.is_set()


class _JumpingSelector(selectors.DefaultSelector):
    """Advances a clock instead of waiting."""

    now_s = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """What is ready now; without a timeout nothing is due, and it waits as usual."""
        if timeout is None:
            return super().select()
        self.now_s += timeout
        return super().select(0)


class VirtualTime:
    """Runs coroutines whose sleeps and timeouts end at once, in their order.

    Attributes:
        now: the seconds that have passed on the clock of the coroutines.
    """

    def __init__(self) -> None:
        self._selector = _JumpingSelector()

    @property
    def now(self) -> float:
        """Seconds since the start."""
        return self._selector.now_s

    def monotonic(self) -> float:
        """The clock, to stand in for `time.monotonic`."""
        return self.now

    def advance(self, seconds: float) -> None:
        """Let time pass between two runs."""
        self._selector.now_s += seconds

    def run(self, main: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine to its end and return its result."""
        loop = _Loop(self._selector)
        try:
            return loop.run_until_complete(main)
        finally:
            now_s = self.now
            loop.close()
            self._selector = _JumpingSelector()
            self._selector.now_s = now_s


class _Loop(asyncio.SelectorEventLoop):
    def __init__(self, selector: _JumpingSelector) -> None:
        self._jumping = selector
        super().__init__(selector)

    def time(self) -> float:
        return self._jumping.now_s
