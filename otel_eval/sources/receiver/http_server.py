"""OTLP over HTTP/1.1.

Knows the standard library's threading server, the paths and headers of OTLP/HTTP, and what they are answered. A
connection has a thread; there are only so many, none waits for a silent client for ever, and nothing a client does
writes to stderr.
"""

from __future__ import annotations

import io
import math
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from email.message import Message
from http import HTTPStatus
from http.client import LineTooLong
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

from google.rpc import status_pb2

from otel_eval.counters import Counters
from otel_eval.descriptors import accept
from otel_eval.errors import InputError
from otel_eval.sources.receiver.auth import Tokens
from otel_eval.sources.receiver.counters import add_counts
from otel_eval.sources.receiver.decompression import decompress, supported_encodings
from otel_eval.sources.receiver.export_handler import Encoding, ExportHandler, ExportResponse, ExportStatus, Signal, TooLarge
from otel_eval.sources.receiver.http_parser import MalformedRequest, Read, body_reader, read_head
from otel_eval.sources.receiver.memory_limiter import Reservation
from otel_eval.sources.receiver.responses import failure, status, success
from otel_eval.sources.receiver.timed_reader import TimedReader
from otel_eval.sources.receiver.tls import Certificates

__all__ = ["HttpLimits", "HttpServer"]

_PATHS: Final = {"/v1/traces": Signal.TRACES, "/v1/logs": Signal.LOGS, "/v1/metrics": Signal.METRICS}
_TYPES: Final = {"application/x-protobuf": Encoding.PROTOBUF, "application/json": Encoding.JSON}
_NAMES: Final = {encoding: name for name, encoding in _TYPES.items()}
_STATUS: Final = {
    ExportStatus.TAKEN: HTTPStatus.OK,
    ExportStatus.BAD: HTTPStatus.BAD_REQUEST,
    ExportStatus.TOO_LARGE: HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    ExportStatus.BUSY: HTTPStatus.SERVICE_UNAVAILABLE,
}
_FULL: Final = b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
_EXTRA: Final[dict[int, dict[str, str]]] = {
    HTTPStatus.METHOD_NOT_ALLOWED: {"Allow": "POST"},
    HTTPStatus.UNAUTHORIZED: {"WWW-Authenticate": "Bearer"},
}
_PATIENCE_S: Final = 2.0  # with a client that is late with a handshake, a request or its body, when others want its place
_GRACES: Final = 6  # this part of the time for a body may pass before its pace matters
_WRITE_S: Final = 10.0  # for a client to take an answer
_ROOM_S: Final = 0.25  # for its thread to end; nobody else is let in meanwhile
_LINGER_S: Final = 2.0
_HANDSHAKE_S: Final = 10.0
_HEADER_BYTES: Final = 192 * 1024  # read for one request line and its headers, with what the reader reads ahead
_PLAIN: Final = ("", "identity", "none")


@dataclass(frozen=True, slots=True)
class HttpLimits:
    """What one client may cost.

    Attributes:
        max_body_bytes: of one body, as sent and unpacked.
        connections: at once; one more takes the place of one whose client is late, or is answered 503.
        idle_s: how long a connection may wait for the next request, its headers included.
        request_s: how long a body may take to arrive; a sixth of it if it comes at less than 1 KiB a second.
    """

    max_body_bytes: int
    connections: int
    idle_s: float
    request_s: float


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = 65536
    server: HttpServer
    raw_requestline: bytes
    _unread = True  # whether the client may still be sending a body that nobody reads

    def setup(self) -> None:
        super().setup()
        self._timed = TimedReader(self.connection)
        self.rfile = io.BufferedReader(self._timed, 65536)
        self.headers = Message()

    def handle_one_request(self) -> None:
        self._timed.allow(self.server.limits.idle_s, _HEADER_BYTES)
        self.server.waits(lambda: self._timed.late_since)
        super().handle_one_request()

    def parse_request(self) -> bool:
        """Read the head instead of the base class, which repairs what it cannot read."""
        self.close_connection = True
        self.command, self.headers, self.request_version = "", Message(), self.protocol_version
        try:
            head = read_head(self.raw_requestline, self.rfile)
        except MalformedRequest as error:
            self.send_error(error.code, str(error))
            return False
        except LineTooLong:
            self.send_error(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "too many headers, or one is too long")
            return False
        finally:
            self.server.works()
        self.command, self.path, self.request_version, self.headers = head.method, head.path, head.version, head.headers
        self.close_connection = head.last
        return True

    def _let_in(self) -> bool:
        tokens = self.server.tokens
        if tokens is None or tokens.allow(self.headers.get("Authorization")):
            return True
        add_counts(self.server.counters, "http", unauthenticated_requests=1)
        self.send_error(HTTPStatus.UNAUTHORIZED, "a bearer token is needed")
        return False

    def do_POST(self) -> None:
        if not self._let_in():
            return
        signal = _PATHS.get(self.path)
        encoding = _TYPES.get(self.headers.get_content_type())
        if signal is None:
            self.send_error(HTTPStatus.NOT_FOUND, "no such path; OTLP is at /v1/traces, /v1/logs and /v1/metrics")
        elif encoding is None:
            self.send_error(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "Content-Type must be application/x-protobuf or application/json")
        elif self._coding() not in (*_PLAIN, *supported_encodings()):
            known = ", ".join(supported_encodings())
            self.send_error(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, f"Content-Encoding must be absent or one of {known}")
        else:
            self._exchange(signal, encoding)

    def _coding(self) -> str:
        return str(self.headers.get("Content-Encoding", "")).strip().lower()

    def _exchange(self, signal: Signal, encoding: Encoding) -> None:
        try:
            size, read = body_reader(self.headers, self.rfile, self.server.limits.max_body_bytes)
        except InputError as error:
            add_counts(self.server.counters, "http", requests=1, bad_requests=1)
            return self._refuse(encoding, ExportResponse(ExportStatus.BAD, str(error)))
        except TooLarge as error:
            add_counts(self.server.counters, "http", requests=1, oversized_requests=1)
            return self._refuse(encoding, ExportResponse(ExportStatus.TOO_LARGE, str(error)))
        self._unread = True
        limit_s = self.server.limits.request_s
        self._timed.go_on(limit_s, limit_s / _GRACES)
        answer = self.server.exchange.answer("http", signal, encoding, size, lambda ticket: self._read(read, ticket))
        if answer.verdict is ExportStatus.TAKEN:
            return self._reply(HTTPStatus.OK, _NAMES[encoding], success(signal, encoding, answer))
        return self._refuse(encoding, answer)

    def _read(self, read: Read, ticket: Reservation) -> bytes:
        self.server.waits(lambda: self._timed.late_since)
        try:
            if self.headers.get("Expect", "").lower() == "100-continue" and self.request_version == "HTTP/1.1":
                self._go_on()
            body = read(ticket)
        finally:
            self.server.works()
        self._unread = False
        coding = self._coding()
        return body if coding in _PLAIN else decompress(coding, body, self.server.limits.max_body_bytes, ticket)

    def _go_on(self) -> None:
        """Ask for the body; whoever waits to be asked is refused without having sent it."""
        self.send_response_only(HTTPStatus.CONTINUE)
        self.end_headers()
        self.wfile.flush()

    def _refuse(self, encoding: Encoding, answer: ExportResponse) -> None:
        self.close_connection = self.close_connection or self._unread
        extra = {}
        if answer.verdict is ExportStatus.BUSY:
            extra["Retry-After"] = str(max(1, math.ceil(answer.retry_after_s)))
        self._reply(_STATUS[answer.verdict], _NAMES[encoding], failure(encoding, status(answer)), extra)

    def _reply(self, code: int, content_type: str, body: bytes, extra: dict[str, str] | None = None) -> None:
        self.close_connection = self.close_connection or self.server.stopping
        self.send_response(code)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        for name, value in (extra or {}).items():
            self.send_header(name, value)
        if self.close_connection:
            self.send_header("Connection", "close")
        self._timed.allow(0.0)
        self.server.waits(lambda: self._timed.late_since)  # for the client to take it
        self.connection.settimeout(_WRITE_S)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)
        self.wfile.flush()
        if self.close_connection and self._unread:
            self._linger()
        self._unread = True

    def _linger(self) -> None:
        """Read what the client still sends: closing under it would destroy the answer before it is read."""
        self.connection.shutdown(socket.SHUT_WR)
        self._timed.allow(_LINGER_S)
        while self.rfile.read1(65536):
            pass

    def _not_allowed(self) -> None:
        if not self._let_in():
            return
        self.send_error(HTTPStatus.METHOD_NOT_ALLOWED if self.path in _PATHS else HTTPStatus.NOT_FOUND, "POST OTLP to /v1/traces")

    do_GET = do_HEAD = do_PUT = do_DELETE = do_PATCH = do_OPTIONS = do_TRACE = do_CONNECT = _not_allowed

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Answer what never became an exchange; also called by the base class, for lines and headers that are no HTTP."""
        stranger = code == HTTPStatus.UNAUTHORIZED  # who is counted as such
        add_counts(self.server.counters, "http", requests=1, bad_requests=0 if stranger else 1)
        self.close_connection = True
        encoding = _TYPES.get(self.headers.get_content_type(), Encoding.JSON)
        extra = _EXTRA.get(code, {})
        told = status_pb2.Status(message=message or HTTPStatus(code).phrase)
        self._reply(code, _NAMES[encoding], failure(encoding, told), extra)

    def version_string(self) -> str:
        return "otel-eval"

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """Nothing: what clients do is counted, not written down."""

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing."""


class HttpServer(ThreadingHTTPServer):
    """Serves the three OTLP paths."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def __init__(
        self,
        address: tuple[str, int],
        exchange: ExportHandler,
        counters: Counters,
        limits: HttpLimits,
        *,
        certificates: Certificates | None = None,
        tokens: Tokens | None = None,
    ) -> None:
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        super().__init__(address, _Handler)
        self.exchange, self.counters, self.limits = exchange, counters, limits
        self.certificates, self.tokens = certificates, tokens
        self.stopping = False
        self._places = threading.BoundedSemaphore(limits.connections)
        self._lock = threading.Lock()  # guards _open and _waiting
        self._open: dict[Any, threading.Thread] = {}
        self._waiting: dict[threading.Thread, Callable[[], float]] = {}  # for a client: since when it is late
        self._loop = threading.Thread(target=self.serve_forever, args=(0.05,), name="otel-eval-http", daemon=True)

    def start(self) -> None:
        """Serve, on threads of its own."""
        self._loop.start()

    def server_bind(self) -> None:
        """Bind without asking a name server who we are, as the base class does."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])

    def get_request(self) -> Any:
        """Accept a connection; not at once again if the process has no file descriptor left."""
        return accept(super().get_request)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Give the connection a thread, or refuse it if there are too many."""
        if not self._places.acquire(blocking=False) and not self._make_room():
            add_counts(self.counters, "http", refused_connections=1)
            request.setblocking(False)
            try:
                if self.certificates is None:
                    request.send(_FULL)
            finally:
                self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def _make_room(self) -> bool:
        """End the connection whose client is late the longest, for one that may have more to say."""
        before = time.monotonic() - _PATIENCE_S
        with self._lock:
            late = {request: since() for request, thread in self._open.items() if (since := self._waiting.get(thread))}
            latest = min(late, key=late.__getitem__, default=None)
            if latest is None or late[latest] >= before:
                return False
            _close(latest, socket.SHUT_RDWR)
        return self._places.acquire(timeout=_ROOM_S)

    def waits(self, since: Callable[[], float]) -> None:
        """The connection of this thread waits for its client; since when that is late is asked for when others want its place."""
        with self._lock:
            self._waiting[threading.current_thread()] = since

    def works(self) -> None:
        """It has what it waited for."""
        with self._lock:
            self._waiting.pop(threading.current_thread(), None)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Serve one connection to its end."""
        with self._lock:
            self._open[request] = threading.current_thread()
        secured = None
        try:
            secured = self._secured(request)
            if secured is not None:
                super().process_request_thread(secured, client_address)
        finally:
            if secured is not request:
                self.shutdown_request(request)
            with self._lock:
                del self._open[request]
                self._waiting.pop(threading.current_thread(), None)
            self._places.release()

    def _secured(self, request: Any) -> Any:
        """The connection, by TLS if that is spoken; None if the client and we could not agree."""
        if self.certificates is None:
            return request
        began = time.monotonic()
        self.waits(lambda: began)
        try:
            request.settimeout(_HANDSHAKE_S)
            context = self.certificates.current().context
            # A copy: the connection itself stays open, and is what `stop` shuts.
            return context.wrap_socket(request.dup(), server_side=True)
        except OSError:  # of which ssl's errors are some
            add_counts(self.counters, "http", failed_handshakes=1)
            return None

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A connection that broke; what was not answered will be sent again."""

    def stop(self, timeout_s: float) -> None:
        """End the connections; those that still write an answer have so long to finish."""
        deadline = time.monotonic() + timeout_s
        self.shutdown()
        self.server_close()
        with self._lock:
            left = dict(self._open)
        for connection in left:
            _close(connection, socket.SHUT_RD)
        for connection, thread in left.items():
            thread.join(max(0.0, deadline - time.monotonic()))
            if thread.is_alive():
                _close(connection, socket.SHUT_RDWR)


def _close(connection: Any, how: int) -> None:
    try:
        connection.shutdown(how)
    except OSError:
        return  # it is closed already
