"""The bytes of a segment: a head, then records, each with its length and checksums.

Knows how a record is written and how what a crash or a disk left is read; knows no file and no meaning of a payload.

A record is `magic, kind, length, checksum of the payload, checksum of these`, then the payload. Both checksums are CRC-32,
begun with the segment's own random salt: bytes of an older segment, or of a sender who writes records into an attribute,
are no records here. Where a payload is damaged its record is left out and the next one follows; where the head of a record
is damaged, the next place at which a whole record stands is looked for. What is damaged at the end is a torn tail.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

__all__ = ["HEAD_BYTES", "RECORD_BYTES", "Damage", "Record", "head", "salt_of", "scan", "sealed"]

_HEAD: Final = struct.Struct("<8s8s")
_FORMAT: Final = b"oe-jrnl1"
_MAGIC: Final = b"\x9eoeR"
_RECORD: Final = struct.Struct("<4sBII")
_CHECK: Final = struct.Struct("<I")

HEAD_BYTES: Final = _HEAD.size
RECORD_BYTES: Final = _RECORD.size + _CHECK.size
"""What a record takes beside its payload."""


class Record(NamedTuple):
    """A sound record and where the next one begins."""

    kind: int
    payload: bytes
    end: int


@dataclass(slots=True)
class Damage:
    """What was unreadable: `gaps` with sound records behind them, and the `tail` from where nothing sound follows."""

    gaps: int = 0
    tail: int = 0


def head(salt: bytes) -> bytes:
    """The beginning of a segment; `salt` has 8 bytes."""
    return _HEAD.pack(_FORMAT, salt)


def salt_of(data: bytes | memoryview) -> int | None:
    """What the checksums of a segment begin with; None if these bytes do not begin one."""
    if len(data) < HEAD_BYTES:
        return None
    form, salt = _HEAD.unpack_from(data)
    return zlib.crc32(salt) if form == _FORMAT else None


def sealed(seed: int, kind: int, payload: Sequence[bytes]) -> bytes:
    """What stands before a payload that is given in pieces."""
    length, check = 0, seed
    for piece in payload:
        length += len(piece)
        check = zlib.crc32(piece, check)
    fields = _RECORD.pack(_MAGIC, kind, length, check)
    return fields + _CHECK.pack(zlib.crc32(fields, seed))


def scan(data: memoryview, damage: Damage) -> Iterator[Record]:
    """The sound records of a segment, in order; what is not is told in `damage`, whose `tail` is right at the end."""
    seed = salt_of(data)
    if seed is None:
        return
    at = damage.tail = HEAD_BYTES
    hurt = False
    while at < len(data):
        found = _read(data, at, seed)
        if isinstance(found, Record):
            damage.gaps += hurt
            hurt = False
            at = damage.tail = found.end
            yield found
            continue
        hurt = True
        after = found or _next(data, at + 1, seed)
        if after is None:
            return
        at = after


def _read(data: memoryview, at: int, seed: int) -> Record | int | None:
    """The record at a place; where it ends if only its payload is damaged; None if nothing can be told."""
    if at + RECORD_BYTES > len(data):
        return None
    fields = data[at : at + _RECORD.size]
    magic, kind, length, check = _RECORD.unpack(fields)
    start = at + RECORD_BYTES
    if magic != _MAGIC or _CHECK.unpack_from(data, at + _RECORD.size)[0] != zlib.crc32(fields, seed):
        return None
    if start + length > len(data):
        return None
    payload = bytes(data[start : start + length])
    return Record(kind, payload, start + length) if zlib.crc32(payload, seed) == check else start + length


def _next(data: memoryview, at: int, seed: int) -> int | None:
    """The next place at which a whole record stands."""
    window = 1 << 20
    while at < len(data):
        piece = bytes(data[at : at + window + len(_MAGIC) - 1])
        found = piece.find(_MAGIC)
        while found >= 0:
            if isinstance(_read(data, at + found, seed), Record):
                return at + found
            found = piece.find(_MAGIC, found + 1)
        at += window
    return None
