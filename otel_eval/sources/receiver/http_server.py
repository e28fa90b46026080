"""OTLP over HTTP/1.1: its paths, headers and responses."""

from __future__ import annotations

import socket
import time
from http import HTTPStatus
from typing import Final

from google.rpc import status_pb2

from otel_eval.errors import InputError, RequestTooLarge
from otel_eval.http1 import Read, body_reader
from otel_eval.http1.server import ConnectionHandler, ConnectionServer
from otel_eval.otlp import Encoding, Signal
from otel_eval.sources.receiver.credentials import Certificates
from otel_eval.sources.receiver.decompression import PLAIN, decompress, supported_encodings
from otel_eval.sources.receiver.export_handler import (
    RETRY_S,
    ExportHandler,
    ExportResponse,
    ExportStatus,
    serialize,
)
from otel_eval.sources.receiver.memory import Reservation

_PATHS: Final = {signal.path: signal for signal in Signal}
_TYPES: Final = {"application/x-protobuf": Encoding.PROTOBUF, "application/json": Encoding.JSON}
_NAMES: Final = {encoding: name for name, encoding in _TYPES.items()}
_FULL: Final = (
    b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nContent-Length: 0\r\nConnection:"
    b" close\r\n\r\n"
)
_EXTRA: Final[dict[int, dict[str, str]]] = {
    HTTPStatus.METHOD_NOT_ALLOWED: {"Allow": "POST"},
    HTTPStatus.UNAUTHORIZED: {"WWW-Authenticate": "Bearer"},
}
# a minimum pace is required after this fraction (a sixth) of the time for a body
_GRACE_PARTS: Final = 6
_HANDSHAKE_S: Final = 10.0


class _OtlpHandler(ConnectionHandler):
    server: OtlpHttpServer

    def _is_authorized(self) -> bool:
        """Whether the request has a valid token if one is needed; otherwise it is answered."""
        if self.server.handler.admits(self.headers.get("Authorization")):
            return True
        self.server.handler.count("http", unauthenticated_requests=1)
        self.send_error(HTTPStatus.UNAUTHORIZED, "a bearer token is needed")
        return False

    def do_POST(self) -> None:
        if not self._is_authorized():
            return
        signal = _PATHS.get(self.path)
        encoding = _TYPES.get(self.headers.get_content_type())
        if signal is None:
            self.send_error(
                HTTPStatus.NOT_FOUND,
                "no such path; OTLP is at /v1/traces, /v1/logs and /v1/metrics",
            )
        elif encoding is None:
            self.send_error(
                HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
                "Content-Type must be application/x-protobuf or application/json",
            )
        elif self._coding() not in (*PLAIN, *supported_encodings()):
            names = ", ".join(supported_encodings())
            self.send_error(
                HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
                f"Content-Encoding must be absent or one of {names}",
            )
        else:
            self._export(signal, encoding)

    def _coding(self) -> str:
        return str(self.headers.get("Content-Encoding", "")).strip().lower()

    def _export(self, signal: Signal, encoding: Encoding) -> None:
        """Handle an export request, and respond."""
        handler = self.server.handler
        try:
            size, read = body_reader(self.headers, self.rfile, handler.limits.max_body_bytes)
        except (InputError, RequestTooLarge) as error:
            handler.count("http", requests=1)
            return self._refuse(encoding, handler.refuse("http", error))
        self.unread = True
        limit_s = handler.limits.request_s
        self.timed.set_deadline(limit_s, limit_s / _GRACE_PARTS)
        answer = handler.answer(
            "http", signal, encoding, size, lambda reservation: self._read(read, reservation)
        )
        if answer.status is ExportStatus.ACCEPTED:
            return self.reply(HTTPStatus.OK, _NAMES[encoding], answer.body(signal, encoding))
        return self._refuse(encoding, answer)

    def _read(self, read: Read, reservation: Reservation) -> bytes:
        """Read the body from the client, and decompress it."""
        self.wait_for_client()
        try:
            if (
                self.headers.get("Expect", "").lower() == "100-continue"
                and self.request_version == "HTTP/1.1"
            ):
                # the body of a request that is refused before this is not sent
                self.send_response_only(HTTPStatus.CONTINUE)
                self.end_headers()
                self.wfile.flush()
            body = read(reservation.grow)
        finally:
            self.server.mark_working()
        self.unread = False
        limit = self.server.handler.limits.max_body_bytes
        return decompress(self._coding(), body, limit, reservation)

    def _refuse(self, encoding: Encoding, answer: ExportResponse) -> None:
        """Respond with the error of a request."""
        self.close_connection = self.close_connection or self.unread
        extra = {"Retry-After": str(RETRY_S)} if answer.status is ExportStatus.RETRYABLE else {}
        self.reply(answer.status.http, _NAMES[encoding], serialize(encoding, answer.error()), extra)

    def _not_allowed(self) -> None:
        if not self._is_authorized():
            return
        self.send_error(
            HTTPStatus.METHOD_NOT_ALLOWED if self.path in _PATHS else HTTPStatus.NOT_FOUND,
            "POST OTLP to /v1/traces",
        )

    do_GET = do_HEAD = do_PUT = do_DELETE = do_PATCH = do_OPTIONS = do_TRACE = do_CONNECT = (
        _not_allowed
    )

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Refuse a request that is not an export request; also called by the base class, for
        invalid HTTP.
        """
        is_unauthorized = code == HTTPStatus.UNAUTHORIZED  # which has its own counter
        self.server.handler.count("http", requests=1, bad_requests=0 if is_unauthorized else 1)
        self.close_connection = True
        encoding = _TYPES.get(self.headers.get_content_type(), Encoding.JSON)
        refusal = status_pb2.Status(message=message or HTTPStatus(code).phrase)
        self.reply(code, _NAMES[encoding], serialize(encoding, refusal), _EXTRA.get(code))


class OtlpHttpServer(ConnectionServer):
    """Serves the three OTLP paths."""

    late_s = 2.0  # late with a handshake, a request or its body
    thread_name = "otel-eval-http"

    def __init__(
        self, address: tuple[str, int], handler: ExportHandler, certificates: Certificates | None
    ) -> None:
        super().__init__(
            address, _OtlpHandler, handler.limits.http_connections, handler.limits.http_idle_s
        )
        self.handler, self.certificates = handler, certificates

    def refuse(self, request: socket.socket) -> None:
        """Count a connection over the limit; without TLS the client gets a retryable 503."""
        self.handler.count("http", refused_connections=1)
        request.setblocking(False)
        if self.certificates is None:
            request.send(_FULL)

    def secure(self, request: socket.socket) -> socket.socket | None:
        """The connection to serve: with TLS if that is configured, None if the handshake failed."""
        if self.certificates is None:
            return request
        began = time.monotonic()
        self.mark_waiting(lambda: began)
        try:
            request.settimeout(_HANDSHAKE_S)
            context = self.certificates.current().context
            # A duplicate: the connection itself stays open, and `stop` shuts it down.
            return context.wrap_socket(request.dup(), server_side=True)
        except OSError:  # the base class of ssl's errors, too
            self.handler.count("http", failed_handshakes=1)
            return None
