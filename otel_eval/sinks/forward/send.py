"""One OTLP request sent as the bytes it is, over gRPC or HTTP.

Makes one attempt, or a second one where a kept connection had been closed by the other end meanwhile. `responses` has the
table of what a response means.
"""

from __future__ import annotations

import gzip
import http.client
import ssl
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal
from urllib.parse import SplitResult, urlsplit

import grpc
from google.protobuf.message import DecodeError
from google.rpc import error_details_pb2, status_pb2
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

from otel_eval.sinks.responses import ExportResult, of_grpc, of_http
from otel_eval.tls import ClientTls

__all__ = ["Send", "Target", "sender"]

_METHODS: Final = {
    "traces": "/opentelemetry.proto.collector.trace.v1.TraceService/Export",
    "logs": "/opentelemetry.proto.collector.logs.v1.LogsService/Export",
    "metrics": "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export",
}
_PORT: Final = 4317
_LONGEST_REASON: Final = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Where requests are passed on to.

    Attributes:
        endpoint: `http(s)://host:port`; for HTTP the base, to which `/v1/traces` and so on are added.
        protocol: grpc or http/protobuf.
        headers: sent with each request.
        timeout_s: for one attempt.
        compression: gzip or none.
        tls: files for an https endpoint.
    """

    endpoint: str
    protocol: Literal["grpc", "http/protobuf"] = "grpc"
    headers: Mapping[str, str] = field(default_factory=dict)
    timeout_s: float = 10.0
    compression: Literal["gzip", "none"] = "none"
    tls: ClientTls = field(default_factory=ClientTls)


Send = Callable[[bytes], ExportResult]


def sender(to: Target, signal: str) -> tuple[Send, Callable[[], None]]:
    """How to send requests of a signal, from several threads, and how to end it.

    Raises:
        ConfigError: a TLS file cannot be used.
    """
    return _grpc(to, signal) if to.protocol == "grpc" else _http(to, signal)


def _grpc(to: Target, signal: str) -> tuple[Send, Callable[[], None]]:
    parts = urlsplit(to.endpoint)
    address = parts.netloc if parts.port or parts.scheme == "https" else f"{parts.netloc}:{_PORT}"
    options = [
        ("grpc.max_send_message_length", -1),
        ("grpc.use_local_subchannel_pool", 1),
        # The queue paces attempts. gRPC's own waits between connections would let attempts fail while the endpoint is back.
        ("grpc.initial_reconnect_backoff_ms", 100),
        ("grpc.max_reconnect_backoff_ms", 5_000),
    ]
    compression = grpc.Compression.Gzip if to.compression == "gzip" else grpc.Compression.NoCompression
    if parts.scheme == "https":
        channel = grpc.secure_channel(address, grpc.ssl_channel_credentials(*to.tls.pems()), options, compression)
    else:
        channel = grpc.insecure_channel(address, options, compression)
    export = channel.unary_unary(_METHODS[signal])
    metadata = tuple((key.lower(), value) for key, value in to.headers.items())

    def send(body: bytes) -> ExportResult:
        try:
            return _taken(export(body, metadata=metadata, timeout=to.timeout_s))
        except grpc.RpcError as error:
            return _grpc_result(error)

    return send, channel.close


def _grpc_result(error: Any) -> ExportResult:
    return of_grpc(str(error.code().name), _retry_delay(error.trailing_metadata() or ()))


def _retry_delay(trailers: Any) -> float | None:
    """What RetryInfo asks for; None if it is not there."""
    for key, value in trailers:
        if key == "grpc-status-details-bin":
            for detail in status_pb2.Status.FromString(value).details:
                info = error_details_pb2.RetryInfo()
                if detail.Is(info.DESCRIPTOR) and detail.Unpack(info):
                    return float(info.retry_delay.ToNanoseconds() / 1e9)
    return None


def _taken(answer: bytes) -> ExportResult:
    """An accepted request, perhaps a partial success: the three responses have the same fields."""
    if not answer:
        return ExportResult("ok")
    try:
        partial = ExportTraceServiceResponse.FromString(answer).partial_success
    except DecodeError:
        return ExportResult("ok")
    return ExportResult("ok", one_line(partial.error_message), rejected=max(0, partial.rejected_spans))


def one_line(text: str) -> str:
    """A backend's text for a log line: printable, without line ends, at most 200 characters."""
    words = " ".join("".join(each if each.isprintable() else " " for each in text[: 2 * _LONGEST_REASON]).split())
    return words if len(words) <= _LONGEST_REASON else f"{words[: _LONGEST_REASON - 1]}…"


def _http(to: Target, signal: str) -> tuple[Send, Callable[[], None]]:
    parts = urlsplit(to.endpoint)
    context = to.tls.context() if parts.scheme == "https" else None
    path = f"{parts.path.rstrip('/')}/v1/{signal}"
    headers = {**to.headers, "Content-Type": "application/x-protobuf"}
    if to.compression == "gzip":
        headers["Content-Encoding"] = "gzip"
    idle: deque[http.client.HTTPConnection] = deque()  # open, and in nobody's hands

    def attempt(connection: http.client.HTTPConnection, body: bytes) -> ExportResult:
        try:
            connection.request("POST", path, body, headers)
            response = connection.getresponse()
            result = _http_result(response, response.read())
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            return ExportResult("retryable", type(error).__name__)
        idle.append(connection)
        return result

    def send(body: bytes) -> ExportResult:
        packed = gzip.compress(body, 6) if to.compression == "gzip" else body
        kept = _pop(idle)
        if kept is not None:
            result = attempt(kept, packed)
            if result.status != "retryable" or result.reason.isdigit():
                return result
        return attempt(_connection(parts, to.timeout_s, context), packed)

    def close() -> None:
        while idle:
            idle.pop().close()

    return send, close


def _pop(idle: deque[http.client.HTTPConnection]) -> http.client.HTTPConnection | None:
    try:
        return idle.pop()
    except IndexError:  # another thread has it
        return None


def _connection(parts: SplitResult, timeout_s: float, context: ssl.SSLContext | None) -> http.client.HTTPConnection:
    host, port = parts.hostname or "", parts.port
    if context is not None:
        return http.client.HTTPSConnection(host, port, timeout=timeout_s, context=context)
    return http.client.HTTPConnection(host, port, timeout=timeout_s)


def _http_result(response: http.client.HTTPResponse, content: bytes) -> ExportResult:
    status = response.status
    if 200 <= status < 300:
        protobuf = response.headers.get_content_type() == "application/x-protobuf"
        return _taken(content) if protobuf else ExportResult("ok")
    after = response.headers.get("Retry-After", "")
    return of_http(status, float(after) if after.isdigit() else 0.0)
