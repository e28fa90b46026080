"""Numbers of seven bits a byte and fields with a length: the pieces that all protobuf messages consist of.

Source: protobuf.dev/programming-guides/encoding.
"""

from __future__ import annotations

from typing import Final

__all__ = ["read_varint", "sized", "varint"]

_ONE_BYTE: Final = tuple(bytes((number,)) for number in range(0x80))  # nearly all tags, and most lengths
_LAST_SHIFT: Final = 63  # of the tenth byte, which is the last that a varint may have


def read_varint(raw: bytes, at: int) -> tuple[int, int]:
    """The number at `at` and the place behind it. More than 64 bits are possible, since the tenth byte is not cut.

    Raises:
        ValueError: it has more than ten bytes. Without that limit the time is quadratic in the length of the number.
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
    """A number of at least 0, seven bits a byte."""
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
    """A length-delimited field."""
    return varint(number << 3 | 2) + varint(len(content)) + content
