"""An OTLP endpoint: its address, headers and proxy, from the configuration and the environment; and
HTTP requests to it.

Connections are kept alive between requests; redirects are not followed.
"""

from __future__ import annotations

import http.client
import io
import os
import socket
import ssl
import time
from base64 import b64encode
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal
from urllib.parse import SplitResult, unquote, urlsplit
from urllib.request import getproxies, proxy_bypass

from otel_eval.errors import ConfigError
from otel_eval.otlp.tls import ClientTls
from otel_eval.retry import ExportResult, Status, retry_after_s

_HEADERS: Final = "OTEL_EXPORTER_OTLP_{}HEADERS"


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """Where and how to send.

    Attributes:
        endpoint: `http(s)://host:port`; for HTTP the base, to which `/v1/logs` and so on are added.
        protocol: grpc or http/protobuf.
        headers: sent with each request.
        timeout_s: for one attempt, until its response has arrived.
        compression: gzip or none.
        tls: files for an https endpoint.
        proxy: URL of an HTTP proxy before the endpoint; None: the connection is direct. gRPC reads
            its own from the environment.
    """

    endpoint: str
    protocol: Literal["grpc", "http/protobuf"] = "grpc"
    headers: Mapping[str, str] = field(default_factory=dict)
    timeout_s: float = 10.0
    compression: Literal["gzip", "none"] = "none"
    tls: ClientTls = field(default_factory=ClientTls)
    proxy: str | None = None


def is_secure(to: Endpoint) -> bool:
    """Whether connections use TLS."""
    return to.endpoint.startswith("https")


def for_signal(to: Endpoint, signal: str, problems: set[str] | None = None) -> Endpoint:
    """The endpoint with what the environment names for a signal (logs, metrics, spans):
    certificates, headers, a proxy.

    Headers of the configuration take the place of those of OTEL_EXPORTER_OTLP_HEADERS, as in the
    SDK.

    Args:
        problems: problems with files of the environment are added to it, and the files ignored;
            None: they are not checked.
    """
    signal = "traces" if signal == "spans" else signal
    tls = _tls(to, signal, problems) if is_secure(to) else to.tls
    return by_proxy(replace(to, tls=tls, headers=to.headers or _headers(signal)))


def by_proxy(to: Endpoint) -> Endpoint:
    """The endpoint with the proxy that HTTP_PROXY, HTTPS_PROXY and NO_PROXY name for it."""
    parts = urlsplit(to.endpoint)
    proxy = getproxies().get(parts.scheme)
    # The C core of gRPC reads HTTPS_PROXY and NO_PROXY by itself.
    if (
        to.proxy
        or to.protocol == "grpc"
        or not proxy
        or proxy_bypass(parts.netloc.rpartition("@")[2])
    ):
        return to
    return replace(to, proxy=proxy if "://" in proxy else f"http://{proxy}")


def _tls(to: Endpoint, signal: str, problems: set[str] | None) -> ClientTls:
    """The endpoint's TLS files with those of the environment, unless these cannot be used."""
    tls = to.tls.with_environment(os.environ, signal)
    if problems is not None and tls != to.tls:
        try:
            tls.context()
        except ConfigError as error:
            problems.update(error.problems)
            return to.tls
    return tls


def _headers(signal: str) -> Mapping[str, str]:
    """The headers that the environment names for a signal, or else for all of them."""
    from opentelemetry.util.re import parse_env_headers

    text = os.environ.get(_HEADERS.format(f"{signal.upper()}_")) or os.environ.get(
        _HEADERS.format(""), ""
    )
    return parse_env_headers(text, liberal=True)


_LARGEST: Final = 2**20  # of a response; what follows is not read

_STATUSES: Final[Mapping[int, Status]] = {
    401: "denied",
    403: "denied",
    404: "unsupported",
    405: "unsupported",
    408: "server_error",
    429: "retryable",
    501: "unsupported",
    502: "retryable",
    503: "retryable",
    504: "retryable",
}


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """A response, with the beginning of its content (1 MiB at most)."""

    status: int
    content: bytes = b""
    content_type: str = ""
    after_s: float = field(default=0.0, kw_only=True)
    """Seconds that the endpoint asks to wait, by `Retry-After`."""


class HttpClient:
    """Makes requests, from any thread. A forked child opens connections of its own.

    Args:
        to: the endpoint; its path comes before the path of each request.
        headers: sent with each request beside those of the endpoint.

    Raises:
        ConfigError: a TLS file cannot be used.
    """

    def __init__(self, to: Endpoint, headers: Mapping[str, str]) -> None:
        parts = urlsplit(to.endpoint)
        self._connect: Final = _connector(to, parts)
        self._timeout_s: Final = to.timeout_s
        # A proxy gets the whole URL of a plain request (RFC 9112, 3.2.2); for https it opens a
        # tunnel.
        proxied = to.proxy if parts.scheme == "http" else None
        origin = f"http://{parts.netloc.rpartition('@')[2]}" if proxied else ""
        self._prefix: Final = origin + parts.path.rstrip("/")
        self._query: Final = parts.query
        to_endpoint = {**credentials_of(parts), **to.headers, **headers}
        self._headers: Final = {**to_endpoint, **(_proxy_headers(proxied) if proxied else {})}
        self._idle: deque[http.client.HTTPConnection] = deque()  # open, and used by no thread
        self._process = os.getpid()
        self._closed = False

    def request(self, method: str, path: str, body: bytes | None) -> HttpResponse:
        """Make a request, and make it again if the server had closed the kept-alive connection.

        Raises:
            OSError: there is no response.
            http.client.HTTPException: the response is not HTTP.
        """
        query = "&".join(part for part in (path.partition("?")[2], self._query) if part)
        target = f"{self._prefix}{path.partition('?')[0]}{'?' if query else ''}{query}"
        idle = self._pop_idle()
        # A server may close an idle connection at any time, which is noticed only when it is used:
        # that is no failed attempt.
        if idle is not None:
            try:
                return self._attempt(idle, method, target, body)
            except TimeoutError:  # the server may have the request, and process it later
                raise
            except (OSError, http.client.HTTPException):
                pass
        return self._attempt(self._connect(), method, target, body)

    def _attempt(
        self, connection: http.client.HTTPConnection, method: str, target: str, body: bytes | None
    ) -> HttpResponse:
        """Make a request on a connection, which is idle again after it."""
        until = time.monotonic() + self._timeout_s

        def response_reader(sock: socket.socket, **options: Any) -> http.client.HTTPResponse:
            stream = _Stream(sock, until)
            return http.client.HTTPResponse(stream, **options)  # type: ignore[arg-type]

        connection.response_class = response_reader  # type: ignore[assignment]
        if connection.sock is not None:
            connection.sock.settimeout(self._timeout_s)
        try:
            connection.request(method, target, body, self._headers)
            response = connection.getresponse()
            content = response.read(_LARGEST)
        except BaseException:
            connection.close()
            raise
        # After a response that was not read to its end, the next one on the connection would begin
        # with the rest.
        if response.isclosed() and not self._closed:
            self._idle.append(connection)
        else:
            connection.close()
        after_s = retry_after_s(response.headers.get("Retry-After", "")) or 0.0
        return HttpResponse(
            response.status, content, response.headers.get_content_type(), after_s=after_s
        )

    def _pop_idle(self) -> http.client.HTTPConnection | None:
        """Take an idle connection; None if there is none, as in a forked child."""
        if self._process != os.getpid():
            self._idle, self._process = deque(), os.getpid()
        try:
            return self._idle.pop()
        except IndexError:  # no connection is idle
            return None

    def close(self) -> None:
        """Close the connections; that of a request that is under way is closed after it."""
        self._closed = True
        while (connection := self._pop_idle()) is not None:
            connection.close()


class _Stream(io.RawIOBase):
    """Reads from a connection until a monotonic time. The timeout of a socket would start again
    with each byte.
    """

    def __init__(self, connection: socket.socket, until: float) -> None:
        self._connection, self._until = connection, until
        self._stream = connection.makefile("rb", buffering=0)

    def makefile(self, _mode: str) -> io.BufferedReader:
        """Return a buffered reader, as a socket does for `HTTPResponse`."""
        return io.BufferedReader(self)

    def readable(self) -> bool:
        """Whether it can be read: always."""
        return True

    def readinto(self, buffer: Any) -> int | None:
        """Read into a buffer; raises `TimeoutError` when the time is over."""
        left_s = self._until - time.monotonic()
        if left_s <= 0:
            raise TimeoutError
        self._connection.settimeout(left_s)
        return self._stream.readinto(buffer)

    def close(self) -> None:
        """Close the reader. The connection is closed when its other users have closed it, too."""
        self._stream.close()
        super().close()


def credentials_of(parts: SplitResult) -> dict[str, str]:
    """The header for a user and a password in the URL; empty without a user."""
    if parts.username is None:
        return {}
    pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    return {"authorization": f"Basic {b64encode(pair.encode()).decode()}"}


def _connector(to: Endpoint, parts: SplitResult) -> Callable[[], http.client.HTTPConnection]:
    """Return a function that makes a connection to the endpoint, through its proxy if there is
    one.
    """
    context: ssl.SSLContext | None = to.tls.context() if parts.scheme == "https" else None
    proxy = urlsplit(to.proxy) if to.proxy else None
    host, port = parts.hostname or "", parts.port

    def connect() -> http.client.HTTPConnection:
        to_host, to_port = (proxy.hostname or "", proxy.port) if proxy else (host, port)
        if context is None:
            return http.client.HTTPConnection(to_host, to_port, timeout=to.timeout_s)
        connection = http.client.HTTPSConnection(
            to_host, to_port, timeout=to.timeout_s, context=context
        )
        if to.proxy:
            connection.set_tunnel(host, port or 443, _proxy_headers(to.proxy))
        return connection

    return connect


def _proxy_headers(proxy: str) -> dict[str, str]:
    return {f"proxy-{key}": value for key, value in credentials_of(urlsplit(proxy)).items()}


_OWN_TYPES: Final = frozenset({"application/x-protobuf", "application/json"})


def of_response(response: HttpResponse) -> ExportResult:
    """The meaning of an HTTP response by its status and the type of its body.

    A success with a page, for instance of a login, is like a redirect or a 404: something in front
    of the endpoint, or in its place, responded.
    """
    if not 200 <= response.status < 300:
        code = response.status
        if 300 <= code < 400:
            return ExportResult(
                "unsupported", f"{code}, redirects are not followed", response.after_s
            )
        other: Status = "server_error" if 500 <= code < 600 else "permanent"
        status = _STATUSES.get(code, other)
        return ExportResult(status, str(code), response.after_s, concerns_all=status == "denied")
    if response.content and response.content_type not in _OWN_TYPES:
        return ExportResult(
            "unsupported", f"{response.status} with a body that is not the endpoint's"
        )
    return ExportResult.ok()
