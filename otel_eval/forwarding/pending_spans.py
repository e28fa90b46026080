"""Spans that are held for their scores, by trace, and scores until all of the trace was evaluated.

Bounded by what assembly holds: a span is held only while its trace is open, and it is the same bytes object as in assembly.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from otel_eval.forwarding.splice import SpanContainer

__all__ = ["REMEMBERED", "PendingSpan", "PendingSpans", "ReleasedSpan"]

REMEMBERED: Final = 4096  # runs whose scores are kept for a span that is sent again


@dataclass(slots=True, eq=False)
class PendingSpan:
    """A span that is held; `ack` is its request's."""

    trace_id: bytes
    span_id: bytes
    payload: bytes
    container: SpanContainer
    ack: Any = None


ReleasedSpan = tuple[SpanContainer, bytes, Any]
"""What stands around a span, the span with its scores, and the ack of the request it came in."""


@dataclass(slots=True)
class _Trace:
    roots: list[PendingSpan] = field(default_factory=list)
    scores: dict[bytes, bytes] = field(default_factory=dict)


class PendingSpans:
    """Takes spans, and releases them with their scores when their trace was evaluated. Safe from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # guards what follows
        self._traces: dict[bytes, _Trace] = {}
        self._told: OrderedDict[tuple[bytes, bytes], bytes] = OrderedDict()

    def hold(self, roots: Iterable[PendingSpan]) -> None:
        """Keep them."""
        with self._lock:
            for root in roots:
                self._traces.setdefault(root.trace_id, _Trace()).roots.append(root)

    def drop(self, roots: Sequence[PendingSpan]) -> None:
        """Remove them: their request was not accepted."""
        with self._lock:
            for root in roots:
                trace = self._traces.get(root.trace_id)
                if trace is None:
                    continue
                trace.roots = [each for each in trace.roots if each is not root]
                if not trace.roots:
                    del self._traces[root.trace_id]

    def score(self, trace_id: bytes, span_id: bytes, events: bytes) -> bool:
        """Add scores to a span; False if it is not held: it left before, or is not known."""
        with self._lock:
            trace = self._traces.get(trace_id)
            if trace is None or all(root.span_id != span_id for root in trace.roots):
                return False
            trace.scores[span_id] = trace.scores.get(span_id, b"") + events
            return True

    def release(self, trace_id: bytes) -> list[ReleasedSpan]:
        """Remove and return the spans of a trace with the scores they have."""
        with self._lock:
            trace = self._traces.pop(trace_id, None)
            if trace is None:
                return []
            return [(root.container, root.payload + self._events(trace, root), root.ack) for root in trace.roots]

    def _events(self, trace: _Trace, root: PendingSpan) -> bytes:
        """The span's scores; those of its first time if it was sent again and its run did not change."""
        key = (root.trace_id, root.span_id)
        events = trace.scores.get(root.span_id)
        if events is None:
            return self._told.get(key, b"")
        self._tell(key, events)
        return events

    def _tell(self, key: tuple[bytes, bytes], events: bytes) -> None:
        self._told[key] = events
        if len(self._told) > REMEMBERED:
            self._told.popitem(last=False)

    def told(self, trace_id: bytes, span_id: bytes, events: bytes) -> None:
        """Remember scores that a span of this run had before a restart."""
        with self._lock:
            self._tell((trace_id, span_id), events)

    def scores_of(self, root: PendingSpan) -> bytes:
        """The scores that a span of this run had before."""
        with self._lock:
            return self._told.get((root.trace_id, root.span_id), b"")

    def moved(self, roots: Sequence[PendingSpan], ack: Any) -> list[Any]:
        """Assign those of the spans that are still held to another request; returns the acks they had."""
        with self._lock:
            traces = {root.trace_id: self._traces.get(root.trace_id) for root in roots}
            here = {id(root) for trace in traces.values() if trace is not None for root in trace.roots}
            still = [root for root in roots if id(root) in here]
            ack.rest, ack.left = False, len(still)
            former = [root.ack for root in still]
            for root in still:
                root.ack = ack
            return former

    def waiting(self, trace_id: bytes) -> list[PendingSpan]:
        """The spans of a trace, which stay."""
        with self._lock:
            trace = self._traces.get(trace_id)
            return [] if trace is None else list(trace.roots)

    def release_all(self) -> list[ReleasedSpan]:
        """Remove and return every span, with the scores it has."""
        with self._lock:
            ids = list(self._traces)
        return [released for trace_id in ids for released in self.release(trace_id)]

    def __len__(self) -> int:
        """How many spans are held."""
        with self._lock:
            return sum(len(trace.roots) for trace in self._traces.values())
