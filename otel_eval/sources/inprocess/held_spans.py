"""Ended spans that wait for their scores before they are exported, and how scores are added to a span.

A span waits at most once: a second one with the same ids is not held.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from opentelemetry.attributes import BoundedAttributes
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.util import BoundedList

__all__ = ["HeldSpans", "event_of", "with_events"]


@dataclass(slots=True)
class _HeldTrace:
    since: float
    spans: dict[bytes, ReadableSpan] = field(default_factory=dict)
    events: dict[bytes, list[Event]] = field(default_factory=dict)


class HeldSpans:
    """Spans by trace, oldest trace first. Safe from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # guards _traces
        self._traces: dict[bytes, _HeldTrace] = {}

    def hold(self, trace_id: bytes, span_id: bytes, span: ReadableSpan, now: float) -> bool:
        """Keep the span; False if one of these ids is here."""
        with self._lock:
            trace = self._traces.setdefault(trace_id, _HeldTrace(now))
            if span_id in trace.spans:
                return False
            trace.spans[span_id] = span
            return True

    def score(self, trace_id: bytes, span_id: bytes, events: Sequence[Event]) -> bool:
        """Add events to a span; False if it is not here."""
        with self._lock:
            trace = self._traces.get(trace_id)
            if trace is None or span_id not in trace.spans:
                return False
            trace.events.setdefault(span_id, []).extend(events)
            return True

    def release(self, trace_ids: Iterable[bytes]) -> list[ReadableSpan]:
        """The spans of these traces, with the events they got."""
        with self._lock:
            found = [trace for trace_id in trace_ids if (trace := self._traces.pop(trace_id, None)) is not None]
        return [with_events(span, trace.events.get(own, ())) for trace in found for own, span in trace.spans.items()]

    def waiting(self, before: float = float("inf")) -> list[bytes]:
        """The traces that have waited since `before`, the oldest first."""
        with self._lock:
            return [trace_id for trace_id, trace in self._traces.items() if trace.since <= before]

    def __len__(self) -> int:
        """How many spans wait."""
        with self._lock:
            return sum(len(trace.spans) for trace in self._traces.values())


def with_events(span: ReadableSpan, events: Sequence[Event]) -> ReadableSpan:
    """A span equal to `span` with the events added; the counts of what its limits dropped are kept."""
    if not events:
        return span
    return ReadableSpan(
        name=span.name,
        context=span.context,
        parent=span.parent,
        resource=span.resource,
        # The inner collections, where the SDK has them: they carry the dropped counts.
        attributes=getattr(span, "_attributes", span.attributes),
        events=_joined(span, events),
        links=getattr(span, "_links", span.links),
        kind=span.kind,
        instrumentation_info=getattr(span, "_instrumentation_info", None),
        status=span.status,
        start_time=span.start_time,
        end_time=span.end_time,
        instrumentation_scope=span.instrumentation_scope,
    )


def _joined(span: ReadableSpan, events: Sequence[Event]) -> Any:
    joined = [*span.events, *events]
    bounded: Any = BoundedList.from_seq(len(joined), joined)
    bounded.dropped = span.dropped_events
    return bounded


def event_of(name: str, attributes: Mapping[str, Any], timestamp_ns: int) -> Event:
    """An event of the SDK whose attributes cannot be changed any more."""
    return Event(name, BoundedAttributes(attributes=attributes, immutable=True), timestamp_ns)
