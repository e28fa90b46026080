"""A queue in front of an exporter, and the thread that exports what is in it, in order, with
retries and dead letters.

A report stays in the queue until it was exported or refused permanently, so reports of one trace
are exported in the order in which they were made. While the exporter fails, the queue fills. Only
results that the exporter defers are exported out of
order: they are retried by themselves, while the queue goes on.
"""

from __future__ import annotations

import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from math import inf
from typing import Any, Final

from otel_eval.counters import Counters, Outage, Warnings, in_each_child
from otel_eval.exporters import Exporter
from otel_eval.exporters.deferred import DeferredReports, parts_of, refusals_of, results_of
from otel_eval.exporters.jsonl import DeadLetterFile
from otel_eval.model import UNRECORDED, Report
from otel_eval.retry import (
    AcceptedBefore,
    Attempts,
    ExportResult,
    RetryPolicy,
    reason_of,
    suppress_instrumentation,
)
from otel_eval.scorers.tool_names import plural

Acknowledge = Callable[[str, Sequence[Report]], None]
"""Called with the exporter's name and the reports that were exported or refused permanently."""

_LINGER_S: Final = 0.05
_LINGER_IN_PROCESS_S: Final = 1.0  # results of several runs in one request, and soon after each run
_STUCK_S: Final = 30.0  # after which an export under way is logged
_MAX_RESULTS: Final = 8192  # in the queue of a process
_DELIVERY_SHARE: Final = 0.8  # of the timeout of `close`; the rest is for ending the thread
_DEFECTS: Final = (TypeError, ValueError, LookupError, AttributeError)
_DEFAULT: Final = RetryPolicy()
_LOST: Final = "lost; name exporters.dead_letter to keep such results"


class ExportQueue(Exporter):
    """Exports through another exporter, on a thread of its own.

    A receiver uses `put`, which accepts all reports, and checks `is_full` before it accepts more
    spans; what is queued at the end is kept in the receiver's storage (`halt`). A process uses
    `export`, which drops results if the queue is full, and `close`, which counts what was not
    exported. After a fork the child begins with an empty queue and a thread of its own; the parent
    exports what was queued before.

    Counts `results.exported`, `results.export_failed`, `results.retries`, `results.dead_letters`,
    `results.dropped` and `results.refused`, each by exporter, and `results.not_sent` by exporter
    and reason.

    Args:
        exporter: exports batches.
        max_reports: the number of reports in the queue at which `is_full` is true.
        max_results: the most results in the queue, for `export`.
        acknowledge: called with reports that were exported or refused permanently.
        dead_letters: the file for results that are refused permanently; None: they are counted and
            logged. `close` closes it.
        retry: how long to wait between attempts.
        before: the signals that endpoints accepted in earlier processes.
        linger_s: how long a report waits for others to be exported in one batch, in seconds.
        room_s: how long `export` waits while the queue is full before it drops results, in seconds;
            after a wait in vain it does not wait again until something was exported.
    """

    def __init__(
        self,
        exporter: Exporter,
        counters: Counters,
        *,
        max_reports: int = sys.maxsize,
        max_results: int = sys.maxsize,
        acknowledge: Acknowledge = lambda *_: None,
        dead_letters: DeadLetterFile | None = None,
        retry: RetryPolicy = _DEFAULT,
        before: AcceptedBefore | None = None,
        linger_s: float = _LINGER_S,
        room_s: float = 0.0,
    ) -> None:
        self.name: Final = exporter.name
        self.exporter: Final = exporter
        self._counters, self._acknowledge, self._dead = counters, acknowledge, dead_letters
        self._max_reports, self._max_results, self._linger_s, self._room_s = (
            max_reports,
            max_results,
            linger_s,
            room_s,
        )
        self._retry: Final = retry
        refusals = (
            "results are dropped"
            if dead_letters is None
            else "results are written to the dead-letter file"
        )
        self._attempts: Final = Attempts(
            self.name,
            retry,
            refusals,
            keeps=exporter.waits_for_access,
            key=exporter.accepted_key,
            before=before,
        )
        self._warnings: Final = Warnings()
        self._started = False
        self._begin()
        in_each_child(self, ExportQueue._begin)

    def _begin(self) -> None:
        """Begin with an empty queue, at the start and in a child process."""
        self._outage = Outage(self.name, self._counters)
        self._changed = threading.Condition()  # guards what follows
        self._queue: deque[Report] = deque()
        self._queued_at: deque[float] = deque()  # the monotonic time of each report in _queue
        # the monotonic time at which the export under way began; None: there is none
        self._exporting_since: float | None = None
        self._results = 0  # of the reports in the queue
        self._deferred = DeferredReports(self._retry)
        self._failures = 0  # attempts that failed, and refusals
        self._last_failure = ""
        self._hurry = self._closed = self._is_stuck = False
        self._stopping = threading.Event()
        self._thread = threading.Thread(
            target=self._run, name=f"otel-eval-{self.name}", daemon=True
        )
        if self._started:
            self.start()

    def start(self) -> None:
        """Begin to export."""
        self._started = True
        # no thread can be started: results are counted when the queue is full, and at the end
        with suppress(RuntimeError):
            self._thread.start()

    # ------------------------------------------------------------------ in

    def export(self, batch: Sequence[Report]) -> ExportResult:
        """Queue reports until the queue is full; further ones are dropped and counted as
        `results.refused`. For a process.
        """
        if self._closed:
            return ExportResult.permanent("closed")
        self.warn_if_stuck()
        for report in batch:
            count = len(report.results)
            with self._changed:
                has_space = self._has_space(count) or self._wait_for_space(count)
                if has_space and self.accepts(report):
                    self._add(without_content(report))
            if not has_space:
                self._counters.add("results.refused", count, exporter=self.name)
                self._warnings.say(
                    "full", "%d results were dropped: the queue of %s is full", count, self.name
                )
        return ExportResult("accepted")

    def accepts(self, report: Report) -> bool:
        """Whether the report is to be exported: it has results, or it is about a trace without any
        and such are exported.
        """
        return bool(report.results or (report.no_run and self.exporter.exports_no_run))

    def _has_space(self, count: int) -> bool:
        return self._results + count <= self._max_results

    def _wait_for_space(self, count: int) -> bool:
        if self._room_s and not self._is_stuck:
            self._hurry = True
            self._changed.notify_all()
            self._is_stuck = not self._changed.wait_for(
                lambda: self._has_space(count), self._room_s
            )
            self._hurry = self._stopping.is_set()
        return self._has_space(count)

    def put(self, reports: Sequence[Report]) -> None:
        """Queue reports, even if the queue is full: the caller checks `is_full` before they are
        made. Never blocks.
        """
        with self._changed:
            for report in reports:
                self._add(report)

    def _add(self, report: Report) -> None:
        report = self.exporter.prepared(report)
        self._queue.append(report)
        self._queued_at.append(time.monotonic())
        self._results += len(report.results)
        # Waking the thread for every report would cost more than exporting it.
        if len(self._queue) in (1, self.exporter.max_batch):
            self._changed.notify_all()

    def __len__(self) -> int:
        """The number of reports in the queue, with those that are being exported."""
        return len(self._queue)

    @property
    def is_full(self) -> bool:
        """Whether evaluation should pause (backpressure)."""
        return len(self._queue) >= self._max_reports

    # ----------------------------------------------------------------- out

    def _run(self) -> None:
        while not self._closed:
            with self._changed:
                due = self._deferred.due(self._hurry)[: self.exporter.max_batch]
            if due:
                self._deliver(due)
            # With many deferred reports some may always be due: they must not keep the queue from
            # going on.
            if (self._queue or not due) and (batch := self._next_batch()):
                self._deliver(batch)

    def _remove(self, reports: Sequence[Report]) -> None:
        """Remove from the queue those of the reports that are in it: they are its first ones, and
        in its order.
        """
        with self._changed:
            for report in reports:
                if self._queue and self._queue[0] is report:
                    self._results -= len(self._queue.popleft().results)
                    self._queued_at.popleft()
            self._is_stuck = False
            self._changed.notify_all()

    def _next_batch(self) -> list[Report]:
        """Wait for reports and return the oldest, which stay queued; [] if a deferred report is due
        or the queue is closed.
        """
        most = self.exporter.max_batch
        with self._changed:
            while not (self._queue or self._closed):
                left_s = self._deferred.due_in_s(self._hurry)
                if left_s <= 0:
                    return []
                self._changed.wait(left_s if left_s < inf else None)
            if not self._hurry and len(self._queue) < most:
                self._changed.wait_for(
                    lambda: self._hurry or self._closed or len(self._queue) >= most, self._linger_s
                )
            return (
                []
                if self._closed
                else [self._queue[at] for at in range(min(most, len(self._queue)))]
            )

    def _deliver(self, reports: Sequence[Report]) -> None:
        """Try until the reports were exported or refused permanently, or the queue is closed."""
        if self._attempts.unsupported and len(reports) > 1 and self._attempts.allowed:
            # one report is enough to see whether the endpoint supports the signal by now
            self._deliver(reports[:1])
            return self._deliver(reports[1:])
        backoff, result = self._attempts.backoff(self._stopping), ExportResult("retryable")
        while not self._closed:
            # accepted in part: only the dead letters could not be written
            if result.status != "ok":
                result = self._attempts.make(lambda: self._attempt(reports))
            # perhaps because of one of them
            if result.status == "permanent" and len(reports) > 1 and not result.concerns_all:
                half = len(reports) // 2
                self._deliver(reports[:half])
                return self._deliver(reports[half:])
            if result.status != "retryable" and self._finish_batch(result, reports):
                return None
            self._outage.began()
            self._record_failure(result.reason)
            self._counters.add("results.retries", exporter=self.name)
            if not self._stopping.is_set():
                queued = len(self._queue)
                self._warnings.say(
                    "later",
                    "export to %s failed (%s), %d queued, retrying",
                    self.name,
                    result.reason,
                    queued,
                )
            backoff.wait(result.after_s)
        return None

    def _attempt(self, reports: Sequence[Report]) -> ExportResult:
        try:
            # instrumentations of the host program must not trace our own requests
            with suppress_instrumentation(), self._under_way():
                return self.exporter.export(reports)
        except Exception as error:  # noqa: BLE001 - the thread must go on
            # closed files and channels raise ValueError
            is_defect = isinstance(error, _DEFECTS) and not self._closed
            return ExportResult("permanent" if is_defect else "retryable", reason_of(error))

    @contextmanager
    def _under_way(self) -> Iterator[None]:
        """A context in which an exporter or a file has the thread, which may not return."""
        self._exporting_since = time.monotonic()
        try:
            yield
        finally:
            self._exporting_since = None

    @property
    def exporting_s(self) -> float:
        """Seconds since the export under way began; 0 if there is none."""
        since = self._exporting_since
        return 0.0 if since is None else time.monotonic() - since

    def warn_if_stuck(self) -> None:
        """Log an export that has been under way for half a minute. To be called often."""
        if (exporting_s := self.exporting_s) >= _STUCK_S:
            self._warnings.say(
                "stuck",
                "export to %s has been under way for %.0f s (a lock, a disk or a server that does"
                " not respond), %d queued",
                self.name,
                exporting_s,
                len(self._queue),
            )

    def _record_failure(self, reason: str) -> None:
        with self._changed:
            self._failures, self._last_failure = self._failures + 1, reason
            self._changed.notify_all()

    def _finish_batch(self, result: ExportResult, reports: Sequence[Report]) -> bool:
        """Count and acknowledge the reports; False if what was refused could not be written to the
        dead-letter file.
        """
        count = results_of(reports)
        refused: list[tuple[str, Sequence[Report], int]] = [(result.reason, reports, count)]
        if result.status == "ok":
            refused = [
                (why, parts, results_of(parts)) for why, parts in refusals_of(result, reports)
            ]
            refused += (
                [(result.reason, reports, min(result.rejected, count))] if result.rejected else []
            )
        if not all(self._write_dead_letters(result, *each) for each in refused):
            return False
        number = sum([each[2] for each in refused])
        deferred = parts_of(reports, result.deferred)
        left = number + sum(result.not_sent.values()) + results_of(list(deferred.values()))
        if count > left:
            self._counters.add("results.exported", count - left, exporter=self.name)
        for reason, amount in result.not_sent.items():
            self._counters.add("results.not_sent", amount, exporter=self.name, reason=reason)
        if number:
            self._counters.add("results.export_failed", number, exporter=self.name)
            self._record_failure(refused[-1][0])
        with self._changed:
            finished = self._deferred.finish(reports, deferred)
        self._acknowledge(self.name, finished)
        self._remove(reports)
        if result.status == "ok":
            self._outage.ended(len(self._queue))
        if deferred:
            self._counters.add("results.retries", exporter=self.name)
            self._record_failure(result.reasons.get(result.deferred[0], result.reason))
        return True

    def _write_dead_letters(
        self, result: ExportResult, reason: str, reports: Sequence[Report], number: int
    ) -> bool:
        """Write refused results to the file, or the whole batch if only the number of refused ones
        is known; False on failure.
        """
        reason = reason or "partial success"
        if result.status != "unsupported":  # that is logged when it begins
            text = "%s were refused by %s permanently (%s); check its endpoint, headers and limits"
            self._warnings.say("refused", text, plural(number, "result"), self.name, reason)
        if self._dead is None:
            self._counters.add("results.dropped", number, exporter=self.name)
            return True
        try:
            with self._under_way():
                self._dead.add(
                    self.name, reports, reason, number if number < results_of(reports) else None
                )
        except (OSError, ValueError) as error:
            # the latter if the file was closed, because the process ends
            self._warnings.say(
                "dead", "the dead-letter file cannot be written (%s), retrying", reason_of(error)
            )
            return False
        self._counters.add("results.dead_letters", number, exporter=self.name)
        return True

    def counts(self) -> dict[str, float]:
        """The number of results in the queue, the age of the oldest and of the export under way in
        seconds, and 1 if the endpoint does not support the signal.
        """
        with self._changed:
            deferred = results_of(self._deferred.reports)
            since = min([*list(self._queued_at)[:1], self._deferred.since])
        now = time.monotonic()
        queued: dict[str, float] = {
            f"results.queued{{exporter={self.name}}}": self._results + deferred,
            f"results.oldest_s{{exporter={self.name}}}": round(max(0.0, now - since), 3),
            f"exports.running_s{{exporter={self.name}}}": round(self.exporting_s, 3),
        }
        unsupported = (
            {f"exports.unsupported{{exporter={self.name}}}": 1}
            if self._attempts.unsupported
            else {}
        )
        return {**queued, **unsupported, **self.exporter.counts()}

    # ----------------------------------------------------------------- end

    def drain(self, timeout_s: float) -> bool:
        """Export what is queued, with retries; False if something is left after `timeout_s`
        seconds.
        """
        with self._changed:
            self._hurry = True
            self._changed.notify_all()
            done = self._changed.wait_for(lambda: not (self._queue or self._deferred), timeout_s)
            self._hurry = self._stopping.is_set()
        return done

    def flush(self, timeout_s: float) -> bool:
        """Try to export what is queued at once; False if an attempt failed, a result was refused or
        time ran out.
        """
        with self._changed:
            failures, self._hurry = self._failures, True
            # set for an instant, it interrupts a wait between two attempts
            if not self._stopping.is_set():
                self._stopping.set()
                self._stopping.clear()
            self._changed.notify_all()
            self._changed.wait_for(
                lambda: not (self._queue or self._deferred) or self._failures > failures, timeout_s
            )
            self._hurry = self._stopping.is_set()
            return not (self._queue or self._deferred) and self._failures == failures

    def stop(self) -> None:
        """Retry without long waits from now on: the process shuts down."""
        with self._changed:
            self._hurry = True
            self._stopping.set()

    def halt(self, timeout_s: float) -> None:
        """Make no further attempt and close the exporter; what is queued stays in the queue."""
        self.stop()
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        if self._thread.ident is not None:
            self._thread.join(timeout_s)
        self.exporter.close(timeout_s)

    def close(self, timeout_s: float) -> None:
        """Export what is queued, with retries until the timeout, and close the exporter;
        `discard_rest` counts what is left.
        """
        self.stop()
        self.drain(timeout_s * _DELIVERY_SHARE)
        self.halt(timeout_s * (1 - _DELIVERY_SHARE) / 2)
        self.discard_rest()
        if self._dead is not None:
            self._dead.close()

    def discard_rest(self) -> None:
        """Count what is left after `halt`, and write it to the dead-letter file."""
        reports = [*self._deferred.reports, *self._queue]
        left = self._results + results_of(self._deferred.reports)
        self._results, self._deferred = 0, DeferredReports(self._retry)
        if not left:
            return
        reason = self._last_failure or "no time"
        what = plural(left, "result")
        outcome = _LOST if self._dead is None else "kept in the dead-letter file"
        self._warnings.say(
            "left",
            "%s did not deliver %s before the end (%s); %s",
            self.name,
            what,
            reason,
            outcome,
        )
        self._counters.add("results.export_failed", left, exporter=self.name)
        if self._dead is not None:
            with suppress(OSError):
                self._dead.add(self.name, reports, f"not delivered before the end ({reason})")
                self._counters.add("results.dead_letters", left, exporter=self.name)
                return
        self._counters.add("results.dropped", left, exporter=self.name)


def queue_of(
    exporter: Exporter,
    counters: Counters,
    dead_letters: DeadLetterFile | None,
    retry: RetryPolicy = _DEFAULT,
    room_s: float = 0.0,
) -> ExportQueue:
    """Create and start the queue of an exporter in a process. It never blocks the program unless
    `room_s` is given.

    Args:
        room_s: how long the program waits while the queue is full before results are dropped, in
            seconds.
    """
    limits: dict[str, Any] = {
        "max_results": _MAX_RESULTS,
        "linger_s": _LINGER_IN_PROCESS_S,
        "room_s": room_s,
    }
    queue = ExportQueue(exporter, counters, dead_letters=dead_letters, retry=retry, **limits)
    queue.start()
    return queue


def without_content(report: Report) -> Report:
    """Return the report without what no exporter sends: it may be queued for hours, and arguments
    and results may be large.
    """
    run = report.trajectory
    light = replace(run, calls=(), spans=(), input=UNRECORDED, output=UNRECORDED, attributes={})
    return replace(report, trajectory=light, call_count=len(run.calls))
