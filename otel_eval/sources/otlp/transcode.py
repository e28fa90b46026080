"""From OTLP/JSON to frames.

Knows how the JSON documents of traces and logs nest. Every span is rewritten as protobuf bytes and framed like one that
came as protobuf, so nothing downstream knows which of the two it was. A span with an unusable field is rejected alone;
a document that is no OTLP at all is refused as a whole.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from google.protobuf.message import DecodeError

from otel_eval.errors import InputError
from otel_eval.sources.otlp.crowding import UNLIMITED
from otel_eval.sources.otlp.encode import LOG_RECORD, RESOURCE, SCOPE, SPAN, Table, message
from otel_eval.sources.otlp.framing import Framed, add_log, add_span, charge, charge_content, is_for_us
from otel_eval.sources.otlp.json_values import items, look_up
from otel_eval.sources.otlp.schema import parse_ids, parse_log
from otel_eval.sources.otlp.views import SpanEnvelope, span_envelope

__all__ = ["frame_json", "frame_logs_json", "frame_traces_json", "load_json"]


def load_json(body: bytes) -> dict[str, Any]:
    """The object that the UTF-8 text is.

    Raises:
        InputError: no UTF-8 (a byte order mark before it is allowed), no JSON, nested too deeply, or no object.
    """
    try:
        document = json.loads(body.decode("utf-8-sig"))
    except UnicodeDecodeError:
        raise InputError("not UTF-8") from None
    except json.JSONDecodeError as error:
        raise InputError(f"not JSON: {error}") from None
    except RecursionError:
        raise InputError("nested too deeply") from None
    except ValueError:  # an integer of thousands of digits
        raise InputError("not JSON: a number is too long") from None
    if not isinstance(document, dict):
        raise InputError("not a JSON object")
    return document


def frame_traces_json(body: bytes, most: int = UNLIMITED) -> Framed:
    """Spans of an ExportTraceServiceRequest, or of TracesData, in OTLP/JSON; `most` as in protobuf.

    Raises:
        InputError: the body is no such document.
    """
    return frame_json(load_json(body), logs=False, most=most)


def frame_logs_json(body: bytes, most: int = UNLIMITED) -> Framed:
    """Log records of an ExportLogsServiceRequest, or of LogsData, in OTLP/JSON; `most` as in protobuf.

    Raises:
        InputError: the body is no such document.
    """
    return frame_json(load_json(body), spans=False, most=most)


def frame_json(document: dict[str, Any], *, spans: bool = True, logs: bool = True, most: int = UNLIMITED) -> Framed:
    """Spans and log records of a document that is parsed already; `resourceSpans` and `resourceLogs` may both be there.

    Raises:
        InputError: they do not nest as OTLP does.
    """
    framed = Framed(most=most)
    try:
        if spans:
            _add_spans(framed, document)
        if logs:
            _add_logs(framed, document)
    except DecodeError as error:  # what we wrote ourselves: never seen, but a decoder raises InputError and nothing else
        raise InputError(f"not OTLP: {error}") from None
    return charge_content(framed)


def _add_spans(framed: Framed, document: dict[str, Any]) -> None:
    for envelope, members in _scopes(document, "resourceSpans", "scopeSpans", "spans"):
        if not is_for_us(framed, envelope, len(members)):
            continue
        before = len(framed.spans)
        for member in members:
            try:
                payload = message(SPAN, member)
            except InputError as error:
                framed.reject(str(error))
                continue
            add_span(framed, envelope, payload, parse_ids(payload))
        charge(framed, envelope, len(framed.spans) - before)


def _add_logs(framed: Framed, document: dict[str, Any]) -> None:
    for envelope, members in _scopes(document, "resourceLogs", "scopeLogs", "logRecords"):
        if not is_for_us(framed, envelope, len(members)):
            continue
        for member in members:
            try:
                payload = message(LOG_RECORD, member)
            except InputError as error:
                framed.reject(str(error))
                continue
            add_log(framed, payload, parse_log(payload))


def _scopes(document: dict[str, Any], groups: str, scopes: str, members: str) -> Iterator[tuple[SpanEnvelope, list[Any]]]:
    for group in _members(document, groups):
        resource = _part(group, "resource", RESOURCE)
        for scope in _members(group, scopes):
            yield span_envelope(resource, _part(scope, "scope", SCOPE)), _members(scope, members)


def _members(parent: Any, name: str) -> list[Any]:
    snake = "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name)
    found = look_up(_object(parent, name), name, snake)
    try:
        return [] if found is None else items(found)
    except InputError as error:
        raise InputError(f"{name}: {error}") from None


def _part(parent: Any, name: str, table: Table) -> bytes:
    found = _object(parent, name).get(name)
    try:
        return b"" if found is None else message(table, found)
    except InputError as error:
        raise InputError(f"{name}: {error}") from None


def _object(parent: Any, name: str) -> dict[str, Any]:
    if not isinstance(parent, dict):
        raise InputError(f"{name}: expected in an object")
    return parent
