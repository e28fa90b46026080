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
from google.protobuf.descriptor import Descriptor
from opentelemetry.proto.logs.v1.logs_pb2 import LogsData
from opentelemetry.proto.trace.v1.trace_pb2 import TracesData

from otel_eval.errors import InputError
from otel_eval.otlp.json_fields import items, look_up, message
from otel_eval.otlp.protobuf import UNLIMITED, SpanBatch, read_logs, read_traces

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
    return _read(traces_request(load_json(body)), read_traces, most)


def read_logs_json(body: bytes, most: int = UNLIMITED) -> SpanBatch:
    """The log records of an ExportLogsServiceRequest, or of LogsData, in OTLP/JSON; `most` as in `read_logs`.

    Raises:
        InputError: the body is no such document.
    """
    return _read(logs_request(load_json(body)), read_logs, most)


def read_document(document: dict[str, Any]) -> SpanBatch:
    """The spans and log records of a parsed document; `resourceSpans` and `resourceLogs` may both be there.

    Raises:
        InputError: they do not nest as OTLP does.
    """
    batch, more = _read(traces_request(document), read_traces), _read(logs_request(document), read_logs)
    batch.logs, batch.own, batch.ignored = more.logs, batch.own + more.own, more.ignored
    batch.reject(more.why, more.rejected)
    return batch


def _read(request: Rewritten, read: Callable[[bytes, int], SpanBatch], most: int = UNLIMITED) -> SpanBatch:
    batch = read(request.body, most)
    batch.reject(request.why, request.rejected)
    return batch


def traces_request(document: dict[str, Any]) -> Rewritten:
    """An ExportTraceServiceRequest.

    Raises:
        InputError: the document does not nest as OTLP does.
    """
    return _request(document, TracesData.DESCRIPTOR)


def logs_request(document: dict[str, Any]) -> Rewritten:
    """An ExportLogsServiceRequest; raises as `traces_request` does."""
    return _request(document, LogsData.DESCRIPTOR)


_PATH: Final = (1, 2, 2)
"""The numbers of the fields that list resources, scopes, and spans or log records."""


def _request(document: dict[str, Any], kind: Descriptor) -> Rewritten:
    reasons: list[str] = []

    def usable(given: Any, item: Descriptor) -> Iterator[bytes]:
        try:
            yield message(given, item)
        except InputError as error:
            reasons.append(str(error))

    def level(given: Any, kind: Descriptor, path: tuple[int, ...]) -> dict[str, Any]:
        """The object with bytes in place of its spans or log records."""
        field = kind.fields_by_number[path[0]]
        listed, inner = _members(given, field.json_name, field.name), field.message_type
        assert inner is not None
        if len(path) > 1:
            return {**given, field.json_name: [level(each, inner, path[1:]) for each in listed]}
        return {**given, field.json_name: [written for each in listed for written in usable(each, inner)]}

    body = message(level(document, kind, _PATH), kind)
    return Rewritten(body, len(reasons), reasons[0] if reasons else "")


def _members(parent: Any, camel: str, snake: str) -> list[Any]:
    if not isinstance(parent, dict):
        raise InputError(f"{camel}: expected in an object")
    found = look_up(parent, camel, snake)
    try:
        return [] if found is None else items(found)
    except InputError as error:
        raise InputError(f"{camel}: {error}") from None


def metrics_request(document: dict[str, Any]) -> bytes:
    """An ExportMetricsServiceRequest.

    Raises:
        InputError: the document is none.
    """
    # Deferred: only forwarding metrics as JSON needs the message.
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
