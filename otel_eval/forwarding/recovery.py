"""After a restart: finds the requests that were not forwarded completely, and hands them to the forwarding stage.

A request is kept in memory until a record is read that it was forwarded.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from otel_eval.model import Report
from otel_eval.otlp import SpanBatch
from otel_eval.otlp.requests import RawRequest
from otel_eval.storage import JournalRecord, Segment
from otel_eval.storage.forwarded_requests import ForwardedRequests
from otel_eval.storage.record_types import EvaluatedTrace, unpack_forwarded

if TYPE_CHECKING:
    from otel_eval.forwarding import Forwarder

__all__ = ["ForwardingRecovery"]

_TOLD: Final = 1024  # reports that spans which are sent again may need


@dataclass(slots=True, eq=False)
class _Request:
    segment: Segment
    end: int
    origin: RawRequest
    framed: SpanBatch
    held: bool
    waiting: int | None = None
    moved: set[tuple[bytes, bytes]] = field(default_factory=set)
    evaluated: dict[bytes, list[Report]] = field(default_factory=dict)

    @property
    def items(self) -> int:
        framed = self.framed
        return max(1, len(framed.spans) + len(framed.logs) + framed.own + framed.ignored + framed.rejected)


class ForwardingRecovery:
    """Collects what the journal has of requests that are forwarded.

    Args:
        onward: keeps them from now on.
        forward: passes them on.
    """

    def __init__(self, onward: ForwardedRequests, forward: Forwarder) -> None:
        self._onward, self._forward = onward, forward
        self._requests: Final[dict[tuple[int, int], _Request]] = {}
        self._of_trace: Final[defaultdict[bytes, set[_Request]]] = defaultdict(set)
        self._reports: deque[Report] = deque(maxlen=_TOLD)

    def took(self, entry: JournalRecord, origin: RawRequest, framed: SpanBatch, *, held: bool = False) -> None:
        """A request that has to be forwarded; `held`: spans of one trace that wait, which replace earlier records of them."""
        request = _Request(entry.segment, entry.end, origin, framed, held)
        traces = {item[0] for item in framed.spans}
        for former in {former for trace_id in traces if held for former in self._of_trace[trace_id]}:
            former.moved.update((item[0], item[1]) for item in framed.spans)
        for trace_id in traces:
            self._of_trace[trace_id].add(request)
        self._requests[entry.segment.number, entry.end] = request

    def evaluated(self, evaluated: EvaluatedTrace) -> None:
        """Keep the results for the waiting spans of the trace. Compaction adds nothing new."""
        if evaluated.late:
            return
        self._reports.extend(evaluated.reports)
        for request in self._of_trace.get(evaluated.trace_id, ()):
            if evaluated.reports or evaluated.trace_id not in request.evaluated:
                request.evaluated[evaluated.trace_id] = list(evaluated.reports)

    def passed(self, payload: bytes) -> None:
        """Requests that were forwarded, completely or except for the spans that wait."""
        for number, end, waiting in unpack_forwarded(payload):
            request = self._requests.get((number, end))
            if request is None:
                continue
            request.waiting = waiting
            if not waiting:
                del self._requests[number, end]
                self._forget(request)

    def _forget(self, request: _Request) -> None:
        for trace_id in {item[0] for item in request.framed.spans}:
            self._of_trace[trace_id].discard(request)
            if not self._of_trace[trace_id]:
                del self._of_trace[trace_id]

    def take_over(self, undecided: Callable[[bytes], bool]) -> int:
        """Forward the rest; returns the number of requests."""
        from otel_eval.forwarding import UnsentRequest  # deferred: it loads grpc's client

        self._forward.told(self._reports)
        for each in self._requests.values():
            self._onward.needed(each.segment)
            origin, framed = each.origin, each.framed
            place = (each.segment, each.end)
            unsent = UnsentRequest(
                origin.signal, origin.body, each.items, framed.spans, place, each.waiting, each.held, each.moved, each.evaluated
            )
            self._forward.resume(unsent, undecided)
        return len(self._requests)
