"""The private attributes of the SDK that are used here: the order of processors, open parents, memory, and copies of ended spans.

Each access is guarded, and an SDK that answers differently costs the advantage, never an error. Checked with SDK 1.30 to 1.45.

Why order matters: a provider shuts its processors down in the order in which they were added. A batch processor added before ours
is closed before the last run's scores can be sent through it. Spans are copied to add scores to them: an ended span is read-only.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from sys import getsizeof
from types import MappingProxyType
from typing import Any, Final

from opentelemetry.attributes import BoundedAttributes
from opentelemetry.sdk.trace import Event, ReadableSpan, SynchronousMultiSpanProcessor
from opentelemetry.sdk.util import BoundedList
from opentelemetry.trace import get_current_span


def pipeline_of(span: Any) -> Any:
    """The processors of the span's provider. None if the SDK does not show them."""
    return getattr(span, "_span_processor", None)


def neighbours(pipeline: Any) -> tuple[Any, ...]:
    """The processors of a pipeline in order; none if the SDK does not show them."""
    found = getattr(pipeline, "_span_processors", ())
    return found if isinstance(found, tuple) else ()


def move_to_front(processor: Any, pipeline: Any) -> bool:
    """Have `processor` called, flushed and shut down before the others; False if that cannot be known to hold.

    The pipeline replaces its tuple of processors under its lock and iterates over the old one, so a callback that is under
    way is not disturbed.
    """
    if not isinstance(pipeline, SynchronousMultiSpanProcessor):
        return False
    try:
        with pipeline._lock:
            others = tuple(each for each in pipeline._span_processors if each is not processor)
            if len(others) == len(pipeline._span_processors):
                return False  # we are inside another processor
            if pipeline._span_processors != (processor, *others):  # also if it was added twice
                pipeline._span_processors = (processor, *others)
    except (AttributeError, TypeError):
        return False
    return True


def open_parent(span: Any, parent_context: Any) -> int | None:
    """The id of the span's parent if that is an open span of the same provider.

    Asked for the first span that we see of a trace: such a parent started before we were added, and will tell us its end.
    A parent of another provider will not.
    """
    parent = span.parent
    if parent is None or parent.is_remote or not parent.trace_flags.sampled:
        return None
    held = get_current_span(parent_context)
    if held.get_span_context() != parent or not held.is_recording():
        return None
    pipeline = pipeline_of(held)
    return parent.span_id if pipeline is not None and pipeline is pipeline_of(span) else None


# Measured with tracemalloc, SDK 1.30 to 1.45, CPython 3.11.
SPAN_BYTES: Final = 2600  # an ended span: the object, its context, its empty collections and their locks
_ATTRIBUTE_BYTES: Final = 80  # beside the value: the entry of a dictionary that grows by doubling
_EVENT_BYTES: Final = 420  # without attributes
_LINK_BYTES: Final = 560  # without attributes, with its context
_DICTIONARIES: Final = (dict, OrderedDict)  # which of them the SDK uses depends on its version and on limits
_NESTED: Final = frozenset({tuple, list, set, frozenset, dict, OrderedDict, MappingProxyType})


def size_of(span: ReadableSpan) -> int:
    """About how many bytes a span holds, open or ended, within a factor of two; linear in what it holds, about 1 µs.

    Texts and bytes count with their size in memory, in sequences and in attributes of events and links too. A text that
    several spans share counts for each of them, as it does in OTLP.
    """
    size = SPAN_BYTES + getsizeof(span.name) + _attributes_size(raw_attributes(span))
    for each in _inner(span, "_events", "events"):
        size += _EVENT_BYTES + _attributes_size(each.attributes)
    for each in _inner(span, "_links", "links"):
        size += _LINK_BYTES + _attributes_size(each.attributes)
    description = span.status.description
    return size + len(description) if description else size


def raw_attributes(span: ReadableSpan) -> Any:
    """The attributes without the read-only proxy that the public property builds each time."""
    raw = getattr(span, "_attributes", None)
    return span.attributes if raw is None else raw


def attributes_of(attributes: Any) -> dict[str, Any]:
    """The attributes as a dictionary, not to be changed. The SDK's own mapping takes a lock for each key."""
    inner: Any = getattr(attributes, "_dict", None)
    if type(inner) in _DICTIONARIES:
        held: dict[str, Any] = inner
        return held
    return dict(attributes) if attributes else {}


def _inner(span: Any, field: str, public: str) -> Iterable[Any]:
    """Events or links. The public property copies them under a lock; the deque that the SDK keeps is copied in one step."""
    kept = getattr(getattr(span, field, None), "_dq", None)
    if kept is None:
        return tuple(getattr(span, public))
    return tuple(kept) if kept else ()


def _attributes_size(attributes: Any) -> int:
    # list() is one step for the interpreter, so that another thread may add attributes meanwhile.
    values = list(attributes_of(attributes).values()) if attributes else []
    size = _ATTRIBUTE_BYTES * len(values) + sum(map(getsizeof, values))
    return size if _NESTED.isdisjoint(map(type, values)) else size + _elements_size(values)


def _elements_size(values: Iterable[Any]) -> int:
    """What the elements of sequences and mappings take, however deeply nested; each collection counts once."""
    size, rest, seen = 0, [each for each in values if type(each) in _NESTED], set[int]()
    while rest:
        value = rest.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        elements = [*value.keys(), *value.values()] if isinstance(value, Mapping) else list(value)
        size += sum(map(getsizeof, elements))
        rest += [each for each in elements if type(each) in _NESTED]
    return size


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
        return [_with_events(span, trace.events.get(own, ())) for trace in found for own, span in trace.spans.items()]

    def waiting(self, before: float = float("inf")) -> list[bytes]:
        """The traces that have waited since `before`, the oldest first."""
        with self._lock:
            return [trace_id for trace_id, trace in self._traces.items() if trace.since <= before]

    def __len__(self) -> int:
        """How many spans wait."""
        with self._lock:
            return sum(len(trace.spans) for trace in self._traces.values())


def _with_events(span: ReadableSpan, events: Sequence[Event]) -> ReadableSpan:
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
