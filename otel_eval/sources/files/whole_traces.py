"""Read every trace of stored inputs as a whole, as soon as its last span was read.

A first pass finds the byte after which each trace is complete, in bounded memory. A pattern finds
the ids in JSON, without parsing; other text that matches costs no more than an entry. The second
pass parses, and closes each trace at that byte. So a trace that is spread over several files is
never evaluated in parts, and only traces that are open at the same time take memory; those that
exceed `traces.max_bytes` together are written to a temporary file.
"""

from __future__ import annotations

import json
import os
import re
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import replace
from functools import lru_cache
from io import BufferedIOBase
from itertools import chain
from math import inf
from sys import maxsize
from typing import Any, Final

from otel_eval.assembly import SPAN_OVERHEAD_BYTES, Limits, TraceBuffer
from otel_eval.errors import InputError
from otel_eval.interfaces import ClosedTrace
from otel_eval.otlp.protobuf import (
    SpanBatch,
    read_logs,
    read_traces,
    reserialize_logs,
    reserialize_traces,
)
from otel_eval.sources.files import PIECE, Gap, ReadingListener
from otel_eval.sources.files.reader import BROKEN_GZIP, HEAD, Input, is_surely_text, read_pieces
from otel_eval.sources.files.translation import hex_of

_UNREAD: Final = "an input could not be read to its end"
# parts of `max_bytes`; memory is checked before each part is added to the buffer
_SLICES: Final = 8


def read_whole_traces(
    paths: Iterable[str | os.PathLike[str]],
    limits: Limits,
    listener: ReadingListener,
) -> Iterator[ClosedTrace]:
    """Yield the traces of the files in the order in which they end.

    Args:
        paths: files of traces; "-" is standard input.
        limits: only the limits of sizes apply, not the times and `max_traces`.
        listener: told of problems, notices and progress.
    """
    with ExitStack() as stack:
        sources = [*_open_inputs(paths, stack, listener)]
        index = stack.enter_context(TraceIndex(min(limits.max_bytes // 2, _MOST_CACHED)))
        ends = _index_traces(sources, index)
        traces = _Traces(limits, index)
        begin, total = 0, ends[-1] if ends else 0
        for source, end in zip(sources, ends, strict=True):
            listener.advance(begin, total)
            cut = ""
            try:
                for offset, batch in read_pieces(source, listener.problem, listener.notice):
                    if begin + offset >= end:  # written since the first pass
                        break
                    yield from traces.push(batch)
                    if begin + offset > traces.position:
                        listener.advance(begin + offset, total)
                        yield from traces.close_before(begin + offset, cut)
                        cut = ""
                    if isinstance(batch, Gap):
                        cut = _UNREAD
            except InputError as error:  # the other files are still read
                listener.problem(str(error))
                cut = _UNREAD
            yield from traces.close_before(end, cut)
            begin = end
        listener.advance(begin, total)
        yield from traces.finish(listener)


def _open_inputs(
    paths: Iterable[str | os.PathLike[str]], stack: ExitStack, listener: ReadingListener
) -> Iterator[Input]:
    """Yield the inputs; those that cannot be read are reported."""
    for path in paths:
        try:
            yield stack.enter_context(Input.repeatable(path))
        except OSError as error:
            listener.problem(f"{Input(os.fspath(path)).name}: {error.strerror or error}")


def _index_traces(sources: Sequence[Input], index: TraceIndex) -> list[int]:
    """Add the last offset of each trace to the index; return where each input ends. Offsets count
    over all inputs joined.
    """
    begin, ends = 0, []
    for source in sources:
        end = begin
        for length, offsets in last_offsets(source):
            index.add((trace_id, begin + offset) for trace_id, offset in offsets.items())
            end = begin + length
        ends.append(end)
        begin = end
    return ends


class _Traces:
    """The traces that are open in the second pass.

    Args:
        index: where each trace ends; also stores the spans that exceed `max_bytes`.

    Attributes:
        position: before which traces were closed last.
    """

    def __init__(self, limits: Limits, index: TraceIndex) -> None:
        self._buffer: Final = TraceBuffer(
            replace(
                limits,
                max_traces=maxsize,
                idle_s=inf,
                max_age_s=inf,
                grace_period_s=inf,
                decision_wait_s=inf,
                decision_wait_partial_s=inf,
            )
        )
        self._index: Final = index
        self._ends: Final = index.in_order()
        self._next = next(self._ends, None)
        self.position = 0

    def push(self, batch: SpanBatch) -> Iterator[ClosedTrace]:
        """Add a batch, and yield the traces that a limit closed."""
        for items, push in (
            (batch.spans, self._buffer.push_many),
            (batch.logs, self._buffer.push_logs),
        ):
            for part, size in _slices(items, self._buffer.limits.max_bytes // _SLICES):
                self._free_memory(size)
                push(part, 0.0)
        yield from self._buffer.pop_closed(0.0)

    def _free_memory(self, size: int) -> None:
        """If `size` more bytes exceed `max_bytes`, write the oldest traces to the index until half
        of `max_bytes` is free.
        """
        limit = self._buffer.limits.max_bytes
        if self._buffer.open_bytes + size > limit:
            while (
                self._buffer.open_bytes > limit // 2
                and (trace_id := self._buffer.oldest) is not None
            ):
                self._write_to_index(trace_id)

    def _write_to_index(self, trace_id: bytes) -> None:
        trace = self._buffer.held(trace_id)
        if trace is not None:
            self._index.put(trace)
            self._buffer.drop(trace_id)

    def close_before(self, position: int, cut: str = "") -> Iterator[ClosedTrace]:
        """Close and yield the traces whose last span is before the position; `cut` is why spans of
        theirs may be missing.
        """
        self.position = position
        while self._next is not None and self._next[0] < position:
            for trace in self._close(self._next[1]):
                yield replace(trace, cut=trace.cut or cut) if cut else trace
            self._next = next(self._ends, None)

    def _close(self, trace_id: bytes) -> Iterator[ClosedTrace]:
        """Close a trace, with what was written of it to the index."""
        if self._index.has_parts(trace_id):
            self._write_to_index(trace_id)  # so that its parts are read in order
            for batch in self._index.pop(trace_id):
                yield from self.push(batch)
        yield from self._buffer.close(trace_id, 0.0)
        self._buffer.drop(trace_id)

    def finish(self, listener: ReadingListener) -> Iterator[ClosedTrace]:
        """Close and yield all other traces, and report how many may have been evaluated in
        parts.
        """
        unclosed = 0
        for trace_id in chain(self._index.ids(), iter(lambda: self._buffer.oldest, None)):
            unclosed += 1
            yield from self._close(trace_id)
        if unclosed:
            listener.problem(
                f"{unclosed} traces may have been evaluated in parts: their ids are written in an"
                " unusual way"
            )
        if early := self._buffer.counts.traces_over_limit:
            listener.problem(f"{early} traces were evaluated early; raise traces.max_bytes")


def _slices(items: Sequence[Any], most_bytes: int) -> Iterator[tuple[Any, int]]:
    """Yield the items in slices, each with its size in memory; a slice ends with the item that
    reaches `most_bytes`.
    """
    begin = size = 0
    for end, item in enumerate(items, 1):
        size += item[3] + SPAN_OVERHEAD_BYTES
        if size >= most_bytes or end == len(items):
            yield items[begin:end], size
            begin, size = end, 0


def last_offsets(source: Input) -> Iterator[tuple[int, dict[bytes, int]]]:
    """Yield in parts: the number of bytes read so far, and the ids found since, each with the
    offset at which it was found last.

    An input that cannot be read ends early. The second pass reports that.
    """
    with suppress(InputError, OSError, *BROKEN_GZIP):
        with source.open() as stream:
            if is_surely_text(stream.peek(HEAD)):
                for offsets in text_ids(stream):
                    yield stream.tell(), offsets
                return
        for offset, batch in read_pieces(source):
            yield offset + 1, {item[0]: offset for item in (*batch.spans, *batch.logs)}


_TRACE_ID: Final = re.compile(rb'"trace_?[iI][dD]"\s{0,32}:\s{0,32}"([^"]{1,64})"')
_LONGEST: Final = 160  # bytes that the pattern may match
_IDS_AT_ONCE: Final = 2**16


def text_ids(stream: BufferedIOBase) -> Iterator[dict[bytes, int]]:
    """Yield in parts the trace ids in JSON of any of the formats, each with the offset at which it
    was found last.
    """
    offsets: dict[bytes, int] = {}
    overlap, start = b"", 0
    with suppress(OSError, *BROKEN_GZIP):  # the second pass reports that
        while piece := stream.read1(PIECE):
            text = overlap + piece
            for match in _TRACE_ID.finditer(text):
                if (trace_id := _trace_id(match[1])) is not None:
                    offsets[trace_id] = start + match.start()
            overlap = text[-_LONGEST:]
            start += len(text) - len(overlap)
            if len(offsets) > _IDS_AT_ONCE:
                yield offsets
                offsets = {}
    yield offsets


@lru_cache(1024)
def _trace_id(text: bytes) -> bytes | None:
    """Decode an id of 16 bytes from hexadecimal, which may be shortened or follow "0x", or from
    base64; None if it is neither.
    """
    try:
        value = json.loads(b'"' + text + b'"').removeprefix("0x")
        trace_id = bytes.fromhex(hex_of(value).rjust(32, "0"))
    except ValueError:
        return None
    return trace_id if len(trace_id) == 16 else None


_MOST_CACHED: Final = 16 * 2**20
_SCHEMA: Final = """
PRAGMA journal_mode = OFF;
PRAGMA synchronous = OFF;
CREATE TABLE last (id BLOB PRIMARY KEY, position INTEGER) WITHOUT ROWID;
CREATE TABLE part (number INTEGER PRIMARY KEY, id BLOB, spans BLOB, logs BLOB);
CREATE INDEX part_by_id ON part (id);
"""
_ADD: Final = (
    "INSERT INTO last VALUES (?, ?) ON CONFLICT (id) DO UPDATE SET position = max(position,"
    " excluded.position)"
)


class TraceIndex(AbstractContextManager["TraceIndex"]):
    """The last position of each trace, and parts of traces that exceed the memory limit.

    Both are in a database without a name, which SQLite keeps in memory and, beyond its cache, in a
    temporary file.

    Args:
        cached_bytes: the size of SQLite's cache.
    """

    def __init__(self, cached_bytes: int = _MOST_CACHED) -> None:
        # A generator may be resumed on another thread than it began on. Nothing has to outlast the
        # process: no journal, no sync.
        self._db: Final = sqlite3.connect("", isolation_level=None, check_same_thread=False)
        self._db.execute(f"PRAGMA cache_size = -{cached_bytes // 1024}")
        self._db.executescript(_SCHEMA)

    def __exit__(self, *_: Any) -> None:
        self._db.close()

    def add(self, positions: Iterable[tuple[bytes, int]]) -> None:
        """Add ids of 16 bytes with their positions, in any order.

        Raises:
            OSError: the temporary file cannot be written.
        """
        with _as_os_error():
            self._db.execute("BEGIN")  # otherwise each row would be a transaction of its own
            self._db.executemany(_ADD, positions)
            self._db.execute("COMMIT")

    def in_order(self) -> Iterator[tuple[int, bytes]]:
        """Yield every id once, after its last position, in the order of these positions."""
        with _as_os_error():
            # Not `yield from`, which would close the cursor of a reader that stopped: by then the
            # database is closed.
            query = "SELECT position, id FROM last ORDER BY position, id"
            for row in self._db.execute(query):  # noqa: UP028
                yield row

    def put(self, trace: ClosedTrace) -> None:
        """Store the spans and log records of a trace; raises as `add` does."""
        logs = (record for records in trace.logs.values() for record in records)
        part = (trace.trace_id, reserialize_traces(trace.frames.values()), reserialize_logs(logs))
        with _as_os_error():
            self._db.execute("INSERT INTO part (id, spans, logs) VALUES (?, ?, ?)", part)

    def has_parts(self, trace_id: bytes) -> bool:
        """Whether parts of the trace are stored."""
        return bool(self._numbers(trace_id))

    def pop(self, trace_id: bytes) -> Iterator[SpanBatch]:
        """Remove the parts of a trace, and yield them in the order in which they were stored."""
        for (number,) in self._numbers(trace_id):
            spans, logs = self._db.execute(
                "SELECT spans, logs FROM part WHERE number = ?", (number,)
            ).fetchone()
            self._db.execute("DELETE FROM part WHERE number = ?", (number,))
            yield read_traces(spans)
            yield read_logs(logs)

    def _numbers(self, trace_id: bytes) -> list[tuple[int]]:
        return self._db.execute(
            "SELECT number FROM part WHERE id = ? ORDER BY number", (trace_id,)
        ).fetchall()

    def ids(self) -> list[bytes]:
        """Return the ids of the traces of which parts are stored."""
        return [trace_id for (trace_id,) in self._db.execute("SELECT DISTINCT id FROM part")]


@contextmanager
def _as_os_error() -> Iterator[None]:
    try:
        yield
    except sqlite3.OperationalError as error:
        raise OSError(f"a temporary file: {error}") from None
