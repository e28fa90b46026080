"""Spans that wait for their scores, by trace, and the scores that wait for their trace to be judged.

Knows bytes and ids; knows no clock and no endpoint. Bounded by what assembly holds: a span waits only while its trace is
open, and it is the same bytes object that assembly keeps.
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
    """A span that waits; `ack` is its request's."""

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
    """Roots in; out again with their scores when their trace is judged. Safe from any thread."""

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
        """Forget them again: the request they came in was not taken."""
        with self._lock:
            for root in roots:
                trace = self._traces.get(root.trace_id)
                if trace is None:
                    continue
                trace.roots = [each for each in trace.roots if each is not root]
                if not trace.roots:
                    del self._traces[root.trace_id]

    def score(self, trace_id: bytes, span_id: bytes, events: bytes) -> bool:
        """Add scores to a root; False if it is not here: it left before, or is not known."""
        with self._lock:
            trace = self._traces.get(trace_id)
            if trace is None or all(root.span_id != span_id for root in trace.roots):
                return False
            trace.scores[span_id] = trace.scores.get(span_id, b"") + events
            return True

    def release(self, trace_id: bytes) -> list[ReleasedSpan]:
        """The roots of a trace with the scores they have."""
        with self._lock:
            trace = self._traces.pop(trace_id, None)
            if trace is None:
                return []
            return [(root.container, root.payload + self._events(trace, root), root.ack) for root in trace.roots]

    def _events(self, trace: _Trace, root: PendingSpan) -> bytes:
        """Its scores; those it had the first time if it was sent again and nothing about its run changed."""
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
        """Scores that a span of this run had before a restart."""
        with self._lock:
            self._tell((trace_id, span_id), events)

    def scores_of(self, root: PendingSpan) -> bytes:
        """What a span of this run had before."""
        with self._lock:
            return self._told.get((root.trace_id, root.span_id), b"")

    def moved(self, roots: Sequence[PendingSpan], ack: Any) -> list[Any]:
        """Give those of the roots that still wait to another request; the acks they had."""
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
        """The roots of a trace, which stay."""
        with self._lock:
            trace = self._traces.get(trace_id)
            return [] if trace is None else list(trace.roots)

    def release_all(self) -> list[ReleasedSpan]:
        """Every root, with the scores it has."""
        with self._lock:
            ids = list(self._traces)
        return [released for trace_id in ids for released in self.release(trace_id)]

    def __len__(self) -> int:
        """How many roots wait."""
        with self._lock:
            return sum(len(trace.roots) for trace in self._traces.values())
