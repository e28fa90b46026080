"""Requests that contain a second one: a proxy that parses them differently must not make us serve
both.
"""

from __future__ import annotations

import re
import socket
from typing import Any

import pytest

HEAD = b"POST /v1/traces HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
HIDDEN = b"GET /hidden HTTP/1.1\r\nHost: x\r\n\r\n"
CHUNKED = b"Transfer-Encoding: chunked\r\n"


def statuses(address: str, data: bytes) -> list[int]:
    """What some bytes are answered until the other side closes; ours is closed for writing."""
    host, port = address.rsplit(":", 1)
    with socket.create_connection((host, int(port)), timeout=300) as connection:
        connection.sendall(data)
        connection.shutdown(socket.SHUT_WR)
        received = b"".join(iter(lambda: connection.recv(65536), b""))
    return [int(each) for each in re.findall(rb"HTTP/1\.1 (\d+) ", received)]


@pytest.mark.parametrize(
    ("said", "status"),
    [
        (b"Content-Length: 2\r\n" + CHUNKED + b"\r\n0\r\n\r\n", 400),
        (b"Transfer-Encoding:\r\n" + CHUNKED + b"Content-Length: 2\r\n\r\n{}", 400),
        (CHUNKED + b"Transfer-Encoding: identity\r\n\r\n0\r\n\r\n", 400),
        (b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n", 400),
        (b"Transfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n", 400),
        (b"X: a\r\n Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
        (b"junk\r\nContent-Length: 34\r\n\r\n", 400),
        (b"Content-Length : 34\r\n\r\n", 400),
        (b"Content-L\xe9ngth: 34\r\n\r\n", 400),
        (b"X: a\rContent-Length: 34\r\n\r\n", 400),
        (b"X: a\nContent-Length: 34\r\n\r\n", 400),
        *[
            (b"Content-Length: %b\r\n\r\n{}" % text, 400)
            for text in (b"+2", b"0x2", b"-2", b"2, 2", b"0_2", b"2\xa0", b"\xb2", b"")
        ],
        (b"Content-Length: 18446744073709551618\r\n\r\n{}", 400),
        (b"Content-Length: 2\r\nContent-Length: 36\r\n\r\n{}", 400),
        (CHUNKED + b"\r\n10000000000000002\r\n{}\r\n0\r\n\r\n", 400),
        (CHUNKED + b"\r\nFFFFFFFFFFFFFFFF\r\n{}\r\n0\r\n\r\n", 413),
        (CHUNKED + b"\r\n0x2\r\n{}\r\n0\r\n\r\n", 400),
        (CHUNKED + b"\r\n2;\n{}\r\n0\r\n\r\n", 400),
        (CHUNKED + b"\r\n2\n{}\n0\n\n", 400),
        (CHUNKED + b"\r\n2\r\n{}..0\r\n\r\n", 400),
    ],
)
def test_what_can_be_read_in_two_ways_is_refused_and_nothing_after_it_is_served(
    start: Any, said: bytes, status: int
) -> None:
    """One answer, and the connection ends with it; it counts as what it is."""
    receiver, bound = start()
    assert statuses(bound.http, HEAD + said + HIDDEN) == [status]
    assert receiver.counters.get("bad_requests") + receiver.counters.get("oversized_requests") == 1
    assert receiver.counters.get("internal_errors") == 0


@pytest.mark.parametrize(
    "first",
    [
        HEAD.replace(b"/v1/traces", b"/elsewhere") + b"Content-Length: 34\r\n\r\n",
        HEAD.replace(b"json", b"xml") + b"Content-Length: 34\r\n\r\n",
        HEAD + b"Content-Encoding: br\r\nContent-Length: 34\r\n\r\n",
        HEAD.replace(b"POST", b"PUT") + b"Content-Length: 34\r\n\r\n",
        HEAD.replace(b"POST", b"BREW") + b"Content-Length: 34\r\n\r\n",
        HEAD + b"Content-Length: 99999999999\r\n\r\n",
        HEAD + b"Upgrade: h2c\r\nConnection: Upgrade, close\r\nContent-Length: 2\r\n\r\n{}",
    ],
)
def test_a_body_that_was_not_read_is_no_request(start: Any, first: bytes) -> None:
    """Where we did not read to the end of a request we do not read on."""
    _, bound = start()
    assert len(statuses(bound.http, first + HIDDEN)) == 1


def test_requests_in_a_row_are_answered_in_their_order(start: Any) -> None:
    """A bad one that was read to its end leaves the others alone."""
    _, bound = start()
    good, bad = HEAD + b"Content-Length: 2\r\n\r\n{}", HEAD + b"Content-Length: 2\r\n\r\n{]"
    assert statuses(bound.http, good + bad + good + HIDDEN + good) == [200, 400, 200, 404]


@pytest.mark.parametrize(
    ("more", "status"),
    [
        (b"Content-Length: 99999999999\r\n", 413),
        (b"Content-Encoding: br\r\nContent-Length: 2\r\n", 415),
    ],
)
def test_a_body_is_not_asked_for_in_vain(start: Any, more: bytes, status: int) -> None:
    """Who waits for 100 gets the answer instead, where there will be none better."""
    _, bound = start()
    assert statuses(bound.http, HEAD + b"Expect: 100-continue\r\n" + more + b"\r\n") == [status]


def test_many_small_chunks_cost_no_more_than_the_body(start: Any, peak: Any) -> None:
    """Objects of two bytes each would."""
    _, bound = start()
    before = peak()
    assert statuses(
        bound.http, HEAD + CHUNKED + b"\r\n" + b"2\r\n  \r\n" * 200_000 + b"2\r\n{}\r\n0\r\n\r\n"
    ) == [200]
    assert peak() - before < 8_000_000


def test_extensions_of_chunks_have_an_end(start: Any) -> None:
    """They have no use, and could be as long as a body."""
    _, bound = start()
    assert statuses(
        bound.http,
        HEAD + CHUNKED + b"\r\n" + (b"1;" + b"x" * 1000 + b"\r\n \r\n") * 20 + b"0\r\n\r\n",
    ) == [400]
