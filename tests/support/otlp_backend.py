"""A backend on free loopback ports that keeps the bytes of each request, and answers as it is
told.
"""

from __future__ import annotations

import ssl
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import grpc

from otel_eval.app.server import Server
from otel_eval.config import load
from tests.support.waiting import LIMIT_S

SERVICES = {
    "trace.v1.TraceService": "traces",
    "logs.v1.LogsService": "logs",
    "metrics.v1.MetricsService": "metrics",
}
ANYWHERE = {
    "otlp": {
        "protocols": {"grpc": {"endpoint": "127.0.0.1:0"}, "http": {"endpoint": "127.0.0.1:0"}}
    }
}


class Backend:
    """What arrived, by signal, and what to answer: a gRPC status or an HTTP status, "" or 200 for
    success.
    """

    def __init__(self) -> None:
        self.got: dict[str, list[bytes]] = {"traces": [], "logs": [], "metrics": []}
        self.headers: list[dict[str, str]] = []
        self.status: Any = ""
        self.refuse_once: Any = ""
        self.answer = b""  # the body of a success
        self.asked = 0
        self.url = ""
        self.changed = threading.Condition()

    def take(self, signal: str, body: bytes, headers: Any) -> Any:
        """The status to answer."""
        with self.changed:
            self.asked += 1
            self.headers.append({key.lower(): value for key, value in headers})
            status, self.refuse_once = self.refuse_once or self.status, ""
            if not status:
                self.got[signal].append(body)
            self.changed.notify_all()
            return status

    def wait(self, holds: Any, timeout_s: float = LIMIT_S) -> bool:
        """Wait until something holds of what arrived; False if it does not in time."""
        with self.changed:
            return self.changed.wait_for(holds, timeout_s)


@contextmanager
def grpc_backend(credentials: Any = None) -> Iterator[Backend]:
    backend = Backend()

    def handler(signal: str) -> Any:
        def export(body: bytes, context: Any) -> bytes:
            status = backend.take(signal, body, context.invocation_metadata())
            if status:
                context.abort(grpc.StatusCode[status], "told to")
            return backend.answer

        return grpc.unary_unary_rpc_method_handler(export)

    server = grpc.server(ThreadPoolExecutor(4), options=[("grpc.so_reuseport", 0)])
    for service, signal in SERVICES.items():
        name = f"opentelemetry.proto.collector.{service}"
        server.add_generic_rpc_handlers(
            [grpc.method_handlers_generic_handler(name, {"Export": handler(signal)})]
        )
    if credentials:
        backend.url = f"https://127.0.0.1:{server.add_secure_port('127.0.0.1:0', credentials)}"
    else:
        backend.url = f"http://127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    try:
        yield backend
    finally:
        server.stop(0.2).wait(300)


@contextmanager
def http_backend(context: ssl.SSLContext | None = None) -> Iterator[Backend]:
    backend = Backend()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            status = int(
                backend.take(self.path.rsplit("/", 1)[1], body, self.headers.items()) or 200
            )
            self.send_response(status)
            self.send_header("Content-Type", "application/x-protobuf")
            self.send_header("Content-Length", str(len(backend.answer)))
            self.end_headers()
            self.wfile.write(backend.answer)

        def log_message(self, format: str, *args: Any) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    if context:
        server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    backend.url = f"http{'s' if context else ''}://127.0.0.1:{server.server_port}"
    try:
        yield backend
    finally:
        server.shutdown()
        server.server_close()
        thread.join(300)


BACKENDS = {"grpc": grpc_backend, "http/protobuf": http_backend}


@contextmanager
def forwarding(
    backend: Backend,
    protocol: str = "grpc",
    *,
    forward: Any = None,
    clock: Callable[[], float] = time.monotonic,
    **config: Any,
) -> Iterator[tuple[Server, Any]]:
    """A receiver that passes on to the backend."""
    settings = {
        "traces": {"decision_wait": "200ms", "decision_wait_partial": "300ms"},
        "evaluations": [{"name": "policy", "scorers": [{"type": "tool_errors"}]}],
        **config,
        "receivers": ANYWHERE,
    }
    passing = {"endpoint": backend.url, "protocol": protocol, **(forward or {})}
    settings["exporters"] = {"forward": passing, **config.get("exporters", {})}
    server = Server(load(settings), clock=clock)
    try:
        yield server, server.start()
    finally:
        server.stop(60.0)
