"""A file, whatever it holds: open it, see what it is, yield what can be used.

Knows how the formats are told apart, by their bytes and never by the file's name. What is broken is said and skipped; a
file with nothing usable at all is refused.
"""

from __future__ import annotations

import gzip
import io
import os
import sys
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from otel_eval.errors import InputError
from otel_eval.sources.files.binary import MAX_DOCUMENT, Say, document, frame_binary, placed
from otel_eval.sources.files.console import frame_console, is_console
from otel_eval.sources.files.lines import frame_text
from otel_eval.sources.otlp import Framed

__all__ = ["read_file"]

_GZIP: Final = b"\x1f\x8b"
_BLANK: Final = b"\xef\xbb\xbf \t\r\n"  # a byte order mark counts as blank
_HEAD: Final = 256 * 1024  # bytes in which the format shows, although log records may be printed before the first span
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
    name = "standard input" if os.fspath(path) == "-" else os.fspath(path)
    report = _Report(lambda problem: on_problem(f"{name}: {problem}"))
    try:
        with _opened(path) as stream:
            for framed in _frames(stream, report.say, placed(on_notice, name)):
                report.see(framed)
                yield framed
    except InputError as error:
        raise InputError(f"{name}: {error}") from None
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise InputError(f"{name}: broken gzip: {error}") from None
    except OSError as error:
        raise InputError(f"{name}: {error.strerror or error}") from None
    if not report.used:
        raise InputError(f"{name}: {report.first or 'holds no spans'}")


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


@contextmanager
def _opened(path: str | os.PathLike[str]) -> Iterator[io.BufferedReader]:
    """The bytes of the file, unzipped if they are gzip."""
    if os.fspath(path) == "-":
        stdin: Any = sys.stdin.buffer
        stream = io.BufferedReader(stdin, _HEAD)
        try:
            yield _unzipped(stream)
        finally:
            stream.detach()  # or standard input would be closed with it
        return
    with open(path, "rb", buffering=0) as raw:
        yield _unzipped(io.BufferedReader(raw, _HEAD))


def _unzipped(stream: io.BufferedReader) -> io.BufferedReader:
    if stream.peek(2)[:2] != _GZIP:
        return stream
    member: Any = gzip.GzipFile(fileobj=stream)
    return io.BufferedReader(member, _HEAD)


def _frames(stream: io.BufferedReader, say: Say, on_notice: Say) -> Iterator[Framed]:
    head = stream.peek(64)
    if not head:
        raise InputError("is empty")
    if is_console(head):
        return frame_console(stream, say, on_notice)
    if not _may_be_text(head[:64]):
        return _binary_or_console(stream, say, on_notice)
    if head[:1] != _NEWLINE:
        return frame_text(stream, say)
    return _newline_first(stream, say)


def _binary_or_console(stream: io.BufferedReader, say: Say, on_notice: Say) -> Iterator[Framed]:
    """Protobuf, or spans that follow long text which a program printed."""
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
