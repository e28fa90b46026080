"""The bytes of a segment: a header, then records, each with its length and checksums.

A record is `magic, kind, length, checksum of the payload, checksum of these`, then the payload. The
magic is a part of the segment's own random salt, and both checksums are CRC-32 that start from the
whole salt: so bytes of an older segment, or records which a client writes into an attribute, are
not read as records. If a payload is damaged, its record is skipped and the next one is read. If the
header of a record is damaged, the segment is searched for the next sound record. Damage with no
sound record behind it is a torn tail. The header of the segment is written twice, so that one
damaged copy does no harm.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from mmap import mmap
from typing import Final, NamedTuple

_HEAD: Final = struct.Struct("<8s8s")
_FORMAT: Final = b"oe-jrnl4"
_MAGIC_BYTES: Final = 4
_RECORD: Final = struct.Struct("<4sBII")
_CHECK: Final = struct.Struct("<I")
_COPY_BYTES: Final = _HEAD.size + _CHECK.size

HEAD_BYTES: Final = 2 * _COPY_BYTES
RECORD_BYTES: Final = _RECORD.size + _CHECK.size
"""The size of a record without its payload."""


Bytes = bytes | mmap
"""The content of a segment, mapped into memory or read."""


class SegmentRecord(NamedTuple):
    """A sound record, and the offset at which the next one begins."""

    kind: int
    payload: bytes
    end: int


@dataclass(slots=True)
class Damage:
    """The damage in a segment.

    Attributes:
        gaps: number of damaged places that a sound record follows.
        tail: the offset after the last sound record.
        torn: number of bytes from there to the end.
    """

    gaps: int = 0
    tail: int = 0
    torn: int = 0


def header_bytes(salt: bytes) -> bytes:
    """Return the header of a segment; `salt` has 8 bytes."""
    fields = _HEAD.pack(_FORMAT, salt)
    return 2 * (fields + _CHECK.pack(zlib.crc32(fields)))


def salt_of(data: Bytes) -> bytes | None:
    """Return the salt of a segment, which identifies its records; None if the bytes do not begin
    with a header of this format.
    """
    for at in (0, _COPY_BYTES) if len(data) >= HEAD_BYTES else ():  # the first sound copy decides
        fields, check = data[at : at + _HEAD.size], data[at + _HEAD.size : at + _COPY_BYTES]
        if _CHECK.unpack(check)[0] == zlib.crc32(fields):
            form, salt = _HEAD.unpack(fields)
            return bytes(salt) if form == _FORMAT else None
    return None


def record_header(salt: bytes, kind: int, payload: Sequence[bytes]) -> bytes:
    """Return the header of a record with this payload, given in pieces."""
    length, check = 0, (seed := zlib.crc32(salt))
    for piece in payload:
        length += len(piece)
        check = zlib.crc32(piece, check)
    fields = _RECORD.pack(salt[:_MAGIC_BYTES], kind, length, check)
    return fields + _CHECK.pack(zlib.crc32(fields, seed))


def scan(data: Bytes, damage: Damage) -> Iterator[SegmentRecord]:
    """Yield the sound records of a segment in order, and fill in `damage`, which is complete at the
    end.
    """
    salt = salt_of(data)
    if salt is None:
        damage.torn = len(data)
        return
    at = damage.tail = HEAD_BYTES
    while at < len(data):
        record_or_end = _read(data, at, salt)
        if isinstance(record_or_end, SegmentRecord):
            damage.gaps += at > damage.tail
            at = damage.tail = record_or_end.end
            yield record_or_end
            continue
        after = (
            record_or_end if at < record_or_end <= len(data) else _find_record(data, at + 1, salt)
        )
        if after is None:
            break
        at = after
    damage.torn = len(data) - damage.tail


def _read(data: Bytes, at: int, salt: bytes) -> SegmentRecord | int:
    """Return the record at an offset; the offset of its end if its payload is damaged; 0 if its
    header is damaged or cut off.
    """
    if at + RECORD_BYTES > len(data):
        return 0
    fields = data[at : at + _RECORD.size]
    magic, kind, length, check = _RECORD.unpack(fields)
    start, seed = at + RECORD_BYTES, zlib.crc32(salt)
    if magic != salt[:_MAGIC_BYTES] or _CHECK.unpack_from(data, at + _RECORD.size)[0] != zlib.crc32(
        fields, seed
    ):
        return 0
    end = start + length
    # the header is sound, so the length is right: the rest was not written, or was cut off
    if end > len(data):
        return int(end)
    payload = data[start:end]
    return SegmentRecord(kind, payload, end) if zlib.crc32(payload, seed) == check else end


def _find_record(data: Bytes, at: int, salt: bytes) -> int | None:
    """Return the offset of the next sound record, None if there is none."""
    magic = salt[:_MAGIC_BYTES]
    start = data.find(magic, at)
    while start >= 0 and not isinstance(_read(data, start, salt), SegmentRecord):
        start = data.find(magic, start + 1)
    return start if start >= 0 else None
