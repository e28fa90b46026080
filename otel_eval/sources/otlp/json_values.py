"""Attributes of OTLP/JSON written as `KeyValue` and `AnyValue` bytes.

Knows the kinds of value and how deep they may nest. Knows no attribute name.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Mapping
from typing import Any, Final

from otel_eval.errors import InputError
from otel_eval.sources.otlp.values import MAX_DEPTH, TOO_DEEP
from otel_eval.sources.otlp.wire import MASK64, read_base64, read_integer, write_text
from otel_eval.wire import sized, varint

__all__ = ["items", "look_up", "write_attributes", "write_value"]


def look_up(given: Mapping[str, Any], camel: str, snake: str) -> Any:
    """A field by its JSON name or, from senders that print protobuf's own, by its proto name."""
    found = given.get(camel)
    return given.get(snake) if found is None else found


def items(value: Any) -> list[Any]:
    """The members of a repeated field, which must be a list; nulls in it are nothing."""
    if not isinstance(value, list):
        raise InputError("expected a list")
    return [item for item in value if item is not None]


def write_attributes(number: int, value: Any) -> bytes:
    """A repeated `KeyValue`."""
    return b"".join([sized(number, _pair(item, 0)) for item in items(value)])


def write_value(number: int, value: Any) -> bytes:
    """An `AnyValue`."""
    return sized(number, _any(value, 0))


def _pair(value: Any, depth: int) -> bytes:
    if not isinstance(value, dict):
        raise InputError("expected an object with key and value")
    held = value.get("value")
    return write_text(1, value.get("key") or "") + (b"" if held is None else sized(2, _any(held, depth)))


def _any(value: Any, depth: int) -> bytes:
    """The content of an AnyValue. Unlike elsewhere a default is written: 0 and "" differ from nothing."""
    if value is None:
        return b""
    if not isinstance(value, dict):
        raise InputError('expected a value such as {"stringValue": "x"}')
    for camel, snake, write in _VALUES:
        held = look_up(value, camel, snake)
        if held is not None:
            return write(held, depth)
    return b""


def _text(value: Any, _: int) -> bytes:
    return write_text(1, value) or sized(1, b"")


def _bool(value: Any, _: int) -> bytes:
    if not isinstance(value, bool):
        raise InputError("expected true or false")
    return b"\x10\x01" if value else b"\x10\x00"


def _integer(value: Any, _: int) -> bytes:
    return b"\x18" + varint(read_integer(value, -(1 << 63), (1 << 63) - 1) & MASK64)


def _double(value: Any, _: int) -> bytes:
    try:
        if isinstance(value, bool) or not isinstance(value, (int, float, str)):
            raise ValueError
        number = float(value)  # also "NaN", "Infinity" and "-Infinity"
    except OverflowError:
        number = math.inf if value > 0 else -math.inf
    except ValueError:
        raise InputError("expected a number") from None
    return b"\x21" + struct.pack("<d", number)


def _list(value: Any, depth: int) -> bytes:
    if depth >= MAX_DEPTH:
        return _text(TOO_DEEP, depth)
    return sized(5, b"".join([sized(1, _any(item, depth + 1)) for item in _members(value)]))


def _map(value: Any, depth: int) -> bytes:
    if depth >= MAX_DEPTH:
        return _text(TOO_DEEP, depth)
    return sized(6, b"".join([sized(1, _pair(item, depth + 1)) for item in _members(value) if item is not None]))


def _members(value: Any) -> list[Any]:
    values = value.get("values", []) if isinstance(value, dict) else None
    if values is not None and not isinstance(values, list):
        raise InputError("expected a list")
    if values is None and not isinstance(value, dict):
        raise InputError('expected an object with "values"')
    return values or []


def _bytes(value: Any, _: int) -> bytes:
    return sized(7, read_base64(value))


_VALUES: Final[tuple[tuple[str, str, Callable[[Any, int], bytes]], ...]] = (
    ("stringValue", "string_value", _text),
    ("boolValue", "bool_value", _bool),
    ("intValue", "int_value", _integer),
    ("doubleValue", "double_value", _double),
    ("arrayValue", "array_value", _list),
    ("kvlistValue", "kvlist_value", _map),
    ("bytesValue", "bytes_value", _bytes),
)
