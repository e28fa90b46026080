"""OTLP over HTTP, line by line of the specification, with a bare client."""

from __future__ import annotations

import gzip
import http.client
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from google.rpc import status_pb2
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

from otel_eval.sources.receiver import http_server
from tests.support.waiting import LIMIT_S, wait_until

PROTOBUF, JSON = "application/x-protobuf", "application/json"
TRACE, SPAN = "ab" * 16, "cd" * 8
DOCUMENT = json.dumps(
    {
        "resourceSpans": [
            {"scopeSpans": [{"spans": [{"traceId": TRACE, "spanId": SPAN, "name": "a"}]}]}
        ]
    }
).encode()


class Reply:
    """What came back."""

    def __init__(self, response: http.client.HTTPResponse) -> None:
        self.status, self.headers, self.body = response.status, response.headers, response.read()
        self.type = response.headers["Content-Type"]

    def problem(self) -> Any:
        """The google.rpc.Status in the body, whichever way it is written."""
        return (
            json.loads(self.body) if self.type == JSON else status_pb2.Status.FromString(self.body)
        )


Post = Callable[..., Reply]


@pytest.fixture
def opened() -> Iterator[Callable[[str], http.client.HTTPConnection]]:
    """Opens connections and closes them."""
    connections: list[http.client.HTTPConnection] = []

    def dial(bound: str) -> http.client.HTTPConnection:
        host, port = bound.rsplit(":", 1)
        connections.append(http.client.HTTPConnection(host, int(port), timeout=300))
        return connections[-1]

    yield dial
    for each in connections:
        each.close()


@pytest.fixture
def post(start: Any, opened: Any) -> Post:
    """Posts to a receiver with default options, on one connection."""
    _, bound = start()
    connection = opened(bound.http)

    def send(
        body: Any,
        content_type: str | None = PROTOBUF,
        *,
        path: str = "/v1/traces",
        method: str = "POST",
        **headers: str,
    ) -> Reply:
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        if content_type is not None:
            given["Content-Type"] = content_type
        connection.request(method, path, body, given)
        return Reply(connection.getresponse())

    return send


@pytest.mark.parametrize(
    "content_type", [PROTOBUF, "application/x-protobuf; messageType=x", "Application/X-Protobuf"]
)
def test_protobuf_is_answered_in_protobuf(
    post: Post, intake: Any, request_of: Any, content_type: str
) -> None:
    """Full success is an empty message; parameters and case of the type do not matter."""
    reply = post(request_of("a").SerializeToString(), content_type)
    assert (reply.status, reply.type, reply.body) == (200, PROTOBUF, b"")
    assert intake.names() == ["a"]


@pytest.mark.parametrize(
    "content_type", [JSON, "application/json; charset=utf-8", "application/json;charset=UTF-8"]
)
def test_json_is_answered_in_json(post: Post, intake: Any, content_type: str) -> None:
    """On the same port and path."""
    reply = post(DOCUMENT, content_type)
    assert (reply.status, reply.type, json.loads(reply.body)) == (200, JSON, {})
    assert intake.names() == ["a"]


@pytest.mark.parametrize(
    "path", ["/v1/traces", "/v1/logs", "/v1/metrics", "/v1/traces?source=agent"]
)
@pytest.mark.parametrize(("body", "content_type"), [(b"", PROTOBUF), (b"{}", JSON)])
def test_an_empty_request_is_a_success(
    post: Post, path: str, body: bytes, content_type: str
) -> None:
    """For each signal, in each encoding."""
    assert post(body, content_type, path=path).status == 200


def test_rejected_spans_are_counted_in_a_protobuf_response(
    post: Post, intake: Any, request_of: Any
) -> None:
    """The others are accepted, and the response is still 200: the client must not retry."""
    reply = post(request_of("", "b").SerializeToString())
    partial = ExportTraceServiceResponse.FromString(reply.body).partial_success
    assert (reply.status, partial.rejected_spans, "trace id" in partial.error_message) == (
        200,
        1,
        True,
    )
    assert intake.names() == ["b"]


def test_rejected_spans_are_counted_in_a_json_response(post: Post) -> None:
    """Numbers of 64 bits are text there."""
    reply = post(DOCUMENT.replace(TRACE.encode(), b"00"), JSON)
    partial = json.loads(reply.body)["partialSuccess"]
    assert (reply.status, partial["rejectedSpans"], "trace id" in partial["errorMessage"]) == (
        200,
        "1",
        True,
    )


@pytest.mark.parametrize("path", ["/v1/traces", "/v1/logs", "/v1/metrics"])
@pytest.mark.parametrize(
    ("body", "content_type"),
    [(b"\xff\xff", PROTOBUF), (b"{", JSON), (b"[" * 99_999, JSON), (b"\xff", JSON)],
)
def test_bad_data_is_answered_with_a_status_in_its_own_encoding(
    post: Post, path: str, body: bytes, content_type: str
) -> None:
    """400, and the connection goes on."""
    reply = post(body, content_type, path=path)
    assert (reply.status, reply.type) == (400, content_type)
    assert reply.problem()
    assert post(b"", PROTOBUF).status == 200


@pytest.mark.parametrize(
    "pack", [gzip.compress, lambda body: gzip.compress(body[:20]) + gzip.compress(body[20:])]
)
def test_gzip_is_unpacked(post: Post, intake: Any, request_of: Any, pack: Any) -> None:
    """Also in several members."""
    assert post(pack(request_of("a").SerializeToString()), Content_Encoding="gzip").status == 200
    assert intake.names() == ["a"]


def test_broken_gzip_is_bad_data(post: Post) -> None:
    """As is gzip that is none."""
    assert post(b"no gzip", Content_Encoding="gzip").status == 400
    assert post(gzip.compress(b"x" * 99)[:-5], Content_Encoding="gzip").status == 400


def test_a_body_in_chunks_is_joined(post: Post, intake: Any, request_of: Any) -> None:
    """Senders that stream have no Content-Length."""
    body = request_of("a", "b").SerializeToString()
    assert post(iter([body[:7], body[7:]])).status == 200
    assert intake.names() == ["a", "b"]


@pytest.mark.parametrize("content_type", [None, "text/plain", "application/octet-stream", ""])
def test_other_content_types_are_unsupported(post: Post, content_type: str | None) -> None:
    """415, with a Status."""
    reply = post(b"", content_type)
    assert (reply.status, bool(reply.problem()["message"])) == (415, True)


def test_other_encodings_are_unsupported(post: Post) -> None:
    """415: the sender can pack otherwise."""
    assert post(b"", Content_Encoding="br").status == 415


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/v1/traces", 405),
        ("HEAD", "/v1/logs", 405),
        ("PUT", "/v1/metrics", 405),
        ("OPTIONS", "/v1/traces", 405),
        ("GET", "/", 404),
        ("POST", "/v1/profiles", 404),
        ("BREW", "/v1/traces", 501),
    ],
)
def test_other_methods_and_paths_are_refused(
    post: Post, method: str, path: str, status: int
) -> None:
    """405 names the method that is allowed."""
    reply = post(None, PROTOBUF, method=method, path=path)
    assert reply.status == status
    assert (reply.headers["Allow"] == "POST") is (status == 405)


def test_a_body_over_the_limit_is_refused(start: Any, opened: Any) -> None:
    """413 by announced length, by chunks and by what it unpacks to; the answer arrives though the
    body was not read.
    """
    receiver, bound = start(max_body_bytes=100_000)
    bodies: list[tuple[Any, dict[str, str]]] = [
        (bytes(5_000_000), {}),
        (iter([bytes(60_000)] * 3), {}),
        (gzip.compress(bytes(50_000_000)), {"Content-Encoding": "gzip"}),
    ]
    for body, headers in bodies:
        connection = opened(bound.http)
        connection.request("POST", "/v1/traces", body, {"Content-Type": PROTOBUF} | headers)
        reply = Reply(connection.getresponse())
        assert (reply.status, reply.type) == (413, PROTOBUF)
    assert receiver.counters.get("oversized_requests") == 3


def test_overload_says_when_to_retry(post: Post, intake: Any, request_of: Any) -> None:
    """503 with Retry-After in whole seconds, and RetryInfo in the Status."""
    intake.full = True
    reply = post(request_of("a").SerializeToString())
    assert (reply.status, reply.headers["Retry-After"]) == (503, "1")
    assert reply.problem().details
    intake.full = False
    assert post(request_of("a").SerializeToString()).status == 200


def test_a_fault_of_ours_costs_no_data(
    post: Post, intake: Any, request_of: Any, capfd: Any
) -> None:
    """503 and never 500, after which senders drop; nothing on stderr."""
    intake.broken = True
    assert post(request_of("a").SerializeToString()).status == 503
    assert capfd.readouterr().err == ""


def test_one_connection_serves_many_requests(
    start: Any, opened: Any, intake: Any, request_of: Any
) -> None:
    """And is never closed between them."""
    _, bound = start(http_connections=1)
    connection = opened(bound.http)
    for number in range(20):
        connection.request(
            "POST",
            "/v1/traces",
            request_of(f"s{number}").SerializeToString(),
            {"Content-Type": PROTOBUF},
        )
        assert Reply(connection.getresponse()).status == 200
    assert len(intake.names()) == 20


def test_too_many_connections_are_refused(start: Any, opened: Any) -> None:
    """One more than there are threads gets a retryable error; one that closes makes room."""
    receiver, bound = start(http_connections=1)
    first, second = opened(bound.http), opened(bound.http)
    first.request("POST", "/v1/traces", b"", {"Content-Type": PROTOBUF})
    assert Reply(first.getresponse()).status == 200
    second.connect()
    assert second.sock.recv(100).startswith(b"HTTP/1.1 503")
    assert receiver.counters.get("refused_connections") == 1


def test_connections_for_which_no_thread_starts_take_no_place(
    start: Any, opened: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are refused like those over the limit, and when threads can be started again, all places
    are free.
    """
    receiver, bound = start(http_connections=2)
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", cannot_start)
        for _ in range(3):
            refused = opened(bound.http)
            refused.connect()
            assert refused.sock.recv(100).startswith(b"HTTP/1.1 503")
    assert receiver.counters.get("refused_connections") == 3
    for connection in (opened(bound.http), opened(bound.http)):
        connection.request("POST", "/v1/traces", b"", {"Content-Type": PROTOBUF})
        assert Reply(connection.getresponse()).status == 200


def cannot_start(_: threading.Thread) -> None:
    raise RuntimeError("can't start new thread")


def test_a_connection_that_only_waits_makes_room(
    start: Any, opened: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether it has sent nothing, half a request, or one long ago; one that is being served does
    not.
    """
    monkeypatch.setattr(http_server.OtlpHttpServer, "late_s", 0.05)
    _, bound = start(http_connections=2)
    silent, half = opened(bound.http), opened(bound.http)
    silent.connect()
    half.connect()
    half.sock.sendall(HEAD)

    def is_served() -> bool:  # as soon as the others are late
        third = opened(bound.http)
        third.request("POST", "/v1/traces", b"", {"Content-Type": PROTOBUF})
        return Reply(third.getresponse()).status == 200

    for _ in range(2):
        wait_until(is_served)
    assert (silent.sock.recv(100), half.sock.recv(100)) == (b"", b"")


def raw(bound: str, data: bytes) -> bytes:
    """Everything that comes back to some bytes, until the other side closes."""
    host, port = bound.rsplit(":", 1)
    with socket.create_connection((host, int(port)), timeout=300) as connection:
        connection.sendall(data)
        return b"".join(iter(lambda: connection.recv(65536), b""))


HEAD = b"POST /v1/traces HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-protobuf\r\n"


@pytest.mark.parametrize(
    "data",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n",  # TLS
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"nonsense\r\n\r\n",
        b"GET " + b"/" * 70_000,
        HEAD + b"X: y\r\n" * 200 + b"\r\n",
        HEAD + b"Content-Length: -1\r\n\r\n",
        HEAD + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\nab",
        HEAD + b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        HEAD + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
    ],
)
def test_what_is_no_request_gets_an_error_and_the_next_one_is_served(
    start: Any, opened: Any, capfd: Any, data: bytes
) -> None:
    """Nothing is written to stderr, no thread dies."""
    _, bound = start(http_idle_s=1.0)
    answer = raw(bound.http, data)
    assert int(answer.split()[1]) >= 400
    connection = opened(bound.http)
    connection.request("POST", "/v1/traces", b"", {"Content-Type": PROTOBUF})
    assert Reply(connection.getresponse()).status == 200
    assert capfd.readouterr().err == ""


def test_a_client_that_sends_byte_by_byte_is_not_waited_for(start: Any) -> None:
    """However often something comes: a deadline holds for the whole of a body."""
    _, bound = start(request_s=0.3)
    with pytest.raises(OSError, match=r"reset|pipe"):
        drip(bound.http, HEAD + b"Content-Length: 10000\r\n\r\n", seconds=LIMIT_S)


def drip(bound: str, head: bytes, seconds: float) -> None:
    """Send a byte twenty times a second."""
    host, port = bound.rsplit(":", 1)
    with socket.create_connection((host, int(port)), timeout=300) as connection:
        connection.sendall(head)
        for _ in range(int(seconds * 20)):
            connection.sendall(b"x")
            time.sleep(0.05)


def test_a_silent_client_is_let_go(start: Any) -> None:
    """A connection without a request does not keep its thread."""
    _, bound = start(http_idle_s=0.2)
    assert raw(bound.http, b"POST /v1/tra") == b""


def test_a_client_that_waits_for_permission_gets_it(start: Any) -> None:
    """`Expect: 100-continue`, as curl sends it with great bodies."""
    _, bound = start()
    host, port = bound.http.rsplit(":", 1)
    with socket.create_connection((host, int(port)), timeout=300) as connection:
        connection.sendall(HEAD + b"Content-Length: 2\r\nExpect: 100-continue\r\n\r\n")
        assert connection.recv(100).startswith(b"HTTP/1.1 100")
        connection.sendall(b"\x1a\x00")
        assert connection.recv(100).startswith(b"HTTP/1.1 200")


def test_http_1_0_is_served_once(start: Any) -> None:
    """And the connection is closed, as such clients expect."""
    _, bound = start()
    head = HEAD.replace(b"HTTP/1.1", b"HTTP/1.0")
    assert b" 200 " in raw(bound.http, head + b"Content-Length: 0\r\n\r\n").split(b"\r\n")[0]
