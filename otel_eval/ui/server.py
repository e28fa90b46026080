"""Serves the page: live from the runs of a receiver, or one that has its runs in it.

It listens on this machine only unless clients need a token. `Host` and `Origin` are always checked:
otherwise any page that a browser shows could read the runs by DNS rebinding. A browser cannot send
a token with the requests of a page, so a form exchanges it once for a cookie.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping
from http import HTTPStatus
from http.cookies import CookieError, SimpleCookie
from typing import Any, Final, Protocol
from urllib.parse import parse_qs, urlsplit

from otel_eval.errors import OtelEvalError
from otel_eval.http1 import body_reader
from otel_eval.http1.server import PLAIN_TEXT, PageHandler, PageServer
from otel_eval.ui import event, policy
from otel_eval.ui.recent_runs import RecentRuns

VIEWERS: Final = 8
"""Pages that may be connected at one time."""

_CONNECTIONS: Final = 2 * VIEWERS + 8
_BODY_S: Final = 5.0
_WRITE_S: Final = 10.0
_EVERY_S: Final = 1.0  # the least time between two writes to a page
_BEAT_S: Final = 5.0  # after so long a write shows whether the page is still there
_SESSION_S: Final = 12 * 3600.0
_MOST_SESSIONS: Final = 256
_LARGEST_FORM: Final = 16 * 1024
_HTML: Final = "text/html; charset=utf-8"

_LOGIN: Final = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>otel-eval: token</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark"></head>
<body><main><h1>otel-eval</h1><form method="post" action="/login">
<p><label>Token <input type="password" name="token" autocomplete="off" required></label>
<button>Show runs</button></p></form><p>{note}</p></main></body></html>
"""


class RunsSource(Protocol):
    """What a live page shows. Called from the threads of its server."""

    @property
    def runs(self) -> RecentRuns:
        """The runs."""

    def refresh(self) -> None:
        """Bring the runs up to date, if that does not happen by itself."""

    def status(self) -> Mapping[str, Any]:
        """Counters and times that the page shows, as JSON values."""


class _Sessions:
    """The cookies that were given for a token. Safe to use from several threads."""

    def __init__(self) -> None:
        self._lock: Final = threading.Lock()
        self._ends: Final[OrderedDict[str, float]] = OrderedDict()

    def begin(self) -> str:
        """A new cookie; if there are too many, the oldest one ends."""
        session = secrets.token_urlsafe(32)
        with self._lock:
            self._ends[session] = time.monotonic() + _SESSION_S
            while len(self._ends) > _MOST_SESSIONS:
                self._ends.popitem(last=False)
        return session

    def allow(self, session: str) -> bool:
        """Whether it is one of them and has not ended."""
        with self._lock:  # the values are random and long: a look-up reveals nothing useful
            return self._ends.get(session, 0.0) > time.monotonic()


class _RunsHandler(PageHandler):
    server: RunsServer

    def do_GET(self) -> None:
        if not self._is_for_us():
            return None
        if self.path not in ("/", "/events"):
            return self.answer(HTTPStatus.NOT_FOUND, PLAIN_TEXT, "there is only /\n")
        if not self._is_allowed():
            return self._login_page(HTTPStatus.UNAUTHORIZED, "")
        if self.path == "/events":
            return self._events()
        return self.answer(
            HTTPStatus.OK,
            _HTML,
            self.server.page(),
            {
                "Content-Security-Policy": policy(live=self.server.source is not None)
                + "; frame-ancestors 'none'",
                "Referrer-Policy": "no-referrer",
            },
        )

    do_HEAD = do_GET

    def do_POST(self) -> None:
        if not self._is_for_us():
            return None
        if self.path != "/login" or self.server.allow is None:
            return self.answer(HTTPStatus.NOT_FOUND, PLAIN_TEXT, "there is only /\n")
        self.timed.start_message(_BODY_S, _LARGEST_FORM * 2)
        try:
            _, read = body_reader(self.headers, self.rfile, _LARGEST_FORM)
            form = parse_qs(read(lambda _: None).decode("utf-8", "replace"), max_num_fields=4)
        except (OtelEvalError, ValueError):
            return self.answer(HTTPStatus.BAD_REQUEST, PLAIN_TEXT, "the form cannot be read\n")
        self.unread = False
        if not self.server.allow(f"Bearer {form.get('token', [''])[0]}"):
            return self._login_page(HTTPStatus.FORBIDDEN, "This is not a valid token.")
        cookie = f"{self.server.cookie}={self.server.sessions.begin()}"
        headers = {
            "Location": "/",
            "Set-Cookie": f"{cookie}; Path=/; HttpOnly; SameSite=Strict",
        }
        return self.answer(HTTPStatus.SEE_OTHER, PLAIN_TEXT, "", headers)

    def _is_for_us(self) -> bool:
        """Whether the request names this server and comes from no other page; otherwise it is
        answered.
        """
        host, origin = self.headers.get("Host", ""), self.headers.get("Origin")
        if self.refuses_host(host, "ui.allowed_hosts"):
            return False
        if origin is not None and not self._is_ours(origin, host):
            self.answer(HTTPStatus.FORBIDDEN, PLAIN_TEXT, "the request comes from another page\n")
            return False
        return True

    def _is_ours(self, origin: str, host: str) -> bool:
        """Whether a page with this origin is ours: at the `Host` that was asked for, or at the
        public address, if a proxy asks for another one.
        """
        try:
            address = urlsplit(origin).netloc.casefold()
        except ValueError:
            return False
        return address in (host.strip().casefold(), self.server.public_address)

    def _is_allowed(self) -> bool:
        """Whether the request has a valid token, or the cookie given for one."""
        if self.server.allow is None:
            return True
        try:
            cookies: SimpleCookie = SimpleCookie(self.headers.get("Cookie", "")[:4096])
        except CookieError:
            return False
        morsel = cookies.get(self.server.cookie)
        return (morsel is not None and self.server.sessions.allow(morsel.value)) or (
            self.server.allow(self.headers.get("Authorization"))
        )

    def _login_page(self, code: HTTPStatus, note: str) -> None:
        headers = {
            "Content-Security-Policy": "default-src 'none'; form-action 'self';"
            " frame-ancestors 'none'; base-uri 'none'",
            # without it a form of this page has the origin "null"
            "Referrer-Policy": "same-origin",
        }
        self.answer(code, _HTML, _LOGIN.format(note=note), headers)

    def _events(self) -> None:
        """Respond with a stream of events until the page is closed."""
        source = self.server.source
        if source is None:
            return self.answer(HTTPStatus.NOT_FOUND, PLAIN_TEXT, "there is only /\n")
        if not self.server.viewers.acquire(blocking=False):
            return self.answer(
                HTTPStatus.SERVICE_UNAVAILABLE, PLAIN_TEXT, f"{VIEWERS} pages are open already\n"
            )
        try:
            self.close_connection = True
            self.send_response(HTTPStatus.OK)
            self.send_header("Content-Type", "text/event-stream")
            self.send_header("Cache-Control", "no-store")
            self.send_header("Connection", "close")
            self.connection.settimeout(_WRITE_S)
            self.end_headers()
            if self.command != "HEAD":
                self._send_events(source)
        finally:
            self.server.viewers.release()
        return None

    def _send_events(self, source: RunsSource) -> None:
        """Send every run, then each that changes, until the page is closed or the server stops."""
        self.wfile.write(b"retry: 1000\n\n" + event("start", {"most": source.runs.most}))
        number, shown, written_s, is_first = 0, b"", time.monotonic(), True
        while not self.server.stopping:
            source.refresh()
            number, documents = source.runs.changes(number)
            status = event("status", source.status())
            for change in documents:  # one by one: together they may be large
                self.wfile.write(event("run", change.document))
            if status != shown:
                self.wfile.write(status)
            if is_first:
                self.wfile.write(event("ready", {}))
            is_silent = not documents and status == shown
            if is_silent and time.monotonic() - written_s > _BEAT_S:
                self.wfile.write(b":\n\n")
                is_silent = False
            if not is_silent:
                self.wfile.flush()
                shown, written_s, is_first = status, time.monotonic(), False
            self.server.stop_requested.wait(_EVERY_S)


class RunsServer(PageServer):
    """Serves the page of runs.

    Args:
        endpoint: host:port; port 0 chooses a free one.
        page: returns the page.
        source: what a live page shows; None for a page that has its runs in it.
        allow: whether an `Authorization` header has a valid token; None: none is needed.
        names: names that `Host` may have besides IP addresses, localhost and the host of the
            endpoint.
        public_url: the address at which people reach the page, if it is another one.
        key: of the configuration, for errors.

    Attributes:
        address: the address that was bound.

    Raises:
        ConfigError: the address cannot be bound.
    """

    late_s = 1.0
    thread_name = "otel-eval-page"

    def __init__(
        self,
        endpoint: str,
        page: Callable[[], str],
        *,
        source: RunsSource | None = None,
        allow: Callable[[str | None], bool] | None = None,
        names: Collection[str] = (),
        public_url: str | None = None,
        key: str = "ui.endpoint",
    ) -> None:
        self.page: Final = page
        self.source: Final = source
        self.allow: Final = allow
        self.public_address: Final = urlsplit(public_url or "").netloc.casefold() or None
        self.sessions: Final = _Sessions()
        self.viewers: Final = threading.BoundedSemaphore(VIEWERS)
        self.stop_requested: Final = threading.Event()
        super().__init__(endpoint, _RunsHandler, _CONNECTIONS, names=names, key=key)
        # browsers send a cookie to every port of a host
        self.cookie: Final = f"otel_eval_{self.server_address[1]}"

    def stop(self, timeout_s: float) -> None:
        """Close the connections, those of live pages at once."""
        self.stopping = True
        self.stop_requested.set()
        super().stop(timeout_s)
