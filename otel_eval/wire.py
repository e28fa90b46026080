"""The two pieces that all protobuf messages are written of.

Knows numbers of seven bits a byte and fields with a length; knows no message.
Source: protobuf.dev/programming-guides/encoding.
"""

from __future__ import annotations

__all__ = ["sized", "varint"]


def varint(number: int) -> bytes:
    """A number of at least 0, seven bits a byte."""
    if number < 0x80:
        return bytes((number,))
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def sized(number: int, content: bytes) -> bytes:
    """A length-delimited field."""
    return varint(number << 3 | 2) + varint(len(content)) + content
