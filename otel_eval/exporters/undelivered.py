"""Counts the reports of each trace that are not delivered yet, for sources that keep spans until their results are."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from typing import Final

from otel_eval.model import Report

__all__ = ["Undelivered"]

Trace = tuple[str, str]
"""The id of an evaluator and of a trace, in hexadecimal."""


class Undelivered:
    """Follows the reports of some evaluators from their making to their delivery. May be called from any thread.

    Counts are kept when a trace is evaluated a second time: it is delivered when all reports of both evaluations are.

    Args:
        evaluators: the ids of those that are followed; it may change.
        on_delivered: called with a trace whose last report was delivered.
    """

    def __init__(self, evaluators: Collection[str], on_delivered: Callable[[Trace], None]) -> None:
        self._evaluators: Final = evaluators
        self._on_delivered: Final = on_delivered
        self._lock = threading.Lock()  # guards _count
        self._count: Final[Counter[Trace]] = Counter()

    def made(self, report: Report, exporters: int) -> None:
        """A report is about to be queued for so many exporters; what is pending in it comes in reports of its own."""
        if report.stamp.evaluator in self._evaluators:
            self._add(_trace(report), exporters + len(report.pending) - report.late)

    def delivered(self, reports: Sequence[Report]) -> None:
        """One exporter exported these, or they were refused permanently."""
        for report in reports:
            if report.stamp.evaluator in self._evaluators:
                self._add(_trace(report), -1)

    def _add(self, trace: Trace, number: int) -> None:
        with self._lock:
            self._count[trace] += number
            if is_over := self._count[trace] <= 0:
                del self._count[trace]
        if is_over and number:
            self._on_delivered(trace)

    def waits(self, trace: Trace) -> bool:
        """Whether a report of the trace is not delivered."""
        with self._lock:
            return trace in self._count


def _trace(report: Report) -> Trace:
    return report.stamp.evaluator, report.trajectory.trace_id
