"""Open a trace file, recognise its format by its bytes, and yield what can be used.

Broken parts are reported and skipped; a file with nothing usable is refused. Standard input and pipes are copied to a temporary
file, so that every input can be read more than once. JSON is one document, or one a line; of neither more than a part is held.
Protobuf is one message, or messages that each follow their length.
"""

from __future__ import annotations

import gzip
import io
import json
import os
import shutil
import stat
import sys
import tempfile
import zlib
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice
from typing import IO, Any, Final, cast

from otel_eval.errors import InputError
from otel_eval.otlp.protobuf import SpanBatch, read_logs, read_traces
from otel_eval.sources.files import FORMATS, MAX_DOCUMENT, PIECE, Gap, Notify, placed
from otel_eval.sources.files.json_stream import BrokenJson, Cursor, stream_documents
from otel_eval.sources.files.translation import frame_console, is_console
from otel_eval.wire import read_varint

HEAD: Final = 256 * 1024
"""Bytes in which the format shows, although log records may be printed before the first span."""

_GZIP: Final = b"\x1f\x8b"
BROKEN_GZIP: Final = (EOFError, zlib.error, gzip.BadGzipFile)
"""What reading gzip that was cut or damaged raises."""


@dataclass(frozen=True, slots=True)
class Input:
    """One input.

    Attributes:
        path: of a file, or "-" for standard input.
        copy: its bytes, where it can be read only once.
    """

    path: str
    copy: IO[bytes] | None = None

    @property
    def name(self) -> str:
        """For messages."""
        return "standard input" if self.path == "-" else self.path

    @classmethod
    @contextmanager
    def repeatable(cls, path: str | os.PathLike[str]) -> Iterator[Input]:
        """The input, to be opened any number of times; a pipe is copied first.

        Raises:
            OSError: it cannot be copied.
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
        """The bytes from the beginning, decompressed if they are gzip.

        Raises:
            OSError: they cannot be read.
        """
        place = self.path if self.copy is None else self.copy.fileno()
        with io.BufferedReader(cast(Any, io.FileIO(place, closefd=self.copy is None)), HEAD) as stream:
            stream.seek(0)  # a copy may have been read before
            is_zipped = stream.peek(2)[:2] == _GZIP
            yield io.BufferedReader(cast(Any, _Unzipped(fileobj=stream)), HEAD) if is_zipped else stream


def _is_pipe(path: str) -> bool:
    """Whether what the path names, if anything, can be read only once."""
    try:
        mode = os.stat(path).st_mode
    except (OSError, ValueError):
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


class _Unzipped(gzip.GzipFile):
    """Gives what comes before a broken place, which `read` drops, and raises the error after it."""

    def readinto(self, buffer: Any) -> int:
        """Fill the buffer, as the format has to show in it; less only at the end, or before an error."""
        size = 0
        try:
            while size < len(buffer) and (data := self.read1(len(buffer) - size)):
                buffer[size : size + len(data)] = data
                size += len(data)
        except BROKEN_GZIP:
            if not size:
                raise
        return size


_BLANK: Final = b"\xef\xbb\xbf \t\r\n"  # a byte order mark counts as blank
_START: Final = 64
_HELD: Final = 100
_FLUSH: Final = "check that the traced program ran and flushed its exporter"
_NEWLINE: Final = b"\n"  # also the first byte of every OTLP message in protobuf


def _ignore(_: str) -> None:
    """Do not report."""


def read_file(path: str | os.PathLike[str], on_problem: Notify = _ignore, on_notice: Notify = _ignore) -> Iterator[SpanBatch]:
    """What a file of traces holds, piece by piece; "-" is standard input.

    OTLP/JSON (one document, or one a line), Tempo and Jaeger JSON, and OTLP protobuf (one message, or many, each after
    its length); each may be gzipped; and what the Python SDK's console exporter prints. `on_problem` gets one line for
    every part that was skipped, `on_notice` one for what such a format cannot hold.

    Raises:
        InputError: the file cannot be read, or nothing in it can be used; one line with its name and the reason.
    """
    with Input.repeatable(path) as source:
        yield from (batch for _, batch in read_pieces(source, on_problem, on_notice))


def read_pieces(source: Input, on_problem: Notify = _ignore, on_notice: Notify = _ignore) -> Iterator[tuple[int, SpanBatch]]:
    """The same, each piece after an offset: all bytes before it are in this piece and those before.

    Raises:
        InputError: as `read_file` does.
    """
    name = source.name
    problems = _SkippedParts(lambda problem: on_problem(f"{name}: {problem}"))
    before = offset = 0
    try:
        with source.open() as stream:
            for batch in _frames(stream, problems.add, placed(on_notice, name)):
                problems.see(batch)
                if stream.tell() > offset:  # pieces that end at one offset are parts of one line or document
                    before, offset = offset, stream.tell()
                yield before, batch
    except InputError as error:
        raise InputError(f"{name}: {error}") from None
    except BROKEN_GZIP as error:
        raise InputError(f"{name}: broken gzip: {error}") from None
    except OSError as error:
        raise InputError(f"{name}: {error.strerror or error}") from None
    if not problems.used:
        raise InputError(f"{name}: {next(iter(problems.held), f'holds no spans; {_FLUSH}')}")


class _SkippedParts:
    """Reports what was skipped once something was usable; if nothing is, the error in one line is enough."""

    def __init__(self, notify: Notify) -> None:
        self._notify = notify
        self.held: list[str] = []
        self.used = False

    def add(self, problem: str) -> None:
        if self.used:
            self._notify(problem)
        elif len(self.held) < _HELD:
            self.held.append(problem)

    def see(self, batch: SpanBatch) -> None:
        if batch.rejected:
            self.add(f"{batch.rejected} skipped, the first: {batch.why}")
        if not self.used and (batch.spans or batch.logs or batch.own or batch.ignored):
            self.used = True
            for problem in self.held:
                self._notify(problem)


def _frames(stream: io.BufferedReader, on_problem: Notify, on_notice: Notify) -> Iterator[SpanBatch]:
    head = stream.peek(HEAD)
    if not head:
        raise InputError(f"is empty; {_FLUSH}")
    if is_console(head):
        return frame_console(stream, on_problem, on_notice)
    if not _may_be_text(head):
        return frame_row(stream, on_problem) if starts_with_row(head) else frame_binary(stream, on_problem)
    if head.startswith(_NEWLINE) and starts_with_message(head):
        return _newline_first(stream, on_problem)
    return frame_text(stream, on_problem)


def is_surely_text(head: bytes) -> bool:
    """Whether an input that begins so is JSON or the console's, so that ids in it can be found by a pattern."""
    return is_console(head) or (_may_be_text(head) and not head.startswith(_NEWLINE))


def _may_be_text(head: bytes) -> bool:
    return head[:_START].lstrip(_BLANK)[:1] in (b"{", b"[", b"")


def _newline_first(stream: io.BufferedReader, on_problem: Notify) -> Iterator[SpanBatch]:
    """A blank line before JSON, or a message whose first length happens to be the code of a bracket."""
    data = stream.read()
    with suppress(InputError):
        return frame_binary(io.BytesIO(data), on_problem)
    return frame_text(io.BytesIO(data), on_problem)


_LINE: Final = 2 * 1024 * 1024  # bytes of a line that are decoded at once
_AHEAD: Final = 64  # lines after a broken first one that may show that each line is a document


def frame_text(stream: io.BufferedIOBase, on_problem: Notify) -> Iterator[SpanBatch]:
    """The spans of a text file: of JSON documents on a line each, or of documents that span many lines.

    Raises:
        InputError: the file is one document, and not JSON or none of a trace.
    """
    lines = iter(partial(stream.readline, _LINE), b"")  # of long ones the beginning
    skipped = 0
    while (first := next(lines, b"")) and not first.strip(_BLANK):
        skipped += 1
    if _is_long(first) or _holds(first):
        return _lines(chain([first], lines), stream, skipped + 1, on_problem)
    # A document over many lines, or lines of which the first is broken.
    ahead = list(islice(lines, _AHEAD))
    if any(_holds(line, dict) for line in ahead):
        return _lines(chain([first], ahead, lines), stream, skipped + 1, on_problem)
    begin = b"\n" * skipped + first + b"".join(ahead)
    return stream_documents(Cursor(chain([begin], iter(partial(stream.read1, PIECE), b""))), on_problem)


def _is_long(line: bytes) -> bool:
    return len(line) == _LINE and not line.endswith(b"\n")


def _line(first: bytes, stream: io.BufferedIOBase) -> Iterator[bytes]:
    """The line in pieces, of which a short one has one."""
    piece = first
    while piece:
        yield piece
        piece = b"" if piece.endswith(b"\n") else stream.readline(_LINE)


def _holds(line: bytes, wanted: type = object) -> bool:
    """Whether the line is JSON of such a value."""
    try:
        return isinstance(json.loads(line.strip(_BLANK)), wanted)
    except (ValueError, RecursionError):
        return False


def _lines(lines: Iterable[bytes], stream: io.BufferedIOBase, first: int, on_problem: Notify) -> Iterator[SpanBatch]:
    for number, line in enumerate(lines, first):
        if not line.strip(_BLANK):
            continue
        pieces = _line(line, stream)
        try:
            yield from stream_documents(Cursor(pieces, number), placed(on_problem, f"line {number}"))
        except InputError as error:
            on_problem(str(error) if isinstance(error, BrokenJson) else f"line {number}: {error}")
            deque(pieces, maxlen=0)  # what is left of the line
            yield Gap()


_LONGEST_VARINT: Final = 10  # bytes


def frame_binary(stream: io.BufferedIOBase, on_problem: Notify) -> Iterator[SpanBatch]:
    """The messages of a file in protobuf. Which signal a message is shows only in whether its members are spans.

    Raises:
        InputError: it is neither one message nor a row of them.
    """
    # Piece by piece: a single `read` makes room for all that it may return, however short the file is.
    data = b"".join(islice(iter(partial(stream.read, PIECE), b""), MAX_DOCUMENT // PIECE + 1))
    if len(data) > MAX_DOCUMENT:
        raise InputError(f"is greater than {MAX_DOCUMENT} bytes; split it")
    with suppress(InputError):
        if _has_items(whole := _message(data)):
            return iter((whole,))
    batches = list(frame_row(io.BytesIO(data), on_problem))
    if not any(map(_has_items, batches)):
        raise InputError(f"is not a complete file of traces; {FORMATS}")
    return iter(batches)


def _message(data: bytes) -> SpanBatch:
    traces = read_traces(data)
    if traces.spans or traces.own or not traces.rejected:
        return traces
    logs = read_logs(data)
    return logs if logs.logs or logs.own else traces


def starts_with_row(head: bytes) -> bool:
    """Whether the first bytes are a whole message with spans or log records after its length.

    A single message starts with the tag 10, and as a length that leaves no room for the ids of a span.
    """
    size, part = next(_delimited(io.BytesIO(head)), (0, b""))
    try:
        return len(part) == size and _has_items(_message(part))
    except InputError:
        return False


def starts_with_message(head: bytes) -> bool:
    """Whether a message stands behind the first tag and its length, which is one byte: so a newline can begin JSON as well."""
    try:
        return len(head) > 1 and bool(_message(head[: 2 + head[1]]))
    except InputError:
        return False


def frame_row(stream: io.BufferedIOBase, on_problem: Notify) -> Iterator[SpanBatch]:
    """Read length-delimited messages, up to the first incomplete one."""
    for number, (size, part) in enumerate(_delimited(stream), 1):
        if not size or len(part) < size:
            on_problem(f"message {number}: it is cut or has no length; nothing after it was read")
            yield Gap()
            return
        try:
            yield _message(part)
        except InputError as error:
            on_problem(f"message {number}: {error}")


def _has_items(batch: SpanBatch) -> bool:
    return bool(batch.spans or batch.logs or batch.own)


def _delimited(stream: io.BufferedIOBase) -> Iterator[tuple[int, bytes]]:
    """The length of every message, and what is there of it."""
    while first := stream.read(1):
        size = _length(first, stream)
        yield size, stream.read(size) if size <= MAX_DOCUMENT else b""


def _length(first: bytes, stream: io.BufferedIOBase) -> int:
    """A length: a varint, or four bytes as the Collector's file exporter writes, of which the first is 0; 0 if it is cut."""
    if first == b"\0":
        return int.from_bytes(stream.read(3))
    varint = first
    while varint[-1] >= 0x80 and len(varint) < _LONGEST_VARINT and (byte := stream.read(1)):
        varint += byte
    return read_varint(varint, 0)[0] if varint[-1] < 0x80 else 0
