"""OTLP over gRPC, and grpc.health.v1: a synchronous grpcio server whose handlers get raw bytes.

Retryable errors are UNAVAILABLE with RetryInfo, never RESOURCE_EXHAUSTED without it, on which the
Collector drops data. For the same reason the number of concurrent calls is limited by HTTP/2 flow
control, which makes a client wait, and not by `maximum_concurrent_rpcs`, which responds
RESOURCE_EXHAUSTED.

Of the health service only `Check` is implemented: `Watch` would block a thread for each watcher,
and a client that gets UNIMPLEMENTED has to treat the server as healthy. Source: grpc
doc/health-checking.md.
"""

from __future__ import annotations

import itertools
import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Any, Final

import grpc

from otel_eval.otlp import Encoding, Signal
from otel_eval.sources.receiver.credentials import Certificates
from otel_eval.sources.receiver.decompression import decompress
from otel_eval.sources.receiver.export_handler import (
    RETRY_INFO,
    ExportHandler,
    ExportResponse,
    ExportStatus,
    ReceiverLimits,
)
from otel_eval.sources.receiver.memory import RssMonitor
from otel_eval.wire import sized

_CODES: Final = {code.value[0]: code for code in grpc.StatusCode}
_STREAMS: Final = 256  # calls in flight on one connection; a client queues the rest
_AHEAD: Final = 256 * 1024  # the size of a usual message
_WAITING: Final = 128  # threads, most of which only wait for a message that arrives slowly
_MANY: Final = 96  # while more threads than this wait, the deadline of every read is `_PRESSED_S`
_PRESSED_S: Final = 2.0


def _options(limits: ReceiverLimits) -> list[tuple[str, int]]:
    """The settings of grpcio's server."""
    return [
        ("grpc.so_reuseport", 0),  # two receivers on one port would share traces between them
        ("grpc.max_receive_message_length", limits.max_body_bytes),  # grpcio's default is 4 MiB
        # grpcio decompresses a whole message before it checks the size, too late for a
        # decompression bomb.
        ("grpc.per_message_decompression", 0),
        # The flow-control window. Probing would raise it to 256 MiB for each call that has no
        # thread yet. A message for which a thread waits may arrive at once, whatever its size.
        ("grpc.http2.bdp_probe", 0),
        ("grpc.http2.lookahead_bytes", _AHEAD),
        ("grpc.max_concurrent_streams", _STREAMS),
        ("grpc.max_allowed_incoming_connections", limits.grpc_connections),
        ("grpc.max_connection_idle_ms", round(limits.grpc_idle_s * 1000)),
        ("grpc.server_handshake_timeout_ms", 20_000),
        ("grpc.max_metadata_size", 16 * 1024),
        ("grpc.absolute_max_metadata_size", 32 * 1024),
        # Agents ping idle connections at any interval: by default gRPC closes one that pings twice
        # within five minutes.
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
        ("grpc.http2.max_ping_strikes", 0),
        # Detect connections whose other end is gone.
        ("grpc.keepalive_time_ms", 120_000),
        ("grpc.keepalive_timeout_ms", 20_000),
    ]


def _hide_metadata(record: logging.LogRecord) -> bool:
    """Drop the log records in which grpcio quotes invalid metadata, which may be tokens."""
    return not str(record.msg).startswith("Invalid encoding on")


class _TokenInterceptor(grpc.ServerInterceptor):  # type: ignore[misc]
    """Refuses calls without a valid token before their message is read. Health checks need no
    token.
    """

    def __init__(self, handler: ExportHandler) -> None:
        self._handler = handler
        # A stream handler is called before the first message is read; the client sees no
        # difference.
        self._refusal: Final = grpc.stream_unary_rpc_method_handler(self._refuse)

    def intercept_service(self, continuation: Callable[[Any], Any], details: Any) -> Any:
        headers = [value for key, value in details.invocation_metadata if key == "authorization"]
        # two headers are ambiguous
        header = headers[0] if len(headers) == 1 and isinstance(headers[0], str) else None
        if details.method == HEALTH_CHECK or self._handler.admits(header):
            return continuation(details)
        return self._refusal

    def _refuse(self, _: Any, context: Any) -> bytes:
        self._handler.count("grpc", requests=1, unauthenticated_requests=1)
        context.abort(grpc.StatusCode.UNAUTHENTICATED, "a bearer token is needed")
        raise AssertionError("abort raises")


class _HandlerThreads(ThreadPoolExecutor):
    """The threads of calls: if the system allows no more of them, a call waits for one that
    exists.
    """

    def _adjust_thread_count(self) -> None:
        """Start a thread for a call unless the system allows no more."""
        # raised here, it would end the thread of grpcio that serves all calls
        with suppress(RuntimeError):
            super()._adjust_thread_count()


class OtlpGrpcServer:
    """Serves the three OTLP services and health; every other method is UNIMPLEMENTED, which grpcio
    answers by itself.

    Args:
        handler: handles the requests.
        certificates: the certificates for TLS; None: no TLS.
        ready: whether evaluation makes progress; health is NOT_SERVING while it does not.
    """

    def __init__(
        self, handler: ExportHandler, certificates: Certificates | None, ready: Callable[[], bool]
    ) -> None:
        limits, self._handler, self._certificates = handler.limits, handler, certificates
        logging.getLogger("grpc._cython.cygrpc").addFilter(_hide_metadata)
        self._pool = _HandlerThreads(_WAITING, thread_name_prefix="otel-eval-grpc")
        self._working = threading.BoundedSemaphore(limits.grpc_threads)
        # grpcio does not report how much has arrived of messages that are not complete.
        few = max(1, limits.max_inflight_bytes // limits.max_body_bytes)
        rss = RssMonitor(limits.max_inflight_bytes)
        self._deadlines = Deadlines(limits.request_s, _MANY, _PRESSED_S, few, rss)
        interceptors = [_TokenInterceptor(handler)] if handler.tokens else []
        self._server = grpc.server(self._pool, interceptors=interceptors, options=_options(limits))
        for signal in Signal:
            # As a stream, so that this code waits for the message, with a deadline: grpcio itself
            # waits forever.
            export = grpc.stream_unary_rpc_method_handler(self._export(signal))
            self._server.add_generic_rpc_handlers(
                [grpc.method_handlers_generic_handler(signal.service, {"Export": export})]
            )
        services = ("", *(signal.service for signal in Signal))
        health = health_handler(services, lambda: handler.is_open() and ready())
        self._server.add_generic_rpc_handlers(
            [grpc.method_handlers_generic_handler(HEALTH, {"Check": health})]
        )

    def _export(self, signal: Signal) -> Callable[[Iterator[bytes], Any], bytes]:
        """The handler of `Export` for a signal."""

        def export(messages: Iterator[bytes], context: Any) -> bytes:
            with self._deadlines.limit(context.cancel):
                body = next(messages, None)
            if body is None:
                context.abort(grpc.StatusCode.INVALID_ARGUMENT, "the call has no message")
                raise AssertionError("abort raises")
            with self._working:
                answer = self._handler.answer(
                    "grpc",
                    signal,
                    Encoding.PROTOBUF,
                    len(body),
                    lambda reservation: decompress(
                        _compression_of(body),
                        body,
                        self._handler.limits.max_body_bytes,
                        reservation,
                    ),
                )
            if answer.status is not ExportStatus.ACCEPTED:
                _refuse(context, answer)
            return answer.body(signal, Encoding.PROTOBUF)

        return export

    def bind(self, address: str) -> int:
        """Bind the address, and return the port.

        Raises:
            RuntimeError: the address cannot be bound.
        """
        if self._certificates:
            return int(self._server.add_secure_port(address, self._certificates.grpc_credentials()))
        return int(self._server.add_insecure_port(address))

    def start(self) -> None:
        """Serve on threads of the server."""
        self._deadlines.start()
        self._server.start()

    def stop(self, grace_s: float) -> Callable[[], None]:
        """Refuse new calls at once, and return a function that waits for running calls, at most
        `grace_s` seconds.
        """
        stopped = self._server.stop(grace_s)

        def wait() -> None:
            stopped.wait(grace_s + 1.0)
            self._deadlines.stop()
            self._pool.shutdown(wait=False)

        return wait


def _compression_of(data: bytes) -> str:
    """The compression of a protobuf message by its first bytes, "" if it is not compressed.

    No message of OTLP begins like gzip (a field of a type that does not exist) or zlib (a number as
    field 15).
    """
    if data[:2] == b"\x1f\x8b":
        return "gzip"
    is_zlib = data[:1] == b"\x78" and len(data) > 1 and int.from_bytes(data[:2]) % 31 == 0
    return "deflate" if is_zlib else ""


def _refuse(context: Any, answer: ExportResponse) -> None:
    """End the call with the status of the response; always raises, as grpcio's `abort` does."""
    trailers = [("grpc-status-details-bin", answer.error().SerializeToString())]
    if answer.status is ExportStatus.RETRYABLE:
        # The Python exporter reads the delay from this trailer only.
        trailers.append(("google.rpc.retryinfo-bin", RETRY_INFO.SerializeToString()))
    context.set_trailing_metadata(trailers)
    context.abort(_CODES[answer.status.code], answer.message)


HEALTH: Final = "grpc.health.v1.Health"
HEALTH_CHECK: Final = f"/{HEALTH}/Check"
_SERVING: Final = b"\x08\x01"
_NOT_SERVING: Final = b"\x08\x02"


def health_handler(services: Iterable[str], is_serving: Callable[[], bool]) -> Any:
    """The handler of `Check` for these services; the name "" stands for the whole server."""
    requests: Final = {b"", *(sized(1, name.encode()) for name in services)}

    def check(request: bytes, context: Any) -> bytes:
        if request not in requests:
            context.abort(grpc.StatusCode.NOT_FOUND, "no such service")
        return _SERVING if is_serving() else _NOT_SERVING

    return grpc.unary_unary_rpc_method_handler(check)


_LOOK_S: Final = 0.25
_MOMENT_S: Final = 0.25  # within this time a usual message arrives completely
# while more than `few` reads wait, growth of the process is noticed within this time
_PRESSED_LOOK_S: Final = 0.02


class Deadlines:
    """Deadlines for reads of messages from clients.

    A read that ends in time costs two dictionary operations. While many reads wait at once the
    deadline is shorter, because each takes a thread that others need. While the process grows only
    the few oldest reads continue, because partly received messages are in memory already.

    Args:
        limit_s: the deadline of a read, in seconds.
        many: while more reads than this wait, the deadline is `pressed_s`.
        pressed_s: the shorter deadline, in seconds.
        few: while at most this number of reads wait, the memory is not checked: the limit of a
            message bounds it.
        rss: the memory of the process. While more than `few` reads wait and it has grown, the
            deadline is `pressed_s`, and 0.25 s for all but the `few` oldest.
    """

    def __init__(
        self, limit_s: float, many: int, pressed_s: float, few: int, rss: RssMonitor
    ) -> None:
        self._limit_s: Final = limit_s
        self._many: Final = many
        self._pressed_s: Final = min(limit_s, pressed_s)
        self._few: Final = few
        self._rss: Final = rss
        self._look_s: Final = min(_LOOK_S, limit_s / 4)
        self._lock = threading.Lock()  # guards what follows
        self._reads = 0  # that have begun
        # start time and `end`, oldest first
        self._waits: dict[int, tuple[float, Callable[[], object]]] = {}
        self._rests = False  # whether the thread waits for the next read
        self._wake = threading.Event()
        self._stopped = False
        self._thread = threading.Thread(target=self._watch, name="otel-eval-deadlines", daemon=True)

    @contextmanager
    def limit(self, end: Callable[[], object]) -> Iterator[None]:
        """A context with a deadline: after it `end` is called from another thread."""
        with self._lock:
            self._reads = number = self._reads + 1
            self._waits[number] = (time.monotonic(), end)
            if self._rests:
                self._wake.set()
        try:
            yield
        finally:
            with self._lock:
                self._waits.pop(number, None)

    def start(self) -> None:
        """Start the thread that enforces deadlines."""
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread."""
        self._stopped = True
        self._wake.set()

    def _watch(self) -> None:
        """End reads that are past their deadline, on the thread of the deadlines. It rests while
        none begins.
        """
        reads_before = 0
        while not self._stopped:
            with self._lock:
                self._rests = self._reads == reads_before and not self._waits
                reads_before = self._reads
                look_s = _PRESSED_LOOK_S if len(self._waits) > self._few else self._look_s
            self._wake.wait(None if self._rests else look_s)
            self._wake.clear()
            if self._rests:
                self._rests = False
                self._rss.at_ease()
            for end in self._overdue():
                end()

    def _overdue(self) -> list[Callable[[], object]]:
        """Remove the reads that are past their deadline, and return their `end` functions."""
        with self._lock:
            reads = len(self._waits)
            if reads <= self._few:
                self._rss.at_ease()
            is_pressed = reads > self._few and self._rss.has_grown
            overdue = self._older_than(
                self._pressed_s if is_pressed or reads > self._many else self._limit_s
            )
            if is_pressed:
                overdue += self._older_than(_MOMENT_S)[max(len(overdue), self._few) :]
            return [self._waits.pop(number)[1] for number in overdue]

    def _older_than(self, limit_s: float) -> list[int]:
        before = time.monotonic() - limit_s
        return list(
            itertools.takewhile(lambda number: self._waits[number][0] <= before, self._waits)
        )
