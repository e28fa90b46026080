"""Read ended SDK spans the way a receiver would read the same spans from OTLP."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import count
from operator import attrgetter
from typing import Any, Final

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

from otel_eval.conventions.reader import exported_resource
from otel_eval.interfaces import Deployment, Frame, SpanEvent, SpanReader, Wanted
from otel_eval.native import extension
from otel_eval.sources.inprocess.sdk_internals import attributes_of, raw_attributes, size_of

_MAX_ENVELOPES: Final = 256  # resources × scopes; a process has a handful, a test suite a new one per provider

_extension: Final = extension("_native")
# Where the SDK keeps what its properties give: one look in C. Checked with SDK 1.30 to 1.45; where it answers differently, the
# properties are read.
_FIELDS: Final = attrgetter(
    *("_name", "_kind._value_", "_start_time", "_end_time", "_status._status_code._value_", "_status._description"),
    *("_attributes._dict", "_events._dq"),
)


def plain(value: Any) -> Any:
    """The value as OTLP would carry it: lists for tuples, base64 text for bytes, plain types for subclasses of them."""
    match value:
        case None | bool():
            return value
        case str():
            return str.__str__(value)
        case int():
            return int(value)
        case float():
            return float(value)
        case bytes():
            return b64encode(value).decode()
        case Mapping():
            return {str(key): plain(each) for key, each in value.items()}
        case Sequence():
            return [plain(each) for each in value]
    return str(value)


def _items(attributes: Any) -> dict[str, Any]:
    """The attributes in a copy: the program may change its own meanwhile, to redact them."""
    return attributes_of(attributes).copy()


class SdkSpanReader:
    """One ended SDK span; see `otel_eval.interfaces.SpanReader`."""

    __slots__ = ("_span",)

    def __init__(self, span: ReadableSpan) -> None:
        self._span = span

    @property
    def name(self) -> str:
        """The span's name."""
        return self._span.name

    @property
    def span_kind(self) -> int:
        """The SDK counts kinds from 0 (internal), OTLP from 1."""
        return int(self._span.kind.value) + 1

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

    def attributes(self, wanted: Wanted) -> dict[str, Any]:
        """The wanted attributes that the span has."""
        return _wanted(_items(raw_attributes(self._span)), wanted)

    def events(self) -> Iterator[SpanEvent]:
        """The span's events in order."""
        return (SpanEvent(event.name, plain(_items(event.attributes))) for event in self._span.events)


def _wanted(items: Mapping[str, Any], wanted: Wanted) -> dict[str, Any]:
    keys, prefixes = wanted.keys, wanted.prefixes
    return {key: plain(value) for key, value in items.items() if key in keys or (prefixes and key.startswith(prefixes))}


class SdkResourceScope:
    """One resource and scope of the SDK; see `otel_eval.interfaces.ResourceScope`."""

    __slots__ = ("_resource", "_scope", "deployment", "resource", "scope_name", "service")

    def __init__(self, resource: Resource | None, scope: InstrumentationScope | None) -> None:
        self._resource, self._scope = resource, scope
        self.scope_name: str = (scope.name if scope is not None else "") or ""
        attributes = _items(resource.attributes) if resource is not None else {}
        self.service: str = str(attributes.get("service.name", ""))
        self.deployment: Deployment = Deployment.of(attributes)
        self.resource: Mapping[str, Any] = exported_resource(plain(attributes))

    def shared(self, wanted: Wanted) -> dict[str, Any]:
        """The wanted attributes of the resource, then of the scope where the resource has none."""
        scope = _wanted(_items(getattr(self._scope, "attributes", None)), wanted)
        return scope | _wanted(_items(self._resource.attributes if self._resource is not None else None), wanted)

    def view(self, payload: ReadableSpan) -> SpanReader:
        """The span, readable."""
        view = SdkSpanReader(payload)
        return view if _extension is None else _faster(payload, view)

    def rank(self, payload: ReadableSpan) -> tuple[Any, ...]:
        """End, number of attributes, then all that tells two spans of one id apart."""
        items = _items(raw_attributes(payload))
        view = SdkSpanReader(payload)
        rank = (view.name, view.start_ns, view.status_code, view.status_message, sorted(plain(items).items()), [*view.events()])
        return (view.end_ns, len(items), repr(rank).encode())

    def parent_is_remote(self, payload: ReadableSpan) -> bool | None:
        """Whether the span's parent is in another process; None if it has none."""
        return None if payload.parent is None else bool(payload.parent.is_remote)


def _faster(span: ReadableSpan, view: SdkSpanReader) -> SpanReader:
    """What reads the span as if it had come over the wire, or the view as it is where anything in the span is unusual."""
    try:
        made: SpanReader = _extension.recorded(*_FIELDS(span), view)  # type: ignore[union-attr]  # only asked where it is there
    except (AttributeError, TypeError):  # not the SDK's own class, or one of an SDK to come
        return view
    return made


class SdkResourceScopes:
    """One envelope per resource and scope, made once. Bounded; used by one thread."""

    def __init__(self) -> None:
        self._kept: dict[tuple[int, int], SdkResourceScope] = {}
        self._last: tuple[Any, Any, SdkResourceScope] = (self, self, SdkResourceScope(None, None))  # none of anybody's

    def of(self, span: ReadableSpan) -> SdkResourceScope:
        """The envelope of the span. It holds resource and scope, so their identities stay theirs."""
        resource, scope = span.resource, span.instrumentation_scope
        last = self._last
        if last[0] is resource and last[1] is scope:
            return last[2]
        key = (id(resource), id(scope))
        envelope = self._kept.get(key)
        if envelope is None:
            if len(self._kept) >= _MAX_ENVELOPES:
                self._kept.clear()
            envelope = self._kept[key] = SdkResourceScope(resource, scope)
        self._last = (resource, scope, envelope)
        return envelope

    def frame(self, span: ReadableSpan, trace_id: bytes, span_id: bytes) -> tuple[bytes, bytes, Frame, int]:
        """The span as assembly takes it, with about the bytes that it holds."""
        parent = span.parent
        above = b"" if parent is None else parent.span_id.to_bytes(8, "big")
        return (trace_id, span_id, (above, span, self.of(span)), size_of(span))


def frames_of(spans: Iterable[ReadableSpan]) -> list[tuple[bytes, bytes, Frame, int]]:
    """Ended spans as assembly takes them: `(trace id, span id, frame, bytes)`.

    A span without ids (one built by hand) gets made-up ones that rise in the order given; such spans share one trace
    unless their parent names another.
    """
    scopes, made_up = SdkResourceScopes(), count(1)
    items = []
    for span in spans:
        context = span.context
        if context is not None:
            trace, own = context.trace_id, context.span_id
        else:
            trace, own = (span.parent.trace_id if span.parent is not None else 1), next(made_up)
        items.append(scopes.frame(span, trace.to_bytes(16, "big"), own.to_bytes(8, "big")))
    return items
