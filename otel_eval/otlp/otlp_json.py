"""OTLP/JSON documents: read into batches, and rewritten as protobuf requests.

Spans and log records become protobuf bytes, so nothing downstream depends on the encoding of a request. A span or a log record
with an unusable field is rejected alone; a document that does not nest as OTLP does is refused as a whole. Fields that OTLP does
not have cannot be kept: protobuf knows fields by their numbers.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

from google.protobuf import json_format
from google.protobuf.message import DecodeError

from otel_eval.errors import InputError
from otel_eval.otlp.json_fields import LOG_RECORD, RESOURCE, SCOPE, SPAN, Table, items, look_up, message, snake_case, write_text
from otel_eval.otlp.protobuf import UNLIMITED, SpanBatch, add_logs, add_spans, with_content_sizes
from otel_eval.otlp.schema import parse_ids, parse_log
from otel_eval.otlp.spans import OtlpResourceScope, resource_scope
from otel_eval.wire import sized

_IDS: Final = ("traceId", "spanId")


class Rewritten(NamedTuple):
    """A document as a protobuf request.

    Attributes:
        body: the request.
        rejected: the number of spans or log records that cannot be written.
        why: the reason of the first of them, or "".
    """

    body: bytes
    rejected: int
    why: str


def load_json(body: bytes) -> dict[str, Any]:
    """The JSON object in UTF-8 text.

    Raises:
        InputError: as `decode_json` does, or it is not an object.
    """
    document = decode_json(body)
    if not isinstance(document, dict):
        raise InputError("not a JSON object")
    return document


def decode_json(body: bytes, broken: str = "not JSON: {error}") -> Any:
    """The value in UTF-8 text.

    Args:
        body: the text; a byte order mark is allowed.
        broken: the message where it is not JSON, with the `error` of Python's parser.

    Raises:
        InputError: it is not UTF-8, not JSON, or nested too deeply.
    """
    try:
        return json.loads(body.decode("utf-8-sig"))
    except UnicodeDecodeError:
        raise InputError("not UTF-8") from None
    except json.JSONDecodeError as error:
        raise InputError(broken.format(error=error)) from None
    except RecursionError:
        raise InputError("nested too deeply") from None
    except ValueError:  # an integer of thousands of digits
        raise InputError("not JSON: a number is too long") from None


def read_traces_json(body: bytes, most: int = UNLIMITED) -> SpanBatch:
    """The spans of an ExportTraceServiceRequest, or of TracesData, in OTLP/JSON; `most` as in `read_traces`.

    Raises:
        InputError: the body is no such document.
    """
    return read_document(load_json(body), logs=False, most=most)


def read_logs_json(body: bytes, most: int = UNLIMITED) -> SpanBatch:
    """The log records of an ExportLogsServiceRequest, or of LogsData, in OTLP/JSON; `most` as in `read_logs`.

    Raises:
        InputError: the body is no such document.
    """
    return read_document(load_json(body), spans=False, most=most)


def read_document(document: dict[str, Any], *, spans: bool = True, logs: bool = True, most: int = UNLIMITED) -> SpanBatch:
    """The spans and log records of a parsed document; `resourceSpans` and `resourceLogs` may both be there.

    Raises:
        InputError: they do not nest as OTLP does.
    """
    batch = SpanBatch(most=most)
    try:
        for scope, payloads in _scopes(document, _SPANS, batch.reject) if spans else ():
            add_spans(batch, scope, payloads, map(parse_ids, payloads))
        for scope, payloads in _scopes(document, _LOGS, batch.reject) if logs else ():
            add_logs(batch, scope, payloads, map(parse_log, payloads))
    except DecodeError as error:  # of what was written here: never seen, but a reader raises InputError and nothing else
        raise InputError(f"not OTLP: {error}") from None
    return with_content_sizes(batch)


def traces_request(document: dict[str, Any]) -> Rewritten:
    """An ExportTraceServiceRequest.

    Raises:
        InputError: the document does not nest as OTLP does.
    """
    return _request(document, _SPANS)


def logs_request(document: dict[str, Any]) -> Rewritten:
    """An ExportLogsServiceRequest; raises as `traces_request` does."""
    return _request(document, _LOGS)


class _Names(NamedTuple):
    """The names of the lists in a document, and the fields of an item in the innermost one."""

    groups: str
    scopes: str
    items: str
    table: Table


_SPANS: Final = _Names("resourceSpans", "scopeSpans", "spans", SPAN)
_LOGS: Final = _Names("resourceLogs", "scopeLogs", "logRecords", LOG_RECORD)


class _Level(NamedTuple):
    """A resource or a scope as protobuf, its schema URL, and what is listed in it."""

    head: bytes | None
    url: str
    listed: list[Any]


def _levels(listed: list[Any], head: str, table: Table, name: str) -> Iterator[_Level]:
    """Each object of the list with its head (a resource or a scope) and the objects that its member `name` lists."""
    for given in listed:
        below = _members(given, name)
        found, url = given.get(head), look_up(given, "schemaUrl", "schema_url")
        try:
            written = None if found is None else message(table, found)
        except InputError as error:
            raise InputError(f"{head}: {error}") from None
        yield _Level(written, url if isinstance(url, str) else "", below)


def _groups(document: dict[str, Any], names: _Names) -> Iterator[tuple[_Level, Iterator[_Level]]]:
    for group in _levels(_members(document, names.groups), "resource", RESOURCE, names.scopes):
        yield group, _levels(group.listed, "scope", SCOPE, names.items)


def _written(listed: list[Any], table: Table, reject: Callable[[str], object]) -> Iterator[bytes]:
    for given in listed:
        try:
            yield message(table, given)
        except InputError as error:
            reject(str(error))


def _scopes(
    document: dict[str, Any], names: _Names, reject: Callable[[str], object]
) -> Iterator[tuple[OtlpResourceScope, list[bytes]]]:
    for group, scopes in _groups(document, names):
        for scope in scopes:
            yield resource_scope(group.head or b"", scope.head or b""), list(_written(scope.listed, names.table, reject))


def _request(document: dict[str, Any], names: _Names) -> Rewritten:
    reasons: list[str] = []

    def of_scope(scope: _Level) -> bytes:
        items = b"".join([sized(2, each) for each in _written(scope.listed, names.table, reasons.append)])
        return sized(2, _field(scope.head) + items + write_text(3, scope.url))

    groups = [
        sized(1, _field(group.head) + b"".join(map(of_scope, scopes)) + write_text(3, group.url))
        for group, scopes in _groups(document, names)
    ]
    return Rewritten(b"".join(groups), len(reasons), reasons[0] if reasons else "")


def _field(head: bytes | None) -> bytes:
    """A resource or a scope in the message around it."""
    return b"" if head is None else sized(1, head)


def _members(parent: Any, name: str) -> list[Any]:
    if not isinstance(parent, dict):
        raise InputError(f"{name}: expected in an object")
    found = look_up(parent, name, snake_case(name))
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
            # Attributes hold no exemplars, though a value there may be called so.
            stack.extend(value for key, value in each.items() if key != "attributes")


def _encode_ids(exemplar: dict[str, Any]) -> None:
    """OTLP writes ids in hexadecimal where protobuf's own JSON reads base64."""
    for key in _IDS:
        if isinstance(exemplar.get(key), str):
            try:
                exemplar[key] = b64encode(bytes.fromhex(exemplar[key])).decode()
            except ValueError:
                raise InputError(f"{key}: expected hexadecimal text") from None
