"""An OTLP endpoint on one loopback port that answers as it is set, or refuses, resets or misreads
connections instead.
"""

from __future__ import annotations

import secrets
import socket
import ssl
import struct
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

import grpc
from google.protobuf.duration_pb2 import Duration
from google.rpc import error_details_pb2, status_pb2
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

# What happens to connections instead of a response.
REFUSED, RESET, MISREAD = "connection refused", "connection reset", "TLS error"
TIMEOUT, PARTIAL = "timeout", "partial success"
PAGE: Final = "200 with a page"  # of a login, over HTTP only
THROTTLED: Final = "RESOURCE_EXHAUSTED with RetryInfo"
BROKEN: Final = (REFUSED, RESET, MISREAD)


def free_port() -> int:
    """A free port below the range from which Linux takes ports of outgoing connections: it stays
    free while nothing listens.
    """
    while True:
        # of a seeded generator, processes would take the same
        port = 15_000 + secrets.randbelow(17_000)
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port


def partial_success() -> bytes:
    """One item was rejected; the responses of all signals have the same fields."""
    response = ExportTraceServiceResponse()
    response.partial_success.rejected_spans = 1
    response.partial_success.error_message = "too long"
    return response.SerializeToString()


class Endpoint:
    """Takes every signal over one protocol.

    Args:
        protocol: grpc or http/protobuf.
        tls: certificates of the endpoint (a `trustme.LeafCert`); None for plain text.

    Attributes:
        response: an HTTP status, a gRPC code, TIMEOUT, PARTIAL, PAGE, or "" for success.
        asked: requests that arrived, or connections that were broken.
        taken: requests that were accepted, by signal.
        bodies: of those that were accepted over HTTP.
        hangs: whether clients are to wait for a short time only.
    """

    def __init__(self, protocol: str, tls: Any = None) -> None:
        self.protocol, self._tls = protocol, tls
        self.response: str = ""
        self.asked = 0
        self.taken: dict[str, int] = {"logs": 0, "metrics": 0, "traces": 0}
        self.bodies: list[bytes] = []
        self.hangs = False
        self._hung = threading.Event()  # set to let requests go that wait for the client's timeout
        self.port = free_port()
        self.url = f"{'https' if tls else 'http'}://127.0.0.1:{self.port}"
        self._serving = ""
        self._stop: Callable[[], None] = lambda: None
        self.answer("")

    def answer(self, response: str) -> None:
        """From now on answer so; and serve, unless connections are to be broken."""
        self.response = response
        self._release()
        kind = response if response in BROKEN else "serving"
        if kind == self._serving:
            return
        self.close()
        starts = {
            REFUSED: lambda: lambda: None,
            RESET: self._broken,
            MISREAD: self._broken,
            "serving": self._serve,
        }
        self._stop, self._serving = starts[kind](), kind

    def close(self) -> None:
        """Serve no more."""
        self._release()
        self._stop()
        self._stop, self._serving = lambda: None, ""

    def _release(self) -> None:
        """End requests that hang."""
        self._hung.set()
        self._hung = threading.Event()

    def _take(self, path: str, body: bytes = b"") -> str:
        """The response to a request to a path or of a method."""
        self.asked += 1
        response = self.response
        if response == TIMEOUT:
            self._hung.wait(300)
            response = ""  # released: the client that still waits gets a success
        if response in ("", PARTIAL):
            signal = next(each for each in ("logs", "metrics", "trace") if each in path)
            self.taken["traces" if signal == "trace" else signal] += 1
            if body:
                self.bodies.append(body)
        return response

    def _serve(self) -> Callable[[], None]:
        return self._grpc() if self.protocol == "grpc" else self._http()

    # ---------------------------------------------------------------- gRPC

    def _grpc(self) -> Callable[[], None]:
        server = grpc.server(ThreadPoolExecutor(4), options=[("grpc.so_reuseport", 0)])
        server.add_generic_rpc_handlers([_Export(self._export)])
        place = f"127.0.0.1:{self.port}"
        if self._tls is None:
            server.add_insecure_port(place)
        else:
            chain = b"".join(pem.bytes() for pem in self._tls.cert_chain_pems)
            server.add_secure_port(
                place, grpc.ssl_server_credentials([(self._tls.private_key_pem.bytes(), chain)])
            )
        server.start()
        return lambda: server.stop(0).wait(300)

    def _export(self, method: str, context: Any) -> bytes:
        response = self._take(method)
        if response == THROTTLED:
            detail = status_pb2.Status(code=grpc.StatusCode.RESOURCE_EXHAUSTED.value[0])
            detail.details.add().Pack(
                error_details_pb2.RetryInfo(retry_delay=Duration(nanos=1_000_000))
            )
            context.set_trailing_metadata([("grpc-status-details-bin", detail.SerializeToString())])
            context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "")
        if response not in ("", PARTIAL, TIMEOUT):
            context.abort(grpc.StatusCode[response], "")
        return partial_success() if response == PARTIAL else b""

    # ---------------------------------------------------------------- HTTP

    def _http(self) -> Callable[[], None]:
        server = _server(("127.0.0.1", self.port), self._take)
        if self._tls is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self._tls.configure_cert(context)
            server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, args=(0.005,), daemon=True)
        thread.start()

        def stop() -> None:
            server.shutdown()
            server.server_close()
            server.cut()
            thread.join(300)

        return stop

    # -------------------------------------------------------------- broken

    def _broken(self) -> Callable[[], None]:
        """Reset each connection, or answer in plain text whatever the client speaks."""
        listener = socket.create_server(("127.0.0.1", self.port))
        thread = threading.Thread(target=self._break, args=(listener, self.response), daemon=True)
        thread.start()

        def stop() -> None:
            listener.shutdown(socket.SHUT_RDWR)
            listener.close()
            thread.join(300)

        return stop

    def _break(self, listener: socket.socket, how: str) -> None:
        with suppress(OSError):
            while True:
                connection, _ = listener.accept()
                with connection, suppress(OSError):
                    if how == RESET:
                        connection.setsockopt(
                            socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
                        )
                    else:
                        connection.sendall(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
                        connection.settimeout(0.2)
                        connection.recv(4096)
                self.asked += 1


class _Export(grpc.GenericRpcHandler):  # type: ignore[misc]
    """The method `Export` of every service."""

    def __init__(self, export: Callable[[str, Any], bytes]) -> None:
        self._export = export

    def service(self, handler_call_details: Any) -> Any:
        method: str = handler_call_details.method
        return grpc.unary_unary_rpc_method_handler(lambda _, context: self._export(method, context))


class _Server(ThreadingHTTPServer):
    """Closes the connections that clients keep, too."""

    allow_reuse_address = True
    daemon_threads = True

    def __init__(self, place: tuple[str, int], handler: Any) -> None:
        self._kept: set[socket.socket] = set()
        super().__init__(place, handler)

    def get_request(self) -> Any:
        connection, place = super().get_request()
        self._kept.add(connection)
        return connection, place

    def cut(self) -> None:
        for connection in self._kept:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that does not wait for a response is part of the test."""


def _server(place: tuple[str, int], take: Callable[[str, bytes], str]) -> _Server:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            response = take(self.path, self.rfile.read(int(self.headers["Content-Length"])))
            bodies = {PARTIAL: partial_success(), PAGE: b"<html>Log in</html>"}
            body = bodies.get(response, b"")
            self.send_response(int(response) if response.isdigit() else 200)
            media_type = "text/html" if response == PAGE else "application/x-protobuf"
            self.send_header("Content-Type", media_type)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None: ...

    return _Server(place, Handler)
