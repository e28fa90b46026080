"""Varints and length-delimited fields, of which all protobuf messages consist.

Source: protobuf.dev/programming-guides/encoding.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

# nearly all tags, and most lengths
_ONE_BYTE: Final = tuple(bytes((number,)) for number in range(0x80))
# Tag and length of a length-delimited field, by its number and size. Nearly all fields that are
# written are in this table.
_HEADS: Final = tuple(
    tuple(bytes((number << 3 | 2, size)) for size in range(0x80)) for number in range(0x10)
)
MASK64: Final = (1 << 64) - 1
_LAST_SHIFT: Final = 63  # of the tenth byte, which is the last that a varint may have
# content in bytes by wire type; the start and end tags of a group have none
_FIXED: Final = {1: 8, 3: 0, 4: 0, 5: 4}


def read_varint(raw: bytes, at: int) -> tuple[int, int]:
    """Decode the varint at `at`; return it and the position after it. It may have more than 64
    bits: the tenth byte is not cut.

    Raises:
        ValueError: it has more than ten bytes. Without that limit the time is quadratic in the
            length of the number.
        IndexError: the bytes end before the number does.
    """
    number, shift = 0, 0
    while (byte := raw[at]) > 0x7F:
        number |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if shift > _LAST_SHIFT:
            raise ValueError("a number has more than ten bytes")
    return number | byte << shift, at + 1


def varint(number: int) -> bytes:
    """Encode a number of at least 0 as a varint."""
    if number < 0x80:
        return _ONE_BYTE[number]
    if number < 0x4000:
        return bytes((number & 0x7F | 0x80, number >> 7))
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def sized(number: int, content: bytes) -> bytes:
    """Encode a length-delimited field."""
    size = len(content)
    if size < 0x80 and number < 0x10:
        return _HEADS[number][size] + content
    return varint(number << 3 | 2) + varint(size) + content


class WireField(NamedTuple):
    """A field: its number (-1 unless it is length-delimited), and the positions of its tag, its
    content and its end.
    """

    number: int
    start: int
    content: int
    stop: int


def fields(body: bytes, at: int, end: int) -> Iterator[WireField]:
    """Iterate over the fields from `at` to `end`. Fields in a group, which OTLP does not have,
    count as if outside of it.

    Raises:
        ValueError: a field is truncated, its wire type is unknown, or a number has more than 64
            bits.
    """
    return map(WireField._make, plain_fields(body, at, end))


def plain_fields(body: bytes, at: int, end: int) -> Iterator[tuple[int, int, int, int]]:
    """Iterate as `fields` does, but over plain tuples, at half the cost."""
    try:
        while at < end:
            start, tag = at, body[at]
            # Nearly every tag is one byte, and a length one or two; a function call for each costs
            # more than all the rest.
            tag, at = (tag, at + 1) if tag < 0x80 else _number(body, at)
            kind = tag & 7
            if kind == 2:
                size, at = body[at], at + 1
                if size > 0x7F and body[at] < 0x80:
                    size, at = size & 0x7F | body[at] << 7, at + 1
                elif size > 0x7F:
                    size, at = read_varint(body, at - 1)
                stop = at + size
            elif kind == 0:
                _, stop = _number(body, at)
            elif kind in _FIXED:
                stop = at + _FIXED[kind]
            else:
                raise ValueError("a field of an unknown kind")
            if stop > end:
                raise ValueError("a field is cut short")
            # The lower three bits of a tag are the wire type, the others the number of the field.
            yield tag >> 3 if kind == 2 else -1, start, at, stop
            at = stop
    except IndexError:
        raise ValueError("a field is cut short") from None


def _number(body: bytes, at: int) -> tuple[int, int]:
    number, after = read_varint(body, at)
    if number > MASK64:
        raise ValueError("a number has more than 64 bits")
    return number, after
