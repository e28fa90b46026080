"""From OTLP/JSON to frames.

Knows how the JSON documents of traces and logs nest. Every span is rewritten as protobuf bytes and framed like one that
came as protobuf, so nothing downstream knows which of the two it was. A span with an unusable field is rejected alone;
a document that is no OTLP at all is refused as a whole.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable, Iterator
from typing import Any, Final

from google.protobuf import json_format
from google.protobuf.message import DecodeError

from otel_eval.errors import InputError
from otel_eval.otlp.attribute_limits import UNLIMITED
from otel_eval.otlp.json_fields import LOG_RECORD, RESOURCE, SCOPE, SPAN, Table, items, look_up, message, write_text
from otel_eval.otlp.protobuf import SpanBatch, add_log, add_span, charge, charge_content, is_for_us
from otel_eval.otlp.schema import parse_ids, parse_log
from otel_eval.otlp.spans import OtlpResourceScope, resource_scope
from otel_eval.wire import sized

__all__ = [
    "load_json",
    "logs_request",
    "metrics_request",
    "read_document",
    "read_logs_json",
    "read_traces_json",
    "traces_request",
]


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


def read_traces_json(body: bytes, most: int = UNLIMITED) -> SpanBatch:
    """Spans of an ExportTraceServiceRequest, or of TracesData, in OTLP/JSON; `most` as in protobuf.

    Raises:
        InputError: the body is no such document.
    """
    return read_document(load_json(body), logs=False, most=most)


def read_logs_json(body: bytes, most: int = UNLIMITED) -> SpanBatch:
    """Log records of an ExportLogsServiceRequest, or of LogsData, in OTLP/JSON; `most` as in protobuf.

    Raises:
        InputError: the body is no such document.
    """
    return read_document(load_json(body), spans=False, most=most)


def read_document(document: dict[str, Any], *, spans: bool = True, logs: bool = True, most: int = UNLIMITED) -> SpanBatch:
    """Spans and log records of a document that is parsed already; `resourceSpans` and `resourceLogs` may both be there.

    Raises:
        InputError: they do not nest as OTLP does.
    """
    framed = SpanBatch(most=most)
    try:
        if spans:
            _add_spans(framed, document)
        if logs:
            _add_logs(framed, document)
    except DecodeError as error:  # what we wrote ourselves: never seen, but a decoder raises InputError and nothing else
        raise InputError(f"not OTLP: {error}") from None
    return charge_content(framed)


def _add_spans(framed: SpanBatch, document: dict[str, Any]) -> None:
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


def _add_logs(framed: SpanBatch, document: dict[str, Any]) -> None:
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


def _scopes(document: dict[str, Any], groups: str, scopes: str, members: str) -> Iterator[tuple[OtlpResourceScope, list[Any]]]:
    for group in _listed(document, groups):
        resource = _part(group, "resource", RESOURCE)
        for scope in _listed(group, scopes):
            yield resource_scope(resource, _part(scope, "scope", SCOPE)), _listed(scope, members)


def _listed(parent: Any, name: str) -> list[Any]:
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


_IDS: Final = ("traceId", "spanId")


class _Lost:
    """Counts items that cannot be written."""

    def __init__(self) -> None:
        self.count, self.why = 0, ""

    def add(self, why: str) -> None:
        self.count, self.why = self.count + 1, self.why or why


def traces_request(document: dict[str, Any]) -> tuple[bytes, int, str]:
    """An ExportTraceServiceRequest, the number of spans that cannot be written, and of the first why.

    Raises:
        InputError: the document does not nest as OTLP does.
    """
    return _request(document, ("resourceSpans", "scopeSpans", "spans"), SPAN)


def logs_request(document: dict[str, Any]) -> tuple[bytes, int, str]:
    """The same of log records; raises as `traces_request` does."""
    return _request(document, ("resourceLogs", "scopeLogs", "logRecords"), LOG_RECORD)


def _request(document: dict[str, Any], names: tuple[str, str, str], table: Table) -> tuple[bytes, int, str]:
    lost = _Lost()

    def item(given: Any) -> bytes:
        try:
            return sized(2, message(table, given))
        except InputError as error:
            lost.add(str(error))
            return b""

    def scope(given: Any) -> bytes:
        return sized(2, _level(given, "scope", SCOPE, names[2], item))

    def group(given: Any) -> bytes:
        return sized(1, _level(given, "resource", RESOURCE, names[1], scope))

    return b"".join(map(group, _members(document, names[0]))), lost.count, lost.why


def _level(given: Any, head: str, table: Table, name: str, write: Callable[[Any], bytes]) -> bytes:
    """One level: its head, what it lists, its schema URL."""
    listed = b"".join(map(write, _members(given, name)))
    try:
        found = given.get(head)
        start = b"" if found is None else sized(1, message(table, found))
        url = look_up(given, "schemaUrl", "schema_url")
        return start + listed + (b"" if url is None else write_text(3, url))
    except InputError as error:
        raise InputError(f"{head}: {error}") from None


def _members(parent: Any, name: str) -> list[Any]:
    if not isinstance(parent, dict):
        raise InputError(f"{name}: expected in an object")
    snake = "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name)
    found = look_up(parent, name, snake)
    try:
        return [] if found is None else items(found)
    except InputError as error:
        raise InputError(f"{name}: {error}") from None


def metrics_request(document: dict[str, Any]) -> bytes:
    """An ExportMetricsServiceRequest.

    Raises:
        InputError: the document is none.
    """
    # Deferred: only who passes metrics on as JSON needs the message.
    from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

    for exemplar in _exemplars(document):
        _encode_ids(exemplar)
    try:
        request = json_format.ParseDict(document, ExportMetricsServiceRequest(), ignore_unknown_fields=True)
    except (json_format.ParseError, RecursionError, SystemError):  # the last: a key that UTF-8 cannot write
        raise InputError("not OTLP metrics in JSON") from None
    serialised: bytes = request.SerializeToString()
    return serialised


def _exemplars(value: Any) -> Iterator[dict[str, Any]]:
    """Every exemplar, wherever it stands."""
    stack = [value]
    while stack:
        each = stack.pop()
        if isinstance(each, list):
            stack.extend(each)
        elif isinstance(each, dict):
            found = each.get("exemplars")
            yield from (exemplar for exemplar in found if isinstance(exemplar, dict)) if isinstance(found, list) else ()
            stack.extend(value for key, value in each.items() if key != "attributes")


def _encode_ids(exemplar: dict[str, Any]) -> None:
    """OTLP writes ids in hexadecimal where protobuf's own JSON reads base64."""
    for key in _IDS:
        if isinstance(exemplar.get(key), str):
            try:
                exemplar[key] = b64encode(bytes.fromhex(exemplar[key])).decode()
            except ValueError:
                raise InputError(f"{key}: expected hexadecimal text") from None
