"""Scalar JSON values written as protobuf fields.

Knows which spellings of a number or an id senders use. Every
`write_*` takes a field number and a JSON value, leaves a default out, and raises InputError saying what it expected.
"""

from __future__ import annotations

import struct
from base64 import b64decode
from collections.abc import Mapping
from typing import Any, Final

from otel_eval.errors import InputError
from otel_eval.wire import sized, varint

__all__ = [
    "MASK64",
    "read_base64",
    "read_integer",
    "write_enum",
    "write_fixed32",
    "write_fixed64",
    "write_hex",
    "write_text",
    "write_unsigned",
]

MASK64: Final = (1 << 64) - 1


def read_integer(value: Any, low: int, high: int) -> int:
    """An integer, as number or as text; 1e3 is one too."""
    try:
        if isinstance(value, bool) or not isinstance(value, (int, float, str)):
            raise ValueError
        number = int(value)
        if isinstance(value, float) and number != value:
            raise ValueError
    except (ValueError, OverflowError):
        raise InputError("expected an integer") from None
    if not low <= number <= high:
        raise InputError("the integer is out of range")
    return number


def write_text(number: int, value: Any) -> bytes:
    """A string."""
    if not isinstance(value, str):
        raise InputError("expected a string")
    return sized(number, value.encode("utf-8", "replace")) if value else b""


def write_unsigned(number: int, value: Any) -> bytes:
    """A uint32."""
    content = read_integer(value, 0, 0xFFFFFFFF)
    return varint(number << 3) + varint(content) if content else b""


def write_enum(names: Mapping[str, int], number: int, value: Any) -> bytes:
    """A number, or a name; a name nobody knows is the unspecified value."""
    if isinstance(value, str) and not value.lstrip("-").isdigit():
        value = names.get(value, 0)
    content = read_integer(value, -(1 << 31), (1 << 31) - 1)
    return varint(number << 3) + varint(content & MASK64) if content else b""


def write_fixed64(number: int, value: Any) -> bytes:
    """A fixed64, such as a time."""
    content = read_integer(value, 0, MASK64)
    return varint(number << 3 | 1) + struct.pack("<Q", content) if content else b""


def write_fixed32(number: int, value: Any) -> bytes:
    """A fixed32, such as flags."""
    content = read_integer(value, 0, 0xFFFFFFFF)
    return varint(number << 3 | 5) + struct.pack("<I", content) if content else b""


def write_hex(number: int, value: Any) -> bytes:
    """An id: bytes as hexadecimal text of either case."""
    if not isinstance(value, str):
        raise InputError("expected hexadecimal text")
    try:
        content = bytes.fromhex(value)
    except ValueError:
        raise InputError("expected hexadecimal text") from None
    return sized(number, content) if content else b""


def read_base64(value: Any) -> bytes:
    """Bytes as base64 text, ordinary or URL-safe, padded or not."""
    if not isinstance(value, str):
        raise InputError("expected base64 text")
    try:
        return b64decode(value.replace("-", "+").replace("_", "/") + "=" * (-len(value) % 4), validate=True)
    except ValueError:
        raise InputError("expected base64 text") from None
