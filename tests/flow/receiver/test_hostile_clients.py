"""Hostile clients: decompression bombs, slow requests and floods cost a bounded amount and do not
block other clients.
"""

from __future__ import annotations

import gzip
import http.client
import json
import socket
import sys
import threading
import zlib
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any

import grpc
import pytest

from tests.support.waiting import LIMIT_S, wait_until

TRACES = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
zstd: Any = import_module("compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd")
LIMIT = 1_000_000
BOMB = 300_000_000


def gzipped(size: int) -> bytes:
    return b"".join([gzip.compress(bytes(1_000_000), 1)] * (size // 1_000_000))


def deflated(size: int) -> bytes:
    packer = zlib.compressobj(1)
    return (
        b"".join(packer.compress(bytes(1_000_000)) for _ in range(size // 1_000_000))
        + packer.flush()
    )


def zstandard(size: int) -> bytes:
    packer = zstd.ZstdCompressor()
    return (
        b"".join(packer.compress(bytes(1_000_000)) for _ in range(size // 1_000_000))
        + packer.flush()
    )


PACKED: dict[str, Callable[[int], bytes]] = {
    "gzip": gzipped,
    "deflate": deflated,
    "zstd": zstandard,
}


def posted(address: str, body: Any, **headers: str) -> tuple[int, bytes]:
    """What a request is answered."""
    connection = http.client.HTTPConnection(address, timeout=300)
    try:
        given = {"Content-Type": "application/x-protobuf"} | {
            key.replace("_", "-"): value for key, value in headers.items()
        }
        connection.request("POST", "/v1/traces", body, given)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


@pytest.mark.parametrize("coding", PACKED)
def test_a_bomb_over_http_costs_one_piece(start: Any, coding: str, peak: Any) -> None:
    """It is refused permanently at the first piece beyond the limit, long before the 300 MB that it
    decompresses to.
    """
    bomb = PACKED[coding](BOMB)
    _, bound = start(max_body_bytes=max(LIMIT, len(bomb)))
    before = peak()
    assert posted(bound.http, bomb, Content_Encoding=coding)[0] == 413
    assert peak() - before < 30_000_000


@pytest.mark.parametrize("coding", ["gzip", "deflate"])
def test_a_bomb_over_grpc_costs_one_piece(start: Any, channel: Any, coding: str, peak: Any) -> None:
    """Sent in the way of exporters: grpcio would decompress all of it before it checks the size."""
    receiver, bound = start(max_body_bytes=LIMIT)
    compression = grpc.Compression.Gzip if coding == "gzip" else grpc.Compression.Deflate
    body = bytes(100_000_000)
    before = peak()
    with pytest.raises(grpc.RpcError) as caught:
        channel(bound.grpc).unary_unary(TRACES)(body, compression=compression, timeout=300)
    error: Any = caught.value
    assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert "google.rpc.retryinfo-bin" not in dict(error.trailing_metadata())
    assert receiver.counters.get("oversized_requests") == 1
    assert peak() - before < 30_000_000


def test_a_zstd_frame_cannot_ask_for_a_great_window(start: Any) -> None:
    """A header of a few bytes may claim gigabytes; RFC 8878 asks for 8 MiB."""
    magic, header, window_of_512_mib, block = b"\x28\xb5\x2f\xfd", b"\0", b"\x98", b"\x09\0\0x"
    _, bound = start()
    greedy = magic + header + window_of_512_mib + block
    status, response = posted(bound.http, greedy, Content_Encoding="zstd")
    assert (status, b"not zstd" in response) == (400, True)


@pytest.mark.parametrize("coding", PACKED)
def test_every_encoding_is_unpacked(start: Any, intake: Any, request_of: Any, coding: str) -> None:
    """What an exporter may pack its requests with."""
    pack = {"gzip": gzip.compress, "deflate": zlib.compress, "zstd": zstd.compress}[coding]
    _, bound = start()
    assert posted(
        bound.http, pack(request_of("a").SerializeToString()), Content_Encoding=coding
    ) == (200, b"")
    assert intake.names() == ["a"]


@pytest.mark.parametrize("compression", [grpc.Compression.Gzip, grpc.Compression.Deflate])
def test_packed_messages_are_unpacked(
    start: Any, intake: Any, channel: Any, request_of: Any, compression: Any
) -> None:
    """Whatever grpcio packs with, long messages too."""
    _, bound = start()
    body = request_of(*["a" * 1000] * 500).SerializeToString()
    assert (
        channel(bound.grpc).unary_unary(TRACES)(body, compression=compression, timeout=300) == b""
    )
    assert len(intake.names()) == 500


@pytest.mark.parametrize("coding", PACKED)
@pytest.mark.parametrize("damage", ["cut", "other"])
def test_what_is_broken_is_bad_data(start: Any, coding: str, damage: str) -> None:
    """Nothing of it is taken."""
    _, bound = start()
    body = PACKED[coding](1_000_000)[:-20] if damage == "cut" else b"something else entirely"
    status, response = posted(bound.http, body, Content_Encoding=coding)
    assert (status, coding.encode() in response) == (400, True)


def document(depth: int) -> bytes:
    span = {
        "traceId": "ab" * 16,
        "spanId": "cd" * 8,
        "name": "a",
        "attributes": [{"key": "deep", "value": "#"}],
    }
    whole = json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]})
    deep = '{"arrayValue":{"values":[' * depth + '{"stringValue":"x"}' + "]}}" * depth
    return whole.replace('"#"', deep).encode()


@pytest.mark.parametrize("depth", [50, 1_000, 100_000])
def test_depth_breaks_nothing(start: Any, intake: Any, depth: int) -> None:
    """JSON in JSON in JSON is taken or refused for good, and the receiver goes on."""
    receiver, bound = start()
    status, _ = posted(bound.http, document(depth), Content_Type="application/json")
    assert status in ((200,) if depth == 50 else (200, 400))
    assert receiver.counters.get("internal_errors") == 0
    assert posted(bound.http, b"{}", Content_Type="application/json")[0] == 200


def sized(field: int, body: bytes) -> bytes:
    from otel_eval.wire import sized as written

    return bytes(written(field, body))


@pytest.mark.parametrize("depth", [50, 5_000])
def test_depth_in_protobuf_breaks_nothing(
    start: Any, intake: Any, channel: Any, depth: int
) -> None:
    """The attribute is left out or read as far as it may be; the span stays."""
    value = sized(1, b"x")
    for _ in range(depth):
        value = sized(5, sized(1, value))
    span = (
        sized(1, b"t" * 16)
        + sized(2, b"s" * 8)
        + sized(5, b"a")
        + sized(9, sized(1, b"deep") + sized(2, value))
    )
    _, bound = start()
    assert (
        channel(bound.grpc).unary_unary(TRACES)(sized(1, sized(2, sized(2, span))), timeout=300)
        == b""
    )
    assert intake.names() == ["a"]


@pytest.mark.parametrize(
    "header",
    [
        b"X: " + b"a" * 70_000 + b"\r\n",
        b"".join(b"X%d: 1\r\n" % n for n in range(200)),
        (b"X: " + b"a" * 60_000 + b"\r\n") * 10,
    ],
    ids=["long", "many", "long and many"],
)
def test_headers_end(start: Any, header: bytes) -> None:
    """One that is long, many, and as many long ones as there may be."""
    _, bound = start()
    host, port = bound.http.rsplit(":", 1)
    with socket.create_connection((host, int(port)), LIMIT_S) as connection:
        sender = threading.Thread(
            target=_pushed,
            args=(connection, b"POST /v1/traces HTTP/1.1\r\nHost: x\r\n" + header),
            daemon=True,
        )
        sender.start()
        assert connection.recv(12) == b"HTTP/1.1 431"
        sender.join(300)
    assert posted(bound.http, b"")[0] == 200


def _pushed(connection: socket.socket, data: bytes) -> None:
    try:
        connection.sendall(data)
    except OSError:
        return  # it was response enough


def test_calls_without_a_message_delay_no_other_client(start: Any, channel: Any) -> None:
    """As many as there are threads for decoding, and more; each ends when its time is over."""
    _, bound = start(grpc_threads=2, request_s=1.0)
    over = threading.Event()

    def never() -> Iterator[bytes]:
        over.wait(300)
        yield b""

    slow = channel(bound.grpc)
    calls = [slow.stream_unary(TRACES).future(never()) for _ in range(20)]
    try:
        ordinary = channel(bound.grpc, ("grpc.use_local_subchannel_pool", 1)).unary_unary(TRACES)

        def is_served() -> bool:  # a busy machine may need more than `request_s` for it
            try:
                return bool(ordinary(b"", timeout=300) == b"")
            except grpc.RpcError:
                return False

        wait_until(is_served)
        assert {call.exception(timeout=300).code() for call in calls} == {grpc.StatusCode.CANCELLED}
    finally:
        over.set()


def test_a_call_that_ends_without_a_message_gets_an_error(start: Any, channel: Any) -> None:
    """As bad data."""
    _, bound = start()
    with pytest.raises(grpc.RpcError) as caught:
        channel(bound.grpc).stream_unary(TRACES)(iter(()), timeout=300)
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT


def test_grpc_connections_have_an_end(start: Any) -> None:
    """A connection over the limit is closed; another is accepted when one of them ends."""
    _, bound = start(grpc_connections=2)
    host, port = bound.grpc.rsplit(":", 1)

    def greeted(connection: socket.socket) -> bool:
        connection.settimeout(300)
        return connection.recv(1) != b""

    first, second, third = (socket.create_connection((host, int(port)), LIMIT_S) for _ in range(3))
    try:
        assert [greeted(each) for each in (first, second, third)] == [True, True, False]
        first.close()

        def has_room() -> bool:
            with socket.create_connection((host, int(port)), LIMIT_S) as again:
                return greeted(again)

        wait_until(has_room)
    finally:
        for each in (first, second, third):
            each.close()


def test_great_metadata_is_refused(start: Any, channel: Any) -> None:
    """GRPC's headers have an end too."""
    _, bound = start()
    with pytest.raises(grpc.RpcError) as caught:
        channel(bound.grpc).unary_unary(TRACES)(b"", metadata=[("x", "a" * 100_000)], timeout=300)
    assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED


@pytest.mark.parametrize(
    ("service", "response"),
    [(b"", b"\x08\x01"), (sized(1, TRACES.split("/")[1].encode()), b"\x08\x01")],
)
def test_health_is_served(start: Any, channel: Any, service: bytes, response: bytes) -> None:
    """Of the whole and of each service."""
    _, bound = start()
    assert (
        channel(bound.grpc).unary_unary("/grpc.health.v1.Health/Check")(service, timeout=300)
        == response
    )


def test_health_of_an_unknown_service_is_not_found(start: Any, channel: Any) -> None:
    """As the protocol says."""
    _, bound = start()
    with pytest.raises(grpc.RpcError) as caught:
        channel(bound.grpc).unary_unary("/grpc.health.v1.Health/Check")(
            sized(1, b"other"), timeout=300
        )
    assert caught.value.code() is grpc.StatusCode.NOT_FOUND
