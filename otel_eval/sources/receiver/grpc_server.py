"""OTLP over gRPC.

Knows grpcio: a synchronous server whose handlers get raw bytes, so that nothing is decoded but by us. Refusals are
UNAVAILABLE with RetryInfo, never RESOURCE_EXHAUSTED without it: the Collector drops data on that for good. For the same
reason the number of concurrent calls is limited by HTTP/2 flow control, which makes a sender wait, and not by
`maximum_concurrent_rpcs`, which answers RESOURCE_EXHAUSTED.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import grpc

from otel_eval.sources.receiver.answers import retry_info, status, success
from otel_eval.sources.receiver.exchange import Answer, Encoding, Exchange, Signal, Verdict

__all__ = ["GrpcServer"]

_SERVICES: Final = {
    Signal.TRACES: "opentelemetry.proto.collector.trace.v1.TraceService",
    Signal.LOGS: "opentelemetry.proto.collector.logs.v1.LogsService",
    Signal.METRICS: "opentelemetry.proto.collector.metrics.v1.MetricsService",
}
_CODES: Final = {
    Verdict.BAD: grpc.StatusCode.INVALID_ARGUMENT,
    Verdict.TOO_LARGE: grpc.StatusCode.RESOURCE_EXHAUSTED,
    Verdict.BUSY: grpc.StatusCode.UNAVAILABLE,
}
_STREAMS: Final = 256  # calls in flight on one connection; a client queues the rest


def _options(max_body_bytes: int) -> list[tuple[str, int]]:
    return [
        ("grpc.so_reuseport", 0),  # two receivers on one port would share traces between them
        ("grpc.max_receive_message_length", max_body_bytes),  # grpcio's default is 4 MiB
        ("grpc.max_concurrent_streams", _STREAMS),
        # Agents ping idle connections as they like: gRPC's default drops one that pings twice within five minutes.
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
        ("grpc.http2.max_ping_strikes", 0),
        # Find connections whose other end is gone.
        ("grpc.keepalive_time_ms", 120_000),
        ("grpc.keepalive_timeout_ms", 20_000),
    ]


class GrpcServer:
    """Serves the three OTLP services; every other method is UNIMPLEMENTED, which grpcio answers by itself."""

    def __init__(self, exchange: Exchange, *, max_body_bytes: int, threads: int) -> None:
        self._exchange = exchange
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="otel-eval-grpc")
        self._server = grpc.server(self._pool, options=_options(max_body_bytes))
        for signal, service in _SERVICES.items():
            export = grpc.unary_unary_rpc_method_handler(self._handler(signal))
            self._server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(service, {"Export": export})])

    def _handler(self, signal: Signal) -> Callable[[bytes, Any], bytes]:
        def export(body: bytes, context: Any) -> bytes:
            answer = self._exchange.answer("grpc", signal, Encoding.PROTOBUF, len(body), lambda _: body)
            if answer.verdict is not Verdict.TAKEN:
                _refuse(context, answer)
            return success(signal, Encoding.PROTOBUF, answer)

        return export

    def bind(self, address: str) -> int:
        """Listen; the port it got.

        Raises:
            RuntimeError: the address cannot be had.
        """
        return int(self._server.add_insecure_port(address))

    def start(self) -> None:
        """Serve, on threads of its own."""
        self._server.start()

    def stop(self, grace_s: float) -> Callable[[], None]:
        """Refuse new calls at once; what is returned waits for those that run, at most `grace_s`."""
        stopped = self._server.stop(grace_s)

        def wait() -> None:
            stopped.wait(grace_s + 1.0)
            self._pool.shutdown(wait=False)

        return wait


def _refuse(context: Any, answer: Answer) -> None:
    """End the call with the answer's status; raises, as grpcio's `abort` does."""
    trailers = [("grpc-status-details-bin", status(answer).SerializeToString())]
    if answer.verdict is Verdict.BUSY:
        # The Python exporter looks for the delay here and nowhere else.
        trailers.append(("google.rpc.retryinfo-bin", retry_info(answer.retry_after_s).SerializeToString()))
    context.set_trailing_metadata(trailers)
    context.abort(_CODES[answer.verdict], answer.message)
