"""The bodies of OTLP's responses, in protobuf and JSON: Export…ServiceResponse, and google.rpc.Status with details.

Source: opentelemetry-proto docs/specification.md, "OTLP/gRPC" and "OTLP/HTTP".
"""

from __future__ import annotations

from typing import Any, Final

from google.protobuf import duration_pb2, json_format
from google.rpc import code_pb2, error_details_pb2, status_pb2
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceResponse
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceResponse
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

from otel_eval.otlp import Encoding, Signal
from otel_eval.sources.receiver.export_handler import ExportResponse, ExportStatus

_RESPONSES: Final[dict[Signal, tuple[Any, str]]] = {
    Signal.TRACES: (ExportTraceServiceResponse, "rejected_spans"),
    Signal.LOGS: (ExportLogsServiceResponse, "rejected_log_records"),
    Signal.METRICS: (ExportMetricsServiceResponse, "rejected_data_points"),
}
_CODES: Final = {
    ExportStatus.INVALID: code_pb2.INVALID_ARGUMENT,
    ExportStatus.TOO_LARGE: code_pb2.RESOURCE_EXHAUSTED,
    ExportStatus.RETRYABLE: code_pb2.UNAVAILABLE,
}
RETRY_S: Final = 1
"""How long a client should wait before it retries."""
RETRY_INFO: Final = error_details_pb2.RetryInfo(retry_delay=duration_pb2.Duration(seconds=RETRY_S))


def success(signal: Signal, encoding: Encoding, answer: ExportResponse) -> bytes:
    """The response message; `partial_success` is set only if something was not taken, or there is a warning."""
    make, rejected = _RESPONSES[signal]
    response = make()
    if answer.message:
        response.partial_success.error_message = answer.message
        setattr(response.partial_success, rejected, answer.rejected)
    return serialized(encoding, response)


def status(answer: ExportResponse) -> Any:
    """A google.rpc.Status of an answer that is no success.

    RetryInfo is given only where a retry helps: on RESOURCE_EXHAUSTED it would turn a body that is too large forever
    into one that is sent forever.
    """
    message = status_pb2.Status(code=_CODES[answer.status], message=answer.message)
    if answer.status is ExportStatus.RETRYABLE:
        message.details.add().Pack(RETRY_INFO)
    if answer.status is ExportStatus.INVALID:
        violation = error_details_pb2.BadRequest.FieldViolation(description=answer.message)
        message.details.add().Pack(error_details_pb2.BadRequest(field_violations=[violation]))
    return message


def serialized(encoding: Encoding, message: Any) -> bytes:
    """The message in the encoding that the request used."""
    if encoding is Encoding.JSON:
        return json_format.MessageToJson(message, indent=None).encode()
    content: bytes = message.SerializeToString()
    return content
