"""A file, whatever it holds: open it, see what it is, yield what can be used.

Knows how the formats are told apart, by their bytes and never by the file's name. What is broken is said and skipped; a
file with nothing usable at all is refused.
"""

from __future__ import annotations

import gzip
import io
import os
import zlib
from collections.abc import Iterator
from typing import Final

from otel_eval.errors import InputError
from otel_eval.sources.files.binary import MAX_DOCUMENT, Say, document, frame_binary, frame_row, placed, starts_with_row
from otel_eval.sources.files.console import frame_console, is_console
from otel_eval.sources.files.index import text_ids
from otel_eval.sources.files.lines import frame_text
from otel_eval.sources.files.source import HEAD, Source
from otel_eval.sources.otlp import Framed

__all__ = ["read_file", "read_pieces", "trace_ids"]

_BLANK: Final = b"\xef\xbb\xbf \t\r\n"  # a byte order mark counts as blank
_START: Final = 64
_HELD: Final = 100
_NEWLINE: Final = b"\n"  # also the first byte of every OTLP message in protobuf


def _unsaid(_: str) -> None:
    """Nobody wants to know."""


def read_file(path: str | os.PathLike[str], on_problem: Say = _unsaid, on_notice: Say = _unsaid) -> Iterator[Framed]:
    """What a file of traces holds, piece by piece; "-" is standard input.

    OTLP/JSON (one document, or one a line), Tempo and Jaeger JSON, and OTLP protobuf (one message, or many, each after
    its length); each may be gzipped; and what the Python SDK's console exporter prints. `on_problem` gets one line for
    every part that was skipped, `on_notice` one for what such a format cannot hold.

    Raises:
        InputError: the file cannot be read, or nothing in it can be used; one line with its name and the reason.
    """
    return (framed for _, framed in read_pieces(Source(os.fspath(path)), on_problem, on_notice))


def read_pieces(source: Source, on_problem: Say = _unsaid, on_notice: Say = _unsaid) -> Iterator[tuple[int, Framed]]:
    """The same, each piece after an offset: all bytes before it are in this piece and those before.

    Raises:
        InputError: as `read_file` does.
    """
    name = source.name
    report = _Report(lambda problem: on_problem(f"{name}: {problem}"))
    before = offset = 0
    try:
        with source.open() as stream:
            for framed in _frames(stream, report.say, placed(on_notice, name)):
                report.see(framed)
                if stream.tell() > offset:  # pieces that end at one offset are parts of one line or document
                    before, offset = offset, stream.tell()
                yield before, framed
    except InputError as error:
        raise InputError(f"{name}: {error}") from None
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise InputError(f"{name}: broken gzip: {error}") from None
    except OSError as error:
        raise InputError(f"{name}: {error.strerror or error}") from None
    if not report.used:
        raise InputError(f"{name}: {report.first or 'holds no spans'}")


def trace_ids(source: Source) -> Iterator[tuple[int, dict[bytes, int]]]:
    """The ids in an input and the offset at which each was found last, after the number of bytes read so far; in parts.

    An input that cannot be read ends early. That is reported when its pieces are read.
    """
    try:
        with source.open() as stream:
            if _is_surely_text(stream.peek(HEAD)):
                for found in text_ids(stream):
                    yield stream.tell(), found
                return
        for offset, framed in read_pieces(source):
            yield offset + 1, {item[0]: offset for item in (*framed.spans, *framed.logs)}
    except (InputError, OSError, EOFError, zlib.error):
        return


class _Report:
    """Says what was skipped once something was usable; before that it may be that nothing is, and one line is enough."""

    def __init__(self, tell: Say) -> None:
        self._tell = tell
        self._held: list[str] = []
        self.used = False

    @property
    def first(self) -> str:
        return self._held[0] if self._held else ""

    def say(self, problem: str) -> None:
        if self.used:
            self._tell(problem)
        elif len(self._held) < _HELD:
            self._held.append(problem)

    def see(self, framed: Framed) -> None:
        if framed.rejected:
            self.say(f"{framed.rejected} skipped, the first: {framed.why}")
        if not self.used and (framed.spans or framed.logs or framed.own or framed.ignored):
            self.used = True
            for problem in self._held:
                self._tell(problem)


def _frames(stream: io.BufferedReader, say: Say, on_notice: Say) -> Iterator[Framed]:
    head = stream.peek(HEAD)
    if not head:
        raise InputError("is empty")
    if is_console(head):
        return frame_console(stream, say, on_notice)
    if not _may_be_text(head[:_START]):
        return _binary_or_console(stream, say, on_notice)
    if head[:1] != _NEWLINE:
        return frame_text(stream, say)
    return _newline_first(stream, say)


def _binary_or_console(stream: io.BufferedReader, say: Say, on_notice: Say) -> Iterator[Framed]:
    """Protobuf, or spans that follow long text which a program printed."""
    if starts_with_row(stream.peek(HEAD)):
        return frame_row(stream, say)
    data, held = document(stream), list[str]()
    try:
        framed = frame_binary(io.BytesIO(data), held.append)
        for problem in held:
            say(problem)
        return framed
    except InputError:
        if len(data) > MAX_DOCUMENT or not is_console(data):
            raise
        return frame_console(io.BytesIO(data), say, on_notice)


def _is_surely_text(head: bytes) -> bool:
    return is_console(head) or (_may_be_text(head[:_START]) and head[:1] != _NEWLINE)


def _may_be_text(head: bytes) -> bool:
    start = head.lstrip(_BLANK)
    return start[:1] in (b"{", b"[", b"")


def _newline_first(stream: io.BufferedReader, say: Say) -> Iterator[Framed]:
    """A blank line before JSON, or a message whose first length happens to be the code of a bracket."""
    data = stream.read()
    try:
        return iter(list(frame_binary(io.BytesIO(data), say)))
    except InputError:
        return frame_text(io.BytesIO(data), say)
