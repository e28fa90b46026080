"""Exports every report to several exporters; the failure of one does not affect the others."""

from __future__ import annotations

import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Final, Literal

from otel_eval.counters import Counters, Warnings, in_each_child
from otel_eval.exporters import Exporter
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
        waiting = self._waiting.get(run, {})
        if (
            report.evaluation in waiting
            and waiting[report.evaluation][0].trajectory.outermost > report.trajectory.outermost
        ):
            del waiting[report.evaluation]
            return [report]
        # A later revision waits only if the first one does: once that was exported, the run was
        # counted.
        is_first = report.revision == 0 and not report.late
        if report.trajectory.completeness is Completeness.DETACHED and (
            is_first or report.evaluation in waiting
        ):
            self._waiting.setdefault(run, {}).setdefault(report.evaluation, []).append(
                without_values(report)
            )
            self._limit_waiting()
            return []
        return [*waiting.pop(report.evaluation, ()), report]

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

    def counts(self) -> Mapping[str, float]:
        """The exporter's counts."""
        return self._exporter.counts()

    def flush(self, timeout_s: float) -> bool:
        """Flush the exporter; reports that are not final still wait."""
        return self._exporter.flush(timeout_s)

    def close(self, timeout_s: float) -> None:
        """Export the reports that wait, and close the exporter."""
        self.final(list(self._waiting))
        self._exporter.close(timeout_s)


class Fanout:
    """Exports to all exporters in turn; flushes and closes them in parallel within one deadline.

    Counts `results.exported` and `results.export_failed` by exporter, unless the exporter counts
    them itself.
    """

    def __init__(self, exporters: Sequence[Exporter], counters: Counters | None = None) -> None:
        self._exporters: Final = tuple(exporters)
        self._counters: Final = counters if counters is not None else Counters()
        self._warnings: Final = Warnings()
        # Exporters are flushed and closed on these threads, since flushes of the SDK do not keep to
        # a deadline.
        self._workers: Final = [
            WorkerThread("otel-eval-flush", "an exporter was not flushed") for _ in self._exporters
        ]
        self._since = time.monotonic()  # when the last export began
        self._closed = self._has_exported = False
        self._begin()
        in_each_child(self, Fanout._begin)

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

    def export(self, reports: Sequence[Report]) -> None:
        """Export to every exporter. Never raises: the results that one fails to export are counted
        and logged.
        """
        with self._lock:
            self._since, self._has_exported = time.monotonic(), True
            for worker in self._workers:
                # from Python 3.12 on no thread can be started once the interpreter has begun to end
                worker.ensure()
            # one by one: a report that cannot be exported must not affect the others
            for report in reports:
                for exporter in self._exporters:
                    self._export(exporter, report)

    def _export(self, exporter: Exporter, report: Report) -> None:
        try:
            result = exporter.export((report,))
        except Exception as error:  # noqa: BLE001 - the failure of one exporter must not affect the others
            result = ExportResult.permanent("closed" if self._closed else reason_of(error))
        if result.status == "ok":
            self._counters.add("results.exported", len(report.results), exporter=exporter.name)
        elif result.status != "accepted":
            self._counters.add("results.export_failed", len(report.results), exporter=exporter.name)
            lost = self._unlogged.pop(exporter.name, 0) + len(report.results)
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
                try:
                    call(exporter)
                except Exception as error:  # noqa: BLE001 - the failure of one exporter must not affect the others
                    self._warnings.say(
                        exporter.name, "export to %s failed (%s)", exporter.name, reason_of(error)
                    )

    def blocked_s(self) -> float:
        """Seconds since the current export began; 0 if there is none."""
        return time.monotonic() - self._since if self._lock.locked() else 0.0

    def counts(self) -> dict[str, float]:
        """The counts of the exporters, such as results in their queues."""
        return {
            name: count for exporter in self._exporters for name, count in exporter.counts().items()
        }

    @property
    def failed(self) -> int:
        """The number of results that were not exported; final after `close`."""
        return self._counters.get("results.export_failed")

    def flush(self, timeout_s: float) -> bool:
        """Flush every exporter; False if one failed or took longer than `timeout_s` seconds."""
        is_flushed, _ = self._in_parallel("flush", timeout_s)
        return is_flushed

    def close(self, timeout_s: float) -> None:
        """Close every exporter; one that hangs is left at the deadline, and logged."""
        self._closed = True
        _, unfinished = self._in_parallel("close", timeout_s)
        for exporter in unfinished if self._has_exported else ():  # else metrics that are all 0
            queued = exporter.counts().get(f"results.queued{{exporter={exporter.name}}}", 0)
            what = f"{queued:g} results" if queued else "its last results"
            self._warnings.say(
                f"{exporter.name} left", "%s did not deliver %s before the end", exporter.name, what
            )
        for name, lost in list(self._unlogged.items()):
            _log.warning("%s: %d more results were lost", name, lost)
        for worker in self._workers:
            worker.end()

    def _in_parallel(
        self, act: Literal["flush", "close"], timeout_s: float
    ) -> tuple[bool, list[Exporter]]:
        """Flush or close each exporter on its thread; return whether all succeeded, and those that
        did not finish in time.
        """
        deadline = time.monotonic() + timeout_s
        succeeded = [False] * len(self._exporters)

        def run(index: int) -> None:
            exporter = self._exporters[index]
            method = exporter.flush if act == "flush" else exporter.close
            try:
                succeeded[index] = method(max(0.0, deadline - time.monotonic())) is not False
            except Exception as error:  # noqa: BLE001 - the failure of one exporter must not affect the others
                self._warnings.say(
                    exporter.name, "%s of %s failed (%s)", act, exporter.name, reason_of(error)
                )

        for index, worker in enumerate(self._workers):
            worker.put(partial(run, index))
            worker.ensure()
        unfinished = [
            exporter
            for exporter, worker in zip(self._exporters, self._workers, strict=True)
            if not worker.drain(max(0.0, deadline - time.monotonic()))
        ]
        return all(succeeded), unfinished
