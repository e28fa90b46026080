"""OTLP over gRPC, and grpc.health.v1: a synchronous grpcio server whose handlers get raw bytes.

Refusals are UNAVAILABLE with RetryInfo, never RESOURCE_EXHAUSTED without it: the Collector drops data on that. For the same
reason the number of concurrent calls is limited by HTTP/2 flow control, which makes a client wait, and not by
`maximum_concurrent_rpcs`, which answers RESOURCE_EXHAUSTED.

Of health only `Check` is served: `Watch` would hold a thread for each watcher, and a client that finds it UNIMPLEMENTED takes the
server for healthy, as the protocol asks. Source: grpc doc/health-checking.md.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import grpc

from otel_eval.otlp import Encoding, Signal
from otel_eval.sources.receiver.credentials import BearerTokens, Certificates
from otel_eval.sources.receiver.deadlines import Deadlines
from otel_eval.sources.receiver.decompression import decompress, detect_compression
from otel_eval.sources.receiver.export_handler import ExportHandler, ExportResponse, ExportStatus, ReceiverLimits
from otel_eval.sources.receiver.memory import Reservation, RssMonitor
from otel_eval.sources.receiver.responses import RETRY_INFO, status, success
from otel_eval.wire import sized

_SERVICES: Final = {
    Signal.TRACES: "opentelemetry.proto.collector.trace.v1.TraceService",
    Signal.LOGS: "opentelemetry.proto.collector.logs.v1.LogsService",
    Signal.METRICS: "opentelemetry.proto.collector.metrics.v1.MetricsService",
}
_CODES: Final = {
    ExportStatus.INVALID: grpc.StatusCode.INVALID_ARGUMENT,
    ExportStatus.TOO_LARGE: grpc.StatusCode.RESOURCE_EXHAUSTED,
    ExportStatus.RETRYABLE: grpc.StatusCode.UNAVAILABLE,
}
_STREAMS: Final = 256  # calls in flight on one connection; a client queues the rest
_AHEAD: Final = 256 * 1024  # a usual message
_WAITING: Final = 128  # threads, of which all but a few only wait for a message that comes slowly
_MANY: Final = 96  # of them; while more wait than that, none is waited for any longer than
_PRESSED_S: Final = 2.0


def _options(limits: ReceiverLimits) -> list[tuple[str, int]]:
    return [
        ("grpc.so_reuseport", 0),  # two receivers on one port would share traces between them
        ("grpc.max_receive_message_length", limits.max_body_bytes),  # grpcio's default is 4 MiB
        # grpcio unpacks a message whole before it looks at its size: a decompression bomb would already have taken the memory.
        ("grpc.per_message_decompression", 0),
        # What a connection may send before the server asks for it. Probing would raise that to 256 MiB for each call that has no
        # thread yet; a message that is waited for may come at once, whatever its size.
        ("grpc.http2.bdp_probe", 0),
        ("grpc.http2.lookahead_bytes", _AHEAD),
        ("grpc.max_concurrent_streams", _STREAMS),
        ("grpc.max_allowed_incoming_connections", limits.grpc_connections),
        ("grpc.max_connection_idle_ms", round(limits.grpc_idle_s * 1000)),
        ("grpc.server_handshake_timeout_ms", 20_000),
        ("grpc.max_metadata_size", 16 * 1024),
        ("grpc.absolute_max_metadata_size", 32 * 1024),
        # Agents ping idle connections as they like: gRPC's default drops one that pings twice within five minutes.
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
        ("grpc.http2.max_ping_strikes", 0),
        # Find connections whose other end is gone.
        ("grpc.keepalive_time_ms", 120_000),
        ("grpc.keepalive_timeout_ms", 20_000),
    ]


class _HideMetadata(logging.Filter):
    """Drops the log records in which grpcio shows metadata that is no text, tokens included."""

    def filter(self, record: logging.LogRecord) -> bool:
        return not str(record.msg).startswith("Invalid encoding on")


_HIDE_METADATA: Final = _HideMetadata()


class _Guard(grpc.ServerInterceptor):  # type: ignore[misc]
    """Refuses calls without a token before a message is read. Health needs none."""

    def __init__(self, tokens: BearerTokens, refused: Callable[[], None]) -> None:
        self._tokens, self._refused = tokens, refused
        # A handler of streams is called before the first message is read; the client sees no difference.
        self._refusal: Final = grpc.stream_unary_rpc_method_handler(self._refuse)

    def intercept_service(self, continuation: Callable[[Any], Any], details: Any) -> Any:
        given = [value for key, value in details.invocation_metadata if key == "authorization"]
        known = len(given) == 1 and isinstance(given[0], str)  # two may be meant for two readers
        if details.method == HEALTH_CHECK or self._tokens.allow(given[0] if known else None):
            return continuation(details)
        return self._refusal

    def _refuse(self, _: Any, context: Any) -> bytes:
        self._refused()
        context.abort(grpc.StatusCode.UNAUTHENTICATED, "a bearer token is needed")
        raise AssertionError("abort raises")


class OtlpGrpcServer:
    """Serves the three OTLP services and health; every other method is UNIMPLEMENTED, which grpcio answers by itself.

    Args:
        handler: deals with requests.
        limits: what one client may cost.
        certificates: speaks TLS with these.
        tokens: senders need one of these.
        ready: whether evaluation makes progress; health is NOT_SERVING while it does not.
    """

    def __init__(
        self,
        handler: ExportHandler,
        limits: ReceiverLimits,
        *,
        certificates: Certificates | None = None,
        tokens: BearerTokens | None = None,
        ready: Callable[[], bool] = lambda: True,
    ) -> None:
        self._handler, self._limits, self._certificates = handler, limits, certificates
        logging.getLogger("grpc._cython.cygrpc").addFilter(_HIDE_METADATA)
        self._pool = ThreadPoolExecutor(_WAITING, thread_name_prefix="otel-eval-grpc")
        self._working = threading.BoundedSemaphore(limits.grpc_threads)
        # grpcio does not report how much has arrived of messages that are not complete.
        few = max(1, limits.max_inflight_bytes // limits.max_body_bytes)
        rss = RssMonitor(limits.max_inflight_bytes)
        self._deadlines = Deadlines(limits.request_s, _MANY, _PRESSED_S, few, rss)
        guards = [_Guard(tokens, lambda: handler.unauthenticated("grpc"))] if tokens else []
        self._server = grpc.server(self._pool, interceptors=guards, options=_options(limits))
        for signal, service in _SERVICES.items():
            # As a stream, so that waiting for the message is ours and ends: grpcio itself waits forever.
            export = grpc.stream_unary_rpc_method_handler(self._export(signal))
            self._server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(service, {"Export": export})])
        health = health_handler(("", *_SERVICES.values()), lambda: handler.is_open() and ready())
        self._server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(HEALTH, {"Check": health})])

    def _export(self, signal: Signal) -> Callable[[Iterator[bytes], Any], bytes]:
        def export(messages: Iterator[bytes], context: Any) -> bytes:
            with self._deadlines.with_(context.cancel):
                body = next(messages, None)
            if body is None:
                context.abort(grpc.StatusCode.INVALID_ARGUMENT, "the call has no message")
                raise AssertionError("abort raises")
            with self._working:
                answer = self._handler.answer(
                    "grpc", signal, Encoding.PROTOBUF, len(body), lambda reservation: self._unpacked(body, reservation)
                )
            if answer.status is not ExportStatus.ACCEPTED:
                _refuse(context, answer)
            return success(signal, Encoding.PROTOBUF, answer)

        return export

    def _unpacked(self, body: bytes, reservation: Reservation) -> bytes:
        coding = detect_compression(body)
        return decompress(coding, body, self._limits.max_body_bytes, reservation) if coding else body

    def bind(self, address: str) -> int:
        """Listen; the port it got.

        Raises:
            RuntimeError: the address cannot be had.
        """
        if self._certificates:
            return int(self._server.add_secure_port(address, self._certificates.grpc_credentials()))
        return int(self._server.add_insecure_port(address))

    def start(self) -> None:
        """Serve, on threads of its own."""
        self._deadlines.start()
        self._server.start()

    def stop(self, grace_s: float) -> Callable[[], None]:
        """Refuse new calls at once; what is returned waits for those that run, at most `grace_s`."""
        stopped = self._server.stop(grace_s)

        def wait() -> None:
            stopped.wait(grace_s + 1.0)
            self._deadlines.stop()
            self._pool.shutdown(wait=False)

        return wait


def _refuse(context: Any, answer: ExportResponse) -> None:
    """End the call with the answer's status; raises, as grpcio's `abort` does."""
    trailers = [("grpc-status-details-bin", status(answer).SerializeToString())]
    if answer.status is ExportStatus.RETRYABLE:
        # The Python exporter looks for the delay here and nowhere else.
        trailers.append(("google.rpc.retryinfo-bin", RETRY_INFO.SerializeToString()))
    context.set_trailing_metadata(trailers)
    context.abort(_CODES[answer.status], answer.message)


HEALTH: Final = "grpc.health.v1.Health"
HEALTH_CHECK: Final = f"/{HEALTH}/Check"
_SERVING: Final = b"\x08\x01"
_NOT_SERVING: Final = b"\x08\x02"


def health_handler(services: Iterable[str], is_serving: Callable[[], bool]) -> Any:
    """The handler of `Check` for these services; "" is the server as a whole."""
    known: Final = {sized(1, name.encode()) if name else b"" for name in services} | {b"\x0a\x00"}

    def check(request: bytes, context: Any) -> bytes:
        if request not in known:
            context.abort(grpc.StatusCode.NOT_FOUND, "no such service")
        return _SERVING if is_serving() else _NOT_SERVING

    return grpc.unary_unary_rpc_method_handler(check)
