"""Output of the Python SDK's `ConsoleSpanExporter`: JSON objects one after another, mixed with what the program printed."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from otel_eval.errors import InputError
from otel_eval.interfaces import ClosedTrace, Wanted
from otel_eval.otlp import SpanBatch, read_document
from otel_eval.sources.files.binary import Readable, Say

__all__ = ["NOTICE", "NO_SCOPES", "frame_console", "is_console", "lacks_scopes"]

NOTICE: Final = (
    "output of the Python SDK's console exporter, which lacks scopes, flags and nanoseconds: runs can be shown and are not "
    "scored, because for many instrumentations the scope decides what a span means; export OTLP to score them"
)
NO_SCOPES: Final = "the console exporter records no scopes, which decide what a span means"
"""Why a run that was read from such output is not scored."""

_ORIGIN: Final = "otel_eval.read_from"  # an attribute of the scope that the output does not have
_MARKED: Final = Wanted(frozenset({_ORIGIN}))

_SPAN: Final = re.compile(rb'^\{\s*"name":\s*"(?:[^"\\\n]|\\.)*",\s*"context":\s*\{\s*"trace_id":\s*"0x', re.MULTILINE)
_MARK: Final = b"\xef\xbb\xbf"  # byte order mark, as PowerShell writes
_SCOPE: Final = {"attributes": [{"key": _ORIGIN, "value": {"stringValue": "console"}}]}
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MAX_SPAN: Final = 64 * 1024 * 1024  # bytes of the JSON of one span


def is_console(start: bytes) -> bool:
    """Whether a span as the console exporter prints it begins in these bytes."""
    return _SPAN.search(start.removeprefix(_MARK)) is not None


def lacks_scopes(trace: ClosedTrace) -> bool:
    """Whether spans of the trace were read from such output."""
    return any(scope.shared(_MARKED) for scope in {frame[2] for frame in trace.frames.values()})


def frame_console(stream: Readable, say: Say, on_notice: Say) -> Iterator[SpanBatch]:
    """The spans, in the order printed. Whatever else was printed is counted in a notice."""
    on_notice(NOTICE)
    others = 0
    for number, text in _objects(stream):
        try:
            span = _parsed(text)
            if span is not None:
                yield read_document({"resourceSpans": [_group(span)]})
            others += span is None
        except InputError as error:
            say(f"line {number}: {error}")
    if others:
        on_notice(f"{others} printed lines or objects that are no spans were skipped")


def _objects(stream: Readable) -> Iterator[tuple[int, bytes]]:
    """Each object, or line outside of objects, with the number of its first line.

    The exporter indents every line of a span but the first and the last, which hold one bracket each.
    """
    held: list[bytes] = []
    size = first = number = 0
    while line := stream.readline(_MAX_SPAN):
        number += 1
        edge = line.removeprefix(_MARK).rstrip()
        if held and (edge == b"{" or size > _MAX_SPAN):  # the one before was cut
            yield first, b"".join(held)
            held = []
        if held or edge == b"{":
            first = first if held else number
            size = size + len(line) if held else len(line)
            held.append(line)
        if edge == b"}" or not held:
            yield (first, b"".join(held)) if held else (number, line)
            held = []
    if held:
        yield first, b"".join(held)


def _parsed(text: bytes) -> Mapping[str, Any] | None:
    """The span; None for what the program printed itself.

    Raises:
        InputError: it was cut.
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


def _group(span: Mapping[str, Any]) -> dict[str, Any]:
    resource = span.get("resource")
    attributes = resource.get("attributes") if isinstance(resource, dict) else None
    return {"resource": {"attributes": _attributes(attributes)}, "scopeSpans": [{"scope": _SCOPE, "spans": [_span(span)]}]}


def _span(span: Mapping[str, Any]) -> dict[str, Any]:
    context, status = span["context"], span.get("status")
    return {
        "traceId": _hex(context.get("trace_id")),
        "spanId": _hex(context.get("span_id")),
        "parentSpanId": _hex(span.get("parent_id")),
        "name": span.get("name"),
        "kind": str(span.get("kind", "")).replace("SpanKind.", "SPAN_KIND_"),
        "startTimeUnixNano": _nanoseconds(span.get("start_time")),
        "endTimeUnixNano": _nanoseconds(span.get("end_time")),
        "attributes": _attributes(span.get("attributes")),
        "events": [_event(each) for each in _mappings(span.get("events"))],
        "status": _status(status if isinstance(status, dict) else {}),
    }


def _hex(value: Any) -> Any:
    return value.removeprefix("0x") if isinstance(value, str) else value


def _nanoseconds(value: Any) -> int:
    """Unix nanoseconds of an ISO 8601 time; 0 where there is none."""
    if value is None:
        return 0
    try:
        return (datetime.fromisoformat(value).astimezone(UTC) - _EPOCH) // timedelta(microseconds=1) * 1000
    except (TypeError, ValueError, OverflowError):
        raise InputError("start_time and end_time must be ISO 8601 times") from None


def _status(status: Mapping[str, Any]) -> dict[str, Any]:
    return {"code": f"STATUS_CODE_{status.get('status_code') or 'UNSET'}", "message": status.get("description")}


def _event(event: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "timeUnixNano": _nanoseconds(event.get("timestamp")),
        "name": event.get("name"),
        "attributes": _attributes(event.get("attributes")),
    }


def _mappings(value: Any) -> list[Mapping[str, Any]]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def _attributes(value: Any) -> list[dict[str, Any]]:
    return [{"key": key, "value": _any(held)} for key, held in value.items()] if isinstance(value, dict) else []


def _any(value: Any) -> dict[str, Any]:
    """A JSON value as OTLP's `AnyValue`."""
    if isinstance(value, list):
        return {"arrayValue": {"values": [_any(each) for each in value]}}
    if isinstance(value, dict):
        return {"kvlistValue": {"values": _attributes(value)}}
    return next(({name: value} for type_, name in _SCALARS if isinstance(value, type_)), {})


_SCALARS: Final = ((str, "stringValue"), (bool, "boolValue"), (int, "intValue"), (float, "doubleValue"))
