"""Files of JSON: one document, or one a line, recognised and read without holding more than a part of a document."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from itertools import chain, islice
from typing import Any, Final

from otel_eval.errors import InputError
from otel_eval.otlp import SpanBatch
from otel_eval.sources.files.binary import Gap, Readable, Say, placed
from otel_eval.sources.files.documents import frame_document
from otel_eval.sources.files.json_stream import Cursor, stream_documents

__all__ = ["frame_text"]

_LINE: Final = 2 * 1024 * 1024  # bytes of a line that are decoded at once
_AHEAD: Final = 64  # lines after a broken first one that may show that each line is a document
_BLANK: Final = b"\xef\xbb\xbf \t\r\n"


def frame_text(stream: Readable, say: Say) -> Iterator[SpanBatch]:
    """What the documents hold.

    Raises:
        InputError: the file is one document, and not JSON or none of a trace.
    """
    skipped, first = _first_line(stream)
    if _is_long(first) or _is_json(first):
        return _lines(chain([first], _rest(stream)), stream, skipped + 1, say)
    # A document over many lines, or lines of which the first is broken.
    ahead = list(islice(_rest(stream), _AHEAD))
    if any(map(_is_document, ahead)):
        return _lines(chain([first], ahead, _rest(stream)), stream, skipped + 1, say)
    return stream_documents(Cursor(_Chained(b"\n" * skipped + first + b"".join(ahead), stream)), say)


def _first_line(stream: Readable) -> tuple[int, bytes]:
    skipped = 0
    for line in _rest(stream):
        if line.strip(_BLANK):
            return skipped, line
        skipped += 1
    return skipped, b""


def _rest(stream: Readable) -> Iterator[bytes]:
    """Lines, of long ones the beginning."""
    while line := stream.readline(_LINE):
        yield line


def _is_long(line: bytes) -> bool:
    return len(line) == _LINE and not line.endswith(b"\n")


class _Chained:
    """Bytes that were read already, and those of the stream that follow them."""

    def __init__(self, first: bytes, stream: Readable) -> None:
        self._first, self._stream = first, stream

    def read(self, size: int) -> bytes:
        """The next bytes."""
        if self._first:
            first, self._first = self._first, b""
            return first
        return self._stream.read(size)


class _Line(_Chained):
    """The same to the end of the line."""

    def __init__(self, first: bytes, stream: Readable) -> None:
        super().__init__(first, stream)
        self._over = False

    def read(self, size: int) -> bytes:
        """The next bytes of the line."""
        if self._first:
            return super().read(size)
        piece = b"" if self._over else self._stream.readline(size)
        self._over = piece.endswith(b"\n") or not piece
        return piece

    def skip(self) -> None:
        """Pass over what is left of it."""
        while self.read(_LINE):
            pass


def _is_json(line: bytes) -> bool:
    try:
        _parsed(line)
    except InputError:
        return False
    return True


def _is_document(line: bytes) -> bool:
    try:
        return isinstance(_parsed(line), dict)
    except InputError:
        return False


def _lines(lines: Iterable[bytes], stream: Readable, first: int, say: Say) -> Iterator[SpanBatch]:
    for number, line in enumerate(lines, first):
        if not line.strip(_BLANK):
            continue
        inside = placed(say, f"line {number}")
        try:
            if _is_long(line):
                yield from _long(_Line(line, stream), inside)
            else:
                yield from frame_document(_parsed(line), inside)
        except InputError as error:
            say(f"line {number}: {error}")


def _long(line: _Line, say: Say) -> Iterator[SpanBatch]:
    try:
        yield from stream_documents(Cursor(line), say)
    except InputError as error:
        say(str(error))
        line.skip()
        yield Gap()


def _parsed(data: bytes) -> Any:
    try:
        return json.loads(data.decode("utf-8-sig"))
    except UnicodeDecodeError:
        raise InputError("not UTF-8") from None
    except json.JSONDecodeError as error:
        raise InputError(f"column {error.colno}: not JSON: {error.msg}") from None
    except RecursionError:
        raise InputError("nested too deeply") from None
    except ValueError:
        raise InputError("not JSON: a number is too long") from None
