"""Every trace of stored inputs, whole, as soon as the last of its spans was read.

A first pass finds after which byte each trace is complete, in bounded memory; ids in JSON are found by a pattern, without
parsing, and other text that looks like one costs nothing but an entry. The second pass parses, and closes each trace there. So a
trace that is spread over several files is never evaluated in parts, and only traces that are open at one time take memory; what
of them is more than `traces.max_bytes` is written to a temporary file.
"""

from __future__ import annotations

import json
import os
import re
import sqlite3
import tempfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from io import BufferedIOBase
from itertools import chain
from math import inf
from sys import maxsize
from typing import IO, Any, Final

from otel_eval.assembly import Limits, TraceBuffer
from otel_eval.assembly.open_trace import SPAN_OVERHEAD_BYTES
from otel_eval.errors import InputError
from otel_eval.interfaces import ClosedTrace
from otel_eval.otlp import SpanBatch, read_logs, read_traces, reserialize_logs, reserialize_traces
from otel_eval.sources.files.binary import PIECE, Gap, Say
from otel_eval.sources.files.reader import HEAD, Input, is_surely_text, read_pieces
from otel_eval.sources.files.translation import hex_of

_UNREAD: Final = "an input could not be read to its end"
_SLICES: Final = 8  # of `max_bytes`, one of which is put into the buffer before room is looked at


def read_whole_traces(
    paths: Iterable[str | os.PathLike[str]],
    limits: Limits,
    *,
    on_problem: Say,
    on_notice: Say,
    on_progress: Callable[[int], None] | None = None,
) -> Iterator[ClosedTrace]:
    """The traces of the files, in the order in which they end.

    Args:
        paths: files of traces; "-" is standard input.
        limits: the sizes of them count, the times and `max_traces` do not.
        on_problem: called with one line about each file or part of one that cannot be used.
        on_notice: called with one line about each file whose format lacks something.
        on_progress: called with the number of bytes of input read since the last call.
    """
    with ExitStack() as stack:
        sources = []
        for path in paths:
            try:
                sources.append(stack.enter_context(Input.repeatable(path)))
            except OSError as error:
                on_problem(f"{Input(os.fspath(path)).name}: {error.strerror or error}")
        last = stack.enter_context(LastPositions())
        ends = _index(sources, last)
        traces = _Traces(limits, last.in_order(), Spill(stack.enter_context(tempfile.TemporaryFile())))
        begin = 0
        for source, end in zip(sources, ends, strict=True):
            yield from _read(source, begin, end, traces, on_problem, on_notice)
            if on_progress and source.path != "-":
                on_progress(os.path.getsize(source.path) if os.path.isfile(source.path) else 0)
            begin = end
        yield from traces.finish(on_problem)


def _read(source: Input, begin: int, end: int, traces: _Traces, on_problem: Say, on_notice: Say) -> Iterator[ClosedTrace]:
    """The traces that end in an input, which has the bytes from `begin` to `end` of all inputs."""
    before, lost = 0, ""
    try:
        for offset, batch in read_pieces(source, on_problem, on_notice):
            if begin + offset >= end:  # written since the first pass
                break
            yield from traces.push(batch)
            if offset > before:
                yield from traces.close_before(begin + offset, lost)
                before, lost = offset, ""
            if isinstance(batch, Gap):
                lost = _UNREAD
    except InputError as error:  # a file that cannot be read costs itself, not the others
        on_problem(str(error))
        lost = _UNREAD
    yield from traces.close_before(end, lost)


def _index(sources: Sequence[Input], last: LastPositions) -> list[int]:
    """Find where each trace ends; the offset at which each input does, all of them taken as one."""
    begin, ends = 0, []
    for source in sources:
        end = begin
        for length, found in trace_ids(source):
            last.add((trace_id, begin + offset) for trace_id, offset in found.items())
            end = begin + length
        ends.append(end)
        begin = end
    return ends


class _Traces:
    """The open traces.

    Args:
        ends: every trace after the position of its last span, ascending.
    """

    def __init__(self, limits: Limits, ends: Iterator[tuple[int, bytes]], spill: Spill) -> None:
        waits: dict[str, Any] = dict.fromkeys(
            ("decision_wait_s", "decision_wait_partial_s", "grace_period_s", "idle_s", "max_age_s"), inf
        )
        self._buffer: Final = TraceBuffer(replace(limits, max_traces=maxsize, **waits))
        self._ends: Final = ends
        self._next = next(ends, None)
        self._spill: Final = spill

    def push(self, batch: SpanBatch) -> Iterator[ClosedTrace]:
        """Take a piece; traces that a limit closed."""
        for items, push in ((batch.spans, self._buffer.push_many), (batch.logs, self._buffer.push_logs)):
            for some, size in _slices(items, self._buffer.limits.max_bytes // _SLICES):
                self._make_room(size)
                push(some, 0.0)
        yield from self._buffer.pop_closed(0.0)

    def _make_room(self, size: int) -> None:
        """Write the oldest traces to the file if so many bytes more do not fit, until half of the room is free."""
        most = self._buffer.limits.max_bytes
        if self._buffer.open_bytes + size > most:
            while self._buffer.open_bytes > most // 2 and (trace_id := self._buffer.oldest) is not None:
                self._write(trace_id)

    def _write(self, trace_id: bytes) -> None:
        held = self._buffer.held(trace_id)
        if held is not None:
            self._spill.put(held)
            self._buffer.drop(trace_id)

    def close_before(self, position: int, lost: str = "") -> Iterator[ClosedTrace]:
        """The traces whose last span was found before the position; `lost` is why spans of theirs may be missing."""
        while self._next is not None and self._next[0] < position:
            for trace in self._close(self._next[1]):
                yield replace(trace, cut=trace.cut or lost) if lost else trace
            self._next = next(self._ends, None)

    def _close(self, trace_id: bytes) -> Iterator[ClosedTrace]:
        if trace_id in self._spill:
            self._write(trace_id)  # so that its parts come back in order
            for batch in self._spill.take(trace_id):
                yield from self.push(batch)
        yield from self._buffer.close(trace_id, 0.0)
        self._buffer.drop(trace_id)

    def finish(self, on_problem: Say) -> Iterator[ClosedTrace]:
        """Whatever is left."""
        left = 0
        for trace_id in chain(self._spill.ids(), iter(lambda: self._buffer.oldest, None)):
            left += 1
            yield from self._close(trace_id)
        if left:
            on_problem(f"{left} traces may have been evaluated in parts: their ids are written in an unusual way")
        if early := self._buffer.tally.traces_over_limit:
            on_problem(f"{early} traces were evaluated early; raise traces.max_bytes")


def _slices(items: Sequence[Any], most_bytes: int) -> Iterator[tuple[Any, int]]:
    """The items in order, some at a time, and how much memory these take: hardly more than the bytes given."""
    begin = size = 0
    for end, item in enumerate(items, 1):
        size += item[3] + SPAN_OVERHEAD_BYTES
        if size >= most_bytes or end == len(items):
            yield items[begin:end], size
            begin, size = end, 0


_NUMBER: Final = 8  # bytes
_NONE: Final = 2**64 - 1


class Spill:
    """Parts of traces. Each is written after the place of the part of the same trace before it, so that memory holds only
    the place of the last one.
    """

    def __init__(self, file: IO[bytes]) -> None:
        self._file: Final = file
        self._last: Final[dict[bytes, int]] = {}

    def __contains__(self, trace_id: bytes) -> bool:
        return trace_id in self._last

    def put(self, trace: ClosedTrace) -> None:
        """Write what is held of a trace."""
        bodies = (
            reserialize_traces(trace.frames.values()),
            reserialize_logs(record for records in trace.logs.values() for record in records),
        )
        before = self._last.get(trace.trace_id, _NONE)
        self._last[trace.trace_id] = self._file.seek(0, 2)
        self._file.write(b"".join(each.to_bytes(_NUMBER) for each in (before, *map(len, bodies))) + b"".join(bodies))

    def take(self, trace_id: bytes) -> Iterator[SpanBatch]:
        """The parts of a trace in the order in which they were written; nothing is known of it afterwards."""
        places = []
        place = self._last.pop(trace_id, _NONE)
        while place != _NONE:
            places.append(place)
            self._file.seek(place)
            place = int.from_bytes(self._file.read(_NUMBER))
        for each in reversed(places):
            self._file.seek(each + _NUMBER)
            spans, logs = (int.from_bytes(self._file.read(_NUMBER)) for _ in range(2))
            yield read_traces(self._file.read(spans))
            yield read_logs(self._file.read(logs))

    def ids(self) -> list[bytes]:
        """The traces of which parts are here."""
        return list(self._last)


def trace_ids(source: Input) -> Iterator[tuple[int, dict[bytes, int]]]:
    """The ids in an input and the offset at which each was found last, after the number of bytes read so far; in parts.

    An input that cannot be read ends early. That is reported when its pieces are read.
    """
    try:
        with source.open() as stream:
            if is_surely_text(stream.peek(HEAD)):
                for found in text_ids(stream):
                    yield stream.tell(), found
                return
        for offset, batch in read_pieces(source):
            yield offset + 1, {item[0]: offset for item in (*batch.spans, *batch.logs)}
    except (InputError, OSError, EOFError, zlib.error):
        return


_TRACE_ID: Final = re.compile(rb'"trace_?[iI][dD]"\s{0,32}:\s{0,32}"([^"]{1,64})"')
_LONGEST: Final = 160  # bytes that the pattern may match
_IDS_AT_ONCE: Final = 2**16


def text_ids(stream: BufferedIOBase) -> Iterator[dict[bytes, int]]:
    """Trace ids in JSON of any of the formats, by the offset at which each was found last; in several parts."""
    found: dict[bytes, int] = {}
    kept, start = b"", 0
    while piece := stream.read(PIECE):
        text = kept + piece
        for match in _TRACE_ID.finditer(text):
            found[match[1]] = start + match.start()
        kept = text[-_LONGEST:]
        start += len(text) - len(kept)
        if len(found) > _IDS_AT_ONCE:
            yield _decoded(found)
            found = {}
    yield _decoded(found)


def _decoded(found: dict[bytes, int]) -> dict[bytes, int]:
    ids: dict[bytes, int] = {}
    for text, offset in found.items():
        trace_id = _trace_id(text)
        if trace_id is not None:
            ids[trace_id] = max(offset, ids.get(trace_id, 0))
    return ids


def _trace_id(text: bytes) -> bytes | None:
    """The id's 16 bytes, written in hexadecimal, shortened or after "0x", or in base64; None if it is neither."""
    try:
        value = json.loads(b'"' + text + b'"').removeprefix("0x")
        trace_id = bytes.fromhex(hex_of(value).rjust(32, "0"))
    except ValueError:
        return None
    return trace_id if len(trace_id) == 16 else None


class LastPositions:
    """Takes ids of 16 bytes with positions; gives each id once, with the last of its positions.

    They are in a database without a name, which SQLite keeps in memory and, beyond a cache of 50 MiB, in a temporary file.
    """

    def __init__(self) -> None:
        # A generator may be continued by another thread than began it. Nothing has to outlast the process: no journal, no sync.
        self._db: Final = sqlite3.connect("", isolation_level=None, check_same_thread=False)
        for each in ("PRAGMA cache_size = -51200", "PRAGMA journal_mode = OFF", "PRAGMA synchronous = OFF", _TABLE):
            self._db.execute(each)

    def __enter__(self) -> LastPositions:
        return self

    def __exit__(self, *_: Any) -> None:
        self._db.close()

    def add(self, found: Iterable[tuple[bytes, int]]) -> None:
        """Take ids and positions, in any order.

        Raises:
            OSError: there is no room for them.
        """
        try:
            self._db.execute("BEGIN")  # or each would be written by itself
            self._db.executemany(_ADD, found)
            self._db.execute("COMMIT")
        except sqlite3.OperationalError as error:
            raise OSError(f"a temporary file: {error}") from None

    def in_order(self) -> Iterator[tuple[int, bytes]]:
        """Every id after its last position, in the order of these positions."""
        try:
            # Not `yield from`, which would close the cursor of a reader that stopped: by then the database is closed.
            for row in self._db.execute("SELECT position, id FROM last ORDER BY position, id"):  # noqa: UP028
                yield row
        except sqlite3.OperationalError as error:
            raise OSError(f"a temporary file: {error}") from None


_TABLE: Final = "CREATE TABLE last (id BLOB PRIMARY KEY, position INTEGER) WITHOUT ROWID"
_ADD: Final = "INSERT INTO last VALUES (?, ?) ON CONFLICT (id) DO UPDATE SET position = max(position, excluded.position)"
