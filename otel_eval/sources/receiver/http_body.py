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

Read = Callable[[Ticket], bytes]


def body_reader(headers: Message, stream: BufferedIOBase, limit: int) -> tuple[int, Read]:
    """The announced size, 0 if the body comes in chunks, and how to read it.

    Raises:
        InputError: the headers do not say unambiguously where the body ends.
        TooLarge: they announce more than `limit`.
    """
    lengths, coding = headers.get_all("Content-Length", []), headers.get("Transfer-Encoding", "")
    if coding:
        if lengths or coding.strip().lower() != "chunked":
            raise InputError("the body must be chunked or have a Content-Length, not both")
        return 0, lambda ticket: _chunks(stream, limit, ticket)
    size = _length(lengths)
    if size > limit:
        raise TooLarge(f"the body has {size} bytes, the limit is {limit}")
    return size, lambda _: _exactly(stream, size)


def _length(values: list[str]) -> int:
    texts = {value.strip() for value in values} or {"0"}
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
    if not line.endswith(b"\n"):
        raise InputError("a line of the chunked body is too long")
    return line.strip()


def _chunks(stream: BufferedIOBase, limit: int, ticket: Ticket) -> bytes:
    parts: list[bytes] = []
    total = 0
    while size := _chunk_size(_line(stream)):
        total += size
        if total > limit:
            raise TooLarge(f"the body has more than {limit} bytes")
        ticket.grow(size)
        parts.append(_exactly(stream, size))
        if _line(stream):
            raise InputError("a chunk is longer than it says")
    for _ in range(_TRAILERS):
        if not _line(stream):
            return b"".join(parts)
    raise InputError("too many trailers")


def _chunk_size(line: bytes) -> int:
    digits = line.split(b";")[0].strip()
    if not digits or len(digits) > 16 or digits.strip(b"0123456789abcdefABCDEF"):
        raise InputError("a chunk has no size")
    return int(digits, 16)
