"""Open a trace file, recognise its format by its first bytes, and yield what can be used.

Broken parts are reported and skipped; a file with nothing usable is refused. Standard input and
pipes are copied to a temporary file, so that every input can be read more than once. JSON is one
document, or one document on each line. JSON and protobuf are read in parts.
"""

from __future__ import annotations

import gzip
import io
import json
import os
import re
import shutil
import stat
import sys
import tempfile
import zlib
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from itertools import chain, islice
from typing import IO, Any, Final, cast

from otel_eval.errors import InputError
from otel_eval.otlp.protobuf import SpanBatch
from otel_eval.records import record
from otel_eval.sources.files import PIECE, Gap, Notify, with_prefix
from otel_eval.sources.files.json_stream import BrokenJson, Cursor, stream_documents
from otel_eval.sources.files.protobuf_stream import stream_requests
from otel_eval.sources.files.translation import is_console, read_console

HEAD: Final = 256 * 1024
"""The bytes from which the format is recognised; a program may have printed log records before the
first span.
"""

_GZIP: Final = b"\x1f\x8b"
BROKEN_GZIP: Final = (EOFError, zlib.error, gzip.BadGzipFile)
"""The exceptions that reading truncated or damaged gzip raises."""


@record
class Input:
    """A file, a pipe or standard input.

    Attributes:
        path: the path of a file, or "-" for standard input.
        copy: a temporary file with the same bytes, if the input itself can be read only once.
    """

    path: str
    copy: IO[bytes] | None = None

    @property
    def name(self) -> str:
        """The name of the input for messages."""
        return "standard input" if self.path == "-" else self.path

    @classmethod
    @contextmanager
    def repeatable(cls, path: str | os.PathLike[str]) -> Iterator[Input]:
        """Yield the input, which can be opened any number of times; a pipe is copied first.

        Raises:
            OSError: the pipe cannot be copied.
        """
        name = os.fspath(path)
        if name != "-" and not _is_pipe(name):
            yield cls(name)
            return
        with tempfile.TemporaryFile() as copy:
            with nullcontext(sys.stdin.buffer) if name == "-" else open(name, "rb") as stream:
                shutil.copyfileobj(stream, copy)
            copy.flush()
            yield cls(name, copy)

    @contextmanager
    def open(self) -> Iterator[io.BufferedReader]:
        """Open the input at its beginning, decompressed if it is gzip.

        Raises:
            OSError: the input cannot be read.
        """
        file = self.path if self.copy is None else self.copy.fileno()
        with io.BufferedReader(
            cast(Any, io.FileIO(file, closefd=self.copy is None)), HEAD
        ) as stream:
            stream.seek(0)  # a copy may have been read before
            is_zipped = stream.peek(2)[:2] == _GZIP
            yield (
                io.BufferedReader(cast(Any, _Unzipped(fileobj=stream)), HEAD)
                if is_zipped
                else stream
            )


def _is_pipe(path: str) -> bool:
    """Whether the path names something that can be read only once; False if it names nothing."""
    try:
        mode = os.stat(path).st_mode
    except (OSError, ValueError):
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


class _Unzipped(gzip.GzipFile):
    """Returns the data before a broken place, which `GzipFile.read` drops, and raises the error at
    the next read.
    """

    def readinto(self, buffer: Any) -> int:
        """Fill the buffer, from which the format is recognised; fill less only at the end of the
        data, or before an error.
        """
        size = 0
        try:
            while size < len(buffer) and (data := self.read1(len(buffer) - size)):
                buffer[size : size + len(data)] = data
                size += len(data)
        except BROKEN_GZIP:
            if not size:
                raise
        return size


BLANK: Final = b"\xef\xbb\xbf \t\r\n"
"""Bytes that may come before JSON; a byte order mark counts as blank."""

_START: Final = 64
_MAX_PROBLEMS: Final = 100
_FLUSH: Final = "check that the traced program ran and flushed its exporter"
_CONTROL: Final = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f]")  # not a tab, nor the end of a line


def _ignore(_: str) -> None:
    """Ignore the line."""


def read_pieces(
    source: Input, on_problem: Notify = _ignore, on_notice: Notify = _ignore
) -> Iterator[tuple[int, SpanBatch]]:
    """Yield the spans and log records of an input in batches, each with an offset: all bytes before
    the offset are in this batch and earlier ones.

    The formats are OTLP/JSON (one document, or one a line), Tempo and Jaeger JSON, OTLP protobuf
    (one message, or many, each after its length), and what the Python SDK's console exporter
    prints; each may be gzipped. `on_problem` is called with one line about every part that was
    skipped, `on_notice` with one about what the format lacks.

    Raises:
        InputError: the input cannot be read, or nothing in it can be used; the message has its name
            and the reason in one line.
    """
    name = source.name
    problems = _SkippedParts(with_prefix(on_problem, name))
    before = offset = 0
    try:
        with source.open() as stream:
            for batch in _batches(stream, problems.add, with_prefix(on_notice, name)):
                problems.add_batch(batch)
                # pieces that end at one offset are parts of one line or document
                if stream.tell() > offset:
                    before, offset = offset, stream.tell()
                yield before, batch
    except InputError as error:
        raise InputError(f"{name}: {error}") from None
    except BROKEN_GZIP as error:
        raise InputError(f"{name}: broken gzip: {error}") from None
    except OSError as error:
        raise InputError(f"{name}: {error.strerror or error}") from None
    if not problems.used:
        raise InputError(f"{name}: {next(iter(problems.unreported), f'holds no spans; {_FLUSH}')}")


class _SkippedParts:
    """Reports skipped parts, but only once something was usable: if nothing is, the error in one
    line is enough.
    """

    def __init__(self, notify: Notify) -> None:
        self._notify = notify
        self.unreported: list[str] = []
        self.used = False

    def add(self, problem: str) -> None:
        """Report a skipped part, now or once something is usable."""
        if self.used:
            self._notify(problem)
        elif len(self.unreported) < _MAX_PROBLEMS:
            self.unreported.append(problem)

    def add_batch(self, batch: SpanBatch) -> None:
        """Report what was rejected in a batch, and what waited if it is the first usable one."""
        if batch.rejected:
            self.add(f"{batch.rejected} skipped, the first: {batch.reason}")
        if not self.used and (batch.spans or batch.logs or batch.own or batch.ignored):
            self.used = True
            for problem in self.unreported:
                self._notify(problem)


def _batches(
    stream: io.BufferedReader, on_problem: Notify, on_notice: Notify
) -> Iterator[SpanBatch]:
    """Yield the batches of an input by the format that its first bytes show."""
    head = stream.peek(HEAD)
    if not head:
        raise InputError(f"is empty; {_FLUSH}")
    if is_console(head):
        return read_console(stream, on_problem, on_notice)
    return (read_text if _may_be_text(head) else stream_requests)(stream, on_problem)


def is_surely_text(head: bytes) -> bool:
    """Whether an input with these first bytes is JSON or console output, in which a pattern finds
    the ids.
    """
    return is_console(head) or _may_be_text(head)


def _may_be_text(head: bytes) -> bool:
    """Whether it is JSON, not protobuf that begins with the code of a bracket or a blank: protobuf
    has control characters, for instance as the tag of a value, and JSON has none.
    """
    start = head[:_START]
    return start.lstrip(BLANK)[:1] in (b"{", b"[", b"") and _CONTROL.search(start) is None


_LINE: Final = 2 * 1024 * 1024  # bytes of a line that are decoded at once
_AHEAD: Final = 64  # lines after a broken first one that may show that each line is a document


def read_text(stream: io.BufferedIOBase, on_problem: Notify) -> Iterator[SpanBatch]:
    """Yield the spans and log records of a text file: of one JSON document on each line, or of
    documents over several lines.

    Raises:
        InputError: the file is one document that is not JSON, or not one of traces or logs.
    """
    lines = iter(partial(stream.readline, _LINE), b"")  # only the beginning of a long line
    skipped = 0
    while (first := next(lines, b"")) and not first.strip(BLANK):
        skipped += 1
    if _is_long(first) or _is_json(first):
        return _read_lines(chain([first], lines), stream, skipped + 1, on_problem)
    # This is a document over several lines, or the first of several documents is broken.
    ahead = list(islice(lines, _AHEAD))
    if any(_is_json(line, dict) for line in ahead):
        return _read_lines(chain([first], ahead, lines), stream, skipped + 1, on_problem)
    begin = b"\n" * skipped + first + b"".join(ahead)
    return stream_documents(
        Cursor(chain([begin], iter(partial(stream.read1, PIECE), b""))), on_problem
    )


def _is_long(line: bytes) -> bool:
    return len(line) == _LINE and not line.endswith(b"\n")


def _line_pieces(first: bytes, stream: io.BufferedIOBase) -> Iterator[bytes]:
    """Yield a line in pieces, the first of which is already read; a short line is one piece."""
    piece = first
    while piece:
        yield piece
        piece = b"" if piece.endswith(b"\n") else stream.readline(_LINE)


def _is_json(line: bytes, kind: type = object) -> bool:
    """Whether the line is a JSON value of this type."""
    try:
        return isinstance(json.loads(line.strip(BLANK)), kind)
    except (ValueError, RecursionError):
        return False


def _read_lines(
    lines: Iterable[bytes], stream: io.BufferedIOBase, first: int, on_problem: Notify
) -> Iterator[SpanBatch]:
    """Yield the batches of a text with one document on each line, a gap for a line that cannot be
    read; `first` is the number of the first line.
    """
    for number, line in enumerate(lines, first):
        if not line.strip(BLANK):
            continue
        pieces = _line_pieces(line, stream)
        try:
            yield from stream_documents(
                Cursor(pieces, number), with_prefix(on_problem, f"line {number}")
            )
        except InputError as error:
            on_problem(str(error) if isinstance(error, BrokenJson) else f"line {number}: {error}")
            deque(pieces, maxlen=0)  # skip the rest of the line
            yield Gap()
