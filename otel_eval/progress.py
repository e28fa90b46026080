"""Whether the evaluation of traces makes progress, waits for something else, or hangs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal

__all__ = ["Progress", "ProgressState"]

_PATIENCE_S: Final = 60.0
_RECENT_S: Final = 600.0


@dataclass(frozen=True, slots=True)
class ProgressState:
    """How the evaluation stands.

    Attributes:
        state: `stalled` if work is due and nothing was finished for a minute; `paused` if evaluation waits for exporters or
            storage (backpressure).
        for_s: seconds since the current evaluation began, or since the last one ended or was not needed.
        why: what a stalled or paused evaluation waits for.
        trace_id: the trace that is evaluated now, in hexadecimal, or "".
        slowest_s, slowest_trace_id: seconds of the longest evaluation that ended in the last ten to twenty minutes, and its
            trace; 0 and "" if none did.
    """

    state: Literal["idle", "evaluating", "paused", "stalled"]
    for_s: float
    why: str = ""
    trace_id: str = ""
    slowest_s: float = 0.0
    slowest_trace_id: str = ""


class Progress:
    """Follows the thread that evaluates; read from any thread.

    Args:
        clock: monotonic seconds.

    Attributes:
        patience_s: how long an evaluation may take before it counts as stalled.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock: Final = clock
        self._moved_at: float | None = None  # None: evaluation has not begun
        self._trace_id: bytes | None = None
        self._paused = ""
        self._slowest: dict[int, tuple[float, bytes]] = {}  # by number of a period of ten minutes
        self.patience_s = _PATIENCE_S

    def began(self, trace_id: bytes) -> None:
        """The evaluation of a trace begins."""
        self._moved_at, self._trace_id, self._paused = self._clock(), trace_id, ""

    def moved(self, paused: str = "") -> None:
        """An evaluation ended, or none is due; `paused`: why none may begin."""
        if self._trace_id is not None:
            self._remember(self._for_s(), self._trace_id)
        self._moved_at, self._trace_id, self._paused = self._clock(), None, paused

    def _remember(self, took_s: float, trace_id: bytes) -> None:
        period = self._period()
        before = self._slowest.get(period - 1)
        now = max(self._slowest.get(period, (0.0, b"")), (took_s, trace_id), key=lambda each: each[0])
        self._slowest = {period: now} if before is None else {period - 1: before, period: now}  # replaced: others read it

    def _period(self) -> int:
        return int(self._clock() // _RECENT_S)

    def _longest(self) -> tuple[float, str]:
        """Seconds and trace of the longest evaluation in this period and the one before."""
        slowest, period = self._slowest, self._period()
        recent = [each for number, each in slowest.items() if number >= period - 1]
        took_s, trace_id = max(recent, key=lambda each: each[0], default=(0.0, b""))
        return took_s, trace_id.hex()

    @property
    def evaluating_s(self) -> float:
        """Seconds since the evaluation of the current trace began; 0 if none is evaluated."""
        return self._for_s() if self._trace_id is not None else 0.0

    def _for_s(self) -> float:
        return 0.0 if self._moved_at is None else max(0.0, self._clock() - self._moved_at)

    def state(self, paused: str, is_due: Callable[[], bool]) -> ProgressState:
        """How the evaluation stands.

        Args:
            paused: why the end of the last evaluation waits, or "".
            is_due: whether traces are due; asked only if nothing moved for long.
        """
        for_s, trace_id, paused = self._for_s(), self._trace_id, paused or self._paused
        shown = "" if trace_id is None else trace_id.hex()
        slowest = self._longest()
        if paused:
            return ProgressState("paused", for_s, paused, shown, *slowest)
        if for_s > self.patience_s and (trace_id is not None or is_due()):
            return ProgressState("stalled", for_s, f"evaluation has made no progress for {for_s:.0f} s", shown, *slowest)
        return ProgressState("evaluating" if shown else "idle", for_s, "", shown, *slowest)
