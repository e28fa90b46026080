"""Tool spans of a process that started without the context of the run that made the call."""

from __future__ import annotations

from collections import deque
from typing import Final

from otel_eval.counters import Warnings
from otel_eval.model import Trajectory

__all__ = ["LostContext"]

_REMEMBERED: Final = 256  # runs and tool spans whose times are compared


class LostContext:
    """Finds tool spans that are roots of their own traces although they started while a run was open.

    A thread that is started without the run's context begins a new trace. In a process such a trace holds a tool call at
    its top and nothing around it, and it lies within the time of the run that made the call.

    Attributes:
        spans: how many were found.
    """

    def __init__(self) -> None:
        self.spans = 0
        self._warnings: Final = Warnings()
        self._alone: deque[tuple[int, int]] = deque(maxlen=_REMEMBERED)  # start, number of calls
        self._runs: deque[tuple[int, int]] = deque(maxlen=_REMEMBERED)  # start, end

    def add(self, run: Trajectory) -> None:
        """A run was found. Called for one run at a time."""
        if run.start_ns is None or run.end_ns is None:
            return
        if any(call.span_id == run.span_id for call in run.calls):
            if any(first <= run.start_ns <= last for first, last in self._runs):
                self._report(len(run.calls))
            else:
                self._alone.append((run.start_ns, len(run.calls)))
            return
        self._runs.append((run.start_ns, run.end_ns))
        within = [each for each in self._alone if run.start_ns <= each[0] <= run.end_ns]
        if within:
            self._alone = deque([each for each in self._alone if each not in within], maxlen=_REMEMBERED)
            self._report(sum(calls for _, calls in within))

    def _report(self, spans: int) -> None:
        self.spans += spans
        self._warnings.say(
            "context",
            "context was lost: %d tool spans started in threads without the run's context and are missing from it; "
            "propagate it with opentelemetry-instrumentation-threading or contextvars.copy_context().run; %d so far",
            spans,
            self.spans,
        )
