"""The OTLP client of every exporter and of forwarding: sends encoded requests over gRPC or HTTP.

It makes one attempt; over HTTP a second one if the server had closed the kept-alive connection.
Source of the table of responses: opentelemetry-proto docs/specification.md, "Failures" of OTLP/gRPC
and of OTLP/HTTP.
"""

from __future__ import annotations

import gzip
import http.client
import os
import re
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final
from urllib.parse import urlsplit

import grpc
from google.protobuf.message import DecodeError
from google.rpc import error_details_pb2, status_pb2
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

from otel_eval.counters import renew_after_fork
from otel_eval.otlp import Signal
from otel_eval.otlp.endpoint import Endpoint, HttpClient, HttpResponse, credentials_of, of_response
from otel_eval.retry import ExportResult, Status, reason_of

_PORT: Final = 4317
_LONGEST_REASON: Final = 200
_UNREACHED: Final = re.compile(
    r"failed to connect to all addresses(?:; last error: \w+: (.*))?|(?:errors resolving|DNS"
    r" resolution failed).*",
    re.DOTALL,
)
# gRPC's own messages for a redirect, and for a page with status 200
_NO_GRPC: Final = re.compile(r"Received http2 header with status: 3|Stream removed")
_CHANNEL: Final = (
    ("grpc.max_send_message_length", -1),
    ("grpc.use_local_subchannel_pool", 1),
    # The queue paces attempts. gRPC's own waits between connections would let attempts fail while
    # the endpoint is back.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 5_000),
)

_GRPC: Final[Mapping[str, Status]] = {
    "ABORTED": "retryable",
    "CANCELLED": "retryable",
    "DATA_LOSS": "retryable",
    "DEADLINE_EXCEEDED": "retryable",
    "OUT_OF_RANGE": "retryable",
    "PERMISSION_DENIED": "denied",
    "UNAUTHENTICATED": "denied",
    "UNAVAILABLE": "retryable",
    "UNIMPLEMENTED": "unsupported",
}

_Opened = tuple[Callable[[bytes], ExportResult], Callable[[], None]]
"""A function that sends a request, from any thread, and one that closes the connections."""


class OtlpClient:
    """Sends requests of one signal to one endpoint, from any thread. Connections are opened by the
    first request.

    A forked child opens connections of its own; it neither uses nor closes those of its parent.

    Args:
        to: the endpoint.
        signal: traces, logs or metrics.

    Raises:
        ConfigError: a TLS file cannot be used.
    """

    def __init__(self, to: Endpoint, signal: str) -> None:
        connect = _grpc if to.protocol == "grpc" else _http
        self._connect: Final = connect(to, Signal(signal))
        self._lock = threading.Lock()  # guards _opened
        renew_after_fork(self)
        # by process; a parent's is kept: gRPC may hang when a child closes its channel
        self._opened: dict[int, _Opened] = {}

    def send(self, body: bytes) -> ExportResult:
        """Make one attempt."""
        with self._lock:
            if os.getpid() not in self._opened:
                self._opened[os.getpid()] = self._connect()
            send, _ = self._opened[os.getpid()]
        return send(body)

    def close(self) -> None:
        """Close the connections of this process; a request that is under way fails."""
        with self._lock:
            if os.getpid() in self._opened:
                self._opened[os.getpid()][1]()


# ----------------------------------------------------------------------------- gRPC


def _grpc(to: Endpoint, signal: Signal) -> Callable[[], _Opened]:
    """Return a function that opens a gRPC channel to the endpoint."""
    parts = urlsplit(to.endpoint)
    host = parts.netloc.rpartition("@")[2]
    address = host if parts.port or parts.scheme == "https" else f"{host}:{_PORT}"
    compression = (
        grpc.Compression.Gzip if to.compression == "gzip" else grpc.Compression.NoCompression
    )
    pems = to.tls.pems() if parts.scheme == "https" else None
    metadata = tuple(
        (key.lower(), value) for key, value in {**credentials_of(parts), **to.headers}.items()
    )

    def connect() -> _Opened:
        if pems is not None:
            channel = grpc.secure_channel(
                address, grpc.ssl_channel_credentials(*pems), _CHANNEL, compression
            )
        else:
            channel = grpc.insecure_channel(address, _CHANNEL, compression)
        export = channel.unary_unary(f"/{signal.service}/Export")

        def send(body: bytes) -> ExportResult:
            try:
                return _read_response(export(body, metadata=metadata, timeout=to.timeout_s))
            except grpc.RpcError as error:
                details = error.details() or ""
                if error.code() is grpc.StatusCode.UNKNOWN and _NO_GRPC.match(details):
                    return ExportResult("unsupported", "UNKNOWN, the response is not gRPC's")
                result = of_grpc(error.code().name, _retry_delay(error.trailing_metadata() or ()))
                return replace(result, reason=result.reason + _connection_problem(details))

        return send, channel.close

    return connect


def _connection_problem(details: str) -> str:
    """Why no connection could be made, from gRPC's own message; "" for a message of the endpoint,
    which may quote the request.
    """
    match = _UNREACHED.match(details)
    return f": {one_line(match[1] or match[0])}" if match else ""


def _retry_delay(trailers: Any) -> float | None:
    """The delay in seconds that RetryInfo asks for; None without one, or if the details are
    malformed.
    """
    info = error_details_pb2.RetryInfo()
    with suppress(DecodeError):
        for value in [value for key, value in trailers if key == "grpc-status-details-bin"]:
            for detail in status_pb2.Status.FromString(value).details:
                if detail.Is(info.DESCRIPTOR) and detail.Unpack(info):
                    return float(info.retry_delay.ToNanoseconds() / 1e9)
    return None


def _read_response(answer: bytes) -> ExportResult:
    """The result of an accepted request, perhaps a partial success. The responses of all signals
    have the same fields.
    """
    if not answer:
        return ExportResult("ok")
    try:
        partial = ExportTraceServiceResponse.FromString(answer).partial_success
    except DecodeError:
        return ExportResult("ok")
    return ExportResult(
        "ok", one_line(partial.error_message), rejected=max(0, partial.rejected_spans)
    )


def one_line(text: str) -> str:
    """A backend's text for a log line: printable, without line ends, at most 200 characters."""
    words = " ".join(
        "".join(
            character if character.isprintable() else " "
            for character in text[: 2 * _LONGEST_REASON]
        ).split()
    )
    return words if len(words) <= _LONGEST_REASON else f"{words[: _LONGEST_REASON - 1]}…"


# ----------------------------------------------------------------------------- HTTP


def _http(to: Endpoint, signal: Signal) -> Callable[[], _Opened]:
    """Return a function that opens a client of HTTP for the endpoint."""
    zipped = to.compression == "gzip"
    headers = {"Content-Type": "application/x-protobuf"} | (
        {"Content-Encoding": "gzip"} if zipped else {}
    )
    client = HttpClient(to, headers)

    def send(body: bytes) -> ExportResult:
        try:
            response = client.request(
                "POST", signal.path, gzip.compress(body, 6) if zipped else body
            )
        except (OSError, http.client.HTTPException) as error:
            return ExportResult.retryable(reason_of(error))
        return http_result(response)

    return lambda: (send, client.close)


def http_result(response: HttpResponse) -> ExportResult:
    """The meaning of an HTTP response, which may report a partial success."""
    result = of_response(response)
    is_message = response.content_type == "application/x-protobuf"
    return _read_response(response.content) if result.status == "ok" and is_message else result


# ----------------------------------------------------------------------------- what a response
# means


def of_grpc(code: str, after_s: float | None = None) -> ExportResult:
    """The meaning of a gRPC status other than OK; `after_s` is what RetryInfo asks for, None
    without one.
    """
    is_throttled = code == "RESOURCE_EXHAUSTED" and after_s is not None
    status = "retryable" if is_throttled else _GRPC.get(code, "permanent")
    return ExportResult(status, code, after_s or 0.0, concerns_all=status == "denied")
