"""What is kept of the SDK's spans, read as a receiver reads spans from OTLP, and how many bytes
that takes.

When a span has ended, an `SdkSpan` of it is held and not the SDK's object.
"""

from __future__ import annotations

import threading
from base64 import b64encode
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import field
from itertools import count
from sys import getsizeof
from types import MappingProxyType
from typing import Any, Final

from opentelemetry.attributes import BoundedAttributes
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import get_current_span

from otel_eval.conventions.reader import exported_resource
from otel_eval.conventions.table import OWN_SCOPE
from otel_eval.conventions.values import writable
from otel_eval.interfaces import LONG_TEXT, Deployment, SpanEvent, SpanFrame, SpanReader, Wanted
from otel_eval.native import extension
from otel_eval.records import record
from otel_eval.sdk_internals import (
    KeptSpan,
    attributes_of,
    pipeline_of,
    read_into,
    with_scores,
)

_native: Final = extension("_native")


def is_relevant(span: KeptSpan) -> bool:
    """Whether a span is evaluated: it is sampled, and not one that otel-eval exports."""
    return bool(span.is_sampled) and span.scope_name != OWN_SCOPE


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
KEPT_SPAN_BYTES: Final = 300  # of an ended span, beside its name, attributes and events
_TEXT_BYTES: Final = getsizeof("")
_ATTRIBUTE_BYTES: Final = 50  # the entry of a dictionary
_EVENT_BYTES: Final = 420  # without attributes
_NUMBER_BYTES: Final = 32
_NUMBERS: Final = frozenset({bool, float})
_LEAST: Final = -(2**63)  # an integer of OTLP
_MOST: Final = 2**63 - 1
_NESTED: Final = frozenset({tuple, list, set, frozenset, dict, OrderedDict, MappingProxyType})


def size_of(span: SdkSpan) -> int:
    """Estimate the bytes of what is kept of a span within a factor of two; once, in time linear in
    its content.

    Texts and bytes count with their size in memory, in sequences and in attributes of events too. A
    text that several spans share counts for each of them, as it does in OTLP. A span that changes
    meanwhile, or is not the SDK's, may count as an empty one.
    """
    if not span.held_bytes:
        try:
            size = _size_of_attributes(span.recorded_attributes) + KEPT_SPAN_BYTES
            for event in span.recorded_events:
                size += _EVENT_BYTES + _size_of_attributes(attributes_of(event.attributes))
            # characters take up to four bytes
            span.held_bytes = size + 2 * (len(span.name) + len(span.status_message))
        except Exception:  # noqa: BLE001
            span.held_bytes = KEPT_SPAN_BYTES
    return span.held_bytes


def _size_of_attributes(attributes: dict[str, Any]) -> int:
    if _native is not None:
        native_size: int | None = _native.size_of_attributes(attributes)
        if native_size is not None:
            return native_size
    return _size_in_python(attributes)


def _size_in_python(attributes: Mapping[str, Any]) -> int:
    size = 0
    # list() is one step for the interpreter, so that another thread may add attributes meanwhile.
    for value in list(attributes.values()):
        size += _ATTRIBUTE_BYTES
        kind = type(value)
        if kind is str and value.isascii():
            size += _TEXT_BYTES + len(value)  # as `getsizeof`, in a fifth of the time
        elif _is_number(value):
            size += _NUMBER_BYTES
        else:
            size += getsizeof(value)
            if kind in _NESTED:
                size += _elements_size((value,))
    return size


def _is_number(value: Any) -> bool:
    """Whether it is a boolean, a float, or an integer of OTLP."""
    kind = type(value)
    return kind in _NUMBERS or (kind is int and _LEAST <= value <= _MOST)


def _elements_size(values: Iterable[Any]) -> int:
    """Return the bytes of the elements of sequences and mappings, however deeply nested; each
    collection counts once.
    """
    size, collections, seen = 0, [value for value in values if type(value) in _NESTED], set[int]()
    while collections:
        collection = collections.pop()
        if id(collection) in seen:
            continue
        seen.add(id(collection))
        elements = list(collection)
        if isinstance(collection, Mapping):
            elements += collection.values()
        size += sum(map(getsizeof, elements))
        collections += [element for element in elements if type(element) in _NESTED]
    return size


@record
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
            traces = [
                trace
                for trace_id in trace_ids
                if (trace := self._traces.pop(trace_id, None)) is not None
            ]
        return [with_scores(*scored) for trace in traces for scored in trace.spans.values()]

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


def event_of(name: str, attributes: Mapping[str, Any], timestamp_ns: int) -> Event:
    """Return an event of the SDK with immutable attributes."""
    return Event(name, BoundedAttributes(attributes=attributes, immutable=True), timestamp_ns)


# a process has a handful, a test suite new ones for each provider
_MAX_SCOPES: Final = 256


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
            return {str(key): otlp_value(element) for key, element in value.items()}
        case Sequence():
            return [otlp_value(element) for element in value]
    return str(value)


_MOST_MARKS: Final = 48  # of a fingerprint; the C extension has the same number
_AS_IT_IS: Final = frozenset({str, bool, float, type(None)})


class SdkSpan(KeptSpan):
    """What is kept of a span of the SDK, and reads it; see `otel_eval.interfaces.SpanReader`."""

    __slots__ = ()

    @property
    def span_kind(self) -> int:
        """The span's kind as a number of OTLP, which begins with 1 (internal); those of the SDK
        begin with 0.
        """
        return int(self.kind.value) + 1

    def attributes(self, wanted: Wanted) -> dict[str, Any]:
        """The wanted attributes that the span has."""
        if _native is not None:
            plain: dict[str, Any] | None = _native.wanted_of(self.recorded_attributes, wanted)
            if plain is not None:
                return plain
        return _wanted(self.recorded_attributes, wanted)

    def events(self) -> list[SpanEvent]:
        """The span's events in order."""
        return [
            SpanEvent(event.name, otlp_value(attributes_of(event.attributes).copy()))
            for event in self.recorded_events
        ]

    def fingerprint(self, wanted: Wanted) -> tuple[object, ...] | None:
        """The name and the wanted attributes, texts that do not matter left out; None if one of
        them is no plain value.
        """
        if _native is None:
            return _fingerprint_of(self.recorded_attributes, wanted, self.name)
        fingerprint: tuple[object, ...] | None = _native.fingerprint_of(
            self.recorded_attributes, wanted, self.name
        )
        return fingerprint

    def with_ids(self, span_id: int, parent_id: int) -> SdkSpan:
        """Return a copy with other ids."""
        changed = copy(self)
        changed.span_id, changed.parent_id = span_id, parent_id
        return changed


def keep(span: Any) -> SdkSpan:
    """Return what is kept of a span of the SDK, open or ended."""
    kept_span = SdkSpan()
    read_into(kept_span, span)
    return kept_span


def _fingerprint_of(
    attributes: Mapping[str, Any], wanted: Wanted, name: str
) -> tuple[object, ...] | None:
    marks: list[object] = [name] if wanted.named else []
    for key, value in list(attributes.items()):
        if key not in wanted.keys:
            continue
        if len(marks) > _MOST_MARKS - 3:
            return None
        kind = type(value)
        if kind is str:
            is_omitted = value and (
                key in wanted.presence or (wanted.short and len(value) > LONG_TEXT)
            )
            marks += (key, None if is_omitted else value)
        elif _is_number(value):
            marks += (key, kind, value)  # 1, 1.0 and True are equal
        else:
            return None
    return tuple(marks)


def _wanted(attributes: Mapping[str, Any], wanted: Wanted) -> dict[str, Any]:
    """The wanted attributes, decoded. The items are copied first: another processor may change
    attributes meanwhile, for example to redact them.
    """
    return {
        key: value if type(value) in _AS_IT_IS else otlp_value(value)
        for key, value in list(attributes.items())
        if key in wanted.keys or key.startswith(wanted.prefixes)
    }


class SdkResourceScope:
    """One resource and scope of the SDK; see `otel_eval.interfaces.ResourceScope`."""

    __slots__ = ("_scope", "deployment", "resource", "scope_name", "sdk_resource", "service")

    def __init__(self, resource: Resource | None, scope: InstrumentationScope | None) -> None:
        self.sdk_resource, self._scope = resource, scope
        self.scope_name: str = (scope.name if scope is not None else "") or ""
        attributes = _public(resource)
        self.service: str = str(attributes.get("service.name", ""))
        self.deployment: Deployment = Deployment.of(attributes)
        self.resource: Mapping[str, Any] = exported_resource(otlp_value(attributes))

    def shared(self, wanted: Wanted) -> dict[str, Any]:
        """The wanted attributes of the resource, then of the scope where the resource has none."""
        return _wanted(_public(self._scope), wanted) | _wanted(_public(self.sdk_resource), wanted)

    def reader(self, payload: SdkSpan) -> SdkSpan:
        """Return the span, which reads itself."""
        return payload

    def size(self, payload: SdkSpan) -> int:
        """The bytes of all text that the span recorded, or more: also in UTF-8, and of bytes in
        base64.
        """
        return 2 * (size_of(payload) - KEPT_SPAN_BYTES)

    def slim(self, payload: SdkSpan, wanted: Wanted) -> SdkSpan:
        """Return the span itself: its program may hold the attributes as well."""
        return payload

    def rank(self, payload: SdkSpan) -> tuple[Any, ...]:
        """Return the key that orders spans of one id: end, number of attributes, then all that
        distinguishes the spans.
        """
        attributes = payload.recorded_attributes.copy()
        rank = (
            payload.name,
            payload.start_ns,
            payload.status_code,
            payload.status_message,
            sorted(otlp_value(attributes).items()),
            payload.events(),
        )
        return (payload.end_ns, len(attributes), repr(rank).encode())


def _public(holder: Resource | InstrumentationScope | None) -> dict[str, Any]:
    """The attributes of a resource or a scope; scopes have none before SDK 1.31."""
    return attributes_of(getattr(holder, "attributes", None))


class SdkResourceScopes:
    """A bounded cache with one object for each scope, which nearly always has one resource. Used by
    one thread.
    """

    def __init__(self) -> None:
        self._by_scope: dict[int, SdkResourceScope] = {}

    def _add(self, span: SdkSpan) -> SdkResourceScope:
        if len(self._by_scope) >= _MAX_SCOPES:
            self._by_scope.clear()
        resource_scope = SdkResourceScope(span.resource, span.scope)
        # it references the scope, so that its `id()` is not reused
        self._by_scope[id(span.scope)] = resource_scope
        return resource_scope

    def relevant_frames(self, spans: Iterable[SdkSpan], trace_id: bytes) -> list[SpanFrame]:
        """Return the frames of those ended spans of a trace that are evaluated, see
        `is_relevant`.
        """
        frames = [self.frame(span, trace_id) for span in spans if span.is_sampled]
        return [item for item in frames if item[2][2].scope_name != OWN_SCOPE]

    def frame(self, span: SdkSpan, trace_id: bytes) -> SpanFrame:
        """Return the frame of a span for assembly."""
        resource_scope = self._by_scope.get(id(span.scope))
        if resource_scope is None or resource_scope.sdk_resource is not span.resource:
            resource_scope = self._add(span)
        parent = span.parent_id.to_bytes(8) if span.parent_id else b""
        frame = parent, span, resource_scope
        return trace_id, span.span_id.to_bytes(8), frame, size_of(span)


def frames_of(spans: Iterable[ReadableSpan]) -> list[SpanFrame]:
    """Return the frames of ended spans for assembly.

    A span without ids (one created by hand) gets a made-up id; these ids increase in the order
    given. Such spans share one trace unless their parent names another.
    """
    scopes, made_up = SdkResourceScopes(), count(1)
    frames = []
    for span in spans:
        ended = keep(span)
        trace_id = ended.trace_id
        if not trace_id:
            trace_id = span.parent.trace_id if span.parent is not None else 1
            ended = ended.with_ids(next(made_up), ended.parent_id)
        frames.append(scopes.frame(ended, trace_id.to_bytes(16, "big")))
    return frames


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
    ended = [keep(span) for span in spans]
    trace_id = next((span.trace_id for span in ended if span.trace_id), 1).to_bytes(16)
    span_ids = frozenset(span.span_id for span in ended if span.trace_id)
    made_up, unused = (number for number in count(1) if number not in span_ids), set(span_ids)
    run: list[SdkSpan] = []
    for span in ended:
        span_id = span.span_id if span.span_id in unused else next(made_up)
        unused.discard(span_id)
        parent_id = span.parent_id if span.parent_id in span_ids else 0
        run.append(span.with_ids(span_id, parent_id))
    tops = [span for span in run if not span.parent_id]
    agents = (span.span_id for span in tops if is_agent(span, span.scope_name))
    root = next(agents, 0)
    if run and not root:
        root = next(made_up)
        around = ReadableSpan(
            "run",
            attributes=_RUN,
            start_time=min((span.start_ns for span in run if span.start_ns), default=None),
            end_time=max((span.end_ns for span in run if span.end_ns), default=None),
            resource=run[0].resource,
        )
        run.insert(0, keep(around).with_ids(root, 0))
    scopes = SdkResourceScopes()
    return [
        scopes.frame(
            span if span.parent_id or span.span_id == root else span.with_ids(span.span_id, root),
            trace_id,
        )
        for span in run
    ]
