"""Bodies and room: chunked framing, gzip within limits, and the budget of bytes in flight."""

from __future__ import annotations

import gzip
import io
from email.message import Message

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_eval.errors import InputError, Overloaded, RequestTooLarge
from otel_eval.http1 import body_reader
from otel_eval.sources.receiver.decompression import decompress
from otel_eval.sources.receiver.memory import MemoryLimiter, Reservation

LIMIT = 10_000


def ticket() -> Reservation:
    """Room without end."""
    return MemoryLimiter(10**9).enter(0)


def read(stream: bytes, **headers: str) -> bytes:
    """The body that the headers announce."""
    message = Message()
    for name, value in headers.items():
        message[name.replace("_", "-")] = value
    _, reader = body_reader(message, io.BytesIO(stream), LIMIT)
    return reader(ticket().grow)


def chunked(*chunks: bytes) -> bytes:
    return b"".join(b"%x\r\n%s\r\n" % (len(chunk), chunk) for chunk in chunks) + b"0\r\n\r\n"


@given(st.lists(st.binary(min_size=1, max_size=50), max_size=10))
def test_chunks_are_joined(chunks: list[bytes]) -> None:
    """However the sender cuts a body."""
    assert read(chunked(*chunks), Transfer_Encoding="chunked") == b"".join(chunks)


def test_extensions_and_trailers_are_skipped() -> None:
    """As RFC 9112 asks."""
    assert (
        read(b"3;name=x\r\nabc\r\n0\r\nTrailer: y\r\n\r\n", Transfer_Encoding="chunked") == b"abc"
    )


@pytest.mark.parametrize(
    "stream",
    [
        b"x\r\n",
        b"\r\n",
        b"-1\r\n",
        b"3\r\nabcd\r\n",
        b"f" * 17 + b"\r\n",
        b"1" * 2000,
        b"0\r\n" + b"a: b\r\n" * 100,
    ],
)
def test_a_body_with_invalid_chunks_is_refused(stream: bytes) -> None:
    """Each of them ends, and none is read for ever."""
    with pytest.raises(InputError):
        read(stream, Transfer_Encoding="chunked")


@pytest.mark.parametrize("headers", [{"Content_Length": "5"}, {"Transfer_Encoding": "chunked"}])
def test_a_sender_that_goes_away_is_no_bad_request(headers: dict[str, str]) -> None:
    """There is no client left to answer."""
    with pytest.raises(ConnectionError):
        read(b"3\r\nab" if "Transfer_Encoding" in headers else b"abc", **headers)


@pytest.mark.parametrize(
    "headers",
    [
        {"Content_Length": "-1"},
        {"Content_Length": "5x"},
        {"Content_Length": "٣"},
        {"Content_Length": "9" * 30},
        {"Content_Length": "5", "content_length": "6"},
        {"Content_Length": "5", "Transfer_Encoding": "chunked"},
        {"Transfer_Encoding": "gzip, chunked"},
    ],
)
def test_headers_that_do_not_say_where_the_body_ends_are_refused(headers: dict[str, str]) -> None:
    """Two readings of one request are how requests are smuggled."""
    with pytest.raises(InputError):
        read(b"12345", **headers)


def test_a_body_over_the_limit_is_refused_before_it_is_read() -> None:
    """By what it announces, or as soon as its chunks pass the limit."""
    with pytest.raises(RequestTooLarge):
        read(b"", Content_Length=str(LIMIT + 1))
    with pytest.raises(RequestTooLarge):
        read(chunked(b"x" * LIMIT, b"y"), Transfer_Encoding="chunked")


@given(st.lists(st.binary(max_size=300), min_size=1, max_size=3))
def test_gzip_of_several_members_is_unpacked(members: list[bytes]) -> None:
    """Some proxies write them."""
    assert decompress("gzip", b"".join(map(gzip.compress, members)), LIMIT, ticket()) == b"".join(
        members
    )


def test_a_bomb_is_unpacked_no_further_than_its_limit() -> None:
    """Two hundred megabytes of zeros cost a fraction of that."""
    admission = MemoryLimiter(10**9)
    with pytest.raises(RequestTooLarge), admission.enter(0) as room:
        decompress("gzip", gzip.compress(bytes(200_000_000), 1), LIMIT, room)


# without the time, which would name the test otherwise each second
GZIPPED = gzip.compress(b"x" * 99, mtime=0)


@pytest.mark.parametrize("data", [b"no gzip", GZIPPED[:-9], GZIPPED + b"trailing", b"\x1f\x8b"])
def test_a_body_that_is_not_gzip_is_refused(data: bytes) -> None:
    """Foreign, cut or followed by something else."""
    with pytest.raises(InputError):
        decompress("gzip", data, LIMIT, ticket())


def test_room_is_given_back() -> None:
    """A budget is for what is in flight."""
    admission = MemoryLimiter(100)
    for _ in range(5):
        with admission.enter(80):
            pass
    assert admission.wait_idle(0)


def test_a_body_that_does_not_fit_into_memory_beside_others_is_retryable() -> None:
    """On the way in and while it grows."""
    admission = MemoryLimiter(100)
    with admission.enter(60), pytest.raises(Overloaded):
        admission.enter(50)
    with admission.enter(60), admission.enter(30) as second, pytest.raises(Overloaded):
        second.grow(20)


def test_a_request_that_is_alone_always_fits() -> None:
    """Or it could never be sent; what one request may hold is another limit."""
    with MemoryLimiter(100).enter(500) as room:
        room.grow(500)


def test_a_closed_limiter_admits_no_request_and_lets_others_finish() -> None:
    """The receiver stops so."""
    admission = MemoryLimiter(100)
    with admission.enter(10):
        admission.close()
        with pytest.raises(Overloaded):
            admission.enter(1)
        assert not admission.wait_idle(0)
    assert admission.wait_idle(0)
