"""The admin server: /healthz, /readyz, /metrics and /status.

It has an address and threads of its own, so that it answers when the receiver is full. Numbers are gathered at each request; it
takes nothing in and shows no content of spans but names of services, agents and tools, so it asks for no token.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from http import HTTPStatus
from ipaddress import ip_address
from itertools import chain
from typing import Any, Final

from otel_eval.admin.prometheus import CONTENT_TYPE, Family, prometheus_text
from otel_eval.admin.self_metrics import collect_self_metrics, self_families
from otel_eval.admin.status import Readiness, status_fields, status_json, status_page
from otel_eval.descriptors import Spare
from otel_eval.errors import ConfigError
from otel_eval.http1.server import ConnectionHandler, ConnectionServer

__all__ = ["AdminServer"]

_CONNECTIONS: Final = 16
_IDLE_S: Final = 5.0
_STOP_S: Final = 1.0
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


class _AdminHandler(ConnectionHandler):
    server: _Server

    def do_GET(self) -> None:
        self.unread = "Content-Length" in self.headers or "Transfer-Encoding" in self.headers
        if not self._is_for_us():
            why = "unknown Host; ask for the IP address, or add the name to telemetry.allowed_hosts\n"
            return self._answer(HTTPStatus.MISDIRECTED_REQUEST, _PLAIN, why)
        pages: dict[str, Callable[[], tuple[int, str, str]]] = {
            "/healthz": lambda: (HTTPStatus.OK, _PLAIN, "ok\n"),
            "/readyz": self._readiness,
            "/metrics": self._metrics,
            "/status": self._status,
        }
        page = pages.get(self.path)
        return self._answer(*(page() if page else (HTTPStatus.NOT_FOUND, _PLAIN, f"there are {', '.join(pages)}\n")))

    do_HEAD = do_GET

    def _is_for_us(self) -> bool:
        """Whether `Host` names this server; without one the client is no browser, which another site's name could lead here."""
        return all(_is_known(each, self.server.names) for each in self.headers.get_all("Host", []))

    def _readiness(self) -> tuple[int, str, str]:
        found = self.server.readiness()
        code = HTTPStatus.OK if found.ready else HTTPStatus.SERVICE_UNAVAILABLE
        return code, _PLAIN, f"{found}\n"

    def _metrics(self) -> tuple[int, str, str]:
        own = self_families(collect_self_metrics(self.server.counts()))
        return HTTPStatus.OK, CONTENT_TYPE, prometheus_text(chain(own, self.server.scores()))

    def _status(self) -> tuple[int, str, str]:
        fields = status_fields(self.server.counts(), self.server.readiness(), uptime_s=time.monotonic() - self.server.begun)
        if "text/html" in self.headers.get("Accept", ""):
            return HTTPStatus.OK, "text/html; charset=utf-8", status_page(fields)
        return HTTPStatus.OK, "application/json", status_json(fields)

    def _answer(self, code: int, kind: str, body: str) -> None:
        self.close_connection = True  # one request a connection: there are few
        self.reply(code, kind, body.encode(), {"Cache-Control": "no-store"})

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Refuse a request that cannot be read, or of another method."""
        self._answer(code, _PLAIN, f"{message or HTTPStatus(code).phrase}\n")


class _Server(ConnectionServer):
    """Accepts connections also when the process has no file descriptor left."""

    def __init__(
        self,
        address: tuple[str, int],
        counts: Callable[[], Mapping[str, Any]],
        readiness: Callable[[], Readiness],
        names: Collection[str],
        scores: Callable[[], Iterable[Family]],
    ) -> None:
        self.counts, self.readiness, self.scores, self.begun = counts, readiness, scores, time.monotonic()
        self.names: Final = frozenset(name.casefold().removesuffix(".") for name in ("localhost", address[0], *names))
        self._spare = Spare()
        # Pages are answered at once, so a connection that lasts waits for its client: it may always be ended.
        super().__init__(address, _AdminHandler, connections=_CONNECTIONS, idle_s=_IDLE_S, patience_s=0.0, name="otel-eval-admin")

    def get_request(self) -> Any:
        """Accept a connection, in the place of a spare descriptor if no other is left."""
        return self._spare.accept(super().get_request)

    def server_close(self) -> None:
        """Close the address and the spare descriptors."""
        super().server_close()
        self._spare.close()

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Serve one connection to its end."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._spare.refill()


class AdminServer:
    """Serves the pages.

    Args:
        address: host:port; port 0 takes a free one.
        counts: what every part counted; called from the site's own threads.
        readiness: whether the receiver works.
        names: what `Host` may name besides IP addresses, localhost and the address's own name.
        scores: metrics that `/metrics` has besides the self-metrics.
    """

    def __init__(
        self,
        address: str,
        counts: Callable[[], Mapping[str, Any]],
        readiness: Callable[[], Readiness],
        names: Collection[str] = (),
        scores: Callable[[], Iterable[Family]] = lambda: (),
    ) -> None:
        self._address, self._given = address, (counts, readiness, names, scores)
        self._server: _Server | None = None

    def start(self) -> str:
        """Listen; the address that was bound.

        Raises:
            ConfigError: it cannot be had.
        """
        host, _, port = self._address.rpartition(":")
        try:
            self._server = _Server((host.strip("[]"), int(port)), *self._given)
        except OSError as error:
            raise ConfigError(
                f"telemetry.endpoint: {self._address!r}: cannot listen there ({error.strerror}); choose another address or port 0"
            ) from None
        self._server.start()
        return f"{host}:{self._server.server_port}"

    def stop(self) -> None:
        """Close the address."""
        if self._server:
            self._server.stop(_STOP_S)
            self._server = None
