"""The address where a receiver tells how it is: /healthz, /readyz, /metrics and /status.

Knows the standard library's HTTP server. It has an address and threads of its own, so that it answers when the receiver is full.
Numbers are gathered when somebody asks; it takes nothing in and shows no content of spans, so it asks for no token.
"""

from __future__ import annotations

import re
import socket
import threading
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_address
from typing import Any, Final

from otel_eval.admin.self_metrics import CONTENT_TYPE, collect_self_metrics, prometheus_text
from otel_eval.admin.status import Readiness, status_fields, status_json, status_page
from otel_eval.descriptors import Spare, accept
from otel_eval.errors import ConfigError

__all__ = ["AdminServer"]

_AT_ONCE: Final = 16
_PATIENCE_S: Final = 5.0
_ROOM_S: Final = 0.25  # for a thread to end; nobody else is let in meanwhile
_PORT: Final = re.compile(r":[0-9]*$", re.ASCII)
_PLAIN: Final = "text/plain; charset=utf-8"


def _is_known(host: str, names: Collection[str]) -> bool:
    """Whether a `Host` is an IP address, which no name server can point elsewhere, or one of the names; any port."""
    name = _PORT.sub("", host.strip()).casefold().removesuffix(".")
    try:
        ip_address(name.removeprefix("[").removesuffix("]"))
    except ValueError:
        return name in names
    return True


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    timeout = _PATIENCE_S

    def do_GET(self) -> None:
        if not self._is_for_us():
            why = "unknown Host; ask for the IP address, or add the name to telemetry.allowed_hosts\n"
            return self._answer(HTTPStatus.MISDIRECTED_REQUEST, _PLAIN, why)
        pages: dict[str, Callable[[], tuple[int, str, str]]] = {
            "/healthz": lambda: (HTTPStatus.OK, _PLAIN, "ok\n"),
            "/readyz": self._readiness,
            "/metrics": lambda: (HTTPStatus.OK, CONTENT_TYPE, prometheus_text(collect_self_metrics(self.server.counts()))),
            "/status": self._status,
        }
        asked = pages.get(self.path.partition("?")[0])
        return self._answer(*(asked() if asked else (HTTPStatus.NOT_FOUND, _PLAIN, f"there are {', '.join(pages)}\n")))

    do_HEAD = do_GET

    def _is_for_us(self) -> bool:
        """Whether `Host` names this server; without one the client is no browser, which another site's name could lead here."""
        hosts = self.headers.get_all("Host", [])
        return len(hosts) <= 1 and all(_is_known(each, self.server.names) for each in hosts)

    def _readiness(self) -> tuple[int, str, str]:
        found = self.server.readiness()
        code = HTTPStatus.OK if found.ready else HTTPStatus.SERVICE_UNAVAILABLE
        return code, _PLAIN, f"{found}\n"

    def _status(self) -> tuple[int, str, str]:
        told = status_fields(self.server.counts(), self.server.readiness(), uptime_s=time.monotonic() - self.server.begun)
        if "text/html" in self.headers.get("Accept", ""):
            return HTTPStatus.OK, "text/html; charset=utf-8", status_page(told)
        return HTTPStatus.OK, "application/json", status_json(told)

    def _answer(self, code: int, kind: str, body: str) -> None:
        data = body.encode()
        self.send_response(code)
        for name, value in (("Content-Type", kind), ("Content-Length", str(len(data))), ("Cache-Control", "no-store")):
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def version_string(self) -> str:
        return "otel-eval"

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(
        self,
        address: tuple[str, int],
        counts: Callable[[], Mapping[str, Any]],
        readiness: Callable[[], Readiness],
        names: Collection[str],
    ) -> None:
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        self.counts, self.readiness, self.begun = counts, readiness, time.monotonic()
        self.names: Final = frozenset(name.casefold().removesuffix(".") for name in ("localhost", address[0], *names))
        self._places = threading.BoundedSemaphore(_AT_ONCE)
        self._lock = threading.Lock()  # guards _open
        self._open: dict[socket.socket, None] = {}  # oldest first
        self._spare = Spare()
        super().__init__(address, _Handler)

    def server_bind(self) -> None:
        """Bind without asking a name server who we are, as the base class does."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()

    def get_request(self) -> Any:
        """Accept a connection, also when the process has no file descriptor left."""
        return accept(lambda: self._spare.accept(super(_Server, self).get_request))

    def server_close(self) -> None:
        super().server_close()
        self._spare.close()

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._places.acquire(blocking=False) and not self._make_room():
            return self.shutdown_request(request)
        with self._lock:
            self._open[request] = None
        return super().process_request(request, client_address)

    def _make_room(self) -> bool:
        """End the oldest connection: what is asked for here is told at once, so it is its client that is waited for."""
        with self._lock:
            oldest = next(iter(self._open), None)
            if oldest is not None:
                with suppress(OSError):  # it ends by itself
                    oldest.shutdown(socket.SHUT_RDWR)
        return self._places.acquire(timeout=_ROOM_S)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            with self._lock:
                self._open.pop(request, None)
            self._places.release()
            self._spare.refill()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away."""


class AdminServer:
    """Serves the pages.

    Args:
        address: host:port; port 0 takes a free one.
        counts: what every part counted; called from the site's own threads.
        readiness: whether the receiver works.
        names: what `Host` may name besides IP addresses, localhost and the address's own name.
    """

    def __init__(
        self,
        address: str,
        counts: Callable[[], Mapping[str, Any]],
        readiness: Callable[[], Readiness],
        names: Collection[str] = (),
    ) -> None:
        self._address, self._counts, self._readiness, self._names = address, counts, readiness, names
        self._server: _Server | None = None

    def start(self) -> str:
        """Listen; the address that was bound.

        Raises:
            ConfigError: it cannot be had.
        """
        host, _, port = self._address.rpartition(":")
        try:
            self._server = _Server((host.strip("[]"), int(port)), self._counts, self._readiness, self._names)
        except OSError as error:
            raise ConfigError(
                f"telemetry.endpoint: {self._address!r}: cannot listen there ({error.strerror}); choose another address or port 0"
            ) from None
        threading.Thread(target=self._server.serve_forever, args=(0.1,), name="otel-eval-site", daemon=True).start()
        return f"{host}:{self._server.server_address[1]}"

    def stop(self) -> None:
        """Close the address."""
        if self._server:
            self._server.shutdown()
            self._server.server_close()
            self._server = None
