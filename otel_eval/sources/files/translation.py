"""Rewrite spans of other formats as OTLP/JSON: of Tempo, of Jaeger, and those that the Python SDK's
console exporter prints.

Tempo, and protobuf's own JSON printer, differ from OTLP/JSON in two ways: ids are base64 (by their
length: 24 or 12 characters, 22 or 11 without padding), and scopes may have their older name. In
Jaeger's spans, attributes are called tags, and events logs; times are microseconds, and status,
kind and scope are tags (specification/trace/sdk_exporters/jaeger.md of OpenTelemetry). The console
exporter prints JSON objects one after another, mixed with what the program printed.
"""

from __future__ import annotations

import json
import re
from base64 import b64decode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from io import BufferedIOBase
from typing import Any, Final

from otel_eval.errors import InputError
from otel_eval.interfaces import ClosedTrace, Wanted
from otel_eval.otlp.otlp_json import read_document, unix_nanoseconds
from otel_eval.otlp.protobuf import SpanBatch
from otel_eval.otlp.spans import encode_pairs
from otel_eval.sources.files import Notify

_IDS: Final = frozenset(
    {"traceId", "spanId", "parentSpanId", "trace_id", "span_id", "parent_span_id"}
)
_BASE64_LENGTHS: Final = frozenset({24, 22, 12, 11})
SCOPES: Final = (
    "scopeSpans",
    "scope_spans",
    "scopeLogs",
    "scope_logs",
    "instrumentationLibrarySpans",
)
MEMBERS: Final = ("spans", "logRecords", "log_records")
_PARTS: Final = frozenset({*SCOPES, *MEMBERS, "links"})
_OLDER: Final = {"instrumentationLibrarySpans": "scopeSpans", "instrumentationLibrary": "scope"}


def with_hex_ids(part: Any) -> Any:
    """Convert a group of spans or logs, or part of one, to OTLP/JSON. Invalid parts stay unchanged:
    the decoder refuses them.
    """
    if not isinstance(part, dict):
        return part
    converted = {key: _convert_field(key, value) for key, value in part.items()}
    for older, key in _OLDER.items():
        if older in converted and not converted.get(key):
            converted[key] = converted[older]
    return converted


def _convert_field(key: str, value: Any) -> Any:
    if key in _IDS:
        return hex_of(value)
    return [*map(with_hex_ids, value)] if key in _PARTS and isinstance(value, list) else value


def hex_of(value: Any) -> Any:
    """Convert an id from base64 to hexadecimal; any other value is returned unchanged."""
    if not isinstance(value, str) or len(value) not in _BASE64_LENGTHS:
        return value
    try:
        return b64decode(
            value + "=" * (-len(value) % 4),
            altchars=b"-_" if "-" in value or "_" in value else None,
        ).hex()
    except ValueError:
        return value


_KINDS: Final = {"internal": 1, "server": 2, "client": 3, "producer": 4, "consumer": 5}
_CODES: Final = {"OK": 1, "ERROR": 2}
_SCOPE_NAMES: Final = ("otel.scope.name", "otel.library.name")
_SCOPE_VERSIONS: Final = ("otel.scope.version", "otel.library.version")
_FIELD_TAGS: Final = frozenset(
    {"span.kind", "otel.status_code", "otel.status_description", *_SCOPE_NAMES, *_SCOPE_VERSIONS}
)
"""Tags for which OTLP has fields of their own."""

_SCALARS: Final = (
    (str, "stringValue"),
    (bool, "boolValue"),
    (int, "intValue"),
    (float, "doubleValue"),
)
_VALUES: Final = {
    "string": "stringValue",
    "bool": "boolValue",
    "int64": "intValue",
    "float64": "doubleValue",
    "binary": "bytesValue",
}


def jaeger_groups(trace: Any) -> list[dict[str, Any]]:
    """Return the `resourceSpans` of one Jaeger trace.

    Raises:
        InputError: the value is not a Jaeger trace.
    """
    if not isinstance(trace, dict) or not isinstance(trace.get("spans"), list):
        raise InputError("a Jaeger trace must be an object with spans")
    processes = _object(trace, "processes")
    return [_jaeger_group(span, processes) for span in trace["spans"]]


def _jaeger_group(span: Any, processes: Mapping[str, Any]) -> dict[str, Any]:
    """Return a group of `resourceSpans` with one span of Jaeger."""
    if not isinstance(span, dict):
        raise InputError("a Jaeger span must be an object")
    tags = _tags(span.get("tags"))
    process = processes.get(str(span.get("processID", "")))
    scope = {"name": _first(tags, _SCOPE_NAMES), "version": _first(tags, _SCOPE_VERSIONS)}
    return {
        "resource": _resource(process),
        "scopeSpans": [{"scope": scope, "spans": [_jaeger_span(span, tags)]}],
    }


def _resource(process: Any) -> dict[str, Any]:
    """Return the resource that a process of Jaeger is."""
    if not isinstance(process, dict):
        return {}
    tags = _tags(process.get("tags"))
    if isinstance(process.get("serviceName"), str):
        tags["service.name"] = {"value": process["serviceName"]}
    return {"attributes": _attributes(tags)}


def _jaeger_span(span: Mapping[str, Any], tags: Mapping[str, _Tag]) -> dict[str, Any]:
    """Return a span of Jaeger as one of OTLP/JSON."""
    start, duration = _micros(span.get("startTime")), _micros(span.get("duration"))
    return {
        "traceId": _padded(span.get("traceID"), 32),
        "spanId": _padded(span.get("spanID"), 16),
        "parentSpanId": _parent(span),
        "name": span.get("operationName"),
        "kind": _KINDS.get(_word(tags, "span.kind").lower(), 0),
        "startTimeUnixNano": start,
        "endTimeUnixNano": start + duration,
        "attributes": _attributes(
            {key: tag for key, tag in tags.items() if key not in _FIELD_TAGS}
        ),
        "events": [_jaeger_event(log) for log in _objects(span.get("logs"))],
        "status": _jaeger_status(tags),
    }


def _micros(value: Any) -> int:
    """Return the nanoseconds of a time or duration in microseconds."""
    # NaN is unequal to itself, and infinity is beyond the bound: Python's parser accepts both in
    # JSON.
    if (
        isinstance(value, bool)
        or not isinstance(value, (int, float))
        or value != value
        or abs(value) > 1e18
    ):
        raise InputError("startTime and duration must be microseconds")
    return int(value * 1000)


def _padded(value: Any, digits: int) -> Any:
    """Return an id with its leading zeros, which Jaeger leaves out."""
    return value.rjust(digits, "0") if isinstance(value, str) and value else value


def _parent(span: Mapping[str, Any]) -> Any:
    """Return the id of the parent; None without one. A reference to another trace is a link."""
    trace_id = _padded(span.get("traceID"), 32)
    for reference in _objects(span.get("references")):
        referred = _padded(reference.get("traceID"), 32)
        if reference.get("refType") == "CHILD_OF" and referred in (None, trace_id):
            return _padded(reference.get("spanID"), 16)
    return None


def _jaeger_status(tags: Mapping[str, _Tag]) -> dict[str, Any]:
    """Return the status that the tags of a span tell."""
    code = _CODES.get(_word(tags, "otel.status_code").upper(), 0)
    # how OpenTracing marks a failed span
    if not code and _word(tags, "error").lower() == "true":
        code = _CODES["ERROR"]
    return {"code": code, "message": _first(tags, ("otel.status_description",))}


def _jaeger_event(log: Mapping[str, Any]) -> dict[str, Any]:
    fields = _tags(log.get("fields"))
    name = _first(fields, ("event",))
    fields.pop("event", None)
    return _event(_micros(log.get("timestamp")), name, _attributes(fields))


_Tag = Mapping[str, Any]
"""An object with the value of a tag, and perhaps its type."""


def _tags(value: Any) -> dict[str, _Tag]:
    """Return tags by key; of equal keys the last wins."""
    return {str(tag["key"]): tag for tag in _objects(value) if "key" in tag}


def _attributes(tags: Mapping[str, _Tag]) -> list[dict[str, Any]]:
    """Return tags as attributes of OTLP/JSON."""
    return [{"key": key, "value": _any_value(tag)} for key, tag in tags.items()]


def _any_value(tag: _Tag) -> dict[str, Any]:
    """Return the value of a tag as an `AnyValue`."""
    value, kind = tag.get("value"), _VALUES.get(str(tag.get("type")).lower())
    # as stored in Elasticsearch, where tag values are text
    if kind == "boolValue" and isinstance(value, str):
        return {kind: value.lower() == "true"}
    if kind in ("stringValue", None):  # the type may be missing or wrong
        kind = next((name for type_, name in _SCALARS if isinstance(value, type_)), None)
    return {kind: value} if kind else {}


def _word(tags: Mapping[str, _Tag], key: str) -> str:
    """Return the value of a tag as text, "None" without the tag."""
    return str(tags.get(key, {}).get("value"))


def _first(tags: Mapping[str, _Tag], keys: Iterable[str]) -> str | None:
    """Return the first text among the values of these tags; None without any."""
    values = (tags.get(key, {}).get("value") for key in keys)
    return next((value for value in values if isinstance(value, str)), None)


NOTICE: Final = (
    "output of the Python SDK's console exporter, which lacks scopes, flags and nanoseconds: runs"
    " can be shown and are not scored, because for many instrumentations the scope decides what a"
    " span means; export OTLP to score them"
)
NO_SCOPES: Final = "the console exporter records no scopes, which decide what a span means"
"""Why a run that was read from output of the console exporter is not scored."""

_ORIGIN: Final = "otel_eval.read_from"  # an attribute that marks the scope of such spans
_MARKED: Final = Wanted(frozenset({_ORIGIN}))

_SPAN: Final = re.compile(
    rb'^\{\s*"name":\s*"(?:[^"\\\n]|\\.)*",\s*"context":\s*\{\s*"trace_id":\s*"0x', re.MULTILINE
)
_MARK: Final = b"\xef\xbb\xbf"  # byte order mark, as PowerShell writes
_SCOPE: Final = {"attributes": [{"key": _ORIGIN, "value": {"stringValue": "console"}}]}
_MAX_SPAN: Final = 64 * 1024 * 1024  # bytes of the JSON of one span


def is_console(start: bytes) -> bool:
    """Whether a span begins in these bytes as the console exporter prints it."""
    return _SPAN.search(start.removeprefix(_MARK)) is not None


def lacks_scopes(trace: ClosedTrace) -> bool:
    """Whether spans of the trace were read from output of the console exporter, which lacks
    scopes.
    """
    return any(scope.shared(_MARKED) for scope in {frame[2] for frame in trace.frames.values()})


def read_console(
    stream: BufferedIOBase, on_problem: Notify, on_notice: Notify
) -> Iterator[SpanBatch]:
    """Yield the spans in the order printed; a notice has the number of other lines and objects that
    were printed.
    """
    on_notice(NOTICE)
    skipped = 0
    for number, text in _split_output(stream):
        try:
            span = _parse_span(text)
            if span is not None:
                yield read_document({"resourceSpans": [_console_group(span)]})
            skipped += span is None
        except InputError as error:
            on_problem(f"line {number}: {error}")
    if skipped:
        on_notice(f"{skipped} printed lines or objects that are no spans were skipped")


def _split_output(stream: BufferedIOBase) -> Iterator[tuple[int, bytes]]:
    """Yield each JSON object, and each line outside of objects, with the number of its first line.

    The exporter indents every line of a span but the first and the last, which hold one bracket
    each.
    """
    lines: list[bytes] = []
    size = first = 0
    for number, line in enumerate(iter(partial(stream.readline, _MAX_SPAN), b""), 1):
        edge = line.removeprefix(_MARK).rstrip()
        if lines and (edge == b"{" or size > _MAX_SPAN):  # the object before was cut
            yield first, b"".join(lines)
            lines = []
        if not lines:
            first, size = number, 0
        lines.append(line)
        size += len(line)
        if edge == b"}" or (first == number and edge != b"{"):
            yield first, b"".join(lines)
            lines = []
    if lines:
        yield first, b"".join(lines)


def _parse_span(text: bytes) -> Mapping[str, Any] | None:
    """Parse a printed span; None for what the program printed itself.

    Raises:
        InputError: a span was cut or is not JSON.
    """
    if not text.removeprefix(_MARK).startswith(b"{"):
        return None
    try:
        span = json.loads(text.decode("utf-8-sig"))
    except (ValueError, RecursionError):
        if _SPAN.match(text):
            raise InputError("a span that was cut or is not JSON") from None
        return None
    return span if isinstance(span, dict) and isinstance(span.get("context"), dict) else None


def _console_group(span: Mapping[str, Any]) -> dict[str, Any]:
    resource = {"attributes": encode_pairs(_object(_object(span, "resource"), "attributes"))}
    return {"resource": resource, "scopeSpans": [{"scope": _SCOPE, "spans": [_console_span(span)]}]}


def _console_span(span: Mapping[str, Any]) -> dict[str, Any]:
    """Return a printed span as one of OTLP/JSON."""
    context, status = span["context"], _object(span, "status")
    return {
        "traceId": _hex(context.get("trace_id")),
        "spanId": _hex(context.get("span_id")),
        "parentSpanId": _hex(span.get("parent_id")),
        "name": span.get("name"),
        "kind": str(span.get("kind", "")).replace("SpanKind.", "SPAN_KIND_"),
        "startTimeUnixNano": _printed_time(span.get("start_time")),
        "endTimeUnixNano": _printed_time(span.get("end_time")),
        "attributes": encode_pairs(_object(span, "attributes")),
        "events": [_console_event(event) for event in _objects(span.get("events"))],
        "status": {
            "code": f"STATUS_CODE_{status.get('status_code') or 'UNSET'}",
            "message": status.get("description"),
        },
    }


def _hex(value: Any) -> Any:
    return value.removeprefix("0x") if isinstance(value, str) else value


def _printed_time(value: Any) -> int:
    """Return the Unix nanoseconds of an ISO 8601 time; 0 for None."""
    return unix_nanoseconds(None if value is None else str(value))


def _console_event(event: Mapping[str, Any]) -> dict[str, Any]:
    return _event(
        _printed_time(event.get("timestamp")),
        event.get("name"),
        encode_pairs(_object(event, "attributes")),
    )


def _event(time_ns: int, name: Any, attributes: Sequence[object]) -> dict[str, Any]:
    return {"timeUnixNano": time_ns, "name": name, "attributes": attributes}


def _object(holder: Mapping[str, Any], key: str) -> dict[str, Any]:
    value = holder.get(key)
    return value if isinstance(value, dict) else {}


def _objects(value: Any) -> list[dict[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []
