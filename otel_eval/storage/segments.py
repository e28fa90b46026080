"""The bytes of a segment: a head, then records, each with its length and checksums.

A record is `magic, kind, length, checksum of the payload, checksum of these`, then the payload. The magic is a part of the
segment's own random salt, and both checksums are CRC-32, begun with all of it: bytes of an older segment, also of one that
this one is written over, or of a sender who writes records into an attribute, are no records here. Where a payload is damaged
its record is left out and the next one follows; where the head of a record is damaged, the next place at which a whole record
stands is looked for. What is damaged at the end is a torn tail. The head of the segment is there twice, so that one damaged
place in it costs nothing.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from mmap import mmap
from pathlib import Path
from typing import Final, NamedTuple

from otel_eval.storage.directory import NO_LINK, DirectoryLock, sync_directory

_HEAD: Final = struct.Struct("<8s8sQ")
_FORMAT: Final = b"oe-jrnl3"
_MAGIC_BYTES: Final = 4
_RECORD: Final = struct.Struct("<4sBII")
_CHECK: Final = struct.Struct("<I")
_COPY_BYTES: Final = _HEAD.size + _CHECK.size

HEAD_BYTES: Final = 2 * _COPY_BYTES
RECORD_BYTES: Final = _RECORD.size + _CHECK.size
"""What a record takes beside its payload."""


Bytes = bytes | mmap
"""A segment, mapped or read."""


class SegmentHeader(NamedTuple):
    """By what the records of a segment are known, and how many bytes its file had of the segment that was there before."""

    magic: bytes
    seed: int
    stale: int


class Record(NamedTuple):
    """A sound record and where the next one begins."""

    kind: int
    payload: bytes
    end: int


@dataclass(slots=True)
class Damage:
    """What was unreadable.

    Attributes:
        gaps: places with sound records behind them.
        tail: from where nothing sound follows.
        torn: bytes behind it that were written to this segment, as far as that is known.
    """

    gaps: int = 0
    tail: int = 0
    torn: int = 0


def header_bytes(salt: bytes, stale: int = 0) -> bytes:
    """The beginning of a segment; `salt` has 8 bytes; the file had `stale` bytes before."""
    fields = _HEAD.pack(_FORMAT, salt, stale)
    return 2 * (fields + _CHECK.pack(zlib.crc32(fields)))


def read_header(data: Bytes) -> SegmentHeader | None:
    """The header of a segment; None if these bytes do not begin one."""
    for at in (0, _COPY_BYTES) if len(data) >= HEAD_BYTES else ():  # the first sound copy decides
        fields, check = data[at : at + _HEAD.size], data[at + _HEAD.size : at + _COPY_BYTES]
        if _CHECK.unpack(check)[0] == zlib.crc32(fields):
            form, salt, stale = _HEAD.unpack(fields)
            return SegmentHeader(salt[:_MAGIC_BYTES], zlib.crc32(salt), stale) if form == _FORMAT else None
    return None


def record_header(header: SegmentHeader, kind: int, payload: Sequence[bytes]) -> bytes:
    """What stands before a payload that is given in pieces."""
    length, check = 0, header.seed
    for piece in payload:
        length += len(piece)
        check = zlib.crc32(piece, check)
    fields = _RECORD.pack(header.magic, kind, length, check)
    return fields + _CHECK.pack(zlib.crc32(fields, header.seed))


def scan(data: Bytes, damage: Damage) -> Iterator[Record]:
    """The sound records of a segment, in order; damage is reported in `damage`, which is complete at the end."""
    header = read_header(data)
    if header is None:
        damage.torn = len(data)
        return
    at = ours = damage.tail = HEAD_BYTES
    hurt = False
    while at < len(data):
        found = _read(data, at, header)
        if isinstance(found, Record):
            damage.gaps += hurt
            hurt = False
            at = damage.tail = found.end
            yield found
            continue
        hurt = True
        ours = max(ours, found)
        after = found if at < found <= len(data) else _next(data, at + 1, header)
        if after is None:
            break
        at = after
    # A file that is as long as it was before was not filled: what may be former bytes is not counted as lost.
    end = min(ours, len(data)) if len(data) == header.stale else len(data)
    damage.torn = max(0, end - damage.tail)


def _read(data: Bytes, at: int, header: SegmentHeader) -> Record | int:
    """The record at a place; where it ends if only its payload is damaged; 0 if neither is known."""
    if at + RECORD_BYTES > len(data):
        return 0
    fields = data[at : at + _RECORD.size]
    magic, kind, length, check = _RECORD.unpack(fields)
    start = at + RECORD_BYTES
    if magic != header.magic or _CHECK.unpack_from(data, at + _RECORD.size)[0] != zlib.crc32(fields, header.seed):
        return 0
    end = start + length
    if end > len(data):  # the head is sound, so the length is true: the rest was not written, or cut
        return int(end)
    payload = data[start:end]
    return Record(kind, payload, end) if zlib.crc32(payload, header.seed) == check else end


def _next(data: Bytes, at: int, header: SegmentHeader) -> int | None:
    """The next place at which a whole record stands."""
    found = data.find(header.magic, at)
    while found >= 0 and not isinstance(_read(data, found, header), Record):
        found = data.find(header.magic, found + 1)
    return found if found >= 0 else None


_MOST: Final = 2  # more gave no less


class SegmentPool:
    """Begins segments, in files that it was given where there are some. One thread at a time.

    Args:
        directory: the directory.
        sync: whether what is begun has to outlast the machine.
    """

    def __init__(self, directory: DirectoryLock, *, sync: bool) -> None:
        self._directory, self._sync = directory, sync
        self._files: Final[list[tuple[Path, int]]] = []
        for path in list(directory.path.glob("*.spare")):
            _unlink(path)  # what a crash left may be as long as any

    @property
    def bytes(self) -> int:
        """Of all files that are kept."""
        return sum(size for _, size in self._files)

    def take(self, path: Path, size: int) -> bool:
        """Keep the file of a segment that is no longer needed; False if there are enough, or it cannot be."""
        if len(self._files) == _MOST:
            return False
        spare = self._directory.spare(path)
        try:
            path.rename(spare)
        except OSError:
            return False
        self._files.append((spare, size))
        return True

    def give_back(self) -> bool:
        """Remove all that are kept, for their room; False if there is none."""
        had = bool(self._files)
        while self._files:
            _unlink(self._files.pop()[0])
        return had

    def begin(self, path: Path) -> tuple[int, SegmentHeader]:
        """A segment of that name: its file, open, with nothing but its head, and its header.

        Raises:
            OSError: that cannot be written; no such segment is there.
        """
        # The one that came last: the kernel is likely to have it still.
        spare = self._files.pop()[0] if self._files else self._directory.spare(path)
        file = -1
        try:
            file = os.open(spare, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK | NO_LINK, 0o600)
            header = self._headed(file)
            spare.rename(path)
            if self._sync:
                sync_directory(self._directory.path)
        except OSError:  # what could not be opened is nothing of ours either; the next attempt makes a file
            if file >= 0:
                os.close(file)
            _unlink(spare)
            _unlink(path)
            raise
        return file, header

    def _headed(self, file: int) -> SegmentHeader:
        beginning = header_bytes(os.urandom(8), stale=os.fstat(file).st_size)
        if os.pwrite(file, beginning, 0) < len(beginning):
            raise OSError("the disk is full")
        if self._sync:
            os.fdatasync(file)
        header = read_header(beginning)
        assert header is not None
        return header


def _unlink(path: Path) -> None:
    with suppress(OSError):
        path.unlink()
