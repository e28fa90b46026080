"""Exports every report to several exporters; the failure of one does not affect the others."""

from __future__ import annotations

import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Final

from otel_eval.counters import Counters, CountName, Warnings, in_each_child
from otel_eval.delivery.export_queue import ExportQueue, results_of, without_content
from otel_eval.exporters import Exporter
from otel_eval.exporters.jsonl import DeadLetterFile
from otel_eval.interfaces import RunSource, Scorer
from otel_eval.model import Completeness, Report, without_values
from otel_eval.retry import ExportResult, reason_of
from otel_eval.worker_thread import WorkerThread

_log = logging.getLogger("otel_eval")

_MAX_WAITING: Final = 10_000  # runs that wait; if there are more, the oldest count as final

Run = tuple[str, str]
"""Hexadecimal ids of a trace and of a run's own span."""


class FinalResults(Exporter):
    """Delays reports to an exporter that counts each run once: a run that may be inside another one
    waits until that is known.

    A run that turns out to be inside another one is never exported as an outermost one. Reports
    that wait when the exporter is closed, or when too many runs wait, are exported as they are.

    Args:
        exporter: exports the reports that are final.
        max_waiting: how many runs may wait.
    """

    def __init__(self, exporter: Exporter, max_waiting: int = _MAX_WAITING) -> None:
        self.name = exporter.name
        self._exporter: Final = exporter
        self._max_waiting = max_waiting
        # by run, then by evaluation
        self._waiting: OrderedDict[Run, dict[str, list[Report]]] = OrderedDict()

    def export(self, batch: Sequence[Report]) -> ExportResult:
        """Export the reports that are final; the others wait."""
        if final := [ready for report in batch for ready in self._ready(report)]:
            return self._exporter.export(final)
        return ExportResult("accepted")

    def _ready(self, report: Report) -> list[Report]:
        """Return the reports to export now because of this one: none, itself, or those that waited
        and itself.
        """
        run = report.trajectory.trace_id, report.trajectory.span_id
        reports_of_run = self._waiting.get(run, {})
        if (
            report.evaluation in reports_of_run
            and reports_of_run[report.evaluation][0].trajectory.outermost
            > report.trajectory.outermost
        ):
            del reports_of_run[report.evaluation]
            return [report]
        # A later revision waits only if the first one does: once that was exported, the run was
        # counted.
        is_first = report.revision == 0 and not report.late
        if report.trajectory.completeness is Completeness.DETACHED and (
            is_first or report.evaluation in reports_of_run
        ):
            self._waiting.setdefault(run, {}).setdefault(report.evaluation, []).append(
                without_values(report)
            )
            self._limit_waiting()
            return []
        return [*reports_of_run.pop(report.evaluation, ()), report]

    def final(self, runs: Iterable[Run]) -> None:
        """Export the reports of these runs: no run that encloses them can be found any more."""
        for run in runs:
            for reports in self._waiting.pop(run, {}).values():
                self._exporter.export(reports)

    def _limit_waiting(self) -> None:
        while len(self._waiting) > self._max_waiting:
            self.final([next(iter(self._waiting))])

    def expect(self, evaluation: str, scorers: Sequence[Scorer], source: RunSource) -> None:
        """Prepare the exporter for these results."""
        self._exporter.expect(evaluation, scorers, source)

    def counts(self) -> Mapping[CountName, float]:
        """The exporter's counts."""
        return self._exporter.counts()

    def flush(self, timeout_s: float) -> bool:
        """Flush the exporter; reports that are not final still wait."""
        return self._exporter.flush(timeout_s)

    def close(self, timeout_s: float) -> None:
        """Export the reports that wait, and close the exporter."""
        self.final(list(self._waiting))
        self._exporter.close(timeout_s)


class Exports:
    """Exports to several exporters, some of them behind queues, and isolates them from one another:
    each may fail, pause or hang by itself.

    Counts `results.exported` and `results.export_failed` by exporter, unless the exporter counts
    them itself, as a queue does; and `exports.unfinished`, exporters that did not end in time.

    Args:
        exporters: get every report in this order. An `ExportQueue` returns at once.
        dead_letters: the file to which queues write refused results; closed after them. That of the
            queues if left out.
        is_stored: whether results that are queued at the end are kept elsewhere, to be exported
            after the next start.
    """

    def __init__(
        self,
        exporters: Sequence[Exporter],
        counters: Counters | None = None,
        *,
        dead_letters: DeadLetterFile | None = None,
        is_stored: bool = False,
    ) -> None:
        self._exporters: Final = tuple(exporters)
        self._queues: Final = [
            exporter for exporter in exporters if isinstance(exporter, ExportQueue)
        ]
        files = (queue.dead_letters for queue in self._queues if queue.dead_letters is not None)
        self._dead_letters: Final = dead_letters or next(files, None)
        self._is_stored: Final = is_stored
        self._counters: Final = counters if counters is not None else Counters()
        self._warnings: Final = Warnings()
        # Exporters are flushed and closed on these threads, since neither the SDK nor an exporter
        # of a user keeps to a deadline.
        self._workers: Final = [
            WorkerThread("otel-eval-flush", "an exporter was not flushed") for _ in exporters
        ]
        self._since = time.monotonic()  # when the last export began
        self._closed = self._has_exported = False
        self._begin()
        in_each_child(self, Exports._begin)

    def _begin(self) -> None:
        """Begin without threads, at the start and in a child process, which has none of the
        parent's.
        """
        # held while exporting: late results come from a thread of their own
        self._lock = threading.Lock()
        # by exporter, results that were lost since the last log line about them
        self._unlogged: dict[str, int] = {}
        for worker in self._workers:
            worker.reset()

    def start(self) -> None:
        """Begin to send what is queued."""
        for queue in self._queues:
            queue.start()

    # ---------------------------------------------------------------------- in

    def export(self, reports: Sequence[Report]) -> None:
        """Export to every exporter. Never raises: the results that one fails to export are counted
        and logged.
        """
        light = [without_content(report) for report in reports] if self._queues else []
        with self._lock:
            self._since, self._has_exported = time.monotonic(), True
            for exporter, worker in zip(self._exporters, self._workers, strict=True):
                # from Python 3.12 on no thread can be started once the interpreter has begun to end
                worker.ensure()
                if isinstance(exporter, ExportQueue):
                    self._export(exporter, light)
                    continue
                # one by one: a report that cannot be exported must not affect the others
                for report in reports:
                    self._export(exporter, (report,))

    def _export(self, exporter: Exporter, batch: Sequence[Report]) -> None:
        try:
            result = exporter.export(batch)
        except Exception as error:  # noqa: BLE001
            # the failure of one exporter must not affect the others
            result = ExportResult.permanent("closed" if self._closed else reason_of(error))
        if result.status == "accepted":
            return
        count = results_of(batch)
        if result.status == "ok":
            self._counters.add("results.exported", count, exporter=exporter.name)
            return
        self._counters.add("results.export_failed", count, exporter=exporter.name)
        lost = self._unlogged.pop(exporter.name, 0) + count
        message = "export to %s failed (%s), %d results are lost"
        if not self._warnings.say(exporter.name, message, exporter.name, result.reason, lost):
            self._unlogged[exporter.name] = lost

    def final(self, runs: Sequence[tuple[str, str]]) -> None:
        """Export the results of these runs to exporters that count each run once: they are final.
        Never raises.
        """
        self._call_each(
            lambda exporter: exporter.final(runs) if isinstance(exporter, FinalResults) else None
        )

    def expect(self, evaluation: str, scorers: Sequence[Scorer], source: RunSource) -> None:
        """Prepare the exporters for results of these scorers. Never raises."""
        self._call_each(lambda exporter: exporter.expect(evaluation, scorers, source))

    def _call_each(self, call: Callable[[Exporter], None]) -> None:
        with self._lock:
            for exporter in self._exporters:
                self._attempt(exporter, "export to", partial(call, exporter))

    def _attempt(self, exporter: Exporter, act: str, call: Callable[[], object]) -> bool:
        """Make the call; False if it returns False or, after a warning, if it raises."""
        try:
            return call() is not False
        except Exception as error:  # noqa: BLE001
            # the failure of one exporter must not affect the others
            message = f"{act} %s failed (%s)"
            self._warnings.say(f"{act} {exporter.name}", message, exporter.name, reason_of(error))
            return False

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

    # --------------------------------------------------------- after a restart

    def requeue(self, unacknowledged: Sequence[tuple[Report, Collection[str]]]) -> None:
        """Queue reports of an earlier process, each for those exporters that have not acknowledged
        it.
        """
        for queue in self._queues:
            reports = [report for report, names in unacknowledged if queue.name in names]
            queue.exporter.requeued(reports)
            queue.export(reports)

    def revised(self, report: Report) -> None:
        """Called before `start` with a report of a revision above 0 from an earlier process,
        exported or not.
        """
        for queue in self._queues:
            queue.exporter.revised(report)

    def expect_duplicates(self) -> None:
        """Called before `start` if results that were exported before may be queued again."""
        for queue in self._queues:
            queue.exporter.requeued(None)

    # ------------------------------------------------------------------ gauges

    def backpressure(self) -> str:
        """Why evaluation should pause, or ""."""
        full = next((queue.name for queue in self._queues if queue.is_full), "")
        return f"the queue of results for {full} is full; retry later" if full else ""

    def blocked_s(self) -> float:
        """Seconds since the current export began; 0 if there is none."""
        return time.monotonic() - self._since if self._lock.locked() else 0.0

    def counts(self) -> dict[CountName, float]:
        """The counts of the exporters, such as results in their queues."""
        return {
            name: count for exporter in self._exporters for name, count in exporter.counts().items()
        }

    @property
    def failed(self) -> int:
        """The number of results that were not exported; final after `close`."""
        return self._counters.get("results.export_failed")

    def reopen(self) -> None:
        """Open files anew that were renamed or deleted, and log exports that do not return."""
        for queue in self._queues:
            queue.warn_if_stuck()
            queue.exporter.reopen()
        if self._dead_letters is not None:
            self._dead_letters.reopen()

    # --------------------------------------------------------------------- end

    def flush(self, timeout_s: float) -> bool:
        """Flush every exporter; False if one failed or took longer than `timeout_s` seconds."""
        are_flushed, _ = self._in_parallel(self._flush, timeout_s)
        return are_flushed

    def _flush(self, exporter: Exporter, timeout_s: float) -> bool:
        return self._attempt(exporter, "flush of", lambda: exporter.flush(timeout_s))

    def drain(self, timeout_s: float) -> bool:
        """Send what is queued, with retries; False if something is left after the timeout."""
        deadline = time.monotonic() + timeout_s
        are_empty = [queue.drain(max(0.0, deadline - time.monotonic())) for queue in self._queues]
        return all(are_empty)

    def close(self, timeout_s: float) -> bool:
        """Deliver what is queued and close every exporter; False if results are lost.

        An exporter that hangs is left at the deadline, with its daemon thread; that is counted and
        logged.
        """
        self._closed = True
        are_delivered, unfinished = self._in_parallel(self._close, timeout_s)
        for exporter in unfinished:
            self._counters.add("exports.unfinished", exporter=exporter.name)
            if isinstance(exporter, ExportQueue) and not self._is_stored:
                exporter.discard_rest()
            if self._has_exported:  # else metrics that are all 0
                message = "%s did not deliver its last results before the end"
                self._warnings.say(f"{exporter.name} left", message, exporter.name)
        for name, lost in list(self._unlogged.items()):
            _log.warning("%s: %d more results were lost", name, lost)
        if self._dead_letters is not None:
            self._dead_letters.close()
        for worker in self._workers:
            worker.end()
        return are_delivered

    def _close(self, exporter: Exporter, timeout_s: float) -> bool:
        """Close the exporter; False if results are lost."""
        if isinstance(exporter, ExportQueue):
            finish = partial(exporter.finish, timeout_s, is_stored=self._is_stored)
            return self._attempt(exporter, "close of", finish)
        deadline = time.monotonic() + timeout_s
        is_flushed = self._flush(exporter, timeout_s)
        left_s = max(0.0, deadline - time.monotonic())
        return self._attempt(exporter, "close of", lambda: exporter.close(left_s)) and is_flushed

    def _in_parallel(
        self, act: Callable[[Exporter, float], bool], timeout_s: float
    ) -> tuple[bool, list[Exporter]]:
        """Call `act` for each exporter on its thread; return whether it succeeded for all of them,
        and the exporters for which it did not return in time.
        """
        deadline = time.monotonic() + timeout_s
        succeeded: list[Exporter] = []

        def run(exporter: Exporter) -> None:
            if act(exporter, max(0.0, deadline - time.monotonic())):
                succeeded.append(exporter)

        for exporter, worker in zip(self._exporters, self._workers, strict=True):
            worker.put(partial(run, exporter))
            worker.ensure()
        unfinished = [
            exporter
            for exporter, worker in zip(self._exporters, self._workers, strict=True)
            if not worker.drain(max(0.0, deadline - time.monotonic()))
        ]
        return len(succeeded) == len(self._exporters), unfinished
