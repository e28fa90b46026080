"""Encodes results as OTLP: log records, evaluation spans with events, and fields that are appended
to runs' own spans.

`global_providers.py` creates the same records with the SDK, for providers. Fields may be appended
to an encoded protobuf
message: `Span.events` is repeated, so that each appended field is one more event, and nothing
before it changes.
Source: opentelemetry-proto, logs.proto, trace.proto, common.proto.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

from opentelemetry.proto.logs.v1.logs_pb2 import SEVERITY_NUMBER_INFO, LogRecord
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status
from opentelemetry.sdk.resources import OTELResourceDetector, Resource

from otel_eval.exporters import attributes as names
from otel_eval.exporters.attributes import PLAIN, ResultFormat
from otel_eval.model import Failed, Report, Result, Trajectory
from otel_eval.otlp.spans import encode_attributes
from otel_eval.wire import sized

_SPAN_ATTRIBUTES: Final = 9
_EVENTS: Final = 11
_ATTRIBUTES: Final = 3  # of an event
_LOG_ATTRIBUTES: Final = 6
_EVENT_NAME: Final = sized(2, names.EVENT_NAME.encode())
# not every protobuf class that may be installed has this field
_RECORD_NAME: Final = sized(12, names.EVENT_NAME.encode())
_SCOPE_NAME, _SCOPE_VERSION, _SCHEMA_URL = (text.encode() for text in names.INSTRUMENTATION_SCOPE)
_SCOPE: Final = sized(1, sized(1, _SCOPE_NAME) + sized(2, _SCOPE_VERSION))
# SpanFlags: it is known whether the parent, or what is linked, is remote
_LOCAL, _REMOTE = 0x100, 0x300


def own_resource(instance_id: str | None = None) -> Any:
    """Our own resource: `service.name` otel-eval, OTEL_RESOURCE_ATTRIBUTES and OTEL_SERVICE_NAME,
    and an id if one is given.
    """
    resource = Resource.create({"service.name": "otel-eval"}).merge(OTELResourceDetector().detect())
    return (
        resource.merge(Resource({"service.instance.id": instance_id})) if instance_id else resource
    )


def logs_request(batch: Sequence[Report], form: ResultFormat = PLAIN) -> bytes:
    """An ExportLogsServiceRequest with one event for each result."""
    return request_of((report.trajectory, _records(report, form)) for report in batch)


def spans_request(batch: Sequence[Report], form: ResultFormat = PLAIN) -> bytes:
    """An ExportTraceServiceRequest with one span for each report that has results."""
    return request_of(
        (report.trajectory, [_evaluation_span(report, form)]) for report in batch if report.results
    )


REQUESTS: Final[Mapping[str, Callable[[Sequence[Report], ResultFormat], bytes]]] = {
    "logs": logs_request,
    "spans": spans_request,
}
"""The functions that encode reports as a request, by signal."""


def request_of(items: Iterable[tuple[Trajectory, Iterable[bytes]]]) -> bytes:
    """Encode a request of spans or log records, each under the resource of its run; if that is not
    known, under our own.
    """
    # runs share the objects, and equal resources of several scopes are several objects
    encoded: dict[int, bytes] = {}
    groups: dict[bytes, list[bytes]] = {}
    for run, members in items:
        message = encoded.get(id(run.resource))
        if message is None:
            message = encoded[id(run.resource)] = encode_attributes(
                1, run.resource or own_resource().attributes
            )
        groups.setdefault(message, []).extend([sized(2, member) for member in members])
    return b"".join(
        [_group(resource, b"".join(members)) for resource, members in groups.items() if members]
    )


def _group(resource: bytes, members: bytes) -> bytes:
    return sized(1, sized(1, resource) + sized(2, _SCOPE + members + sized(3, _SCHEMA_URL)))


def _ids(run: Trajectory) -> tuple[bytes, bytes]:
    """The ids of the trace and of the run's own span; both empty for a run without ids."""
    if not run.trace_id or not run.span_id:
        return b"", b""
    return int(run.trace_id, 16).to_bytes(16), int(run.span_id, 16).to_bytes(8)


def _records(report: Report, form: ResultFormat) -> Iterator[bytes]:
    """Encode a log record for each result, at the end of the run, observed when the run was
    evaluated.
    """
    trace_id, span_id = _ids(report.trajectory)
    head = LogRecord(
        time_unix_nano=names.run_ended_ns(report),
        observed_time_unix_nano=names.evaluated_ns(report),
        flags=1 if trace_id else 0,
        trace_id=trace_id,
        span_id=span_id,
    )
    shared = head.SerializeToString() + _RECORD_NAME + _of_run(_LOG_ATTRIBUTES, report)
    page = names.page_attributes(form.page, report.trajectory)
    shared += encode_attributes(_LOG_ATTRIBUTES, page)
    for result in report.results:
        about = _LINE_OF_INFO if not form.log_body else _line(report, result)
        yield shared + about + _of_result(_LOG_ATTRIBUTES, result)


def _of_run(field: int, report: Report) -> bytes:
    """The attributes that the events of all results of a report share, in this field."""
    origin = _of_origin(field, names.origin_of(report))
    return origin + encode_attributes(field, names.single_attributes(report))


def _of_result(field: int, result: Result) -> bytes:
    """The attributes of the event of a result beside those of its run, in this field."""
    kind = _of_kind(field, names.kind_of(result))
    return kind + encode_attributes(field, names.outcome_attributes(result))


@lru_cache(maxsize=512)  # of agents, services and evaluations there are few
def _of_origin(field: int, origin: tuple[Any, ...]) -> bytes:
    return encode_attributes(field, names.origin_attributes(origin))


@lru_cache(maxsize=2048)  # no more than scorers in the configuration have kinds of outcomes
def _of_kind(field: int, kind: tuple[str, ...]) -> bytes:
    return encode_attributes(field, names.kind_attributes(kind))


_LINE_OF_INFO: Final = LogRecord(
    severity_number=SEVERITY_NUMBER_INFO, severity_text="INFO"
).SerializeToString()


def _line(report: Report, result: Result) -> bytes:
    """Encode severity and body of the log record of a result."""
    number, text = names.log_severity(result)
    record: Any = LogRecord(severity_text=text)
    record.severity_number = number
    record.body.string_value = names.log_line(report, result)
    encoded: bytes = record.SerializeToString()
    return encoded


def span_below(report: Report, span_id: bytes, name: str, attributes: Mapping[str, Any]) -> Span:
    """Create a child span of the run's own, which starts and ends at the run's end."""
    trace_id, parent_id = _ids(report.trajectory)
    ended_ns = names.run_ended_ns(report)
    span = Span(
        trace_id=trace_id or os.urandom(16),
        span_id=span_id,
        parent_span_id=parent_id,
        name=names.sendable(name),
        kind=Span.SPAN_KIND_INTERNAL,
        start_time_unix_nano=ended_ns,
        end_time_unix_nano=ended_ns,
        flags=_REMOTE if parent_id else _LOCAL,
    )
    span.MergeFromString(encode_attributes(_SPAN_ATTRIBUTES, attributes))
    return span


def _evaluation_span(report: Report, form: ResultFormat) -> bytes:
    """Encode an evaluation span. Its id is from the first result's, a hash, so that a report sent
    again is the same span.
    """
    span_id = bytes.fromhex(report.results[0].result_id[:16])
    attributes = {names.SPAN_KIND: names.EVALUATOR} | names.run_attributes(report)
    if form.name_of:
        attributes |= names.score_attributes(report, form.name_of)
    span = span_below(
        report,
        span_id if any(span_id) else os.urandom(8),
        f"evaluate {report.evaluation}",
        attributes,
    )
    if span.parent_span_id:
        span.links.add(trace_id=span.trace_id, span_id=span.parent_span_id, flags=_REMOTE)
    if any(isinstance(result.outcome, Failed) for result in report.results):
        span.status.code = Status.STATUS_CODE_ERROR
    return span.SerializeToString() + events_of(report)


def events_of(report: Report) -> bytes:
    """One `events` field of a span for each result; its time is the end of the run."""
    # 0x09 is the tag of Event.time_unix_nano: field 1, fixed64.
    head = b"\x09" + struct.pack("<Q", names.run_ended_ns(report)) + _EVENT_NAME
    head += _of_run(_ATTRIBUTES, report)
    events = [head + _of_result(_ATTRIBUTES, result) for result in report.results]
    return b"".join([sized(_EVENTS, event) for event in events])


def attributes_of(report: Report, name_of: Callable[[Result], str]) -> bytes:
    """The attributes of a run's own span by which a backend finds its scores."""
    return encode_attributes(_SPAN_ATTRIBUTES, names.score_attributes(report, name_of))
