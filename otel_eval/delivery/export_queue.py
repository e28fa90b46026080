"""The queue of an exporter of results: dead letters, acknowledgements and parts of reports.

A report stays in the queue until it was exported or refused permanently, so reports of one trace
are exported in the order in which they were made. Only results that the exporter defers, and those
of a signal that the endpoint does not support, are exported out of order.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Final

from otel_eval.counters import Counters, CountName, count_name
from otel_eval.delivery.queue import DeliveryQueue, Entry
from otel_eval.exporters import Exporter
from otel_eval.exporters.jsonl import DeadLetterFile
from otel_eval.model import UNRECORDED, Report
from otel_eval.records import changed
from otel_eval.retry import Attempts, ExportResult, Place, RetryPolicy, reason_of
from otel_eval.scorers.tool_names import plural

Acknowledge = Callable[[str, Sequence[Report]], None]
"""Called with the exporter's name and the reports that were exported or refused permanently."""

_LINGER_S: Final = 0.05
_LINGER_IN_PROCESS_S: Final = 1.0  # results of several runs in one request, and soon after each run
_MAX_RESULTS: Final = 8192  # in the queue of a process
_DELIVERY_SHARE: Final = 0.8  # of the timeout of `close`; the rest is for ending the thread
STORED_S: Final = 3.0
"""For delivery before the end if undelivered results are on disk."""
_DEFAULT: Final = RetryPolicy()
_LOST: Final = "lost; name exporters.dead_letter to keep such results"


class ExportQueue(DeliveryQueue[Report], Exporter):
    """Exports through another exporter, on a thread of its own.

    In a process results are dropped if the queue is full. A receiver, where it has no limit, checks
    `is_full` before it accepts more spans.

    Counts `results.exported`, `results.export_failed`, `results.retries`, `results.dead_letters`,
    `results.dropped`, `results.given_up` and `results.refused`, each by exporter, and
    `results.not_sent` by exporter and reason.

    Args:
        exporter: exports batches.
        max_reports: the number of reports in the queue at which `is_full` is true, and the most
            that are parked.
        max_results: the most results in the queue, and the most that are parked.
        acknowledge: called with reports that were exported or refused permanently.
        dead_letters: the file for results that are refused permanently; None: they are counted and
            logged.
        retry: how long to wait between attempts.
        linger_s: how long a report waits for others to be exported in one batch, in seconds.
        room_s: how long `export` waits while the queue is full before it drops results, in seconds;
            after a wait in vain it does not wait again until something was exported.
    """

    family = "results"

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
        linger_s: float = _LINGER_S,
        room_s: float = 0.0,
    ) -> None:
        self.exporter: Final = exporter
        self._acknowledge: Final = acknowledge
        self.dead_letters: Final = dead_letters
        self._max_reports, self._max_results = max_reports, max_results
        self._linger_s, self._room_s = linger_s, room_s
        self._had_no_room = False
        outcome = "dropped" if dead_letters is None else "written to the dead-letter file"
        fate = f"results wait for {retry.give_up_s:g} s, then they are {outcome}"
        super().__init__(
            exporter.name,
            Attempts(exporter.name, retry, fate, waits_for_access=exporter.waits_for_access),
            counters,
            retry=retry,
            labels={"exporter": exporter.name},
            max_parked=max_reports,
            max_parked_size=max_results,
        )

    # ------------------------------------------------------------------ in

    def export(self, batch: Sequence[Report]) -> ExportResult:
        """Queue reports until the queue is full; the results of further ones are dropped and
        counted as `results.refused`.
        """
        if self._closed:
            return ExportResult.permanent("closed")
        self.warn_if_stuck()
        refused = 0
        with self._lock:
            for report in filter(self.accepts, batch):
                prepared = self.exporter.prepared(report)
                count = len(prepared.results)
                if self._has_room(count) or self._wait_for_room(count):
                    self._add(prepared, count)
                else:
                    refused += count
        if refused:
            self._count("refused", refused)
            self._warnings.say(
                "full", "%d results were dropped: the queue of %s is full", refused, self.name
            )
        return ExportResult("accepted")

    def accepts(self, report: Report) -> bool:
        """Whether the report is to be exported."""
        return self.exporter.accepts(report)

    def _has_room(self, count: int) -> bool:
        return self._size + count <= self._max_results

    def _wait_for_room(self, count: int) -> bool:
        if self._room_s and not self._had_no_room:
            self._hurry_until(lambda: self._has_room(count), self._room_s)
            self._had_no_room = not self._has_room(count)
        return self._has_room(count)

    @property
    def is_full(self) -> bool:
        """Whether evaluation should pause (backpressure)."""
        return len(self) >= self._max_reports

    # ----------------------------------------------------------------- out

    def _send(self, items: Sequence[Report]) -> ExportResult:
        return self.exporter.export(items)

    def _due_in_s(self) -> float:
        if self._hurry or len(self._queue) >= self.exporter.max_batch:
            return 0.0
        return self._queue[0].queued_at + self._linger_s - time.monotonic()

    def _batch_length(self) -> int:
        return min(len(self._queue), self.exporter.max_batch)

    @property
    def _max_batch(self) -> int:
        return self.exporter.max_batch

    def _settle(self, result: ExportResult, entries: Sequence[Entry[Report]]) -> bool:
        """Write refused reports to the dead-letter file, count and acknowledge; False if they could
        not be written.
        """
        reports = [entry.item for entry in entries]
        count = results_of(reports)
        refusals: list[tuple[str, Sequence[Report], int]] = [(result.reason, reports, count)]
        if result.status == "ok":
            refusals = [
                (reason, parts, results_of(parts)) for reason, parts in refusals_of(result, reports)
            ]
            if result.rejected:
                refusals.append((result.reason, reports, min(result.rejected, count)))
        if not all(self._write_dead_letters(result, *refusal) for refusal in refusals):
            return False
        refused = sum([number for _, _, number in refusals])
        deferred = parts_of(reports, result.deferred)
        unexported = refused + sum(result.not_sent.values()) + results_of(list(deferred.values()))
        if count > unexported:
            self._count("exported", count - unexported)
        for reason, amount in result.not_sent.items():
            self._counters.add("results.not_sent", amount, exporter=self.name, reason=reason)
        if refused:
            self._count("export_failed", refused)
            self._record_failure(refusals[-1][0])
        if result.status == "unsupported":
            self._count("given_up", refused)
        for index, part in deferred.items():
            self._defer(entries[index], part, len(part.results))
        if deferred:
            self._count("retries")
            self._record_failure(result.reasons.get(result.deferred[0], result.reason))
        self._acknowledge(
            self.name,
            [entry.original for index, entry in enumerate(entries) if index not in deferred],
        )
        self._had_no_room = False
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
        if self.dead_letters is None:
            self._count("dropped", number)
            return True
        try:
            with self._busy():
                self.dead_letters.add(
                    self.name, reports, reason, number if number < results_of(reports) else None
                )
        except (OSError, ValueError) as error:
            # the latter if the file was closed, because the process ends
            self._warnings.say(
                "dead", "the dead-letter file cannot be written (%s), retrying", reason_of(error)
            )
            return False
        self._count("dead_letters", number)
        return True

    def counts(self) -> dict[CountName, float]:
        """The number of results that are queued or wait, and the gauges of every queue."""
        with self._lock:
            parked_sizes = [entry.size for entry in (*self._deferred, *self._parked)]
            queued = self._size + sum(parked_sizes)
        key = count_name("results.queued", **self._labels)
        return {key: queued, **super().counts(), **self.exporter.counts()}

    # ----------------------------------------------------------------- end

    def flush(self, timeout_s: float) -> bool:
        """Try to export what is queued at once, and flush the exporter; False if an attempt failed,
        a result was refused or waits, or time ran out.
        """
        deadline = time.monotonic() + timeout_s
        is_exported = super().flush(timeout_s)
        return self.exporter.flush(max(0.0, deadline - time.monotonic())) and is_exported

    def close(self, timeout_s: float) -> None:
        """Export what is queued, with retries until the timeout, count what is left and write it to
        the dead-letter file, and close the exporter and that file.
        """
        self.finish(timeout_s)
        if self.dead_letters is not None:
            self.dead_letters.close()

    def finish(self, timeout_s: float, *, is_stored: bool = False) -> bool:
        """As `close`, but leave the dead-letter file open for other queues; False if results are
        lost. With `is_stored` what is left is kept elsewhere and waited for no longer than 3 s.
        """
        self.stop()
        delivery_s = timeout_s * _DELIVERY_SHARE
        is_empty = self.drain(min(delivery_s, STORED_S) if is_stored else delivery_s)
        self._end_threads(timeout_s * (1 - _DELIVERY_SHARE) / 2)
        # before the exporter is closed, which may not return
        if not is_stored:
            self.discard_rest()
        self.exporter.close(timeout_s * (1 - _DELIVERY_SHARE) / 2)
        return is_empty or is_stored

    def discard_rest(self) -> None:
        """Make no further attempt, count what is left, and write it to the dead-letter file."""
        self._end_threads(0.0)
        entries, reason = self._pop_rest()
        reports = [entry.item for entry in entries]
        undelivered = results_of(reports)
        if not undelivered:
            return
        self._warnings.say(
            "left",
            "%s did not deliver %s before the end (%s); %s",
            self.name,
            plural(undelivered, "result"),
            reason,
            _LOST if self.dead_letters is None else "kept in the dead-letter file",
        )
        self._count("export_failed", undelivered)
        if self.dead_letters is not None:
            with suppress(OSError, ValueError):  # the latter if it was closed
                self.dead_letters.add(
                    self.name, reports, f"not delivered before the end ({reason})"
                )
                self._count("dead_letters", undelivered)
                return
        self._count("dropped", undelivered)


def start_queue(
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
    queue = ExportQueue(
        exporter,
        counters,
        max_results=_MAX_RESULTS,
        dead_letters=dead_letters,
        retry=retry,
        linger_s=_LINGER_IN_PROCESS_S,
        room_s=room_s,
    )
    queue.start()
    return queue


def without_content(report: Report) -> Report:
    """Return the report without what no exporter sends: it may be queued for hours, and arguments
    and results may be large.
    """
    run = report.trajectory
    light = changed(run, calls=(), spans=(), input=UNRECORDED, output=UNRECORDED, attributes={})
    return changed(report, trajectory=light, call_count=len(run.calls))


def results_of(reports: Sequence[Report]) -> int:
    """The number of results in the reports."""
    return sum([len(report.results) for report in reports])


def refusals_of(
    result: ExportResult, reports: Sequence[Report]
) -> list[tuple[str, Sequence[Report]]]:
    """The reports of an accepted batch that were refused, grouped by reason."""
    by_reason: dict[str, list[Place]] = {}
    for place in result.failed:
        by_reason.setdefault(result.reasons.get(place, result.reason), []).append(place)
    return [
        (reason, list(parts_of(reports, places).values())) for reason, places in by_reason.items()
    ]


def parts_of(reports: Sequence[Report], places: Sequence[Place]) -> dict[int, Report]:
    """The reports at these places, by index in the batch; only with the results at these places if
    results are named.
    """
    results: dict[int, set[int]] = {}
    for place in places:
        if isinstance(place, int):
            results.setdefault(place, set()).update(range(len(reports[place].results)))
        else:
            results.setdefault(place[0], set()).add(place[1])
    return {index: _with_results(reports[index], some) for index, some in sorted(results.items())}


def _with_results(report: Report, indices: Collection[int]) -> Report:
    if len(indices) == len(report.results):
        return report
    return replace(report, results=tuple([report.results[index] for index in sorted(indices)]))
