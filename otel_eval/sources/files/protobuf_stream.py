"""Read files of OTLP in protobuf, whatever the size of their messages, in little memory.

A file is one request, or several one after another, which together are one request too; or each
request follows its length in four bytes, the highest first, as the Collector's file exporter
writes. Which it is shows where the first request begins, whose first byte is the tag of its only
field.

A request larger than a piece is cut where its spans are divided anyway: between resources, between
scopes of a large resource, between spans of a large scope. Resource and scope are repeated in each
part. Every known writer puts them before their spans.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from itertools import count
from typing import Final

from otel_eval.errors import InputError
from otel_eval.otlp.protobuf import SpanBatch, read_logs, read_traces
from otel_eval.sources.files import FORMATS, MAX_DOCUMENT, PIECE, Gap, Notify, with_prefix
from otel_eval.wire import read_varint, sized

_REQUEST_TAG: Final = 0x0A  # of `resource_spans` and of `resource_logs`
_GROUP_TAGS: Final = b"\x0a\x12\x1a"  # of a resource, its scopes and its schema URL
_HEAD: Final = 32  # bytes that show whether a request or its length comes first
_LONGEST_VARINT: Final = 10  # bytes
_TO_THE_END: Final = 2**63  # the end of a request without a length
_CUT: Final = "it is cut or has no length; nothing after it was read"
_LENGTH_DELIMITED: Final = 2
_FIXED_SIZES: Final = {1: 8, 5: 4}  # bytes by wire type
# Of a request, a resource and a scope: the number of the field with its groups or items. What they
# share is field 1 of a resource and of a scope.
_LISTS: Final = (1, 2, 2)
_SHARED: Final = 1


def _begins_request(head: bytes) -> bool:
    """Whether the first bytes are the tag and the length of a list of groups, and the tag of a
    group's first field.
    """
    try:
        _, begin = read_varint(head, 1)
        return head[0] == _REQUEST_TAG and head[begin] in _GROUP_TAGS
    except (ValueError, IndexError):
        return False


class _Cut(Exception):
    """The input ends within a message, or a message has no length."""


class _Fields:
    """Reads lengths and fields, and counts the bytes."""

    def __init__(self, stream: io.BufferedReader) -> None:
        self._stream: Final = stream
        self.position = 0

    def is_at_end(self) -> bool:
        """Whether the input has no more bytes."""
        return not self._stream.peek(1)

    def take(self, size: int) -> bytes:
        """Read so many bytes.

        Raises:
            _Cut: there are fewer.
            InputError: they are too many to be read at once.
        """
        if size > MAX_DOCUMENT:
            raise InputError(f"a span, resource or scope is greater than {MAX_DOCUMENT} bytes")
        # Piece by piece: a single `read` allocates memory for all that it may return, however short
        # the input is.
        data = b"".join(self._pieces(size)) if size > PIECE else self._stream.read(size)
        self.position += len(data)
        if len(data) < size:
            raise _Cut
        return data

    def skip(self, size: int) -> None:
        """Read over so many bytes; raises _Cut if there are fewer."""
        skipped = sum(map(len, self._pieces(size)))
        self.position += skipped
        if skipped < size:
            raise _Cut

    def _pieces(self, size: int) -> Iterator[bytes]:
        """Read so many bytes, at most `PIECE` at once; fewer if the input ends before."""
        while size and (piece := self._stream.read(min(size, PIECE))):
            yield piece
            size -= len(piece)

    def number(self) -> int:
        """Read a varint; raises _Cut if it is cut, and InputError if it is too long."""
        number = 0
        for index in range(_LONGEST_VARINT):
            (byte,) = self.take(1)
            number |= (byte & 0x7F) << 7 * index
            if byte < 0x80:
                return number
        raise InputError("a number has more than ten bytes")

    def length(self) -> int:
        """Read the length of a message; raises _Cut if there is none."""
        if size := int.from_bytes(self.take(4)):
            return size
        raise _Cut

    def field(self) -> tuple[int, int]:
        """Read the head of the next field. Return the field's number and how many bytes of content
        follow; of a field that is not length-delimited 0 as the number.

        Raises:
            _Cut: the input ends within the head.
            InputError: the head is invalid.
        """
        tag = self.number()
        kind = tag & 7
        if kind == _LENGTH_DELIMITED:
            return tag >> 3, self.number()
        if kind == 0:
            self.number()
            return 0, 0
        if kind not in _FIXED_SIZES:
            raise InputError("the bytes are corrupt or cut")
        return 0, _FIXED_SIZES[kind]


def stream_requests(stream: io.BufferedReader, on_problem: Notify) -> Iterator[SpanBatch]:
    """Yield the spans and log records of a file in batches. After a broken message the next one is
    read; what is cut ends the file.

    Raises:
        InputError: nothing in the file is a request.
    """
    fields, is_known = _Fields(stream), False
    is_joined = _begins_request(stream.peek(_HEAD)[:_HEAD])
    for number in range(1, 2) if is_joined else count(1):
        if fields.is_at_end():
            break
        notify = on_problem if is_joined else with_prefix(on_problem, f"message {number}")
        try:
            size = _TO_THE_END if is_joined else fields.length()
            for batch in _batches(fields, fields.position + size, notify):
                is_known = is_known or not isinstance(batch, Gap)
                yield batch
        except _Cut:
            notify(_CUT)
            yield Gap()
            break
    if not is_known:
        raise InputError(f"is not a complete file of traces; {FORMATS}")


def _batches(fields: _Fields, end: int, on_problem: Notify) -> Iterator[SpanBatch]:
    """Yield the batches of the message that ends at a position; a gap for each part that cannot be
    read.
    """
    read = _RequestReader()
    is_small = end - fields.position <= PIECE
    parts = (
        iter([fields.take(end - fields.position)])
        if is_small
        else _divide(fields, end, _PartialList(bytes))
    )
    try:
        for part in parts:
            try:
                yield read(part)
            except InputError as error:
                on_problem(str(error))
                yield Gap()
    except InputError as error:  # the fields of a large message cannot be told apart any more
        on_problem(str(error))
        yield Gap()
        if end >= _TO_THE_END:
            raise _Cut from None
        fields.skip(end - fields.position)


class _PartialList:
    """A part of a list of groups or items, with what all parts share.

    Args:
        wrapped: makes a request of groups or items of this level.
    """

    def __init__(self, wrapped: Callable[[bytes], bytes]) -> None:
        self._wrapped: Final = wrapped
        self._shared = b""
        self._items: list[bytes] = []
        self._size = 0
        self._is_divided = False

    def share(self, field: bytes) -> None:
        """Add a field that all parts share.

        Raises:
            InputError: there are parts without it.
        """
        if self._is_divided:
            raise InputError("a resource or scope is written after its spans")
        self._shared += field

    def add(self, field: bytes) -> Iterator[bytes]:
        """Add a group or an item; yield a request if the part is large enough."""
        self._items.append(field)
        self._size += len(field)
        # at least as much as is repeated, so that the parts together are not much more
        if self._size >= max(PIECE, len(self._shared)):
            yield from self.finish()

    def finish(self) -> Iterator[bytes]:
        """Yield a request with what has no part yet, if there is any."""
        if self._items:
            yield self._request(b"".join(self._items))
        self._items, self._size, self._is_divided = [], 0, True

    def inner(self, level: int) -> _PartialList:
        """A list within a group of this list."""
        self._is_divided = True
        return _PartialList(lambda content: self._request(sized(_LISTS[level], content)))

    def _request(self, fields: bytes) -> bytes:
        """A request with these fields, and with what all parts share before them."""
        return self._wrapped(self._shared + fields)


def _divide(
    fields: _Fields, end: int, partial_list: _PartialList, level: int = 0
) -> Iterator[bytes]:
    """Divide a large request, or a large resource or scope within it, into requests of about
    `PIECE` bytes, which have the same spans or log records, in order. What comes before an error is
    yielded before it is raised.

    Args:
        fields: the input, at the first field.
        end: the position at which the last field ends, or `_TO_THE_END`.
        partial_list: collects the fields, and makes a request of those that it has.
        level: what is divided: 0 a request, 1 a resource, 2 a scope.

    Raises:
        InputError: the bytes are corrupt, or a resource or scope is written after its spans.
        _Cut: the input ends before `end`.
    """
    try:
        while fields.position < end and not (end >= _TO_THE_END and fields.is_at_end()):
            number, size = fields.field()
            if size > end - fields.position:
                raise InputError("the bytes are corrupt or cut")
            if number == _LISTS[level] and size > PIECE and level + 1 < len(_LISTS):
                yield from partial_list.finish()
                yield from _divide(
                    fields, fields.position + size, partial_list.inner(level), level + 1
                )
            elif number == _LISTS[level]:
                yield from partial_list.add(sized(number, fields.take(size)))
            elif number == _SHARED:
                partial_list.share(sized(number, fields.take(size)))
            else:
                fields.skip(size)
    except Exception:  # broken gzip, too
        yield from partial_list.finish()  # what came before can be used
        raise
    yield from partial_list.finish()


class _RequestReader:
    """Reads the parts of one message. Traces and logs can be distinguished only by whether their
    items are spans.
    """

    def __init__(self) -> None:
        self._are_logs = False

    def __call__(self, part: bytes) -> SpanBatch:
        """Raises InputError if the part is no request."""
        if self._are_logs:
            return read_logs(part)
        traces = read_traces(part)
        if traces.spans or traces.own or not traces.rejected:
            return traces
        logs = read_logs(part)
        self._are_logs = bool(logs.logs or logs.own)
        return logs if self._are_logs else traces


def read_message(message: bytes) -> SpanBatch:
    """Read the spans or the log records of one request, or of several one after another.

    Raises:
        InputError: it is no request.
    """
    return _RequestReader()(message)
