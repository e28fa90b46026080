"""Recovery after a restart: restores the trace buffer from the journal, and requests pending
asynchronous results again.

Records are replayed in their order, so that the buffer gets its former state; delivered results are
not exported again. The waits of open traces start again, because further spans may have been
waiting for this process.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Collection, Iterable, Iterator, Sequence, Set
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Final, Protocol

from otel_eval.assembly import Closing, TraceBuffer
from otel_eval.engine import Engine
from otel_eval.errors import InputError, StartCancelled
from otel_eval.interfaces import MOST_CRASHES, ClosedTrace
from otel_eval.model import Failed, Report, Stamp, Verdict, verdict_of, worst
from otel_eval.otlp.protobuf import UNLIMITED, RawRequest, SpanBatch, read_request, read_traces
from otel_eval.storage import record_types
from otel_eval.storage.durable import Durable
from otel_eval.storage.in_progress import REASON, DeadLetters
from otel_eval.storage.journal import JournalRecord, Segment
from otel_eval.storage.record_types import EvaluatedTrace, RecordKind, is_forwarded, request_of

if TYPE_CHECKING:
    from otel_eval.judges import AsyncEvaluator

_log = logging.getLogger("otel_eval")


class ForwardingRecords(Protocol):
    """Collects the records of requests that have to be forwarded
    (`forwarding.relay.ForwardingRecovery`).
    """

    def add_request(
        self, entry: JournalRecord, origin: RawRequest, batch: SpanBatch, *, is_held: bool = False
    ) -> None:
        """Process a request that has to be forwarded, or (`is_held`) a request with the held spans
        of one trace.
        """

    def add_results(self, evaluated: EvaluatedTrace) -> None:
        """Process the results of a trace."""

    def note_forwarded(self, payload: bytes) -> None:
        """Process the payload of a FORWARDED record."""

    def take_over(self, undecided: Set[bytes]) -> None:
        """Forward the requests that were not forwarded completely; `undecided`: the traces that are
        still to be evaluated.
        """


class RecoveredResults(Protocol):
    """Gets the results of earlier processes (`delivery.exports.Exports`)."""

    def requeue(self, unacknowledged: Sequence[tuple[Report, Collection[str]]]) -> None:
        """Export reports, oldest first, each by the exporters with these names."""

    def revised(self, report: Report) -> None:
        """There is a report of a revision above 0, delivered or not."""

    def expect_duplicates(self) -> None:
        """Results that were exported before may be exported again."""


_RunKey = tuple[str, str, str, int]


def _run_key(report: Report) -> _RunKey:
    """Trace, run, evaluation and revision: what results with one verdict share."""
    run = report.trajectory
    return run.trace_id, run.span_id, report.evaluation, report.revision


@dataclass(slots=True, eq=False)
class Recovery:
    """Fills a buffer from a journal; see `Pipeline.recover`.

    Args:
        durable: holds the journal.
        results: gets the undelivered reports.
        max_attributes: spans with more attributes were rejected when they were received, and are
            skipped again.
        forwarding: collects requests that have to be forwarded; None without forwarding.
    """

    durable: Durable
    results: RecoveredResults
    max_attributes: int = UNLIMITED
    forwarding: ForwardingRecords | None = None
    _unreadable: int = field(default=0, init=False)  # number of requests
    # Closed traces that are not evaluated yet, each with a copy that keeps its last evaluations as
    # they were before.
    _closed: dict[bytes, list[tuple[ClosedTrace, ClosedTrace]]] = field(
        default_factory=dict, init=False
    )
    # result id of a pending result → that copy
    _pending: dict[str, ClosedTrace] = field(default_factory=dict, init=False)
    # the verdicts so far of runs with pending results
    _standings: dict[_RunKey, Verdict] = field(default_factory=dict, init=False)
    # undelivered reports by key
    _reports: dict[bytes, Report] = field(default_factory=dict, init=False)

    def replay(self, buffer: TraceBuffer, now: float) -> list[ClosedTrace]:
        """Replay the journal into the buffer; return the traces that were closed and not
        evaluated.

        Raises:
            StartCancelled: the process was asked to stop. The journal is as it was.
        """
        for entry in self._records(buffer):
            if self.durable.is_stop_requested:
                raise StartCancelled
            self._apply(buffer, entry, now)
        if self._unreadable:
            _log.warning(
                "storage.directory: %d requests in it cannot be read by this version and are"
                " left out",
                self._unreadable,
            )
        if damaged := self.durable.journal.recovery.damaged:
            _log.warning(
                "storage.directory: %d damaged places were skipped; what was recorded there is"
                " lost",
                damaged,
            )
        for counter in fields(buffer.counts):  # they count from the start of the process
            setattr(buffer.counts, counter.name, 0)
        exporters_of = self.durable.segment_refs.unacknowledged_by
        self.results.requeue([(report, exporters_of(key)) for key, report in self._reports.items()])
        if self.durable.journal.recovery.is_damaged:
            self.results.expect_duplicates()
        if self.forwarding:
            self.forwarding.take_over(buffer.undecided() | self._closed.keys())
        needed = {*self._closed, *(trace.trace_id for trace in self._pending.values())}
        closed = [trace for closings in self._closed.values() for trace, _ in closings]
        return self.durable.attempts.recover(buffer, closed, needed)

    def _apply(self, buffer: TraceBuffer, entry: JournalRecord, now: float) -> None:
        """Apply a record; one of a later version of this program is ignored."""
        payload = entry.payload
        match entry.kind:
            case RecordKind.BODY:
                self._push(buffer, entry, now)
            case RecordKind.CLOSED:
                self._close(buffer, record_types.unpack_closings(payload), now)
            case RecordKind.RELEASED:
                buffer.restore_released(*record_types.unpack_released(payload))
            case RecordKind.EVALUATED:
                self._mark_evaluated(record_types.unpack_evaluated(payload), entry.segment)
            case RecordKind.DELIVERED:
                self._mark_delivered(payload)
            case RecordKind.TOMBSTONES:
                clock_offset = self.durable.now() - now
                for trace_id, until, state in record_types.unpack_tombstones(payload):
                    buffer.add_tombstone(trace_id, until - clock_offset, state)
            case RecordKind.PENDING_SPANS if self.forwarding:
                origin = RawRequest("traces", payload)
                self.forwarding.add_request(entry, origin, read_traces(payload), is_held=True)
            case RecordKind.FORWARDED if self.forwarding:
                self.forwarding.note_forwarded(payload)

    def _records(self, buffer: TraceBuffer) -> Iterator[JournalRecord]:
        """Yield every record, and instead of a COMPACTED record the records nested in it."""
        for entry in self.durable.journal.replay():
            if entry.kind != RecordKind.COMPACTED:
                yield entry
                continue
            trace_id, records = record_types.unpack_nested(entry.payload)
            # The nested records replace all earlier records of the trace.
            buffer.drop(trace_id)
            self._closed.pop(trace_id, None)
            self.durable.segment_refs.reassign(trace_id, entry.segment)
            for inner, content in records:
                yield JournalRecord(entry.segment, inner, content, entry.end)

    def _push(self, buffer: TraceBuffer, entry: JournalRecord, now: float) -> None:
        try:
            origin = request_of(entry.payload)
            batch = (
                read_request(origin, self.max_attributes)
                if origin.signal != "metrics"
                else SpanBatch()
            )
        except (InputError, LookupError):
            self._unreadable += 1
            return
        if self.forwarding and is_forwarded(entry.payload):
            self.forwarding.add_request(entry, origin, batch)
        items = (*batch.spans, *batch.logs)
        self.durable.segment_refs.add_traces(entry.segment, {item[0] for item in items})
        buffer.push_many(batch.spans, now)
        buffer.push_logs(batch.logs, now)

    def _close(self, buffer: TraceBuffer, closed: Iterable[Closing], now: float) -> None:
        for trace_id, reason, roots in closed:
            trace = buffer.reclose(trace_id, reason, now, roots)
            if trace is not None:
                before = replace(trace, history=trace.history.copy())
                self._closed.setdefault(trace_id, []).append((trace, before))

    def _mark_evaluated(self, traces: Iterable[EvaluatedTrace], segment: Segment) -> None:
        """Apply an EVALUATED record: note pending results, and the reports that are still to be
        delivered.
        """
        for evaluated in traces:
            if self.forwarding:
                self.forwarding.add_results(evaluated)
            closed = None if evaluated.late else self._evaluated(evaluated)
            if closed is not None:
                self._pending.update(dict.fromkeys(evaluated.pending, closed))
            for report in evaluated.reports:
                for result in report.results:
                    self._pending.pop(result.result_id, None)
                if report.awaited and report.standing is not None:
                    # Reports of late results may be journaled in another order than they were made.
                    run = _run_key(report)
                    self._standings[run] = worst(
                        report.standing, self._standings.get(run, report.standing)
                    )
                if report.revision:
                    self.results.revised(report)
                if (key := self.durable.expect_delivery(report, segment)) is not None:
                    self._reports[key] = report

    def _evaluated(self, evaluated: EvaluatedTrace) -> ClosedTrace | None:
        closings = self._closed.get(evaluated.trace_id)
        if not closings:
            return None  # its spans are no longer in the journal
        trace, before = closings.pop(0)
        if not closings:
            del self._closed[evaluated.trace_id]
        trace.history.record(evaluated.evaluations)
        return before

    def _mark_delivered(self, payload: bytes) -> None:
        segment_refs = self.durable.segment_refs
        for key in segment_refs.acknowledge(*record_types.unpack_delivered(payload)):
            if not segment_refs.unacknowledged_by(key):
                del self._reports[key]

    # ------------------------------------------------------------ afterwards

    def unfinished(self, engine: Engine) -> list[Report]:
        """Return reports with only the pending results that are still missing, those in progress at
        a crash first.
        """
        later_only, reports = engine.only_later(), []
        for trace in {id(trace): trace for trace in self._pending.values()}.values():
            for report in self._pending_of(trace, later_only):
                pending = tuple(
                    [result for result in report.pending if result.result_id in self._pending]
                )
                if pending:
                    self.durable.await_results(trace.trace_id, pending)
                    standing = self._standings.get(_run_key(report), report.standing)
                    reports.append(
                        replace(report, pending=pending, standing=standing, awaited=len(pending))
                    )
        crashes_later = self.durable.attempts.crashes_later
        return sorted(
            reports,
            key=lambda report: crashes_later(bytes.fromhex(report.trajectory.trace_id)),
            reverse=True,
        )

    def _pending_of(self, trace: ClosedTrace, later_only: Engine) -> list[Report]:
        """Build the reports on a trace again with only the asynchronous scorers, without calling
        them; [] if that fails.
        """
        evaluator, since_ns = self.durable.identity
        stamp = Stamp(evaluator, int(self.durable.now() * 1e9), since_ns)
        try:
            return later_only.evaluate(trace, stamp)
        except Exception as error:  # noqa: BLE001 - one trace must not prevent the start
            _log.warning(
                "results of trace %s that are pending are lost: %s",
                trace.trace_id.hex(),
                type(error).__name__,
            )
            return []


_CRASHED: Final = Failed("crashed", "the process ended twice while it waited for the result")


class FailedResults(DeadLetters, Protocol):
    """Takes results that failed."""

    def on_reports(self, reports: Sequence[Report]) -> None:
        """Export reports."""


@dataclass(slots=True, eq=False)
class PendingResults:
    """Submits reports with pending results for evaluation again; if some were in progress at a
    crash, on its own thread.

    Those in progress at a crash are submitted first and one at a time, after the closed traces were
    evaluated, so that nothing else of an earlier process is in progress if one of them crashes the
    process again. After two crashes they fail instead.

    Args:
        reports: reports with pending results, those in progress at a crash first.
        durable: journals their results.
        later: computes the results.
        exports: set failed results aside, or export them if there is no dead-letter file.
        caught_up: set when the traces that were closed before the restart have been evaluated.
        timeout_s: how long to wait for each result that was in progress at a crash before the next
            one is submitted.
    """

    reports: Sequence[Report]
    durable: Durable
    later: AsyncEvaluator
    exports: FailedResults
    caught_up: threading.Event
    timeout_s: float
    _thread: threading.Thread | None = field(default=None, init=False)

    def start(self) -> None:
        """Submit the reports: at once, or on a thread if some were in progress at a crash."""
        if any(map(self._crashes, self.reports)):
            self._thread = threading.Thread(
                target=self._submit_all, name="otel-eval-retry", daemon=True
            )
            self._thread.start()
        else:
            self._submit_all()

    @property
    def is_over(self) -> bool:
        """Whether all reports were submitted."""
        return self._thread is None or not self._thread.is_alive()

    def _submit_all(self) -> None:
        if self._thread is not None:
            self.caught_up.wait()
        for report in self.reports:
            crashes = self._crashes(report)
            if crashes >= MOST_CRASHES:
                self._fail(report)
                continue
            self.later.put(report)
            if crashes:
                self.later.wait(self.timeout_s)

    def _fail(self, report: Report) -> None:
        results = tuple([pending.result(_CRASHED) for pending in report.pending])
        failed = replace(
            report,
            results=results,
            pending=(),
            late=True,
            standing=verdict_of(results, report.standing or Verdict.PASS),
            awaited=0,
        )
        # first: journaled results are exported after a kill
        aside = self.exports.set_aside([failed], REASON)
        if not self.durable.journal_late_results(failed, is_set_aside=aside):
            return  # the process is stopping
        _log.warning(
            "asynchronous results of trace %s are not requested again: %s; they are failed and %s",
            failed.trajectory.trace_id,
            REASON,
            "in the dead-letter file" if aside else "exported",
        )
        if not aside:
            self.exports.on_reports((failed,))

    def _crashes(self, report: Report) -> int:
        return self.durable.attempts.crashes_later(bytes.fromhex(report.trajectory.trace_id))
