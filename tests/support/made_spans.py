"""Spans, requests and closed traces built by hand."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from otel_eval.interfaces import ClosedTrace, Deployment, Frame, NoRoles, Role, SpanEvent, Wanted
from otel_eval.model import Completeness


class FakeSpan:
    """A span as a dictionary would hold it; it is its own view."""

    def __init__(self, span_id: str, parent: str, name: str, **fields: Any) -> None:
        self.span_id, self.parent, self.name = span_id, parent, name
        self.start_ns: int = fields.get("start_ns", 0)
        self.end_ns: int = fields.get("end_ns", 0)
        self.span_kind: int = fields.get("kind", 1)
        self.status_code: int = fields.get("status", 0)
        self.status_message: str = fields.get("message", "")
        self.parent_is_remote: bool | None = fields.get("remote")
        self.dropped_attributes: int = fields.get("dropped", 0)
        self.given: Mapping[str, Any] = fields.get("attributes", {})
        self.given_events: Sequence[SpanEvent] = fields.get("events", ())
        self.resource_scope = FakeResourceScope(
            fields.get("service", "test"), fields.get("scope", "test")
        )

    def attributes(self, wanted: Wanted) -> dict[str, Any]:
        """The wanted attributes that the span has."""
        return {
            k: v
            for k, v in self.given.items()
            if k in wanted.keys or k.startswith(wanted.prefixes or "\0")
        }

    def fingerprint(self, wanted: Wanted) -> None:
        """None: the span is read as it is."""

    def events(self) -> Sequence[SpanEvent]:
        """The events given."""
        return self.given_events


class FakeResourceScope:
    """Reads `FakeSpan`s."""

    def __init__(
        self, service: str, scope_name: str, attributes: Mapping[str, Any] | None = None
    ) -> None:
        self.service, self.scope_name = service, scope_name
        self.resource: Mapping[str, Any] = dict(attributes or {}) | {"service.name": service}
        self.deployment = Deployment.of(self.resource)

    def shared(self, wanted: Wanted) -> dict[str, Any]:
        """The wanted resource attributes."""
        return {k: v for k, v in self.resource.items() if k in wanted.keys}

    def reader(self, payload: FakeSpan) -> FakeSpan:
        """The span itself."""
        return payload

    def size(self, payload: FakeSpan) -> int:
        """The characters of all that it holds."""
        return 4 * len(repr((payload.given, payload.given_events)))

    def slim(self, payload: FakeSpan, wanted: Wanted) -> FakeSpan:
        """The span itself."""
        return payload

    def rank(self, payload: FakeSpan) -> tuple[Any, ...]:
        """End, number of attributes, then the text of all of them."""
        return (payload.end_ns, len(payload.given), repr(sorted(payload.given.items())))


def span(span_id: str, parent: str = "", name: str = "", /, **fields: Any) -> FakeSpan:
    """A span with made-up ids: `span("a")` is a root, `span("b", "a", "execute_tool x",
    attributes={…})` its child.

    Fields: start_ns, end_ns, kind (OTLP number), status (0–2), message, remote, attributes, events,
    dropped (number of attributes), service, scope.
    """
    return FakeSpan(span_id, parent, name or span_id, **fields)


def otlp_span(
    number: int,
    parent: int,
    name: str,
    /,
    *,
    start_ns: int,
    end_ns: int,
    attributes: Mapping[str, str],
    flags: int = 0x100,
) -> Span:
    """A span as senders encode it, of the same trace as every other one.

    Args:
        number, parent: of the span and its parent, from 1; a parent of 0 is none.
        flags: by default the parent is in the same process.
    """
    span = Span(
        trace_id=bytes(range(1, 17)),
        span_id=bytes([number] * 8),
        parent_span_id=bytes([parent] * 8) if parent else b"",
        name=name,
        kind=1,
        flags=flags,
        start_time_unix_nano=start_ns,
        end_time_unix_nano=end_ns,
    )
    for key, value in attributes.items():
        span.attributes.add(key=key).value.string_value = value
    return span


def otlp_request(*spans: Span) -> bytes:
    """A request with the spans, in protobuf."""
    request = ExportTraceServiceRequest()
    request.resource_spans.add().scope_spans.add().spans.extend(spans)
    return request.SerializeToString()


def json_value(value: Any) -> dict[str, Any]:
    """A Python value as an `AnyValue` in OTLP/JSON; bytes as those of base64 text."""
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        return {"intValue": str(value)}
    if isinstance(value, float):
        return {"doubleValue": value}
    if isinstance(value, bytes):
        return {"bytesValue": value.decode()}
    if isinstance(value, list):
        return {"arrayValue": {"values": [json_value(each) for each in value]}}
    if isinstance(value, dict):
        return {"kvlistValue": {"values": json_attributes(value)}}
    return {} if value is None else {"stringValue": value}


def json_attributes(values: Mapping[str, Any] | Iterable[tuple[str, Any]]) -> list[dict[str, Any]]:
    """A repeated `KeyValue` in OTLP/JSON."""
    pairs = values.items() if isinstance(values, Mapping) else values
    return [{"key": key, "value": json_value(value)} for key, value in pairs]


def json_span(
    trace: int,
    number: int,
    parent: int,
    name: str,
    /,
    *,
    start_ns: int,
    end_ns: int,
    attributes: Mapping[str, Any] | Iterable[tuple[str, Any]] = (),
    **fields: Any,
) -> dict[str, Any]:
    """A span in OTLP/JSON.

    Args:
        trace, number, parent: the ids, from 1; a parent of 0 is none.
        fields: further fields, or others in place of these.
    """
    return {
        "traceId": f"{trace:032x}",
        "spanId": f"{number:016x}",
        "parentSpanId": f"{parent:016x}" if parent else "",
        "name": name,
        "flags": 0x100,  # the parent is in the same process
        "startTimeUnixNano": str(start_ns),
        "endTimeUnixNano": str(end_ns),
        "attributes": json_attributes(attributes),
    } | fields


def json_document(
    spans: Iterable[Any],
    scope: Mapping[str, Any] | None = None,
    resource: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """A document of OTLP/JSON: the spans in one scope.

    Args:
        scope: by default one with the name `agent`.
        resource: its attributes.
    """
    group = {"scope": scope or {"name": "agent"}, "spans": list(spans)}
    attributes = json_attributes(resource or {})
    return {"resourceSpans": [{"resource": {"attributes": attributes}, "scopeSpans": [group]}]}


_ROLES = {"agent": Role.AGENT, "chat": Role.STEP, "tool": Role.STEP, "served": Role.SERVED}


class RolesByName(NoRoles):
    """What a span is for assembly, by the first word of its name."""

    def role_of(self, frame: Frame) -> Role:
        return _ROLES.get(frame[1].name.split()[0], Role.PLAIN)


ROLES = RolesByName()


def frames(spans: Iterable[FakeSpan]) -> dict[bytes, Frame]:
    """The spans as assembly holds them."""
    return {
        each.span_id.encode(): (each.parent.encode(), each, each.resource_scope) for each in spans
    }


def closed(
    *spans: FakeSpan, reason: Completeness = Completeness.COMPLETE, cut: str = ""
) -> ClosedTrace:
    """A closed trace of the spans, ready to be read."""
    return ClosedTrace(trace_id=b"t" * 16, frames=frames(spans), reason=reason, cut=cut)
