"""A threaded HTTP/1.1 server with limits on the number of connections and on their time, for the
receiver and the admin server.

Each connection has a thread. If the limit is reached, a new connection replaces the one whose
client has been late the longest.
"""

from __future__ import annotations

import io
import socket
import sys
import threading
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from email.message import Message
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from math import inf
from socketserver import TCPServer, ThreadingMixIn
from typing import Any, Final

from otel_eval.descriptors import accept
from otel_eval.errors import ConfigError
from otel_eval.http1 import MalformedRequest, names_server, read_head, too_long

PLAIN_TEXT: Final = "text/plain; charset=utf-8"
_WRITE_S: Final = 10.0  # for a client to receive a response
_REPLACE_S: Final = 0.25  # for a thread to end; no other connection is accepted meanwhile
_DRAIN_S: Final = 2.0
_PAGE_IDLE_S: Final = 5.0
# read for one request line and its headers, with what the reader reads ahead
_HEADER_BYTES: Final = 192 * 1024
_SLOWEST: Final = 1024.0  # bytes a second, the minimum: a fraction of the slowest mobile network
_USUAL: Final = 64 * 1024.0  # bytes a second that any ordinary connection has


class TimedReader(io.RawIOBase):
    """Reads from a socket with a deadline for the whole message, not a timeout for each read."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self.start_message(0.0)

    def start_message(self, seconds: float, size: int = sys.maxsize) -> None:
        """Start a new message: set the deadline in seconds from now, and the number of bytes that
        may be read.
        """
        self.set_deadline(seconds, inf)
        self._received, self._left = 0, size

    def set_deadline(self, seconds: float, grace: float) -> None:
        """Set a new deadline and a minimum pace: after `grace` seconds a client must have sent 1
        KiB for each further second.

        Bytes read since `start_message` count, because some of them may belong to the body.
        """
        self._began, self._left = time.monotonic(), sys.maxsize
        self._seconds, self._grace = seconds, grace

    @property
    def late_since(self) -> float:
        """The monotonic time at which a client on an ordinary connection would have sent the bytes
        received so far.
        """
        return self._began + self._received / _USUAL

    def readable(self) -> bool:
        """Return True, as `io.RawIOBase` requires."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Read the bytes that are available, and wait only if there are none.

        Raises:
            TimeoutError: the deadline has passed, or the client is slower than the minimum pace.
            MalformedRequest: the head of the request is too large.
        """
        if self._left <= 0:
            raise too_long()
        allowed_s = min(self._seconds, self._grace + self._received / _SLOWEST)
        left_s = self._began + allowed_s - time.monotonic()
        if left_s <= 0:
            raise TimeoutError("the client is too slow")
        self._connection.settimeout(left_s)
        size = self._connection.recv_into(buffer)
        self._left -= size
        self._received += size
        return size


class ConnectionHandler(BaseHTTPRequestHandler):
    """The requests of one connection. Subclasses define `do_…` and `send_error`, and respond by
    `reply`.
    """

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = 65536
    server: ConnectionServer
    raw_requestline: bytes
    unread = True  # whether the client may still be sending a body

    def setup(self) -> None:
        """Set up reading with a deadline."""
        super().setup()
        self.timed = TimedReader(self.connection)
        self.rfile = io.BufferedReader(self.timed, 65536)
        self.headers = Message()

    def handle_one_request(self) -> None:
        """Wait at most `idle_s` seconds for the head of a request, and handle the request; if none
        comes, the connection is closed.
        """
        self.timed.start_message(self.server.idle_s, _HEADER_BYTES)
        self.wait_for_client()
        super().handle_one_request()

    def parse_request(self) -> bool:
        """Parse the head, strictly; the base class would repair invalid requests."""
        self.close_connection = True
        self.command, self.headers, self.request_version = "", Message(), self.protocol_version
        try:
            head = read_head(self.raw_requestline, self.rfile)
            self.command, self.path, self.request_version, self.headers, self.close_connection = (
                head
            )
        except MalformedRequest as error:
            self.send_error(error.code, str(error))
            return False
        finally:
            self.server.mark_working()
        return True

    def wait_for_client(self) -> None:
        """Mark the connection as waiting for its client: if the client is late, a new connection
        may replace it.
        """
        self.server.mark_waiting(lambda: self.timed.late_since)

    def reply(
        self, code: int, content_type: str, body: bytes, extra: Mapping[str, str] | None = None
    ) -> None:
        """Send a response."""
        self.close_connection = self.close_connection or self.server.stopping
        self.send_response(code)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        for name, value in (extra or {}).items():
            self.send_header(name, value)
        if self.close_connection:
            self.send_header("Connection", "close")
        self.timed.start_message(0.0)
        self.wait_for_client()  # to receive it
        self.connection.settimeout(_WRITE_S)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)
        self.wfile.flush()
        if self.close_connection and self.unread:
            self._drain()
        self.unread = True

    def _drain(self) -> None:
        """Read what the client still sends: closing at once would reset the connection before the
        client reads the response.
        """
        self.connection.shutdown(socket.SHUT_WR)
        self.timed.start_message(_DRAIN_S)
        while self.rfile.read1(65536):
            pass

    def version_string(self) -> str:
        """The `Server` header, without versions."""
        return "otel-eval"

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """Do nothing: requests are counted, not logged."""

    def log_message(self, format: str, *args: Any) -> None:
        """Do nothing."""


class ConnectionServer(ThreadingMixIn, TCPServer):
    """Accepts connections and gives each a thread.

    Args:
        address: host and port.
        handler: the class that handles the requests of a connection.
        connections: the maximum number of open connections.
        idle_s: how long a connection may wait for the next request, its headers included.

    Attributes:
        late_s: how many seconds late a client must be for a new connection to replace it.
        thread_name: the name of the accepting thread.

    Raises:
        OSError: the address cannot be bound.
    """

    allow_reuse_address = True
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128
    late_s: float
    thread_name: str

    def __init__(
        self,
        address: tuple[str, int],
        handler: type[ConnectionHandler],
        connections: int,
        idle_s: float,
    ) -> None:
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        super().__init__(address, handler)
        self.idle_s: Final = idle_s
        self.stopping = False
        self._slots = threading.BoundedSemaphore(connections)
        self._lock = threading.Lock()  # guards _open and _waiting
        self._open: dict[socket.socket, threading.Thread] = {}
        # since when the client of a thread is late
        self._waiting: dict[threading.Thread, Callable[[], float]] = {}
        self._loop = threading.Thread(target=self.serve_forever, name=self.thread_name, daemon=True)

    def start(self) -> None:
        """Accept connections on a thread of its own."""
        self._loop.start()

    def get_request(self) -> Any:
        """Accept a connection; if the process has no file descriptor left, pause before the next
        attempt.
        """
        return accept(super().get_request)

    def refuse(self, request: socket.socket) -> None:
        """Called before a connection over the limit is closed."""

    def secure(self, request: socket.socket) -> socket.socket | None:
        """The connection after the handshake, for subclasses with TLS; None if it failed."""
        return request

    def process_request(self, request: Any, client_address: Any) -> None:
        """Give the connection a thread, or refuse it if there are too many or no thread can be
        started.
        """
        if self._slots.acquire(blocking=False) or self._replace_late():
            try:
                return super().process_request(request, client_address)
            except RuntimeError:  # the system allows no more threads
                self._slots.release()
        try:
            self.refuse(request)
        finally:
            self.shutdown_request(request)

    def _replace_late(self) -> bool:
        """Close the connection whose client has been late the longest; False if none is late
        enough, or its thread goes on.
        """
        before = time.monotonic() - self.late_s
        with self._lock:
            late = {
                request: since()
                for request, thread in self._open.items()
                if (since := self._waiting.get(thread))
            }
            latest = min(late, key=late.__getitem__, default=None)
            if latest is None or late[latest] >= before:
                return False
            _close(latest, socket.SHUT_RDWR)
        return self._slots.acquire(timeout=_REPLACE_S)

    def mark_waiting(self, since: Callable[[], float]) -> None:
        """Mark the connection of this thread as waiting for its client; `since` returns when the
        client was due.
        """
        with self._lock:
            self._waiting[threading.current_thread()] = since

    def mark_working(self) -> None:
        """Mark the connection of this thread as no longer waiting for its client."""
        with self._lock:
            self._waiting.pop(threading.current_thread(), None)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Serve one connection to its end."""
        with self._lock:
            self._open[request] = threading.current_thread()
        secured = None
        try:
            secured = self.secure(request)
            if secured is not None:
                super().process_request_thread(secured, client_address)
        finally:
            if secured is not request:
                self.shutdown_request(request)
            with self._lock:
                del self._open[request]
                self._waiting.pop(threading.current_thread(), None)
            self._slots.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Do nothing: a client whose connection broke retries requests without a response."""

    def stop(self, timeout_s: float) -> None:
        """Close the connections; those that still write a response have `timeout_s` seconds to
        finish.
        """
        deadline = time.monotonic() + timeout_s
        # on Linux this wakes the accepting thread, which otherwise looks for its end twice a second
        _close(self.socket, socket.SHUT_RDWR)
        self.shutdown()
        self.server_close()
        with self._lock:
            connections = dict(self._open)
        for connection in connections:
            _close(connection, socket.SHUT_RD)
        for connection, thread in connections.items():
            thread.join(max(0.0, deadline - time.monotonic()))
            if thread.is_alive():
                _close(connection, socket.SHUT_RDWR)


class PageHandler(ConnectionHandler):
    """The requests of a connection to a `PageServer`: one, because requests are rare."""

    server: PageServer

    def parse_request(self) -> bool:
        """Parse the head, which tells whether a body follows."""
        is_valid = super().parse_request()
        self.unread = "Content-Length" in self.headers or "Transfer-Encoding" in self.headers
        return is_valid

    def refuses_host(self, host: str, key: str) -> bool:
        """Whether a `Host` does not name this server, as after DNS rebinding; then the request is
        answered, with the key of the configuration that adds names.
        """
        if names_server(host, self.server.names):
            return False
        remedy = f"unknown Host; ask for the IP address, or add the name to {key}\n"
        self.answer(HTTPStatus.MISDIRECTED_REQUEST, PLAIN_TEXT, remedy)
        return True

    def answer(
        self, code: int, content_type: str, text: str, extra: Mapping[str, str] | None = None
    ) -> None:
        """Send a response, which must not be cached, and close the connection."""
        self.close_connection = True
        headers = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}
        body = text.encode("utf-8", "backslashreplace")
        self.reply(code, content_type, body, {**headers, **(extra or {})})

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Refuse a request that cannot be read, or of another method."""
        self.answer(code, PLAIN_TEXT, f"{message or HTTPStatus(code).phrase}\n")


class PageServer(ConnectionServer):
    """Serves a few pages to people and tools, at an address of its own.

    Args:
        endpoint: host:port; port 0 chooses a free one.
        handler: the class that handles the requests of a connection.
        connections: the maximum number of open connections.
        names: names that `Host` may have besides IP addresses, localhost and the host of the
            endpoint.
        key: of the configuration, for errors.

    Attributes:
        address: the address that was bound.
        names: all names that `Host` may have, for `names_server`.

    Raises:
        ConfigError: the address cannot be bound.
    """

    def __init__(
        self,
        endpoint: str,
        handler: type[PageHandler],
        connections: int,
        *,
        names: Collection[str],
        key: str,
    ) -> None:
        host, _, port = endpoint.rpartition(":")
        bare = host.strip("[]")
        self.names: Final = frozenset(
            name.casefold().removesuffix(".") for name in ("localhost", bare, *names)
        )
        try:
            super().__init__((bare, int(port)), handler, connections, _PAGE_IDLE_S)
        except OSError as error:
            raise ConfigError(
                f"{key}: {endpoint!r}: cannot listen there ({error.strerror}); choose another"
                " address or port 0"
            ) from None
        self.address: Final = f"{host}:{self.server_address[1]}"


def _close(connection: socket.socket, how: int) -> None:
    with suppress(OSError):  # it is closed already
        connection.shutdown(how)
