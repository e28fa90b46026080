"""Connects receiver, pipeline, storage and forwarding stage: a request goes to assembly and to the
backend, or to neither.

After a restart the stage forwards what is left of requests that were not forwarded completely.
While the journal is read, each request is kept in memory until the record that it was forwarded.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Set
from typing import Any, Final

from otel_eval.forwarding.pending_spans import UnsentRequest
from otel_eval.forwarding.stage import Forwarder
from otel_eval.model import Report
from otel_eval.otlp.protobuf import RawRequest, SpanBatch
from otel_eval.pipeline import Pipeline
from otel_eval.storage.durable import Ack, AcknowledgedRequest, Durable, ForwardedRequests
from otel_eval.storage.journal import JournalRecord
from otel_eval.storage.record_types import EvaluatedTrace, unpack_forwarded


class ForwardingRelay:
    """Accepts complete requests from the receiver; each goes to assembly and to the backend, or to
    neither.
    """

    forwards = True

    def __init__(self, forward: Forwarder, pipeline: Pipeline, durable: Durable | None) -> None:
        self._forward, self._pipeline, self._durable = forward, pipeline, durable

    def spans(self, batch: SpanBatch) -> None:
        """Pass spans to assembly, and their request to the backend."""
        items: Final = len(batch.spans) + batch.own + batch.rejected
        assert batch.origin is not None

        with self._forward.accepting("traces", batch.origin.body, items, batch.spans) as request:
            if batch.spans or request.ack is not None:
                self._pipeline.spans(batch.spans, _with_ack(batch.origin, request.ack))
        # A trace that was closed, and whose grace period is over, is not evaluated again: its spans
        # need not be held.
        if request.held_traces:
            self._forward.release(
                request.held_traces - self._pipeline.undecided(request.held_traces)
            )

    def logs(self, batch: SpanBatch) -> None:
        """Pass log records that may belong to runs to assembly, and their request to the
        backend.
        """
        items: Final = len(batch.logs) + batch.own + batch.ignored + batch.rejected
        assert batch.origin is not None
        with self._forward.accepting("logs", batch.origin.body, items) as request:
            self._pipeline.logs(batch.logs, _with_ack(batch.origin, request.ack))

    def metrics(self, body: bytes) -> bool:
        """Pass a request to the backend; False if metrics are not forwarded."""
        with self._forward.accepting("metrics", body, 1) as request:
            if self._durable is not None and request.ack is not None:
                origin = AcknowledgedRequest(RawRequest("metrics", body), request.ack)
                self._durable.wait_until_synced(self._durable.journal_request(origin, ()))
        return self._forward.is_forwarded("metrics")


def _with_ack(origin: Any, ack: Ack | None) -> Any:
    return origin if ack is None else AcknowledgedRequest(origin, ack)


_MOST_REPORTS: Final = 1024  # reports that are kept for spans which clients send again


class ForwardingRecovery:
    """Collects from the journal the requests that were not forwarded completely.

    Args:
        forwarded: journals them from now on.
        forward: forwards them.
    """

    def __init__(self, forwarded: ForwardedRequests, forward: Forwarder) -> None:
        self._forwarded, self._forward = forwarded, forward
        self._requests: Final[dict[tuple[int, int], UnsentRequest]] = {}
        self._of_trace: Final[defaultdict[bytes, set[UnsentRequest]]] = defaultdict(set)
        self._reports: deque[Report] = deque(maxlen=_MOST_REPORTS)

    def add_request(
        self, entry: JournalRecord, origin: RawRequest, batch: SpanBatch, *, is_held: bool = False
    ) -> None:
        """Add a request that has to be forwarded; `is_held`: it consists of held spans of one
        trace, and replaces their records.
        """
        items = max(
            1, len(batch.spans) + len(batch.logs) + batch.own + batch.ignored + batch.rejected
        )
        request = UnsentRequest(
            origin.signal, origin.body, items, batch.spans, (entry.segment, entry.end), is_held
        )
        traces = {item[0] for item in batch.spans}
        for former in {
            former for trace_id in traces if is_held for former in self._of_trace[trace_id]
        }:
            former.moved.update((item[0], item[1]) for item in batch.spans)
        for trace_id in traces:
            self._of_trace[trace_id].add(request)
        self._requests[entry.segment.number, entry.end] = request

    def add_results(self, evaluated: EvaluatedTrace) -> None:
        """Keep the results for the held spans of the trace. Late results are ignored; a record
        without results replaces none.
        """
        if evaluated.late:
            return
        self._reports.extend(evaluated.reports)
        for request in self._of_trace.get(evaluated.trace_id, ()):
            if evaluated.reports or evaluated.trace_id not in request.evaluated:
                request.evaluated[evaluated.trace_id] = list(evaluated.reports)

    def note_forwarded(self, payload: bytes) -> None:
        """Process a record of requests that were forwarded, completely or except for their held
        spans.
        """
        for number, end, checksum in unpack_forwarded(payload):
            request = self._requests.get((number, end))
            if request is None:
                continue
            # the checksum of the held spans, or 0 if nothing is left to forward
            request.checksum = checksum
            if not checksum:
                del self._requests[number, end]
                self._remove(request)

    def _remove(self, request: UnsentRequest) -> None:
        for trace_id in {item[0] for item in request.spans}:
            self._of_trace[trace_id].discard(request)
            if not self._of_trace[trace_id]:
                del self._of_trace[trace_id]

    def take_over(self, undecided: Set[bytes]) -> None:
        """Forward what is left of the requests; `undecided`: the traces that are still to be
        evaluated.
        """
        self._forward.keep_earlier_scores(self._reports)
        for request in self._requests.values():
            self._forwarded.keep_segment(request.position[0])
            self._forward.resume(request, undecided)
