"""An OpenAI-compatible chat endpoint on the loopback interface whose answers a test writes."""

from __future__ import annotations

import json
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

__all__ = ["Endpoint", "Reply", "answer", "score"]


@dataclass(frozen=True)
class Reply:
    """What is sent back, after a while."""

    body: bytes = b""
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    after_s: float = 0.0
    cut: bool = False  # the connection ends in the middle of the body


def answer(text: Any, *, finish: str = "stop", usage: Any = None, **more: Any) -> Reply:
    """A chat completion in which the model wrote the text."""
    message = {"role": "assistant", "content": text, "refusal": None}
    completion = {
        "id": "c",
        "object": "chat.completion",
        "created": 1,
        "model": "m",
        "choices": [{"index": 0, "message": message, "finish_reason": finish}],
        **({} if usage is None else {"usage": usage}),
    }
    return Reply(json.dumps(completion).encode(), **more)


def score(value: float, explanation: str = "because", **more: Any) -> Reply:
    """A good answer."""
    return answer(json.dumps({"score": value, "explanation": explanation}), **more)


class _Server(ThreadingHTTPServer):
    def handle_error(self, request: Any, client_address: Any) -> None:
        """Who asked went away in the middle."""


class Endpoint:
    """Serves `script`, which is asked with each request's JSON, and keeps what came."""

    def __init__(
        self, script: Callable[[dict[str, Any]], Reply], tls: ssl.SSLContext | None = None
    ) -> None:
        self.script = script
        self.requests: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.times: list[float] = []
        self.now = self.most_at_once = self.connections = 0
        self._lock = threading.Lock()
        self._server = _Server(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self._scheme = "https" if tls else "http"
        if tls:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.02,), daemon=True
        )
        self._thread.start()

    @property
    def url(self) -> str:
        return f"{self._scheme}://127.0.0.1:{self._server.server_port}/v1"

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(300)

    def prompts(self) -> list[str]:
        return [request["messages"][0]["content"] for request in self.requests]

    def _took(self, path: str, headers: Mapping[str, str], body: bytes) -> Reply:
        if path != "/v1/chat/completions":
            return Reply(status=404)
        request = json.loads(body)
        with self._lock:
            self.requests.append(request)
            self.headers.append({key.lower(): value for key, value in headers.items()})
            self.times.append(time.monotonic())
            self.now += 1
            self.most_at_once = max(self.most_at_once, self.now)
        try:
            reply = self.script(request)
            time.sleep(reply.after_s)
            return reply
        finally:
            with self._lock:
                self.now -= 1

    def _handler(endpoint) -> type[BaseHTTPRequestHandler]:
        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def setup(self) -> None:
                super().setup()
                with endpoint._lock:
                    endpoint.connections += 1

            def finish(self) -> None:
                super().finish()
                with endpoint._lock:
                    endpoint.connections -= 1

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                reply = endpoint._took(self.path, dict(self.headers), body)
                try:
                    self._send(reply)
                except OSError:
                    self.close_connection = True  # who asked went away

            def _send(self, reply: Reply) -> None:
                self.send_response(reply.status)
                for key, value in {"Content-Type": "application/json", **reply.headers}.items():
                    self.send_header(key, value)
                self.send_header("Content-Length", str(len(reply.body) + (100 if reply.cut else 0)))
                self.end_headers()
                self.wfile.write(reply.body)
                self.close_connection = self.close_connection or reply.cut

            def log_message(self, *args: Any) -> None:
                pass

        return Handler
