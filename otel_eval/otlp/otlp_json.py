"""Converts OTLP/JSON documents to protobuf requests, and reads them into batches.

Spans and log records become protobuf bytes, so nothing downstream depends on the encoding of a
request. A span or a log record with an unusable field is rejected alone; a document that does not
nest as OTLP does is refused as a whole. Unknown fields are
lost: protobuf identifies fields by their numbers.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple

from otel_eval.errors import InputError
from otel_eval.otlp.json_fields import encode_document
from otel_eval.otlp.protobuf import UNLIMITED, SpanBatch, read_logs, read_traces

_MESSAGES: Final = {
    "traces": "opentelemetry.proto.trace.v1.TracesData",
    "logs": "opentelemetry.proto.logs.v1.LogsData",
    "metrics": "opentelemetry.proto.metrics.v1.MetricsData",
}
"""The message by signal. On the wire these are the same as export requests."""


class Rewritten(NamedTuple):
    """A request in protobuf.

    Attributes:
        body: the request.
        rejected: the number of spans or log records that cannot be encoded.
        reason: why the first of them cannot, or "".
    """

    body: bytes
    rejected: int = 0
    reason: str = ""


_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def unix_nanoseconds(value: Any) -> int:
    """Unix nanoseconds of a number of them, of a date (UTC if it has no zone) or ISO 8601 text; 0
    for None.

    Raises:
        InputError: it is none of these.
    """
    if value is None:
        return 0
    if isinstance(value, int):
        return value
    try:
        date = value if isinstance(value, datetime) else datetime.fromisoformat(value)
        date = date if date.tzinfo else date.replace(tzinfo=UTC)
        return (date - _EPOCH) // timedelta(microseconds=1) * 1000
    except (TypeError, ValueError, OverflowError):
        raise InputError("start and end: expected nanoseconds, or a date and time") from None


def load_json(body: bytes) -> dict[str, Any]:
    """Parse a JSON object from UTF-8 text without a byte order mark.

    Raises:
        InputError: it is not UTF-8, not JSON, nested too deeply, or not an object.
    """
    try:
        document = json.loads(body.decode())
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


def read_json(signal: str, body: bytes, max_attributes: int = UNLIMITED) -> SpanBatch:
    """Read the spans or log records of a request in OTLP/JSON, as `read_traces` does.

    Raises:
        InputError: the body is no such request.
    """
    return _read(signal, load_json(body), max_attributes)


def read_document(document: dict[str, Any]) -> SpanBatch:
    """Read the spans and log records of a parsed document, which may have both `resourceSpans` and
    `resourceLogs`.

    Raises:
        InputError: they do not nest as OTLP does.
    """
    batch, logs = _read("traces", document), _read("logs", document)
    batch.logs, batch.own, batch.ignored = logs.logs, batch.own + logs.own, logs.ignored
    batch.reject(logs.reason, logs.rejected)
    return batch


def _read(signal: str, document: dict[str, Any], max_attributes: int = UNLIMITED) -> SpanBatch:
    request = rewrite(signal, document)
    batch = (read_logs if signal == "logs" else read_traces)(request.body, max_attributes)
    batch.reject(request.reason, request.rejected)
    return batch


def rewrite(signal: str, document: dict[str, Any]) -> Rewritten:
    """Convert a document to a protobuf request of traces, logs or metrics.

    Raises:
        InputError: it does not nest as OTLP does, or a metric cannot be encoded.
    """
    body, reasons = encode_document(document, _MESSAGES[signal])
    return Rewritten(body, len(reasons), reasons[0] if reasons else "")
