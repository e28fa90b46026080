"""OTLP/JSON objects written as protobuf bytes: scalars, attributes, and whole messages as protobuf's classes describe them.

Fields are written in the order of their numbers and defaults are left out, as protobuf itself does: the same message sent as JSON
and as protobuf becomes the same bytes. Unknown fields are ignored, as the specification asks. Lenient where senders are known to
differ: snake_case keys, enum names, numbers as text, null. Every `write_*` takes a field number and a JSON value, and raises
InputError with what it expected.
"""

from __future__ import annotations

import math
import struct
from base64 import b64decode
from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import Any, Final

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.descriptor_pb2 import DescriptorProto
from google.protobuf.descriptor_pb2 import FieldDescriptorProto as Field

from otel_eval.errors import InputError
from otel_eval.otlp.schema import MAX_DEPTH, TOO_DEEP
from otel_eval.wire import MASK64, sized, varint

Write = Callable[[int, Any], bytes]


def read_integer(value: Any, low: int, high: int) -> int:
    """An integer, as number or as text; 1e3 is one too."""
    try:
        if isinstance(value, bool) or not isinstance(value, (int, float, str)):  # in Python a bool is an int
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


def write_enum(names: Mapping[str, int], number: int, value: Any) -> bytes:
    """A number, or a name; an unknown name is the unspecified value."""
    is_name = isinstance(value, str) and not value.lstrip("-").isdigit()
    return _write_int32(number, names.get(value, 0) if is_name else value)


def _integers(kind: int, low: int, high: int, encode: Callable[[int], bytes]) -> Write:
    """Integers within bounds, which stand on the wire as this kind of field."""

    def write(number: int, value: Any) -> bytes:
        content = read_integer(value, low, high)
        return varint(number << 3 | kind) + encode(content) if content else b""

    return write


# An enum is an int32, and protobuf writes a negative one as ten bytes: sign-extended to 64 bits.
_write_int32: Final = _integers(0, -(1 << 31), (1 << 31) - 1, lambda content: varint(content & MASK64))


def write_hex(number: int, value: Any) -> bytes:
    """An id: bytes as hexadecimal text of either case."""
    try:
        content = bytes.fromhex(value)
    except (TypeError, ValueError):
        raise InputError("expected hexadecimal text") from None
    return sized(number, content) if content else b""


def look_up(given: Mapping[str, Any], camel: str, snake: str) -> Any:
    """A field by its JSON name or, from senders that print protobuf's own, by its proto name."""
    found = given.get(camel)
    return given.get(snake) if found is None else found


def items(value: Any) -> list[Any]:
    """The members of a repeated field, which must be a list; nulls in it are nothing."""
    if not isinstance(value, list):
        raise InputError("expected a list")
    return [item for item in value if item is not None]


def write_pair(number: int, value: Any) -> bytes:
    """A `KeyValue`."""
    return sized(number, _pair(value, 0))


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
    # A sender has to set one of them; of several the first in this order counts.
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
        # The JSON mapping of protobuf writes numbers that JSON lacks as text.
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
    values = value.get("values") if isinstance(value, dict) else 0
    if not (values is None or isinstance(values, list)):
        raise InputError('expected an object with a list "values"')
    return values or []


def _bytes(value: Any, _: int) -> bytes:
    """Bytes as base64 text: protobuf's JSON mapping asks readers to take both alphabets, with and without padding."""
    try:
        return sized(7, b64decode(value.replace("-", "+").replace("_", "/") + "=" * (-len(value) % 4), validate=True))
    except (AttributeError, TypeError, ValueError):
        raise InputError("expected base64 text") from None


_VALUES: Final[tuple[tuple[str, str, Callable[[Any, int], bytes]], ...]] = (
    ("stringValue", "string_value", _text),
    ("boolValue", "bool_value", _bool),
    ("intValue", "int_value", _integer),
    ("doubleValue", "double_value", _double),
    ("arrayValue", "array_value", _list),
    ("kvlistValue", "kvlist_value", _map),
    ("bytesValue", "bytes_value", _bytes),
)


Row = tuple[int, str, str, Write]
Table = tuple[Row, ...]

_OWN: Final[Mapping[str, Write]] = {"KeyValue": write_pair, "AnyValue": write_value}
_SCALARS: Final[Mapping[int, Write]] = {
    Field.TYPE_STRING: write_text,
    Field.TYPE_BYTES: write_hex,
    Field.TYPE_UINT32: _integers(0, 0, 0xFFFFFFFF, varint),
    Field.TYPE_FIXED32: _integers(5, 0, 0xFFFFFFFF, struct.Struct("<I").pack),
    Field.TYPE_FIXED64: _integers(1, 0, MASK64, struct.Struct("<Q").pack),
}
_LATER: Final[Mapping[str, Table]] = {"LogRecord": ((12, "eventName", "event_name", write_text),)}
"""Fields that the oldest protobuf classes which may be installed do not know."""


def message(given: Any, kind: Descriptor) -> bytes:
    """The object as the bytes of a message. A part of it may be given as bytes.

    Raises:
        InputError: naming the field and what was expected there, never the value.
    """
    if isinstance(given, bytes):
        return given
    if not isinstance(given, dict):
        raise InputError("expected an object")
    return b"".join([_field(row, given) for row in _table(kind)])


def _field(row: Row, given: Mapping[str, Any]) -> bytes:
    number, camel, snake, write = row
    value = look_up(given, camel, snake)
    if value is None:
        return b""
    try:
        return write(number, value)
    except InputError as error:
        raise InputError(f"{camel}: {error}") from None


@cache
def _table(kind: Descriptor) -> Table:
    """The fields of a message in the order of their numbers."""
    known = DescriptorProto()
    kind.CopyToProto(known)
    repeated = {each.name for each in known.field if each.label == each.LABEL_REPEATED}
    rows = {each.number: (each.number, each.json_name, each.name, _writer(each, each.name in repeated)) for each in kind.fields}
    return tuple(rows[number] for number in sorted(rows)) + tuple(row for row in _LATER.get(kind.name, ()) if row[0] not in rows)


def _writer(field: FieldDescriptor, is_repeated: bool) -> Write:
    kind, enum = field.message_type, field.enum_type
    if kind is not None:
        write = _OWN.get(kind.name) or (lambda number, value: sized(number, message(value, kind)))
    elif enum is not None:
        write = partial(write_enum, {each.name: each.number for each in enum.values})
    else:
        write = _SCALARS.get(field.type, lambda number, value: b"")  # a kind of field that is newer than this
    return (lambda number, value: b"".join([write(number, item) for item in items(value)])) if is_repeated else write
