"""Wait for a condition instead of sleeping."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

# Seconds that a test waits for something that has to happen, however busy the machine is. It is no
# expectation of speed; only a failing test waits this long.
LIMIT_S: Final[float] = 300.0


class ShiftedClock:
    """Monotonic seconds that a test moves forward, instead of waiting that long."""

    def __init__(self) -> None:
        self._ahead_s = 0.0

    def __call__(self) -> float:
        return time.monotonic() + self._ahead_s

    def advance(self, seconds: float = 1000.0) -> None:
        """Let this time pass at once; by default all waits of `STAYS_OPEN` but `idle_timeout`."""
        self._ahead_s += seconds


def wait_until(
    condition: Callable[[], object], timeout_s: float = LIMIT_S, every_s: float = 0.01
) -> None:
    """Return as soon as the condition holds; fail if it does not in time."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(every_s)
