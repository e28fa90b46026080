"""Clients that are slow on purpose hold no connection that others need; clients on a slow line are
served.
"""

from __future__ import annotations

import http.client
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import grpc
import pytest

from otel_eval.sources.receiver import grpc_server, http_server
from tests.support.certificates import Authority
from tests.support.waiting import LIMIT_S, wait_until

TRACES = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
HEAD = b"POST /v1/traces HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-protobuf\r\n"
BODY = HEAD + b"Content-Length: 100000\r\n\r\n"
CHUNKS = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"


def connected(stack: ExitStack, address: str) -> socket.socket:
    """A connection, closed with the stack."""
    host, port = address.rsplit(":", 1)
    return stack.enter_context(socket.create_connection((host, int(port)), timeout=300))


def dripping(stack: ExitStack, connections: list[socket.socket], piece: bytes) -> None:
    """Send the piece on each of them twenty times a second until the stack ends."""
    over = threading.Event()

    def drip() -> None:
        while not over.wait(0.05):
            for each in connections:
                try:
                    each.sendall(piece)
                except OSError:  # it was closed
                    continue

    thread = threading.Thread(target=drip)
    stack.callback(thread.join)
    stack.callback(over.set)
    thread.start()


def deliver(address: str, body: bytes) -> None:
    """Send a request as an ordinary client does, which retries where it is asked to."""

    def is_taken() -> bool:
        connection = http.client.HTTPConnection(address, timeout=LIMIT_S)
        try:
            connection.request(
                "POST", "/v1/traces", body, {"Content-Type": "application/x-protobuf"}
            )
            return connection.getresponse().status == 200
        except OSError:
            return False
        finally:
            connection.close()

    wait_until(is_taken, interval_s=0.1)


@pytest.mark.parametrize(
    ("head", "piece"), [(BODY, b"x"), (CHUNKS, b"1\r\nx\r\n")], ids=["length", "chunks"]
)
def test_many_slow_bodies_exclude_no_other_client(
    start: Any, intake: Any, request_of: Any, head: bytes, piece: bytes
) -> None:
    """Three times as many as there are places, all of them at once."""
    _, bound = start(grpc=None, http_connections=8)
    with ExitStack() as stack:
        slow = [connected(stack, bound.http) for _ in range(24)]
        for each in slow:
            each.sendall(head)
        dripping(stack, slow, piece)
        for name in ("a", "b", "c"):
            deliver(bound.http, request_of(name).SerializeToString())
    assert intake.names() == ["a", "b", "c"]


@pytest.mark.slow
def test_a_body_that_comes_too_slowly_is_not_waited_for(start: Any) -> None:
    """At 20 bytes a second a sixth of the time is all it gets."""
    _, bound = start(grpc=None, request_s=60.0)
    with ExitStack() as stack:
        connection = connected(stack, bound.http)
        began = time.monotonic()
        connection.sendall(BODY)
        dripping(stack, [connection], b"x")
        with pytest.raises(ConnectionError):
            raise ConnectionResetError if connection.recv(100) == b"" else AssertionError
    assert 8 < time.monotonic() - began < 40


@pytest.mark.slow
def test_a_body_on_a_poor_line_is_waited_for(start: Any, intake: Any, request_of: Any) -> None:
    """4 KiB a second, for longer than a silent client gets."""
    _, bound = start(grpc=None, request_s=60.0)
    body = request_of("a" * 60_000).SerializeToString()
    with ExitStack() as stack:
        connection = connected(stack, bound.http)
        connection.sendall(HEAD + b"Content-Length: %d\r\n\r\n" % len(body))
        for at in range(0, len(body), 400):
            connection.sendall(body[at : at + 400])
            time.sleep(0.1)
        assert connection.recv(12) == b"HTTP/1.1 200"
    assert intake.names() == ["a" * 60_000]


@pytest.mark.slow
def test_a_poor_line_is_no_reason_to_make_room(start: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The one that has been slower than others goes first: here a client that sends nothing at
    all.
    """
    monkeypatch.setattr(http_server.OtlpHttpServer, "late_s", 3.0)
    _, bound = start(grpc=None, http_connections=2)
    with ExitStack() as stack:
        silent, poor = (connected(stack, bound.http) for _ in range(2))
        silent.sendall(BODY)
        poor.sendall(BODY + bytes(40_000))
        deliver(bound.http, b"")  # when the silent client is late
        assert silent.recv(100) == b""
        poor.sendall(bytes(60_000))
        assert poor.recv(12).startswith(b"HTTP/1.1 ")


def test_responses_that_are_not_read_hold_no_place(
    start: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client that sends requests and never reads responses loses its connection when others need
    it.
    """
    monkeypatch.setattr(http_server.OtlpHttpServer, "late_s", 0.2)
    _, bound = start(grpc=None, http_connections=1)
    with ExitStack() as stack:
        deaf = connected(stack, bound.http)
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        deaf.setblocking(False)
        asked = (HEAD + b"Content-Length: 0\r\n\r\n") * 500
        quiet_since = time.monotonic()
        # until the receiver reads no more, because it cannot write
        while time.monotonic() < quiet_since + 0.5:
            try:
                deaf.send(asked)
                quiet_since = time.monotonic()
            except BlockingIOError:
                time.sleep(0.01)
        deliver(bound.http, b"")  # when all that the sockets hold was answered


def test_handshakes_that_stall_hold_no_place(
    start: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Clients that connect and never send a TLS handshake."""
    monkeypatch.setattr(http_server.OtlpHttpServer, "late_s", 0.2)
    authority = Authority(tmp_path)
    _, bound = start(grpc=None, http_connections=2, http_tls=authority.issue("server"))
    with ExitStack() as stack:
        stalled = [connected(stack, bound.http) for _ in range(2)]
        context = ssl.create_default_context(cafile=authority.file)

        def is_served() -> bool:  # as soon as the others are late
            try:
                third = connected(stack, bound.http)
                stack.enter_context(context.wrap_socket(third, server_hostname="127.0.0.1"))
            except OSError:
                return False
            return True

        wait_until(is_served, interval_s=0.1)
        assert stalled[0].recv(100) == b""


def test_many_calls_without_a_message_exclude_no_other_client(
    start: Any, channel: Callable[..., grpc.Channel], monkeypatch: pytest.MonkeyPatch
) -> None:
    """More than there are threads to wait for them; where there are few, they are waited for."""
    monkeypatch.setattr(grpc_server, "_PRESSED_S", 0.3)
    _, bound = start(http=None)
    over = threading.Event()

    def never() -> Iterator[bytes]:
        over.wait(300)
        yield b""

    slow = channel(bound.grpc)
    calls = [slow.stream_unary(TRACES).future(never()) for _ in range(200)]
    try:
        ordinary = channel(bound.grpc, ("grpc.use_local_subchannel_pool", 1)).unary_unary(TRACES)
        assert ordinary(b"", timeout=300) == b""
        # so many may wait for as long as a message may take
        wait_until(lambda: sum(not call.done() for call in calls) <= 96)
        assert not all(call.done() for call in calls)
    finally:
        over.set()
        for call in calls:
            call.cancel()
