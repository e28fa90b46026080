"""OTLP/JSON requests rewritten as protobuf requests, whole: for passing them on.

Knows the levels of a request and their schema URLs. What a span or a record becomes is `encode`'s to know, so that the
same item framed from JSON and from the rewritten request is the same bytes. Fields that OTLP does not have cannot be
kept: protobuf knows fields by their numbers.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Iterator
from typing import Any, Final

from google.protobuf import json_format

from otel_eval.errors import InputError
from otel_eval.sources.otlp.encode import LOG_RECORD, RESOURCE, SCOPE, SPAN, Table, message
from otel_eval.sources.otlp.json_values import items, look_up
from otel_eval.sources.otlp.wire import write_text
from otel_eval.wire import sized

__all__ = ["logs_request", "metrics_request", "traces_request"]

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
