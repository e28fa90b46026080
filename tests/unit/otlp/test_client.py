"""The OTLP client against real endpoints on loopback sockets: what it sends, the meaning of
responses, and its connections.
"""

from __future__ import annotations

import gzip
import os
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Any

import pytest
from grpc import StatusCode
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

from otel_eval.otlp.client import OtlpClient
from otel_eval.otlp.endpoint import Endpoint as Address
from otel_eval.retry import ExportResult
from tests.support import http2_client
from tests.support.failing_endpoint import (
    PAGE,
    PARTIAL,
    REFUSED,
    RESET,
    THROTTLED,
    TIMEOUT,
    Endpoint,
)
from tests.support.otlp_backend import BACKENDS, Backend
from tests.support.waiting import LIMIT_S, wait_until

PROTOCOLS = ("grpc", "http/protobuf")
Connect = Callable[..., OtlpClient]


def request_of(name: str) -> bytes:
    """A request with one span."""
    message = ExportTraceServiceRequest()
    message.resource_spans.add().scope_spans.add().spans.add(
        trace_id=b"t" * 16, span_id=b"s" * 8, name=name
    )
    return message.SerializeToString()


@pytest.fixture(params=PROTOCOLS)
def protocol(request: pytest.FixtureRequest) -> str:
    """Each protocol."""
    return str(request.param)


@pytest.fixture
def backend(protocol: str) -> Iterator[Backend]:
    """Accepts requests and keeps them."""
    with BACKENDS[protocol]() as running:
        yield running


@pytest.fixture
def connect(protocol: str) -> Iterator[Connect]:
    """Makes clients and closes them."""
    made: list[OtlpClient] = []

    def make(url: str, signal: str = "traces", **options: Any) -> OtlpClient:
        made.append(
            OtlpClient(
                Address(endpoint=url, protocol=options.pop("over", protocol), **options), signal
            )
        )
        return made[-1]

    yield make
    for client in made:
        client.close()


@pytest.fixture
def failing(protocol: str) -> Iterator[Endpoint]:
    """Answers as it is set."""
    endpoint = Endpoint(protocol)
    yield endpoint
    endpoint.close()


@pytest.mark.parametrize("signal", ["traces", "logs", "metrics"])
def test_each_signal_is_sent_byte_for_byte_to_its_service(
    backend: Backend, connect: Connect, signal: str
) -> None:
    """The gRPC method or the HTTP path decides the signal."""
    body = request_of("a")
    assert connect(backend.url, signal).send(body) == ExportResult("ok")
    assert backend.got == {"traces": [], "logs": [], "metrics": []} | {signal: [body]}


def test_headers_and_credentials_are_sent(backend: Backend, connect: Connect) -> None:
    """Headers of the configuration, and the user and password of the URL as basic
    authentication.
    """
    url = backend.url.replace("://", "://user:p%40ss@")
    assert connect(url, headers={"x-tenant": "a"}).send(request_of("a")).status == "ok"
    (headers,) = backend.headers
    assert headers["x-tenant"] == "a"
    assert headers["authorization"] == "Basic dXNlcjpwQHNz"


def test_compressed_requests_hold_the_same_bytes(
    backend: Backend, connect: Connect, protocol: str
) -> None:
    """GRPC decompresses by itself; over HTTP the body is gzip."""
    body = request_of("a" * 1000)
    assert connect(backend.url, compression="gzip").send(body).status == "ok"
    (got,) = backend.got["traces"]
    if protocol == "grpc":
        assert got == body
    else:
        assert (backend.headers[0]["content-encoding"], gzip.decompress(got)) == ("gzip", body)


HTTP_STATUSES = {
    "retryable": ("429", "502", "503", "504"),
    "server_error": ("408", "500", "599"),
    "denied": ("401", "403"),
    "unsupported": ("404", "405", "501"),
    "permanent": ("400", "413"),
}
GRPC_STATUSES = {
    "retryable": (
        "UNAVAILABLE",
        "ABORTED",
        "CANCELLED",
        "DATA_LOSS",
        "DEADLINE_EXCEEDED",
        "OUT_OF_RANGE",
    ),
    "denied": ("PERMISSION_DENIED", "UNAUTHENTICATED"),
    "unsupported": ("UNIMPLEMENTED",),
    "permanent": ("INVALID_ARGUMENT", "RESOURCE_EXHAUSTED", "INTERNAL", "NOT_FOUND"),
}
RESPONSES = [
    (over, response, status)
    for over, table in (("http/protobuf", HTTP_STATUSES), ("grpc", GRPC_STATUSES))
    for status, responses in table.items()
    for response in responses
]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_every_response_has_its_meaning(failing: Endpoint, connect: Connect, protocol: str) -> None:
    """One attempt for each; a refusal of the sender concerns every part of the data, any other one
    only the data.
    """
    client = connect(failing.url)
    for over, response, status in RESPONSES:
        if over == protocol:
            failing.answer(response)
            asked = failing.asked
            assert client.send(request_of("a")) == ExportResult(
                status, response, concerns_all=status == "denied"
            ), response
            assert failing.asked == asked + 1
    assert failing.taken["traces"] == 0


@pytest.mark.parametrize("protocol", ["http/protobuf"])
@pytest.mark.parametrize(
    ("response", "why"),
    [
        (PAGE, "200 with a body that is not the endpoint's"),
        ("302", "302, redirects are not followed"),
    ],
)
def test_a_response_that_is_not_the_endpoints_is_like_a_404(
    failing: Endpoint, connect: Connect, response: str, why: str
) -> None:
    """The page of a login, or a redirect to it: nothing was accepted."""
    failing.answer(response)
    assert connect(failing.url).send(request_of("a")) == ExportResult("unsupported", why)


@contextmanager
def redirecting(*answer: tuple[bytes, bytes], page: bytes) -> Iterator[int]:
    """The port of a server of HTTP/2 that answers the first request with these headers and a
    page.
    """
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            with connection, connection.makefile("rb") as stream:
                connection.sendall(http2_client.frame(http2_client.SETTINGS, 0, 0))
                stream.read(24)  # the preface
                while head := stream.read(9):
                    kind, flags, stream_id = head[3], head[4], int.from_bytes(head[5:])
                    stream.read(int.from_bytes(head[:3]))
                    if kind == http2_client.SETTINGS and not flags:
                        connection.sendall(http2_client.frame(http2_client.SETTINGS, 1, 0))
                    if kind == http2_client.DATA and flags & 1:
                        block = b"".join(http2_client.header(*each) for each in answer)
                        connection.sendall(
                            http2_client.frame(http2_client.HEADERS, 4, stream_id, block)
                            + http2_client.frame(http2_client.DATA, 1, stream_id, page)
                        )

        thread = threading.Thread(target=serve)
        thread.start()
        yield listener.getsockname()[1]
        thread.join(LIMIT_S)


@pytest.mark.parametrize("protocol", ["grpc"])
@pytest.mark.parametrize("status", [b"302", b"200"])
def test_a_response_that_is_not_grpc_is_like_a_404(connect: Connect, status: bytes) -> None:
    """A redirect to a login, or its page."""
    answer = ((b":status", status), (b"content-type", b"text/html"))
    with redirecting(*answer, page=b"<html>Log in</html>") as port:
        client = connect(f"http://127.0.0.1:{port}")
        assert client.send(b"") == ExportResult(
            "unsupported", "UNKNOWN, the response is not gRPC's"
        )
        client.close()


def test_a_partial_success_has_the_number_rejected_and_the_reason(
    failing: Endpoint, connect: Connect
) -> None:
    """OTLP names no item."""
    failing.answer(PARTIAL)
    assert connect(failing.url).send(request_of("a")) == ExportResult("ok", "too long", rejected=1)


def test_an_answer_that_cannot_be_decoded_is_a_success(backend: Backend, connect: Connect) -> None:
    """The request was accepted; only the details are unknown."""
    backend.answer = b"\xff\xff"
    assert connect(backend.url).send(request_of("a")) == ExportResult("ok")


@pytest.mark.parametrize("protocol", ["grpc"])
def test_retry_info_makes_exhausted_resources_retryable(
    failing: Endpoint, connect: Connect
) -> None:
    """With the delay that the endpoint asks for; without RetryInfo the status is permanent."""
    failing.answer(THROTTLED)
    assert connect(failing.url).send(request_of("a")) == ExportResult(
        "retryable", "RESOURCE_EXHAUSTED", after_s=0.001
    )


@pytest.mark.parametrize("protocol", ["grpc"])
def test_details_that_cannot_be_decoded_do_not_change_the_meaning_of_a_status(
    failing: Endpoint, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A retryable error stays one."""

    def refuse(_: str, context: Any) -> bytes:
        context.set_trailing_metadata([("grpc-status-details-bin", b"\xff")])
        context.abort(StatusCode.UNAVAILABLE, "")
        return b""

    monkeypatch.setattr(failing, "_export", refuse)
    failing.close()
    failing.answer("")
    assert connect(failing.url).send(request_of("a")) == ExportResult("retryable", "UNAVAILABLE")


@pytest.mark.parametrize("how", [REFUSED, RESET])
def test_a_broken_connection_is_retryable_and_the_client_recovers(
    failing: Endpoint, connect: Connect, how: str
) -> None:
    """The next attempts reach the endpoint that is back."""
    client = connect(failing.url)
    failing.answer(how)
    assert client.send(request_of("a")).status == "retryable"
    failing.answer("")
    wait_until(lambda: client.send(request_of("a")).status == "ok")


def test_an_endpoint_that_does_not_answer_costs_one_timeout(
    failing: Endpoint, connect: Connect
) -> None:
    """And is retryable."""
    failing.answer(TIMEOUT)
    result = connect(failing.url, timeout_s=0.3).send(request_of("a"))
    assert result.status == "retryable"
    assert failing.asked <= 1  # none where connecting took that long


@contextmanager
def trickling(before: bytes, drop: bytes) -> Iterator[str]:
    """The URL of an endpoint that answers a request with `before`, and `drop` again and again."""
    over = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listening, ThreadPoolExecutor(1) as thread:

        def answer() -> None:
            connection, _ = listening.accept()
            with connection, suppress(OSError):
                connection.recv(65536)
                connection.sendall(before)
                while not over.wait(0.02):
                    connection.sendall(drop)

        thread.submit(answer)
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            over.set()


@pytest.mark.parametrize(
    ("before", "drop"),
    [
        (b"HTTP/1.1 200 OK\r\nx: ", b"a"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n", b"a"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"1\r\na\r\n"),
        (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    ],
)
@pytest.mark.parametrize("protocol", ["http/protobuf"])
def test_a_response_that_never_ends_is_given_up_after_one_timeout(
    connect: Connect, before: bytes, drop: bytes
) -> None:
    """Also where each part of it comes in time."""
    with trickling(before, drop) as url:
        client = connect(url, timeout_s=0.3)
        assert client.send(request_of("a")) == ExportResult.retryable("timed out")


@pytest.mark.parametrize("protocol", ["http/protobuf"])
def test_a_kept_connection_that_the_endpoint_closed_costs_no_attempt(
    failing: Endpoint, connect: Connect
) -> None:
    """The request is sent once more over a new connection."""
    client = connect(failing.url)
    assert client.send(request_of("a")).status == "ok"
    failing.close()
    failing.answer("")
    assert client.send(request_of("b")).status == "ok"
    assert failing.taken["traces"] == 2


@pytest.mark.parametrize("protocol", ["http/protobuf"])
def test_a_forked_child_opens_its_own_connections(backend: Backend, connect: Connect) -> None:
    """And those of the parent go on working. gRPC is tested with whole programs: its threads do not
    survive a fork here.
    """
    client = connect(backend.url)
    assert client.send(request_of("parent")).status == "ok"
    child = os.fork()
    if not child:
        os._exit(0 if client.send(request_of("child")).status == "ok" else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert client.send(request_of("parent")).status == "ok"
    assert len(backend.got["traces"]) == 3


def test_a_text_of_the_endpoint_is_one_line_of_200_characters(
    backend: Backend, connect: Connect
) -> None:
    """It is written to logs."""
    answer = ExportTraceServiceResponse()
    answer.partial_success.rejected_spans = 2
    answer.partial_success.error_message = "first\nsecond\x1b[31m " + "x" * 500
    backend.answer = answer.SerializeToString()
    result = connect(backend.url).send(request_of("a"))
    assert result.rejected == 2
    assert result.reason.startswith("first second [31m xxx")
    assert (len(result.reason), result.reason.isprintable()) == (200, True)
