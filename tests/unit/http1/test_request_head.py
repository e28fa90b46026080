"""The head of an HTTP request: one meaning or none."""

from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_eval.http1 import MalformedRequest, RequestHead, read_head

LINE = b"POST /v1/traces HTTP/1.1\r\n"
HOST = b"Host: x\r\n"


def read(data: bytes) -> RequestHead:
    """The request that these bytes begin with."""
    stream = io.BytesIO(data)
    return read_head(stream.readline(), stream)


def code(data: bytes) -> int:
    """What they are refused with."""
    with pytest.raises(MalformedRequest) as caught:
        read(data)
    return int(caught.value.code)


@pytest.mark.parametrize(
    ("target", "path"),
    [
        ("/v1/traces", "/v1/traces"),
        ("/v1/traces?a=/../b", "/v1/traces"),
        ("http://x:4318/v1/traces", "/v1/traces"),
        ("HTTPS://user@[::1]/v1/traces?q", "/v1/traces"),
        ("//v1/traces", "/v1/traces"),
        ("/v1/traces/../logs", "/v1/traces/../logs"),
        ("/v1/%74races", "/v1/%74races"),
        ("http://x", ""),
        ("*", "*"),
        ("x:443", "x:443"),
    ],
)
def test_a_target_is_a_path_with_or_without_a_server(target: str, path: str) -> None:
    """RFC 9112 asks for both forms; nothing in a path is resolved or decoded, so nothing in it
    means another one.
    """
    assert read(f"POST {target} HTTP/1.1\r\nHost: x\r\n\r\n".encode()).path == path


def test_values_are_text_without_the_blanks_around_it() -> None:
    """In ISO 8859-1, as it was once; an empty one is there too."""
    headers = read(LINE + HOST + b"A:\t b c \t\r\nB:\r\nC: \xe9\r\n\r\n").headers
    assert (headers["a"], headers["b"], headers["c"], headers["d"]) == ("b c", "", "é", None)


@pytest.mark.parametrize(
    "line",
    [
        b"junk",
        b": no name",
        b"Content-Length : 2",
        b" folded: 2",
        b"\tfolded: 2",
        b"From me",
        b"X\0: 1",
        b"X\xe9: 1",
        b"X(: 1",
        b"X: a\0b",
        b"X: a\rContent-Length: 2",
        b"X: a\r",
        b"X: \x0bchunked",
        b"X: \x7f",
        b"X: \x1b[31m",
    ],
)
def test_a_line_that_is_no_header_is_refused(line: bytes) -> None:
    """Others would leave it out, end the headers there, or read two of them."""
    assert code(LINE + HOST + line + b"\r\nContent-Length: 2\r\n\r\n{}") == 400


@pytest.mark.parametrize(
    "name",
    [
        "Host",
        "Content-Length",
        "Transfer-Encoding",
        "Content-Type",
        "Content-Encoding",
        "Authorization",
    ],
)
def test_a_deciding_header_stands_at_most_once(name: str) -> None:
    """Equal ones too: two of them could be read in two ways."""
    twice = f"{name}: chunked\r\n{name.lower()}: chunked\r\n".encode()
    assert code(LINE + (b"" if name == "Host" else HOST) + twice + b"\r\n") == 400


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (LINE + b"\r\n", 400),  # no host
        (LINE.replace(b"1.1", b"1.0") + b"Transfer-Encoding: chunked\r\n\r\n", 400),
        (LINE[:-2] + b"\n" + HOST + b"\r\n", 400),
        (LINE + b"Host: x\n\n", 400),
        (b"GET /\r\n", 400),  # HTTP/0.9
        (b"POST\t/ HTTP/1.1\r\n", 400),
        (b"POST\xa0/ HTTP/1.1\r\n", 400),
        (b"POST  / HTTP/1.1\r\n", 400),
        (b"POST /a b HTTP/1.1\r\n", 400),
        (b"POST /\xe9 HTTP/1.1\r\n", 400),
        (b"POST / HTTP/1.11\r\n", 400),
        (b"POST / HTTP/01.1\r\n", 400),
        (b"POST / http/1.1\r\n", 400),
        (b"\r\n\r\n" + LINE, 400),
        (b"\x16\x03\x01\r\n", 400),
        (b"POST / HTTP/2.0\r\n\r\n", 505),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505),
        (b"POST /" + b"a" * 65536, 414),
        (LINE + b"X: " + b"a" * 65536, 431),
        (LINE + b"X: a\r\n" * 101 + b"\r\n", 431),
    ],
)
def test_an_invalid_request_is_refused(data: bytes, status: int) -> None:
    """With what RFC 9112 has for it."""
    assert code(data) == status


@pytest.mark.parametrize(
    ("version", "connection", "last"),
    [
        ("1.1", "", False),
        ("1.1", "Connection: TE, Close\r\n", True),
        ("1.0", "Connection: keep-alive\r\n", True),
    ],
)
def test_a_connection_is_kept_unless_a_header_closes_it(
    version: str, connection: str, last: bool
) -> None:
    """HTTP/1.0 is served once."""
    assert read(f"GET / HTTP/{version}\r\nHost: x\r\n{connection}\r\n".encode()).last is last


def test_an_empty_line_before_a_request_is_forgiven() -> None:
    """As RFC 9112 asks; one of them."""
    assert read(b"\r\n" + LINE + HOST + b"\r\n").path == "/v1/traces"


@pytest.mark.parametrize("end", range(1, len(LINE + HOST) + 1, 7))
def test_a_request_that_stops_is_none(end: int) -> None:
    """The client is gone, or the request is refused; it is never accepted."""
    with pytest.raises((ConnectionError, MalformedRequest)):
        read((LINE + HOST)[:end])


@given(
    st.lists(
        st.sampled_from(
            [
                LINE,
                HOST,
                b"\r\n",
                b"\n",
                b"\r",
                b" ",
                b":",
                b"X: a",
                b"\0",
                b"\xff",
                b"Content-Length: 2",
            ]
        )
    )
)
def test_any_bytes_are_read_or_refused(pieces: list[bytes]) -> None:
    """What is taken has one of each header that decides, and no character that ends a line."""
    try:
        head = read(b"".join(pieces))
    except (MalformedRequest, ConnectionError):
        return
    assert len(head.headers.get_all("Content-Length", ())) < 2
    assert not any(set(name + value) & set("\0\r\n") for name, value in head.headers.items())
