"""The export queues of a receiver, and which traces have reports that are not delivered yet."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Collection, Sequence
from queue import SimpleQueue
from typing import Any, Final

from otel_eval.exporters.export_queue import ExportQueue, without_content
from otel_eval.exporters.jsonl import DeadLetterFile
from otel_eval.model import Report


class ExportQueues:
    """Puts each report into the queue of every exporter.

    Args:
        queues: one for each exporter.
        dead_letters: the file to which they write refused results; it is closed with them.
        is_stored: whether results that are queued at the end are on disk, to be exported after the
            next start.
    """

    def __init__(
        self,
        queues: Sequence[ExportQueue],
        dead_letters: DeadLetterFile | None = None,
        *,
        is_stored: bool = False,
    ) -> None:
        self._queues: Final = tuple(queues)
        self._dead_letters, self._is_stored = dead_letters, is_stored

    def start(self) -> None:
        """Begin to export."""
        for queue in self._queues:
            queue.start()

    def put(self, reports: Sequence[Report]) -> None:
        """Queue the reports."""
        light = [without_content(report) for report in reports]
        for queue in self._queues:
            queue.put([report for report in light if queue.accepts(report)])

    def requeue(self, unacknowledged: Sequence[tuple[Report, Collection[str]]]) -> None:
        """Queue reports of an earlier process, each for those exporters that have not acknowledged
        it.
        """
        for queue in self._queues:
            reports = [report for report, names in unacknowledged if queue.name in names]
            queue.exporter.requeued(reports)
            queue.put(reports)

    def revised(self, report: Report) -> None:
        """Called before `start` with a report of a revision above 0 from an earlier process,
        exported or not.
        """
        for queue in self._queues:
            queue.exporter.revised(report)

    def write_dead_letters(self, reports: Sequence[Report], exporter: str, reason: str) -> bool:
        """Write results to the dead-letter file instead of exporting them; False if that is not
        possible.
        """
        try:
            if self._dead_letters is not None:
                self._dead_letters.add(exporter, reports, reason)
        except (OSError, ValueError):
            # the disk is full, or the file is closed because the process ends
            return False
        return self._dead_letters is not None

    def expect_duplicates(self) -> None:
        """Called before `start` if results that were exported before may be queued again."""
        for queue in self._queues:
            queue.exporter.requeued(None)

    def backpressure(self) -> str:
        """Why evaluation should pause, or ""."""
        full = next((queue.name for queue in self._queues if queue.is_full), "")
        return f"the queue of results for {full} is full; retry later" if full else ""

    def flush(self, timeout_s: float) -> bool:
        """Export what is queued; False if something is left after `timeout_s` seconds."""
        deadline = time.monotonic() + timeout_s
        are_empty = [queue.drain(max(0.0, deadline - time.monotonic())) for queue in self._queues]
        return all(are_empty)

    def reopen(self) -> None:
        """Open files anew that were renamed or deleted, and log exports that do not return."""
        for queue in self._queues:
            queue.warn_if_stuck()
            queue.exporter.reopen()
        if self._dead_letters is not None:
            self._dead_letters.reopen()

    def stop(self) -> None:
        """Retry without long waits from now on: the process shuts down."""
        for queue in self._queues:
            queue.stop()

    def close(self, timeout_s: float) -> None:
        """Close the queues. What is left is counted and written to the dead-letter file, unless it
        is kept on disk.
        """
        deadline = time.monotonic() + timeout_s
        for queue in self._queues:
            queue.halt(max(0.0, deadline - time.monotonic()))
            if not self._is_stored:
                queue.discard_rest()
        if self._dead_letters is not None:
            self._dead_letters.close()

    def counts(self) -> dict[str, Any]:
        """The number of results in the queues, and 1 for each endpoint that does not support the
        signal, by exporter.
        """
        return {name: count for queue in self._queues for name, count in queue.counts().items()}


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
