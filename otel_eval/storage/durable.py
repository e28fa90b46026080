"""Journals what the receiver acknowledged, decided and delivered.

It writes a record for each event of the pipeline, and decides nothing about traces. A disk that
cannot be written does not end the process: requests are refused with `Overloaded`, evaluation
waits, and no other method raises. Compaction copies traces that stay open to the end of the
journal, so that a run that waits for a human approval does not keep all segments that follow its
first span.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol

from otel_eval.assembly import Closing, TraceBuffer
from otel_eval.counters import Warnings
from otel_eval.errors import Overloaded
from otel_eval.exporters import Exporter, names_of_exporters
from otel_eval.interfaces import ClosedTrace
from otel_eval.model import Pending, Report
from otel_eval.otlp.protobuf import RawRequest
from otel_eval.storage import record_types
from otel_eval.storage.directory import DirectoryLock, evaluator_identity
from otel_eval.storage.in_progress import InProgress, RecordedAttempts
from otel_eval.storage.journal import (
    SEGMENT_BYTES,
    Appended,
    Journal,
    Segment,
    SegmentRefs,
    StorageFull,
)
from otel_eval.storage.record_types import (
    EvaluatedTrace,
    ForwardedRequest,
    RecordKind,
    key_of,
    payload_size,
    records_of,
)

_COMPACTION_S: Final = 1.0  # between attempts to compact the oldest segment
_RETRY_S: Final = 0.5  # between attempts to write evaluated traces

Clock = Callable[[], float]
"""Returns seconds."""


class StorageOptions(Protocol):
    """The configuration's `storage`: a directory of this process alone, its limit of bytes, whether
    requests wait for fsync.
    """

    directory: str
    max_size: int
    sync: bool


@dataclass(slots=True, eq=False)
class Ack:
    """Which parts of a request are still to be forwarded.

    Attributes:
        has_remainder: whether the part without the held spans is still to be forwarded.
        checksum: of the spans that were held; 0 if none were.
        held_spans: how many of them are still to be forwarded.
        position: segment and end of the request's record; None while it is not journaled.
    """

    has_remainder: bool = True
    checksum: int = 0
    held_spans: int = 0
    position: Any = None


class JournaledSpans(Protocol):
    """The runs' own spans that the forwarding stage holds until their trace is evaluated
    (`forwarding.pending_spans.PendingSpans`).
    """

    def journaled_of(self, trace_id: bytes) -> tuple[Sequence[Any], bytes]:
        """Return the held spans of a trace whose requests are journaled, and a request with these
        spans.
        """

    def reassign(self, roots: Sequence[Any], ack: Ack) -> list[Ack]:
        """Assign those of the spans that are still held to another request; return the acks they
        had before.
        """


class AcknowledgedRequest(NamedTuple):
    """A request that is also to be forwarded, with its ack."""

    origin: Any
    ack: Ack


class ForwardedRequests:
    """The forwarding stage's journal.

    Args:
        append: writes a record. A failure is logged, and then requests may be forwarded twice after
            a restart.
        segment_refs: the references that keep segments.
        pending_spans: the spans that the forwarding stage holds.
    """

    def __init__(
        self,
        append: Callable[[RecordKind, Sequence[bytes]], object],
        segment_refs: SegmentRefs,
        pending_spans: JournaledSpans | None,
    ) -> None:
        self._append, self._segment_refs, self._pending_spans = append, segment_refs, pending_spans
        self._lock = threading.Lock()  # guards all acks

    def note_position(self, ack: Ack, segment: Segment, end: int) -> None:
        """Note where the request is journaled; called before any part of it can be forwarded."""
        ack.position = (segment, end)
        self.keep_segment(segment)

    def keep_segment(self, segment: Segment) -> None:
        """Keep the segment for a request in it that is not completely forwarded."""
        self._segment_refs.retain(segment)

    def journal_forwarded(self, requests: Sequence[Ack], spans: Sequence[Ack]) -> None:
        """Journal what was forwarded, and release the segments of requests that are complete.

        Args:
            requests: requests whose part without the held spans was forwarded.
            spans: for each held span that was forwarded, its request.
        """
        with self._lock:
            for ack in requests:
                ack.has_remainder = False
            for ack in spans:
                ack.held_spans -= 1
            # A request whose held spans are forwarded first is journaled when the rest of it is
            # forwarded.
            changed = {
                *requests,
                *[ack for ack in spans if not ack.held_spans and not ack.has_remainder],
            }
            notes = [
                (*ack.position, ack.checksum if ack.held_spans else 0)
                for ack in changed
                if ack.position is not None
            ]
        self._write_forwarded(notes)

    def drop(self, ack: Ack) -> None:
        """Note that nothing of the request is to be forwarded any more, even if spans of it are
        already queued.
        """
        with self._lock:
            position, ack.position = ack.position, None
        if position is not None:
            self._write_forwarded([(*position, 0)])

    def _write_forwarded(self, notes: Sequence[tuple[Segment, int, int]]) -> None:
        if not notes:
            return
        requests = (ForwardedRequest(segment.number, *fields) for segment, *fields in notes)
        self._append(RecordKind.FORWARDED, [record_types.pack_forwarded(requests)])
        for segment, _, checksum in notes:
            if not checksum:
                self._segment_refs.release(segment)

    # ------------------------------------------------------------ compaction

    def held_spans(self, trace_id: bytes) -> tuple[Sequence[Any], list[tuple[RecordKind, bytes]]]:
        """Return the held spans of a trace, and the record of them in a list; both are empty if no
        span is held.
        """
        roots, request = (
            self._pending_spans.journaled_of(trace_id)
            if self._pending_spans is not None
            else ((), b"")
        )
        return roots, [(RecordKind.PENDING_SPANS, request)] if roots else []

    def note_copy(self, roots: Sequence[Any], segment: Segment, end: int) -> None:
        """Note where the record of these held spans is."""
        if self._pending_spans is None or not roots:
            return
        self.keep_segment(segment)
        if former := self._pending_spans.reassign(roots, Ack(position=(segment, end))):
            self.journal_forwarded([], former)
        else:
            self._segment_refs.release(segment)  # they were forwarded meanwhile


class Durable:
    """The pipeline's journal.

    Args:
        options: the configuration's storage.
        now: returns Unix seconds.
        clock: the pipeline's monotonic clock.
        segment_bytes: the size of a segment.
        exporters: the exporters whose delivery of results is journaled.
        pending_spans: the spans that the forwarding stage holds, if there is one.

    Attributes:
        waits: why evaluation waits for the disk; "" if it does not.
        is_stop_requested: whether the process was asked to stop.

    Raises:
        ConfigError: the directory cannot be used, or another process uses it.
    """

    def __init__(
        self,
        options: StorageOptions,
        now: Clock = time.time,
        clock: Clock = time.monotonic,
        segment_bytes: int = SEGMENT_BYTES,
        exporters: Sequence[Exporter] = (),
        pending_spans: JournaledSpans | None = None,
    ) -> None:
        self._directory: Final = DirectoryLock(options.directory)
        self.identity: Final = evaluator_identity(self._directory, int(now() * 1e9))
        self.journal: Final = Journal(
            self._directory,
            max_bytes=options.max_size,
            segment_bytes=segment_bytes,
            sync=options.sync,
        )
        self.segment_refs: Final = SegmentRefs()
        self._in_progress: Final = InProgress(self._directory, sync=options.sync)
        self.attempts: Final = RecordedAttempts(self._in_progress)
        self.forwarded: Final = ForwardedRequests(self._append, self.segment_refs, pending_spans)
        self.now: Final = now
        self._clock: Final = clock
        self._max: Final = options.max_size
        self._last_compaction = float("-inf")
        self.waits = ""
        self.is_stop_requested = False
        self._unconfirmed: list[tuple[Sequence[EvaluatedTrace], Appended | None]] = []
        self._exporters: Final = tuple(exporters)
        self._warnings: Final = Warnings()
        self._stopping: Final = threading.Event()
        self._lock = threading.Lock()  # guards _pending
        # trace id → ids of asynchronous results that are not there yet
        self._pending: dict[bytes, set[str]] = {}

    # ------------------------------------------------------- for the pipeline

    def journal_request(
        self, origin: RawRequest | AcknowledgedRequest, trace_ids: Iterable[bytes]
    ) -> int:
        """Journal a request with spans of these traces.

        Returns:
            Its position in the journal, for `wait_until_synced`.

        Raises:
            Overloaded: the limit of bytes is reached, or the disk cannot be written.
        """
        origin, ack = origin if isinstance(origin, AcknowledgedRequest) else (origin, None)
        first = record_types.signal_byte(origin.signal, forwarded=ack is not None)
        try:
            position, segment, end = self.journal.append(
                RecordKind.BODY, [first, origin.body], bounded=True
            )
        except StorageFull:
            self._warnings.say("full", "storage.max_size is reached: clients get a retryable error")
            raise Overloaded("storage.max_size is reached; retry later") from None
        except OSError as error:
            raise self._disk_error(error) from None
        if ack is not None:
            self.forwarded.note_position(ack, segment, end)
        self.segment_refs.add_traces(segment, trace_ids)
        return position

    def wait_until_synced(self, position: int) -> None:
        """Wait until the request at a position is on the disk.

        Raises:
            Overloaded: the sync failed.
        """
        try:
            self.journal.commit(position)
        except OSError as error:
            raise self._disk_error(error) from None

    def _disk_error(self, error: OSError) -> Overloaded:
        reason = error.strerror or str(error)
        self._warnings.say(
            "unwritten", "storage cannot be written (%s): clients get a retryable error", reason
        )
        return Overloaded(f"storage cannot be written ({reason}); retry later")

    def journal_closings(self, traces: Sequence[Closing]) -> bool:
        """Journal that these traces close with the spans received so far; False if that fails.

        If the directory was removed there is nothing left to recover: traces that are still in
        memory are evaluated and delivered without a record.
        """
        payload = [record_types.pack_closings(traces)]
        appended = self._append(RecordKind.CLOSED, payload, is_needed=True)
        return appended is not None or self.is_removed

    @property
    def is_removed(self) -> bool:
        """Whether the directory was removed, moved or replaced."""
        return self.journal.is_removed

    def record_evaluated(self, traces: Sequence[tuple[ClosedTrace, Sequence[Report]]]) -> None:
        """Journal the reports on traces. If that fails, `wait_until_journaled` tries again."""
        evaluated = [EvaluatedTrace.of(*trace) for trace in traces]
        self._unconfirmed.append((evaluated, self._append_evaluated(evaluated)))

    def wait_until_journaled(self) -> bool:
        """Wait until all reports given to `record_evaluated` are on the disk, however long that
        takes; False if `stop` is called first. Does not wait for a directory that was removed.
        """
        unconfirmed, self._unconfirmed = self._unconfirmed, []
        for evaluated, appended in unconfirmed:
            while (segment := self._wait_for_disk(appended)) is None and not self.is_removed:
                if self._stopping.wait(_RETRY_S):
                    return False
                appended = self._append_evaluated(evaluated)
            if segment is None:
                continue
            for trace in evaluated:
                for report in trace.reports:
                    self.expect_delivery(report, segment)
                    self.await_results(trace.trace_id, report.pending)
        return True

    def _append_evaluated(self, traces: Sequence[EvaluatedTrace]) -> Appended | None:
        return self._append(
            RecordKind.EVALUATED, [record_types.pack_evaluated(traces)], is_needed=True
        )

    def _append(
        self,
        kind: RecordKind,
        payload: Sequence[bytes],
        *,
        is_needed: bool = False,
        is_synced: bool = False,
    ) -> Appended | None:
        """Append a record; None, with a warning, if that fails.

        Args:
            is_needed: evaluation waits for the record; a failure is shown in `waits`.
            is_synced: wait until the record is on the disk.
        """
        appended, reason = None, ""
        try:
            appended = self.journal.append(kind, payload)
            if is_synced:
                self.journal.commit(appended.position)
        except OSError as error:
            appended, reason = None, str(self._disk_error(error))
        if is_needed:
            self.waits = reason
        return appended

    def _wait_for_disk(self, appended: Appended | None) -> Segment | None:
        """Wait until a record is on the disk; return its segment, or None if there is no record or
        it may be lost.
        """
        if appended is None:
            return None
        try:
            self.journal.commit(appended.position)
        except OSError as error:
            self.waits = str(self._disk_error(error))
            return None
        self.waits = ""
        return appended.segment

    def tidy(self, buffer: TraceBuffer) -> None:
        """Remove the oldest segments that are not needed, after journaling the tombstones, and
        compact the first that is.
        """
        free = []
        for segment in self.journal.finished:
            if not self.segment_refs.is_free(
                segment, lambda trace_id: trace_id in self._pending or buffer.holds(trace_id)
            ):
                self._compact(segment, buffer)
                break
            free.append(segment)
        if free:
            self._write_tombstones(buffer)
            for segment in free:
                self.journal.remove(segment)

    def _compact(self, segment: Segment, buffer: TraceBuffer) -> None:
        """Copy the traces that keep a segment to the end of the journal, if it is half full.

        If they are more than half of the segment, it stays, and those that were evaluated or wait
        without a run are given up instead.
        """
        now = self._clock()
        if self.journal.size < self._max // 2 or now < self._last_compaction + _COMPACTION_S:
            return
        self._last_compaction = now
        traces = [
            trace
            for trace_id in self.segment_refs.traces_in(segment)
            if (trace := buffer.held(trace_id)) is not None
        ]
        if sum(map(payload_size, traces)) > segment.size // 2:
            buffer.evict(trace.trace_id for trace in traces)
            return  # copying them would free too little
        for trace in traces:
            records = records_of(trace)
            if records is not None and trace.trace_id not in self._pending:
                self._copy_trace(trace.trace_id, records)

    def _copy_trace(self, trace_id: bytes, records: Sequence[tuple[RecordKind, bytes]]) -> None:
        roots, records_of_spans = self.forwarded.held_spans(trace_id)
        appended = self._append(
            RecordKind.COMPACTED,
            record_types.pack_nested(trace_id, [*records, *records_of_spans]),
            is_synced=True,
        )
        if appended is not None:
            self.segment_refs.reassign(trace_id, appended.segment)
            self.forwarded.note_copy(roots, appended.segment, appended.end)

    def _write_tombstones(self, buffer: TraceBuffer) -> None:
        clock_offset = self.now() - self._clock()
        tombstones = record_types.pack_tombstones(
            (trace_id, until + clock_offset, state)
            for trace_id, until, state in buffer.tombstones()
        )
        # Segments are removed even if this fails, to free a full disk. Late spans are then not
        # recognised after a crash.
        self._append(RecordKind.TOMBSTONES, [tombstones], is_synced=True)

    # --------------------------------------------------------- reports to deliver

    def expect_delivery(self, report: Report, segment: Segment) -> bytes | None:
        """Keep the segment until the report in it is delivered; return its key, None if no exporter
        receives it.
        """
        key, exporters = key_of(report), names_of_exporters(self._exporters, report)
        if key is None or not exporters:
            return None
        self.segment_refs.add_unacknowledged(key, segment, exporters)
        return key

    def await_results(self, trace_id: bytes, pending: Iterable[Pending]) -> None:
        """Keep the spans of the trace until these asynchronous results are there."""
        if result_ids := {result.result_id for result in pending}:
            with self._lock:
                self._pending.setdefault(trace_id, set()).update(result_ids)

    def journal_late_results(self, report: Report, *, is_set_aside: bool = False) -> bool:
        """Journal asynchronous results; False if the process stops: then they are computed again
        after the next start.

        Args:
            is_set_aside: the results are in the dead-letter file, and no exporter is to receive
                them.
        """
        if self._stopping.is_set():
            return False
        trace_id = bytes.fromhex(report.trajectory.trace_id)
        appended = self._append_evaluated([EvaluatedTrace(trace_id, reports=[report], late=True)])
        # before the wait for the disk: a kill during it must not lead to an export, too
        if is_set_aside and appended is not None:
            self.expect_delivery(report, appended.segment)
            for exporter in names_of_exporters(self._exporters, report):
                self.journal_delivery(exporter, [report])
        if (segment := self._wait_for_disk(appended)) is not None and not is_set_aside:
            self.expect_delivery(report, segment)
        with self._lock:
            missing = self._pending.pop(trace_id, set()).difference(
                result.result_id for result in report.results
            )
            if missing:
                self._pending[trace_id] = missing
        return True

    def journal_delivery(self, exporter: str, reports: Iterable[Report]) -> None:
        """Journal that an exporter has delivered the reports, or failed permanently."""
        keys = self.segment_refs.acknowledge(
            exporter, [key for report in reports if (key := key_of(report)) is not None]
        )
        if keys:  # without the record they are delivered again after a restart, with the same ids
            self._append(RecordKind.DELIVERED, [record_types.pack_delivered(exporter, keys)])

    # ----------------------------------------------------------------- end

    def note_stop(self) -> None:
        """Record that the process was asked to stop: its end is not a crash, and recovery ends.
        Safe in a signal handler.
        """
        self.is_stop_requested = True
        self._in_progress.stop()

    def stop(self) -> None:
        """Reject asynchronous results from now on (they are computed after the next start), and end
        the wait in `wait_until_journaled`.
        """
        self._stopping.set()

    def close(self) -> None:
        """Sync the journal, and release the directory."""
        self.journal.close()
        self._in_progress.close()
        self._directory.release()

    def counts(self) -> dict[str, Any]:
        """Return what is on the disk, and the result of the replay."""
        recovery = self.journal.recovery
        return {
            "storage.bytes": self.journal.size,
            "storage.reports_waiting": self.segment_refs.unacknowledged,
            "storage.syncs": self.journal.syncs,
            "storage.records_recovered": recovery.records,
            "storage.records_damaged": recovery.damaged,
            "storage.torn_bytes": recovery.torn_bytes,
        }
