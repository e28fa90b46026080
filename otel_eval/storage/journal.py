"""An append-only log of records in several files (segments), with group commit, and the references
that keep a segment.

Appends are serialized and short. `commit` waits until the appended records are on the disk; writers
that wait at the same time share one sync.

The bytes of a failed write are overwritten by the next one. After a failed sync it is unknown which
bytes reached the disk, because the kernel may have dropped them: the waiting writers get an error,
and the next record begins a new segment.

A segment is needed while a trace with spans in it is held, a report in it is not acknowledged, or a
request in it is not forwarded. Segments are removed oldest first, so that later records of a trace
are never removed before its spans.
"""

from __future__ import annotations

import mmap
import os
import threading
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from otel_eval.storage.directory import NO_LINK, DirectoryLock, replace_file
from otel_eval.storage.segments import (
    HEAD_BYTES,
    RECORD_BYTES,
    Damage,
    SegmentRecord,
    header_bytes,
    record_header,
    scan,
)

SEGMENT_BYTES: Final = 64 * 2**20
"""The size of a segment at which the next one begins. Disk space is freed by whole segments."""

_SEGMENTS: Final = 8  # the limit of bytes holds at least this many segments
_MAX_PIECES: Final = 512  # in one writev; the kernel accepts 1024


class StorageFull(Exception):
    """The limit of bytes is reached; space becomes free when traces are evaluated and delivered."""


@dataclass(slots=True, eq=False)
class Segment:
    """One file of the journal: its number, its path, and its size in bytes so far."""

    number: int
    path: Path
    size: int = 0


class Appended(NamedTuple):
    """An appended record: its position for `commit`, its segment, and the offset of its end in the
    segment.
    """

    position: int
    segment: Segment
    end: int


class JournalRecord(NamedTuple):
    """A record that was read, with its segment and the offset of its end in the segment."""

    segment: Segment
    kind: int
    payload: bytes
    end: int


@dataclass(slots=True)
class ReplayReport:
    """The result of a replay: the number of sound records, of damaged places, and of bytes in a
    torn tail.
    """

    records: int = 0
    damaged: int = 0
    torn_bytes: int = 0

    @property
    def is_damaged(self) -> bool:
        """Whether records may be missing, so that what they recorded may be done again."""
        return bool(self.damaged or self.torn_bytes)


class Journal:
    """Appends records, and returns them again after a crash.

    Args:
        directory: the storage directory.
        max_bytes: beyond it `append` refuses records that are `bounded`.
        segment_bytes: a new segment begins when the last one has this size, or an eighth of
            `max_bytes`.
        sync: whether `commit` waits for the disk. If not, records survive a crash of the process,
            but not of the machine.
    """

    def __init__(
        self,
        directory: DirectoryLock,
        *,
        max_bytes: int,
        segment_bytes: int = SEGMENT_BYTES,
        sync: bool = True,
    ) -> None:
        # The segment that is written to is never removed, so it must be a small part of the limit.
        self._segment_limit: Final = min(segment_bytes, max_bytes // _SEGMENTS)
        self._directory, self._max, self._sync = directory, max_bytes, sync
        self.recovery: Final = ReplayReport()
        self._condition = threading.Condition()  # guards what follows
        self._segments: deque[Segment] = deque(
            Segment(number, path) for number, path in directory.segments()
        )
        self._next_number = self._segments[-1].number + 1 if self._segments else 1
        self._file = -1  # of the last segment; -1: the next record begins a new one
        self._salt = b""  # of the last segment
        self._syncing = self._closed = False
        # positions: bytes appended since the start, and of these on the disk
        self._appended = self._synced = 0
        # ranges of positions that failed syncs may have lost
        self._failed: deque[tuple[int, int]] = deque(maxlen=64)
        self.syncs = 0

    # ------------------------------------------------------------- recovery

    def replay(self) -> Iterator[JournalRecord]:
        """Yield every sound record in order of writing; call it before the first `append`."""
        for segment in list(self._segments):
            last = segment is self._segments[-1]
            segment.size = segment.path.stat().st_size
            damage = Damage()
            for record in _records(segment.path, damage):
                self.recovery.records += 1
                yield JournalRecord(segment, *record)
            # A segment gets its name after its header is on the disk: one without a header is
            # damaged and not torn.
            is_damaged = bool(damage.torn) and not (last and damage.tail)
            self.recovery.damaged += damage.gaps + is_damaged
            self.recovery.torn_bytes += 0 if is_damaged else damage.torn
            if last and 0 < damage.tail < segment.size:
                # a disk that cannot be written fails again at the first append
                with suppress(OSError):
                    os.truncate(segment.path, damage.tail)
                    segment.size = damage.tail

    # ------------------------------------------------------------------ in

    def append(self, kind: int, payload: Sequence[bytes], *, bounded: bool = False) -> Appended:
        """Write a record at the end of the last segment.

        Raises:
            OSError: the record could not be written, and no part of it will be read.
            StorageFull: the record is `bounded` and would exceed the limit.
        """
        size = RECORD_BYTES + sum(map(len, payload))
        with self._condition:
            if self._closed:
                raise OSError("the journal is closed")
            if bounded and self.size + size > self._max:
                raise StorageFull
            segment = self._writable_segment()
            _write(
                self._file, [record_header(self._salt, kind, payload), *payload], size, segment.size
            )
            segment.size += size
            self._appended += size
            return Appended(self._appended, segment, segment.size)

    def _writable_segment(self) -> Segment:
        """Return the segment to write to, a new one if the last is closed or full."""
        if self._file >= 0 and self._segments[-1].size >= self._segment_limit:
            self._end_segment()
        return self._begin_segment() if self._file < 0 else self._segments[-1]

    def _begin_segment(self) -> Segment:
        if self.is_removed:
            raise OSError("the directory was removed, moved or replaced")
        path, self._salt = self._directory.segment(self._next_number), os.urandom(8)
        # so the segment gets its name after its header is on the disk
        replace_file(path, header_bytes(self._salt))
        self._file = os.open(path, os.O_RDWR | os.O_CLOEXEC | NO_LINK)
        segment = Segment(self._next_number, path, HEAD_BYTES)
        self._next_number += 1
        self._segments.append(segment)
        return segment

    def _end_segment(self) -> None:
        """Close the last segment; it is synced first, so that no later record is on the disk before
        its records.
        """
        self._condition.wait_for(lambda: not self._syncing)
        if self._sync and self._synced < self._appended:
            self._note_sync(self._appended, _is_synced(self._file))
        if self._file >= 0:  # else a sync failed
            os.close(self._file)
            self._file = -1

    def commit(self, position: int) -> None:
        """Wait until everything up to a position is on the disk, where a restart finds it.

        Raises:
            OSError: a sync failed, or directory or segment were removed; the record that ends at
                the position may be lost.
        """
        with self._condition:
            while self._sync and self._synced < position:
                if self._syncing:
                    self._condition.wait()
                else:
                    self._sync_now()
            if self.is_removed:
                raise OSError("the directory was removed, moved or replaced")
            self._end_removed_segment()
            if any(start < position <= end for start, end in self._failed):
                raise OSError("a sync to the disk failed, or a file was removed")

    @property
    def is_removed(self) -> bool:
        """Whether a restart would not find the directory, until it is back at its place."""
        return not self._directory.is_in_place

    def _end_removed_segment(self) -> None:
        """Close the last segment if its file was removed, and record that its records are lost."""
        segment = self._segments[-1] if self._file >= 0 else None
        if segment is None or segment.path.exists():
            return
        self._end_segment()
        self._failed.append((self._appended - (segment.size - HEAD_BYTES), self._appended))

    def _sync_now(self) -> None:
        """Sync once for all waiting writers; the lock is released meanwhile, so that others can
        append.
        """
        upto, done = self._appended, False
        self._syncing = True
        self._condition.release()
        try:
            done = _is_synced(self._file)
        finally:
            self._condition.acquire()
            self._syncing = False
            self._note_sync(upto, done)
            self._condition.notify_all()

    def _note_sync(self, upto: int, done: bool) -> None:
        """Record the end of a sync up to a position; if it failed, everything not known to be on
        the disk may be lost.
        """
        self.syncs += 1
        if not done:
            upto = self._appended
            self._failed.append((self._synced, upto))
            os.close(self._file)
            self._file = -1
        self._synced = upto

    # ----------------------------------------------------------------- out

    @property
    def size(self) -> int:
        """The size of all segments in bytes."""
        return sum(segment.size for segment in tuple(self._segments))

    @property
    def finished(self) -> list[Segment]:
        """The segments that are no longer written to, oldest first."""
        with self._condition:
            return list(self._segments)[: -1 if self._file >= 0 else None]

    def remove(self, segment: Segment) -> None:
        """Remove the oldest segment. If its file cannot be deleted, that is tried again after the
        next start.
        """
        with self._condition:
            assert self._segments[0] is segment
            self._segments.popleft()
        with suppress(OSError):
            segment.path.unlink()

    def close(self) -> None:
        """Sync and close the last segment; later appends fail."""
        with self._condition, suppress(OSError):
            self._closed = True
            if self._file >= 0:
                self._end_segment()


def _records(path: Path, damage: Damage) -> Iterator[SegmentRecord]:
    with path.open("rb") as file:
        if os.fstat(file.fileno()).st_size < HEAD_BYTES:  # a crash while it was created
            return
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
            yield from scan(mapped, damage)


def _is_synced(file: int) -> bool:
    try:
        os.fdatasync(file)
    except OSError:
        return False
    return True


def _write(file: int, pieces: list[bytes], size: int, at: int) -> None:
    """Write all pieces at an offset; on an error raise it and truncate the file to the offset."""
    try:
        size_written = os.pwritev(file, pieces[:_MAX_PIECES], at)
        # more pieces than fit, a nearly full disk, or the kernel's limit of one write
        if size_written < size:
            content = memoryview(b"".join(pieces))
            while size_written < size:
                size_written += os.pwrite(file, content[size_written:], at + size_written)
    except OSError:
        with suppress(OSError):
            os.ftruncate(file, at)
        raise


class SegmentRefs:
    """References that keep segments: traces, unacknowledged reports and requests. Safe from any
    thread.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()  # guards what follows
        self._traces: dict[Segment, set[bytes]] = {}
        self._unacknowledged: dict[bytes, tuple[Segment, set[str]]] = {}
        self._retained: Counter[Segment] = Counter()

    def add_traces(self, segment: Segment, trace_ids: Iterable[bytes]) -> None:
        """Note that spans of these traces were written to the segment."""
        with self._lock:
            self._traces.setdefault(segment, set()).update(trace_ids)

    def add_unacknowledged(self, key: bytes, segment: Segment, exporters: Collection[str]) -> None:
        """Keep the segment until these exporters acknowledged a report in it; this replaces an
        earlier record of the report.
        """
        with self._lock:
            if key in self._unacknowledged:
                self._retained[self._unacknowledged[key][0]] -= 1
            self._unacknowledged[key] = (segment, set(exporters))
            self._retained[segment] += 1

    def retain(self, segment: Segment) -> None:
        """Keep the segment until `release` is called; calls are counted."""
        with self._lock:
            self._retained[segment] += 1

    def release(self, segment: Segment) -> None:
        """Undo one `retain` of the segment."""
        with self._lock:
            self._retained[segment] -= 1

    def acknowledge(self, exporter: str, keys: Iterable[bytes]) -> list[bytes]:
        """Note that the exporter delivered these reports; return those that it had not acknowledged
        before.
        """
        acknowledged = []
        with self._lock:
            for key in keys:
                if key not in self._unacknowledged or exporter not in self._unacknowledged[key][1]:
                    continue
                segment, exporters = self._unacknowledged[key]
                acknowledged.append(key)
                exporters.discard(exporter)
                if not exporters:
                    del self._unacknowledged[key]
                    self._retained[segment] -= 1
        return acknowledged

    def unacknowledged_by(self, key: bytes) -> set[str]:
        """Return the exporters that have not acknowledged the report."""
        with self._lock:
            return set(self._unacknowledged[key][1]) if key in self._unacknowledged else set()

    @property
    def unacknowledged(self) -> int:
        """The number of reports that some exporter has not acknowledged."""
        return len(self._unacknowledged)

    def is_free(self, segment: Segment, is_open: Callable[[bytes], bool]) -> bool:
        """Whether the segment can be removed: no trace in it `is_open`, all reports are
        acknowledged, nothing is retained.
        """
        with self._lock:
            traces = self._traces.get(segment, set())
            while traces:
                # permanently: a trace that is no longer held does not become open
                trace_id = traces.pop()
                if is_open(trace_id):
                    traces.add(trace_id)
                    return False
            if self._retained[segment] > 0:
                return False
            self._traces.pop(segment, None)
            del self._retained[segment]
        return True

    def traces_in(self, segment: Segment) -> set[bytes]:
        """Return the traces that may still need the segment."""
        with self._lock:
            return set(self._traces.get(segment, ()))

    def reassign(self, trace_id: bytes, segment: Segment) -> None:
        """Note that all records of the trace were copied to this segment: earlier segments are not
        needed for it.
        """
        with self._lock:
            for traces in self._traces.values():
                traces.discard(trace_id)
            self._traces.setdefault(segment, set()).add(trace_id)
