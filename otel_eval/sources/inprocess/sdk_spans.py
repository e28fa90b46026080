"""Read spans of the SDK as a receiver reads them from OTLP, measure them, hold them for scores, and
access private attributes.

Each access to a private attribute of the SDK is guarded: if a version differs, only an optimisation
is lost. Checked with SDK 1.30 to 1.45.

Why the order of processors matters: a provider shuts them down in the order in which they were
added. A batch processor added before ours is closed before the last run's scores can be sent
through it. Scores are added to copies of spans: an ended span is read-only.
"""

from __future__ import annotations

import threading
from base64 import b64encode
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from itertools import count
from operator import attrgetter
from sys import getsizeof
from types import MappingProxyType
from typing import Any, Final, cast

from opentelemetry.attributes import BoundedAttributes
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan, SynchronousMultiSpanProcessor
from opentelemetry.sdk.util import BoundedList
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import get_current_span

from otel_eval.conventions.reader import exported_resource
from otel_eval.conventions.values import writable
from otel_eval.interfaces import Deployment, SpanEvent, SpanFrame, SpanReader, Wanted
from otel_eval.native import extension


def pipeline_of(span: Any) -> Any:
    """The processors of the span's provider. None if the SDK does not show them."""
    return getattr(span, "_span_processor", None)


def neighbours(pipeline: Any) -> tuple[Any, ...]:
    """The processors of a pipeline in order; none if the SDK does not show them."""
    found = getattr(pipeline, "_span_processors", ())
    return found if isinstance(found, tuple) else ()


def runs_on_callers(pipeline: Any) -> bool:
    """Whether callbacks run on the thread on which the span starts or ends, and not in a pool of
    threads.
    """
    return isinstance(pipeline, SynchronousMultiSpanProcessor)


def move_to_front(processor: Any, pipeline: Any) -> bool:
    """Have `processor` called, flushed and shut down before the others; False if that cannot be
    ensured.

    The pipeline replaces its tuple of processors under its lock and iterates over the old one, so a
    callback that is under way is not disturbed.
    """
    if not runs_on_callers(pipeline):
        return False
    try:
        with pipeline._lock:
            others = tuple(each for each in pipeline._span_processors if each is not processor)
            if len(others) == len(pipeline._span_processors):
                return False  # it is inside another processor
            if pipeline._span_processors != (processor, *others):  # also if it was added twice
                pipeline._span_processors = (processor, *others)
    except (AttributeError, TypeError):
        return False
    return True


def open_parent(span: Any, parent_context: Any) -> Any:
    """Return the span's parent if that is an open span of the same provider; else None.

    Called for the first span of a trace that is seen: such a parent started before the processor
    was added, or its trace was submitted since. The processor will still be notified of its end,
    but not of the end of another provider's span.
    """
    parent = span.parent
    if parent is None or parent.is_remote or not parent.trace_flags.sampled:
        return None
    current = get_current_span(parent_context)
    if current.get_span_context() != parent or not current.is_recording():
        return None
    pipeline = pipeline_of(current)
    return current if pipeline is not None and pipeline is pipeline_of(span) else None


# Measured with tracemalloc, SDK 1.30 to 1.45, CPython 3.11.
# an ended span: the object, its context, its empty collections and their locks
SPAN_BYTES: Final = 2600
_ATTRIBUTE_BYTES: Final = 80  # beside the value: the entry of a dictionary that grows by doubling
_EVENT_BYTES: Final = 420  # without attributes
_LINK_BYTES: Final = 560  # without attributes, with its context
# which of them the SDK uses depends on its version and on limits
_DICTIONARIES: Final = (dict, OrderedDict)
_NESTED: Final = frozenset({tuple, list, set, frozenset, dict, OrderedDict, MappingProxyType})


def size_of(span: ReadableSpan) -> int:
    """Estimate the bytes of a span, open or ended, within a factor of two; takes about 1 µs, linear
    in the span's content.

    Texts and bytes count with their size in memory, in sequences and in attributes of events and
    links too. A text that several spans share counts for each of them, as it does in OTLP.
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
    """Return the attributes as a dictionary that must not be changed. The SDK's own mapping takes a
    lock for each key.
    """
    inner: Any = getattr(attributes, "_dict", None)
    held: dict[str, Any] = inner if type(inner) in _DICTIONARIES else dict(attributes or {})
    return held


def _inner(span: Any, field: str, public: str) -> Iterable[Any]:
    """Return events or links. The public property copies them under a lock; here the SDK's deque is
    copied in one step.
    """
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
    """Return the bytes of the elements of sequences and mappings, however deeply nested; each
    collection counts once.
    """
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
    # by id, with the events and attributes they got
    spans: dict[bytes, tuple[ReadableSpan, list[Event], dict[str, Any]]] = field(
        default_factory=dict
    )


class HeldSpans:
    """Spans by trace, oldest trace first. Safe from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # guards _traces
        self._traces: dict[bytes, _HeldTrace] = {}

    def hold(self, trace_id: bytes, span_id: bytes, span: ReadableSpan, now: float) -> bool:
        """Add a span; False if a span with these ids is held already."""
        with self._lock:
            trace = self._traces.setdefault(trace_id, _HeldTrace(now))
            if span_id in trace.spans:
                return False
            trace.spans[span_id] = span, [], {}
            return True

    def score(
        self,
        trace_id: bytes,
        span_id: bytes,
        events: Sequence[Event],
        attributes: Mapping[str, Any],
    ) -> bool:
        """Add events and attributes to a span; False if it is not held."""
        with self._lock:
            trace = self._traces.get(trace_id)
            if trace is None or span_id not in trace.spans:
                return False
            trace.spans[span_id][1].extend(events)
            trace.spans[span_id][2].update(attributes)
            return True

    def release(self, trace_ids: Iterable[bytes]) -> list[ReadableSpan]:
        """Remove these traces, and return their spans with what was added to them."""
        with self._lock:
            found = [
                trace
                for trace_id in trace_ids
                if (trace := self._traces.pop(trace_id, None)) is not None
            ]
        return [_with_scores(*held) for trace in found for held in trace.spans.values()]

    def waiting(self, before: float = float("inf")) -> list[bytes]:
        """Return the ids of traces that have been held since `before` or longer, the oldest
        first.
        """
        with self._lock:
            return [trace_id for trace_id, trace in self._traces.items() if trace.since <= before]

    def __len__(self) -> int:
        """The number of spans that are held."""
        with self._lock:
            return sum(len(trace.spans) for trace in self._traces.values())


def _with_scores(
    span: ReadableSpan, events: Sequence[Event], attributes: Mapping[str, Any]
) -> ReadableSpan:
    """A span equal to `span` with the events and attributes added; the counts of what its limits
    dropped are kept.
    """
    if not events:
        return span
    joined = [*span.events, *events]
    bounded: Any = BoundedList.from_seq(len(joined), joined)
    bounded.dropped = span.dropped_events
    scored: Any = copy(span)
    scored._events = bounded
    if attributes:
        own: Any = span.attributes or {}
        scored._attributes = BoundedAttributes(attributes={**own, **attributes}, immutable=True)
        scored._attributes.dropped = span.dropped_attributes
    return cast(ReadableSpan, scored)


def event_of(name: str, attributes: Mapping[str, Any], timestamp_ns: int) -> Event:
    """Return an event of the SDK with immutable attributes."""
    return Event(name, BoundedAttributes(attributes=attributes, immutable=True), timestamp_ns)


# resources × scopes; a process has a handful, a test suite a new one per provider
_MAX_SCOPES: Final = 256

_extension: Final = extension("_native")
# The attributes behind the SDK's properties, read in one call in C. Checked with SDK 1.30 to 1.45;
# if one is missing, the properties are read.
_FIELDS: Final = attrgetter(
    *(
        "_name",
        "_kind._value_",
        "_start_time",
        "_end_time",
        "_status._status_code._value_",
        "_status._description",
    ),
    *("_attributes._dict", "_events._dq"),
)


def otlp_value(value: Any) -> Any:
    """Convert a value to what OTLP would carry: lists for tuples, base64 text for bytes, built-in
    types for their subclasses.
    """
    match value:
        case None | bool():
            return value
        case str():
            return str.__str__(value)
        case int():
            return writable(int(value))
        case float():
            return float(value)
        case bytes():
            return b64encode(value).decode()
        case Mapping():
            return {str(key): otlp_value(each) for key, each in value.items()}
        case Sequence():
            return [otlp_value(each) for each in value]
    return str(value)


def _items(attributes: Any) -> dict[str, Any]:
    """Return a copy of the attributes: the program may change its own meanwhile, for example to
    redact them.
    """
    return attributes_of(attributes).copy()


class SdkSpanReader:
    """Reads an SDK span; see `otel_eval.interfaces.SpanReader`."""

    __slots__ = ("_span",)

    def __init__(self, span: ReadableSpan) -> None:
        self._span = span

    @property
    def name(self) -> str:
        """The span's name."""
        return self._span.name

    @property
    def span_kind(self) -> int:
        """The span's kind as a number of OTLP, which begins with 1 (internal); those of the SDK
        begin with 0.
        """
        return int(self._span.kind.value) + 1

    @property
    def parent_is_remote(self) -> bool | None:
        """Whether the span's parent is in another process; None if it has none."""
        parent = self._span.parent
        return None if parent is None else bool(parent.is_remote)

    @property
    def start_ns(self) -> int:
        """Unix nanoseconds, 0 if it was not recorded."""
        return self._span.start_time or 0

    @property
    def end_ns(self) -> int:
        """Unix nanoseconds, 0 if it was not recorded."""
        return self._span.end_time or 0

    @property
    def status_code(self) -> int:
        """0 unset, 1 ok, 2 error."""
        return int(self._span.status.status_code.value)

    @property
    def status_message(self) -> str:
        """The description of the status."""
        return self._span.status.description or ""

    @property
    def dropped_attributes(self) -> int:
        """How many attributes did not fit."""
        return self._span.dropped_attributes

    def attributes(self, wanted: Wanted) -> dict[str, Any]:
        """The wanted attributes that the span has."""
        return _wanted(_items(raw_attributes(self._span)), wanted)

    def events(self) -> Iterator[SpanEvent]:
        """The span's events in order."""
        return (
            SpanEvent(event.name, otlp_value(_items(event.attributes)))
            for event in self._span.events
        )


def _wanted(items: Mapping[str, Any], wanted: Wanted) -> dict[str, Any]:
    keys, prefixes = wanted.keys, wanted.prefixes
    return {
        key: otlp_value(value)
        for key, value in items.items()
        if key in keys or (prefixes and key.startswith(prefixes))
    }


class SdkResourceScope:
    """One resource and scope of the SDK; see `otel_eval.interfaces.ResourceScope`."""

    __slots__ = ("_resource", "_scope", "deployment", "resource", "scope_name", "service")

    def __init__(self, resource: Resource | None, scope: InstrumentationScope | None) -> None:
        self._resource, self._scope = resource, scope
        self.scope_name: str = (scope.name if scope is not None else "") or ""
        attributes = _items(resource.attributes) if resource is not None else {}
        self.service: str = str(attributes.get("service.name", ""))
        self.deployment: Deployment = Deployment.of(attributes)
        self.resource: Mapping[str, Any] = exported_resource(otlp_value(attributes))

    def shared(self, wanted: Wanted) -> dict[str, Any]:
        """The wanted attributes of the resource, then of the scope where the resource has none."""
        scope = _wanted(_items(getattr(self._scope, "attributes", None)), wanted)
        return scope | _wanted(
            _items(self._resource.attributes if self._resource is not None else None), wanted
        )

    def reader(self, payload: ReadableSpan) -> SpanReader:
        """Return a reader of the span."""
        reader = SdkSpanReader(payload)
        if _extension is None:
            return reader
        try:  # reads the span as if it had been received over the wire
            native_reader: SpanReader = _extension.recorded(*_FIELDS(payload), reader)
        except (AttributeError, TypeError):  # not the SDK's own class, or that of a later SDK
            return reader
        return native_reader

    def size(self, payload: ReadableSpan) -> int:
        """The bytes of all text that the span recorded, or more: also in UTF-8, and of bytes in
        base64.
        """
        return 2 * (size_of(payload) - SPAN_BYTES)

    def slim(self, payload: ReadableSpan, wanted: Wanted) -> ReadableSpan:
        """Return the span itself: its program may hold it as well."""
        return payload

    def rank(self, payload: ReadableSpan) -> tuple[Any, ...]:
        """Return the key that orders spans of one id: end, number of attributes, then all that
        distinguishes the spans.
        """
        items, span = _items(raw_attributes(payload)), SdkSpanReader(payload)
        attributes = sorted(otlp_value(items).items())
        rank = (
            span.name,
            span.start_ns,
            span.status_code,
            span.status_message,
            attributes,
            [*span.events()],
        )
        return (span.end_ns, len(items), repr(rank).encode())


class SdkResourceScopes:
    """A bounded cache with one object for each pair of resource and scope. Used by one thread."""

    def __init__(self) -> None:
        self._kept: dict[tuple[int, int], SdkResourceScope] = {}

    def of(self, span: ReadableSpan) -> SdkResourceScope:
        """Return the object of the span's resource and scope. It references both, so their `id()`
        is not reused.
        """
        resource, scope = span.resource, span.instrumentation_scope
        key = (id(resource), id(scope))
        resource_scope = self._kept.get(key)
        if resource_scope is None:
            if len(self._kept) >= _MAX_SCOPES:
                self._kept.clear()
            resource_scope = self._kept[key] = SdkResourceScope(resource, scope)
        return resource_scope

    def frame(
        self, span: ReadableSpan, trace_id: bytes, span_id: int, parent_id: int | None = None
    ) -> SpanFrame:
        """Return the frame of a span for assembly; `parent_id`, if given, replaces the id of its
        parent.
        """
        if parent_id is None and span.parent is not None:
            parent_id = span.parent.span_id
        parent = b"" if parent_id is None else parent_id.to_bytes(8, "big")
        return (trace_id, span_id.to_bytes(8, "big"), (parent, span, self.of(span)), size_of(span))


def frames_of(spans: Iterable[ReadableSpan]) -> list[SpanFrame]:
    """Return the frames of ended spans for assembly.

    A span without ids (one created by hand) gets a made-up id; these ids increase in the order
    given. Such spans share one trace unless their parent names another.
    """
    scopes, made_up = SdkResourceScopes(), count(1)
    items = []
    for span in spans:
        context = span.context
        if context is not None:
            trace, own = context.trace_id, context.span_id
        else:
            trace, own = (span.parent.trace_id if span.parent is not None else 1), next(made_up)
        items.append(scopes.frame(span, trace.to_bytes(16, "big"), own))
    return items


_RUN: Final = {"gen_ai.operation.name": "invoke_agent"}


def frames_of_one_run(
    spans: Iterable[ReadableSpan], is_agent: Callable[[SpanReader, str], bool]
) -> list[SpanFrame]:
    """Return the frames of ended spans as one trace with one outermost run.

    A span whose parent is not among the spans becomes a child of the first such span that is an
    agent's; if there is none, of a run around all of them. Missing and repeated ids are made up,
    increasing in the order given.

    Args:
        spans: the spans of one run.
        is_agent: whether a span of a scope of this name is an agent's.
    """
    listed = list(spans)
    contexts = [span.context for span in listed if span.context is not None]
    known = {context.span_id for context in contexts}
    trace_id = (contexts[0].trace_id if contexts else 1).to_bytes(16, "big")
    made_up, scopes = (number for number in count(1) if number not in known), SdkResourceScopes()
    unused = set(known)
    ids = []
    for span in listed:
        own = span.context.span_id if span.context is not None else 0
        ids.append(own if own in unused else next(made_up))
        unused.discard(own)
    parents = [
        span.parent.span_id if span.parent is not None and span.parent.span_id in known else None
        for span in listed
    ]
    root = next(
        (
            own
            for span, own, parent in zip(listed, ids, parents, strict=True)
            if parent is None and is_agent(SdkSpanReader(span), scopes.of(span).scope_name)
        ),
        None,
    )
    frames = []
    if root is None and listed:
        around = ReadableSpan(
            "run",
            attributes=_RUN,
            start_time=min((span.start_time for span in listed if span.start_time), default=None),
            end_time=max((span.end_time for span in listed if span.end_time), default=None),
            resource=listed[0].resource,
        )
        root = next(made_up)
        frames.append(scopes.frame(around, trace_id, root))
    for span, own, parent in zip(listed, ids, parents, strict=True):
        above = parent if parent is not None or own == root else root
        _, span_id, (_, payload, scope), size = scopes.frame(span, trace_id, own)
        above_id = b"" if above is None else above.to_bytes(8, "big")
        frames.append((trace_id, span_id, (above_id, payload, scope), size))
    return frames
