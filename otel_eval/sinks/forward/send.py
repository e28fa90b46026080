"""One OTLP request sent as the bytes it is, over gRPC or HTTP, and what the answer means.

Knows which answers OTLP calls retryable; waits for nothing and tries nothing twice, but for a kept connection that the
other end had closed meanwhile.
Source: opentelemetry-proto docs/specification.md, "Failures" of OTLP/gRPC and of OTLP/HTTP.
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

from otel_eval.tls import ClientTls

__all__ = ["Answer", "Fate", "Send", "Target", "sender"]

Fate = Literal["sent", "later", "never", "unknown"]
"""Taken; come again; refused for good; the endpoint does not know the signal."""

_METHODS: Final = {
    "traces": "/opentelemetry.proto.collector.trace.v1.TraceService/Export",
    "logs": "/opentelemetry.proto.collector.logs.v1.LogsService/Export",
    "metrics": "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export",
}
_RETRYABLE: Final = frozenset({"CANCELLED", "DEADLINE_EXCEEDED", "ABORTED", "OUT_OF_RANGE", "UNAVAILABLE", "DATA_LOSS"})
_RETRYABLE_HTTP: Final = frozenset({429, 502, 503, 504})
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


@dataclass(frozen=True, slots=True)
class Answer:
    """What became of a request: `why` in a word, how long to wait at least, and what the endpoint rejected of it.

    Of a partial success `why` is the endpoint's own reason, on one line of at most 200 characters.
    """

    fate: Fate
    why: str = ""
    after_s: float = 0.0
    rejected: int = 0


Send = Callable[[bytes], Answer]


def sender(to: Target, signal: str) -> tuple[Send, Callable[[], None]]:
    """How to send requests of a signal, from several threads, and how to end it.

    Raises:
        ConfigError: a TLS file cannot be used.
    """
    return _grpc(to, signal) if to.protocol == "grpc" else _http(to, signal)


def _grpc(to: Target, signal: str) -> tuple[Send, Callable[[], None]]:
    parts = urlsplit(to.endpoint)
    address = parts.netloc if parts.port or parts.scheme == "https" else f"{parts.netloc}:{_PORT}"
    options = [("grpc.max_send_message_length", -1), ("grpc.use_local_subchannel_pool", 1)]
    compression = grpc.Compression.Gzip if to.compression == "gzip" else grpc.Compression.NoCompression
    if parts.scheme == "https":
        channel = grpc.secure_channel(address, grpc.ssl_channel_credentials(*to.tls.pems()), options, compression)
    else:
        channel = grpc.insecure_channel(address, options, compression)
    export = channel.unary_unary(_METHODS[signal])
    metadata = tuple((key.lower(), value) for key, value in to.headers.items())

    def send(body: bytes) -> Answer:
        try:
            return _taken(export(body, metadata=metadata, timeout=to.timeout_s))
        except grpc.RpcError as error:
            return _judge_grpc(error)

    return send, channel.close


def _judge_grpc(error: Any) -> Answer:
    code = str(error.code().name)
    after = _retry_delay(error.trailing_metadata() or ())
    if code in _RETRYABLE or (code == "RESOURCE_EXHAUSTED" and after is not None):
        return Answer("later", code, after or 0.0)
    return Answer("unknown" if code == "UNIMPLEMENTED" else "never", code)


def _retry_delay(trailers: Any) -> float | None:
    """What RetryInfo asks for; None if it is not there."""
    for key, value in trailers:
        if key == "grpc-status-details-bin":
            for detail in status_pb2.Status.FromString(value).details:
                info = error_details_pb2.RetryInfo()
                if detail.Is(info.DESCRIPTOR) and detail.Unpack(info):
                    return float(info.retry_delay.ToNanoseconds() / 1e9)
    return None


def _taken(answer: bytes) -> Answer:
    """An accepted request, perhaps a partial success: the three responses have the same fields."""
    if not answer:
        return Answer("sent")
    try:
        partial = ExportTraceServiceResponse.FromString(answer).partial_success
    except DecodeError:
        return Answer("sent")
    return Answer("sent", one_line(partial.error_message), rejected=max(0, partial.rejected_spans))


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

    def attempt(connection: http.client.HTTPConnection, body: bytes) -> Answer:
        try:
            connection.request("POST", path, body, headers)
            response = connection.getresponse()
            answer = _judge_http(response, response.read())
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            return Answer("later", type(error).__name__)
        idle.append(connection)
        return answer

    def send(body: bytes) -> Answer:
        packed = gzip.compress(body, 6) if to.compression == "gzip" else body
        kept = _pop(idle)
        if kept is not None:
            answer = attempt(kept, packed)
            if answer.fate != "later" or answer.why.isdigit():
                return answer
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


def _judge_http(response: http.client.HTTPResponse, content: bytes) -> Answer:
    status = response.status
    if 200 <= status < 300:
        protobuf = response.headers.get_content_type() == "application/x-protobuf"
        return _taken(content) if protobuf else Answer("sent")
    if status in _RETRYABLE_HTTP:
        after = response.headers.get("Retry-After", "")
        return Answer("later", str(status), float(after) if after.isdigit() else 0.0)
    return Answer("unknown" if status in (404, 405, 501) else "never", str(status))
