"""The bodies of OTLP's responses, in protobuf and JSON: Export…ServiceResponse, and google.rpc.Status with details.

Source: opentelemetry-proto docs/specification.md, "OTLP/gRPC" and "OTLP/HTTP".
"""

from __future__ import annotations

import json
from typing import Any, Final

from google.protobuf import json_format
from google.rpc import code_pb2, error_details_pb2, status_pb2

from otel_eval.otlp import Encoding, Signal
from otel_eval.sources.receiver.export_handler import ExportResponse, ExportStatus
from otel_eval.wire import sized, varint

__all__ = ["failure", "retry_info", "status", "success"]

_REJECTED: Final = {
    Signal.TRACES: "rejectedSpans",
    Signal.LOGS: "rejectedLogRecords",
    Signal.METRICS: "rejectedDataPoints",
}
_CODES: Final = {
    ExportStatus.INVALID: code_pb2.INVALID_ARGUMENT,
    ExportStatus.TOO_LARGE: code_pb2.RESOURCE_EXHAUSTED,
    ExportStatus.RETRYABLE: code_pb2.UNAVAILABLE,
}


def success(signal: Signal, encoding: Encoding, answer: ExportResponse) -> bytes:
    """The response message; `partial_success` is set only if something was not taken, or there is a warning."""
    if encoding is Encoding.JSON:
        partial = {_REJECTED[signal]: str(answer.rejected), "errorMessage": answer.message}
        return json.dumps({"partialSuccess": partial} if answer.message else {}).encode()
    if not answer.message:
        return b""
    # Field numbers are the same in all three: partial_success = 1, of it the number = 1 and the message = 2.
    number = b"\x08" + varint(answer.rejected) if answer.rejected else b""
    return sized(1, number + sized(2, answer.message.encode()))


def retry_info(delay_s: float) -> Any:
    """The delay before a retry."""
    info = error_details_pb2.RetryInfo()
    info.retry_delay.FromNanoseconds(int(delay_s * 1_000_000_000))
    return info


def status(answer: ExportResponse) -> Any:
    """A google.rpc.Status of an answer that is no success.

    RetryInfo is given only where a retry helps: on RESOURCE_EXHAUSTED it would turn a body that is too large forever
    into one that is sent forever.
    """
    message = status_pb2.Status(code=_CODES[answer.status], message=answer.message)
    if answer.status is ExportStatus.RETRYABLE:
        message.details.add().Pack(retry_info(answer.retry_after_s))
    if answer.status is ExportStatus.INVALID:
        violation = error_details_pb2.BadRequest.FieldViolation(description=answer.message)
        message.details.add().Pack(error_details_pb2.BadRequest(field_violations=[violation]))
    return message


def failure(encoding: Encoding, message: Any) -> bytes:
    """The Status in the encoding that the request used."""
    if encoding is Encoding.JSON:
        return json_format.MessageToJson(message, indent=None).encode()
    serialised: bytes = message.SerializeToString()
    return serialised
