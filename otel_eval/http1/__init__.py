"""HTTP/1.1 requests: the head and the body, in the strict grammar of RFC 9112 and RFC 9110.

A request can be smuggled in the body of another one where two servers repair malformed requests
differently. So lines must end in CRLF, headers must not be folded, and headers that define the end
of the body, its type or its sender must not be repeated. A body is read by length or by chunks,
never beyond a limit, and memory is reserved before bytes are read.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from email.message import Message
from http import HTTPStatus
from io import BufferedIOBase
from ipaddress import ip_address
from typing import Final, NamedTuple

from otel_eval.errors import InputError, RequestTooLarge

_LONGEST: Final = 65536  # of a line
_MOST: Final = 100  # headers
_TOKEN: Final = rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+"
_REQUEST_LINE: Final = re.compile(rb"(" + _TOKEN + rb") ([!-~]+) HTTP/([0-9])\.([0-9])\r\n")
_HEADER: Final = re.compile(rb"(" + _TOKEN + rb"):[ \t]*([^\x00-\x08\x0a-\x1f\x7f]*)\r\n")
_ABSOLUTE: Final = re.compile(r"https?://[^/?]*", re.IGNORECASE)
_ONCE: Final = (
    "host",
    "content-length",
    "transfer-encoding",
    "content-type",
    "content-encoding",
    "authorization",
)


class MalformedRequest(Exception):
    """The request is not valid HTTP/1.1, or ambiguous.

    Attributes:
        code: the status of the response.
    """

    def __init__(self, code: HTTPStatus, message: str) -> None:
        super().__init__(message)
        self.code: Final = code


class RequestHead(NamedTuple):
    """A request before its body.

    Attributes:
        path: without the query, and without scheme and host if the request line has an absolute
            URL.
        version: "HTTP/1.0" or "HTTP/1.1"; later minor versions of HTTP/1 are treated as 1.1.
        last: whether the connection is closed after the response.
    """

    method: str
    path: str
    version: str
    headers: Message
    last: bool


def read_head(line: bytes, stream: BufferedIOBase) -> RequestHead:
    """Read the head of the request whose first line this is.

    Raises:
        MalformedRequest: the head is not valid HTTP/1.1, with the status to answer.
        ConnectionError: the connection was closed before the head was complete.
    """
    if line == b"\r\n":  # some clients send CRLF after a body; RFC 9112 asks servers to ignore one
        line = _next(stream)
    if len(line) > _LONGEST:
        raise MalformedRequest(HTTPStatus.REQUEST_URI_TOO_LONG, "the line is too long")
    match = _REQUEST_LINE.fullmatch(line)
    if not match:
        raise MalformedRequest(
            HTTPStatus.BAD_REQUEST, "the first line is not a request line of HTTP/1"
        )
    if match[3] != b"1":
        raise MalformedRequest(
            HTTPStatus.HTTP_VERSION_NOT_SUPPORTED, "only HTTP/1.0 and HTTP/1.1 are supported"
        )
    version = "HTTP/1.0" if match[4] == b"0" else "HTTP/1.1"
    headers = _headers(stream)
    _unambiguous(headers, version)
    last = version == "HTTP/1.0" or "close" in map(
        str.strip, headers.get("Connection", "").lower().split(",")
    )
    return RequestHead(match[1].decode(), _path(match[2].decode()), version, headers, last)


def _next(stream: BufferedIOBase, limit: int = _LONGEST + 1) -> bytes:
    line = stream.readline(limit)
    if not line:
        raise ConnectionError("the client closed the connection")
    return line


def _headers(stream: BufferedIOBase) -> Message:
    """Read the headers up to the empty line."""
    headers = Message()
    for _ in range(_MOST + 1):
        line = _next(stream)
        if line == b"\r\n":
            return headers
        if len(line) > _LONGEST:
            break
        match = _HEADER.fullmatch(line)
        if not match:
            raise MalformedRequest(
                HTTPStatus.BAD_REQUEST,
                "a line is no header: it has to be a name, a colon, a value and CRLF",
            )
        headers[match[1].decode()] = match[2].decode("iso-8859-1").rstrip(" \t")
    raise too_long()


def too_long() -> MalformedRequest:
    """The error for too many or too large headers."""
    return MalformedRequest(
        HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "too many headers, or one is too long"
    )


def _unambiguous(headers: Message, version: str) -> None:
    """Refuse headers of which two readers could understand different things."""
    for name in _ONCE:
        if len(headers.get_all(name, ())) > 1:
            raise MalformedRequest(HTTPStatus.BAD_REQUEST, f"the header {name} is there twice")
    if version == "HTTP/1.0":
        if "Transfer-Encoding" in headers:
            raise MalformedRequest(HTTPStatus.BAD_REQUEST, "HTTP/1.0 has no Transfer-Encoding")
    elif "Host" not in headers:
        raise MalformedRequest(HTTPStatus.BAD_REQUEST, "the header host is missing")


def _path(target: str) -> str:
    path = _ABSOLUTE.sub("", target, count=1) if target[:1] in "hH" else target
    path = path.partition("?")[0]
    # An endpoint that is configured with a trailing slash results in two slashes.
    return "/" + path.lstrip("/") if path.startswith("//") else path


_PORT: Final = re.compile(r":[0-9]*$", re.ASCII)


def names_server(host: str, names: Collection[str]) -> bool:
    """Whether a `Host`, with any port, is one of the names or an IP address, which is safe from DNS
    rebinding.
    """
    name = _PORT.sub("", host.strip()).casefold().removesuffix(".")
    try:
        ip_address(name.removeprefix("[").removesuffix("]"))
    except ValueError:
        return name in names
    return True


_LINE: Final = 1024  # bytes of the line of a chunk's size, or of a trailer
_TRAILERS: Final = 64
_EXTENSIONS: Final = 16 * 1024  # bytes of the extensions of all chunks, which are ignored

Read = Callable[[Callable[[int], object]], bytes]


def body_reader(headers: Message, stream: BufferedIOBase, limit: int) -> tuple[int, Read]:
    """The size of the body from the headers, 0 if it is chunked, and a function that reads it.

    That function gets a function which reserves memory for each chunk; a body that is not chunked
    reserves nothing.

    Raises:
        InputError: the headers do not define unambiguously where the body ends.
        RequestTooLarge: the body is larger than `limit` bytes.
    """
    lengths, coding = headers.get_all("Content-Length", []), headers.get("Transfer-Encoding")
    if coding is not None:
        if lengths or coding.lower() != "chunked":
            raise InputError("the body must be chunked or have a Content-Length, not both")
        return 0, lambda reserve: _chunks(stream, limit, reserve)
    size = _length(lengths)
    if size > limit:
        raise RequestTooLarge(f"the body has {size} bytes, the limit is {limit}")
    return size, lambda _: _exactly(stream, size)


def _length(values: list[str]) -> int:
    """The length that all the Content-Length headers agree on, 0 without one."""
    texts = set(values) or {"0"}
    text = texts.pop()
    if texts or not (text.isascii() and text.isdigit()) or len(text) > 18:
        raise InputError("Content-Length is no number")
    return int(text)


def _exactly(stream: BufferedIOBase, size: int) -> bytes:
    body = stream.read(size)
    if len(body) < size:
        raise ConnectionError("the client closed the connection")
    return body


def _line(stream: BufferedIOBase) -> bytes:
    line = _next(stream, _LINE)
    if not line.endswith(b"\r\n"):
        raise InputError("a line of the chunked body is too long, or does not end in CRLF")
    return line[:-2]


def _chunks(stream: BufferedIOBase, limit: int, reserve: Callable[[int], object]) -> bytes:
    """Read a chunked body, with its trailers, which are ignored."""
    body = bytearray()  # not a list: chunks of two bytes would take twenty times their size
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
            raise RequestTooLarge(f"the body has more than {limit} bytes")
        reserve(size)
        body += _exactly(stream, size)
        if _line(stream):
            raise InputError("a chunk is longer than its size")
    for _ in range(_TRAILERS):
        if not _line(stream):
            return bytes(body)
    raise InputError("too many trailers")


def _chunk_size(line: bytes) -> int:
    digits = line.partition(b";")[0].rstrip(b" \t")  # RFC 9112 allows blanks before an extension
    if not digits or len(digits) > 16 or digits.strip(b"0123456789abcdefABCDEF"):
        raise InputError("a chunk has no size")
    return int(digits, 16)
