"""Which traces have reports that are not delivered yet."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Sequence
from queue import SimpleQueue
from typing import Final

from otel_eval.model import Report

Trace = tuple[str, str]
"""The ids of an evaluator and of a trace, in hexadecimal."""


class Undelivered:
    """Counts, by trace, the reports of some evaluators that are not delivered yet. May be called
    from any thread.

    The reports of a second evaluation of a trace are added: the trace is finished when those of
    both are delivered.

    Attributes:
        evaluators: the ids of the evaluators whose reports are counted.
        finished: the traces whose last report was delivered, for the thread that evaluates them.
        is_stopped: whether the evaluators have stopped: results that come later are not exported.
    """

    def __init__(self) -> None:
        self.evaluators: Final[set[str]] = set()
        self.finished: Final[SimpleQueue[Trace]] = SimpleQueue()
        self.is_stopped = False
        self._lock = threading.Lock()  # guards _count
        self._count: Final[Counter[Trace]] = Counter()

    def stop(self) -> None:
        """Note that the evaluators stop."""
        self.is_stopped = True

    def counts(self, report: Report) -> bool:
        """Whether the report is of one of the evaluators."""
        return report.stamp.evaluator in self.evaluators

    def count_queued(self, report: Report, exporters: int) -> None:
        """Count a report before it is queued for this number of exporters; each pending result will
        be a report of its own.
        """
        if self.counts(report):
            # A late report is one that was counted as pending before.
            self._add(_trace(report), exporters + len(report.pending) - report.late)

    def count_delivered(self, reports: Sequence[Report]) -> None:
        """Count reports that one exporter exported or refused permanently."""
        for report in reports:
            if self.counts(report):
                self._add(_trace(report), -1)

    def _add(self, trace: Trace, number: int) -> None:
        with self._lock:
            self._count[trace] += number
            if is_finished := self._count[trace] <= 0:
                del self._count[trace]
        if is_finished and number:
            self.finished.put(trace)

    def waits(self, trace: Trace) -> bool:
        """Whether a report of the trace is not delivered yet."""
        with self._lock:
            return trace in self._count


def _trace(report: Report) -> Trace:
    return report.stamp.evaluator, report.trajectory.trace_id
