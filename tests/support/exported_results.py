"""What a backend received of evaluated traces: spans and log records with their resources and
scopes, comparable.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from google.protobuf.json_format import MessageToDict
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

OF_EVALUATOR = ("otel_eval.evaluated_at", "otel_eval.evaluator.id")
"""Attributes that differ between two evaluators of one run."""


class Received(NamedTuple):
    """A span or a log record; its resource and scope in JSON."""

    item: Any
    resource: dict[str, Any]
    scope: tuple[str, str, str]


def spans_of(bodies: Iterable[bytes]) -> list[Received]:
    """Every span, in order of arrival."""
    return [
        each
        for body in bodies
        for each in _received(ExportTraceServiceRequest.FromString(body), "spans", "spans")
    ]


def records_of(bodies: Iterable[bytes]) -> list[Received]:
    """Every log record, in order of arrival."""
    return [
        each
        for body in bodies
        for each in _received(ExportLogsServiceRequest.FromString(body), "logs", "log_records")
    ]


def _received(request: Any, signal: str, items: str) -> Iterator[Received]:
    for group in getattr(request, f"resource_{signal}"):
        for scope in getattr(group, f"scope_{signal}"):
            described = (scope.scope.name, scope.scope.version, scope.schema_url)
            yield from (
                Received(item, attributes_of(group.resource), described)
                for item in getattr(scope, items)
            )


def attributes_of(message: Any) -> dict[str, Any]:
    """The attributes of a resource, span, event or log record, as JSON."""
    return {pair.key: MessageToDict(pair.value) for pair in message.attributes}


def event_fields(event: Any) -> dict[str, Any]:
    """Attributes of a result, without those of the evaluator; SDKs before 1.35 name the event of a
    log record in one more.
    """
    return {
        key: value
        for key, value in attributes_of(event).items()
        if key not in (*OF_EVALUATOR, "event.name")
    }


def record_fields(received: Received) -> dict[str, Any]:
    """All of a log record that does not depend on the evaluator."""
    record = received.item
    severity = (record.severity_number, record.severity_text)
    where = (record.trace_id.hex(), record.span_id.hex(), record.flags)
    return {
        "at": record.time_unix_nano,
        "severity": severity,
        "where": where,
        "resource": received.resource,
        "scope": received.scope,
        "body": MessageToDict(record.body),
        "attributes": event_fields(record),
    }


def span_fields(received: Received) -> dict[str, Any]:
    """All of an evaluation span that does not depend on the evaluator."""
    span = received.item
    return {
        "name": (span.name, span.kind, span.status.code),
        "where": (span.trace_id.hex(), span.parent_span_id.hex(), span.span_id.hex()),
        "links": [(link.trace_id.hex(), link.span_id.hex()) for link in span.links],
        "times": (span.start_time_unix_nano, span.end_time_unix_nano),
        "resource": received.resource,
        "scope": received.scope,
        "attributes": event_fields(span),
        "events": [
            (event.name, event.time_unix_nano, event_fields(event)) for event in span.events
        ],
    }
