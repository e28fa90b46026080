"""Wait for a condition instead of sleeping."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

# Seconds that a test waits for something that has to happen, however busy the machine is. It is no
# expectation of speed; only a failing test waits this long.
LIMIT_S: Final = 300.0

# Settings of `traces` with which no trace closes while a test runs, unless it moves the clock.
STAYS_OPEN: Final[dict[str, float]] = {
    "decision_wait": 900.0,
    "decision_wait_partial": 900.0,
    "idle_timeout": 3000.0,
}


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
    condition: Callable[[], object], limit_s: float = LIMIT_S, interval_s: float = 0.01
) -> None:
    """Return as soon as the condition holds; AssertionError after `limit_s` seconds."""
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline, f"not within {limit_s:g} s"
        time.sleep(interval_s)
