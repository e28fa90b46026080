"""The clock of one partition: waits of its traces are measured in the time of its records, not in that of the reader."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

__all__ = ["RecordClock"]

_LONGEST_IDLE_S: Final = 0.5


class RecordClock:
    """Seconds, which never go back: the greatest record time, and from there on the time in which nothing arrived.

    A reader that is behind, was paused or begins again closes traces where the former reader closed them, however fast it reads.
    A partition at whose end nothing arrives must not keep its last traces open: there wall time counts. Of a long gap
    between two looks only half a second does, because a process that was stopped does not know what arrived meanwhile.

    Args:
        wall: Unix seconds. Record times beyond it are wrong and count as now.
    """

    def __init__(self, wall: Callable[[], float] = time.time) -> None:
        self._wall: Final = wall
        self._now_s = 0.0

    def record(self, time_s: float) -> float:
        """A record of this time was read; its time as far as it can be."""
        time_s = min(time_s, self._wall()) if time_s > 0 else self._now_s or self._wall()
        self._now_s = max(self._now_s, time_s)
        return time_s

    def idle(self, elapsed_s: float) -> None:
        """For so long nothing arrived although all that there was had been read."""
        if self._now_s:
            self._now_s = max(self._now_s, min(self._now_s + min(elapsed_s, _LONGEST_IDLE_S), self._wall()))

    def __call__(self) -> float:
        """The seconds; 0 before the first record."""
        return self._now_s
