"""The body of an HTTP request: read by length or by chunks, never beyond a limit.

Knows RFC 9112 framing. Knows no OTLP. Room is asked for before bytes are read.
"""

from __future__ import annotations

from collections.abc import Callable
from email.message import Message
from io import BufferedIOBase
from typing import Final

from otel_eval.errors import InputError
from otel_eval.sources.receiver.admission import Ticket
from otel_eval.sources.receiver.exchange import TooLarge

__all__ = ["body_reader"]

_LINE: Final = 1024  # of a chunk's size or of a trailer
_TRAILERS: Final = 64
_EXTENSIONS: Final = 16 * 1024  # of all chunks, which nobody needs

Read = Callable[[Ticket], bytes]


def body_reader(headers: Message, stream: BufferedIOBase, limit: int) -> tuple[int, Read]:
    """The announced size, 0 if the body comes in chunks, and how to read it.

    Raises:
        InputError: the headers do not say unambiguously where the body ends.
        TooLarge: they announce more than `limit`.
    """
    lengths, coding = headers.get_all("Content-Length", []), headers.get("Transfer-Encoding")
    if coding is not None:
        if lengths or coding.lower() != "chunked":
            raise InputError("the body must be chunked or have a Content-Length, not both")
        return 0, lambda ticket: _chunks(stream, limit, ticket)
    size = _length(lengths)
    if size > limit:
        raise TooLarge(f"the body has {size} bytes, the limit is {limit}")
    return size, lambda _: _exactly(stream, size)


def _length(values: list[str]) -> int:
    texts = set(values) or {"0"}
    text = texts.pop()
    if texts or not (text.isascii() and text.isdigit()) or len(text) > 18:
        raise InputError("Content-Length is no number")
    return int(text)


def _exactly(stream: BufferedIOBase, size: int) -> bytes:
    body = stream.read(size)
    if len(body) < size:
        raise ConnectionError("the sender went away")
    return body


def _line(stream: BufferedIOBase) -> bytes:
    line = stream.readline(_LINE)
    if not line:
        raise ConnectionError("the sender went away")
    if not line.endswith(b"\r\n"):
        raise InputError("a line of the chunked body is too long, or does not end in CRLF")
    return line[:-2]


def _chunks(stream: BufferedIOBase, limit: int, ticket: Ticket) -> bytes:
    body = bytearray()  # and no list: chunks of two bytes would take twenty times their size
    beside = 0
    while True:
        line = _line(stream)
        beside += len(line.partition(b";")[2])
        if beside > _EXTENSIONS:
            raise InputError("the extensions of the chunks are too long")
        size = _chunk_size(line)
        if not size:
            break
        if len(body) + size > limit:
            raise TooLarge(f"the body has more than {limit} bytes")
        ticket.grow(size)
        body += _exactly(stream, size)
        if _line(stream):
            raise InputError("a chunk is longer than it says")
    _skip_trailers(stream)
    return bytes(body)


def _skip_trailers(stream: BufferedIOBase) -> None:
    for _ in range(_TRAILERS):
        if not _line(stream):
            return
    raise InputError("too many trailers")


def _chunk_size(line: bytes) -> int:
    digits = line.partition(b";")[0].rstrip(b" \t")  # RFC 9112 allows blanks before an extension
    if not digits or len(digits) > 16 or digits.strip(b"0123456789abcdefABCDEF"):
        raise InputError("a chunk has no size")
    return int(digits, 16)
