"""Holds spans until their trace was evaluated, and decides which spans are held.

A span is held if it may be a run's own span, an agent span or else a local root span, and if there
is an evaluation whose conditions (sample, service, name, attributes) it may meet. The filter sees
one span at a time and no tree, so it holds some spans in vain, but never longer than their trace is
open. So the limits of assembly bound them, too, and they share the bytes objects of assembly.
"""

from __future__ import annotations

import threading
import zlib
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from otel_eval.conventions.reader import DROPPED, is_local_root
from otel_eval.engine import Engine, sampling_hash
from otel_eval.forwarding.splice import SpanContainer, wrap_spans
from otel_eval.interfaces import Frame, SpanFrame, SpanReader
from otel_eval.model import Kind, Report

# runs whose scores are kept in case a client sends their span again
_MAX_EARLIER_SCORES: Final = 4096


@dataclass(slots=True, eq=False)
class PendingSpan:
    """A span that is held; `ack` is that of its request."""

    trace_id: bytes
    span_id: bytes
    payload: bytes
    container: SpanContainer
    ack: Any = None

    def with_scores(self, events: bytes) -> PendingSpan:
        """Return the span with scores at the end of its payload."""
        return PendingSpan(
            self.trace_id, self.span_id, self.payload + events, self.container, self.ack
        )


@dataclass(slots=True)
class _Trace:
    roots: list[PendingSpan] = field(default_factory=list)
    scores: dict[bytes, bytes] = field(default_factory=dict)


class PendingSpans:
    """Holds spans, and releases them with their scores when their trace was evaluated. Safe from
    any thread.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()  # guards what follows
        self._traces: dict[bytes, _Trace] = {}
        self._earlier_scores: OrderedDict[tuple[bytes, bytes], bytes] = OrderedDict()

    def hold(self, roots: Iterable[PendingSpan]) -> None:
        """Hold spans until their trace is released."""
        with self._lock:
            for root in roots:
                self._traces.setdefault(root.trace_id, _Trace()).roots.append(root)

    def drop(self, roots: Sequence[PendingSpan]) -> None:
        """Remove spans whose request was not accepted."""
        with self._lock:
            for root in roots:
                if (trace := self._traces.get(root.trace_id)) is not None:
                    trace.roots = [other for other in trace.roots if other is not root]
                    if not trace.roots:
                        del self._traces[root.trace_id]

    def score(self, trace_id: bytes, span_id: bytes, events: bytes) -> bool:
        """Add scores to a span; False if it is not held (any more)."""
        with self._lock:
            trace = self._traces.get(trace_id)
            if trace is None or all(root.span_id != span_id for root in trace.roots):
                return False
            trace.scores[span_id] = trace.scores.get(span_id, b"") + events
            return True

    def release(self, trace_id: bytes) -> list[PendingSpan]:
        """Remove and return the spans of a trace, with the scores they have at the end of their
        payload.
        """
        with self._lock:
            trace = self._traces.pop(trace_id, _Trace())
            # New objects: compaction of the journal may be writing the held ones, without scores.
            return [root.with_scores(self._events(trace, root)) for root in trace.roots]

    def _events(self, trace: _Trace, root: PendingSpan) -> bytes:
        """The span's scores; if it was sent again and its run did not change, the scores that it
        had before.
        """
        key = (root.trace_id, root.span_id)
        # A client that got no response sends the span again. A run that did not change has no new
        # results.
        events = trace.scores.get(root.span_id)
        if events is None:
            return self._earlier_scores.get(key, b"")
        self._keep_scores(key, events)
        return events

    def _keep_scores(self, key: tuple[bytes, bytes], events: bytes) -> None:
        self._earlier_scores[key] = events
        if len(self._earlier_scores) > _MAX_EARLIER_SCORES:
            self._earlier_scores.popitem(last=False)

    def add_earlier_scores(self, trace_id: bytes, span_id: bytes, events: bytes) -> None:
        """Keep the scores that a span of this run had before a restart, in case the span is sent
        again.
        """
        with self._lock:
            self._keep_scores((trace_id, span_id), events)

    def earlier_scores(self, root: PendingSpan) -> bytes:
        """The scores that were put on this span before; b"" if there are none."""
        with self._lock:
            return self._earlier_scores.get((root.trace_id, root.span_id), b"")

    def reassign(self, roots: Sequence[PendingSpan], ack: Any) -> list[Any]:
        """Assign those of the spans that are still held to another request; return the acks they
        had before.
        """
        with self._lock:
            traces = {root.trace_id: self._traces.get(root.trace_id) for root in roots}
            # By identity: the same span may be held twice, as parts of two requests that a client
            # sent.
            held_ids = {
                id(root) for trace in traces.values() if trace is not None for root in trace.roots
            }
            still_held = [root for root in roots if id(root) in held_ids]
            ack.has_remainder, ack.held_spans = False, len(still_held)
            former = [root.ack for root in still_held]
            for root in still_held:
                root.ack = ack
            return former

    def journaled_of(self, trace_id: bytes) -> tuple[list[PendingSpan], bytes]:
        """The held spans of a trace whose requests are journaled, which are not removed, and a
        request that consists of them.
        """
        with self._lock:
            roots = [
                root
                for root in self._traces.get(trace_id, _Trace()).roots
                if root.ack is not None and root.ack.position is not None
            ]
        return roots, wrap_spans((root.container, root.payload) for root in roots)

    def release_all(self) -> list[PendingSpan]:
        """Remove and return all spans, with the scores they have."""
        return [released for trace_id in list(self._traces) for released in self.release(trace_id)]

    def __len__(self) -> int:
        """How many spans are held."""
        with self._lock:
            return sum(len(trace.roots) for trace in self._traces.values())


def checksum_of(roots: Sequence[PendingSpan]) -> int:
    """A checksum of the ids of spans: it shows after a restart whether the same spans of a request
    would be held; 0 for none.
    """
    # 0 stands for "none was held", so that a checksum which happens to be 0 becomes 1.
    return (
        zlib.crc32(b"".join([root.trace_id + root.span_id for root in roots])) or 1 if roots else 0
    )


@dataclass(slots=True, eq=False)
class UnsentRequest:
    """A request that was accepted before a restart and not forwarded, or only in part.

    Attributes:
        signal, body, items, spans: of the request as it was accepted.
        position: where it is journaled.
        is_held: whether it consists of held spans alone.
        checksum: `Ack.checksum` of the request if everything but its held spans was forwarded,
            else None.
        moved: trace and span ids of spans that were journaled again as part of another request.
        evaluated: the reports on its traces that were evaluated, by trace id.
    """

    signal: str
    body: bytes
    items: int
    spans: Sequence[SpanFrame]
    position: Any
    is_held: bool = False
    checksum: int | None = None
    moved: set[tuple[bytes, bytes]] = field(default_factory=set)
    evaluated: dict[bytes, Sequence[Report]] = field(default_factory=dict)


class HoldFilter:
    """Decides for each span whether it is held.

    Args:
        engine: the evaluations for which spans are held, and the conventions that recognise agent
            spans.
    """

    def __init__(self, engine: Engine) -> None:
        self._reader: Final = engine.plan.reader
        self._attributes: Final = engine.plan.attributes_wanted
        self._evaluations: Final = [evaluation.applies for evaluation in engine.evaluations]
        self._sampled: Final = any(evaluation.sample < 1 for evaluation in engine.evaluations)

    def chosen(self, spans: Sequence[SpanFrame]) -> list[tuple[bytes, bytes, Any]]:
        """Trace id, span id and payload of the spans to hold, in order."""
        chosen = []
        for trace_id, span_id, frame, _ in spans:
            _, payload, resource_scope = frame
            span, scope = (
                resource_scope.reader(payload),
                self._reader.of_scope(resource_scope.scope_name),
            )
            classified = scope.read(span)
            may_be_run = classified is not DROPPED and (
                classified.kind is Kind.AGENT or is_local_root(frame, span)
            )
            if may_be_run and self._may_apply(trace_id, frame, span):
                chosen.append((trace_id, span_id, payload))
        return chosen

    def _may_apply(self, trace_id: bytes, frame: Frame, span: SpanReader) -> bool:
        # The hash costs as much as the rest of the check, and few configurations sample.
        trace_hash = sampling_hash(trace_id) if self._sampled else 0.0
        attributes: dict[str, Any] = {}
        if self._attributes.keys:
            attributes = {**frame[2].shared(self._attributes), **span.attributes(self._attributes)}
        names = {"service": frame[2].service, "name": span.name}
        return any(
            matcher.may_apply(trace_hash, names, attributes) for matcher in self._evaluations
        )
