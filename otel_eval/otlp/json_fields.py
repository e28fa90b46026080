"""Encodes OTLP/JSON objects as protobuf: scalars, attributes, and messages by the descriptors of
protobuf's classes.

Fields are written in the order of their numbers and defaults are left out, as protobuf itself does:
the same message sent as JSON and as protobuf becomes the same bytes. Unknown fields are ignored, as
the specification asks. What known senders write differently is accepted: snake_case keys, enum
names, numbers as text, null.
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
from otel_eval.otlp.spans import MAX_DEPTH, TOO_DEEP
from otel_eval.wire import MASK64, sized, varint

Encode = Callable[[Any], bytes]
"""Encodes a JSON value as the content of a field, which follows its tag. Raises InputError with
what was expected.
"""

Write = Callable[[int, Any], bytes]
"""Encodes a field with its tag, from its number and its JSON value."""

_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5  # wire types


def read_integer(value: Any, low: int, high: int) -> int:
    """Return an integer that is written as a number, 1e3 too, or as text. Raises InputError if the
    value is none.
    """
    try:
        # in Python a bool is an int
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


def _integers(low: int, high: int, encode: Callable[[int], bytes]) -> Encode:
    """Return an encoder of integers within bounds."""
    return lambda value: encode(read_integer(value, low, high))


def _read_enum(names: Mapping[str, int], value: Any) -> bytes:
    """Encode the number or the name of an enum value; an unknown name is the unspecified value,
    0.
    """
    is_name = isinstance(value, str) and not value.lstrip("-").isdigit()
    return _read_int32(names.get(value, 0) if is_name else value)


# An enum is an int32, and protobuf writes a negative one as ten bytes: sign-extended to 64 bits.
_read_int32: Final = _integers(-(1 << 31), (1 << 31) - 1, lambda content: varint(content & MASK64))


def _delimited(read: Callable[[Any], bytes]) -> Encode:
    """Return an encoder that writes the length before the content."""

    def encode(value: Any) -> bytes:
        content = read(value)
        return varint(len(content)) + content

    return encode


def _text(value: Any) -> bytes:
    if not isinstance(value, str):
        raise InputError("expected a string")
    return value.encode("utf-8", "replace")


def _hex(value: Any) -> bytes:
    """Decode an id, which is hexadecimal text of either case."""
    try:
        return bytes.fromhex(value)
    except (TypeError, ValueError):
        raise InputError("expected hexadecimal text") from None


def _bool(value: Any) -> bytes:
    if not isinstance(value, bool):
        raise InputError("expected true or false")
    return b"\x01" if value else b"\x00"


def _double(value: Any) -> bytes:
    try:
        if isinstance(value, bool) or not isinstance(value, (int, float, str)):
            raise ValueError
        # The JSON mapping of protobuf writes numbers that JSON lacks as text.
        number = float(value)  # also "NaN", "Infinity" and "-Infinity"
    except OverflowError:
        number = math.inf if value > 0 else -math.inf
    except ValueError:
        raise InputError("expected a number") from None
    return struct.pack("<d", number)


def look_up(fields: Mapping[str, Any], camel: str, snake: str) -> Any:
    """Return a field by its JSON name or, for senders that write it, by its proto name; None if it
    is missing or null.
    """
    value = fields.get(camel)
    return fields.get(snake) if value is None else value


def items(value: Any) -> list[Any]:
    """The members of a repeated field without nulls. Raises InputError if it is no list."""
    if not isinstance(value, list):
        raise InputError("expected a list")
    return [item for item in value if item is not None]


def _pair(value: Any, depth: int) -> bytes:
    if not isinstance(value, dict):
        raise InputError("expected an object with key and value")
    key, content = _text(value.get("key") or ""), value.get("value")
    return (sized(1, key) if key else b"") + (
        b"" if content is None else sized(2, _any(content, depth))
    )


def _any(value: Any, depth: int) -> bytes:
    """Encode the content of an AnyValue. Unlike elsewhere, defaults are written: 0 and "" are not a
    missing value.
    """
    if value is None:
        return b""
    if not isinstance(value, dict):
        raise InputError('expected a value such as {"stringValue": "x"}')
    # A sender has to set one of them; of several the first in this order counts.
    for camel, snake, write in _VALUES:
        content = look_up(value, camel, snake)
        if content is not None:
            return write(content, depth)
    return b""


def _list(value: Any, depth: int) -> bytes:
    if depth >= MAX_DEPTH:
        return sized(1, TOO_DEEP.encode())
    return sized(5, b"".join([sized(1, _any(item, depth + 1)) for item in _members(value)]))


def _map(value: Any, depth: int) -> bytes:
    if depth >= MAX_DEPTH:
        return sized(1, TOO_DEEP.encode())
    return sized(
        6,
        b"".join(
            [sized(1, _pair(item, depth + 1)) for item in _members(value) if item is not None]
        ),
    )


def _members(value: Any) -> list[Any]:
    values = value.get("values") if isinstance(value, dict) else 0
    if not (values is None or isinstance(values, list)):
        raise InputError('expected an object with a list "values"')
    return values or []


def _base64(value: Any) -> bytes:
    """Decode base64 text. Protobuf's JSON mapping requires parsers to accept both alphabets, with
    and without padding.
    """
    try:
        return b64decode(
            value.replace("-", "+").replace("_", "/") + "=" * (-len(value) % 4), validate=True
        )
    except (AttributeError, TypeError, ValueError):
        raise InputError("expected base64 text") from None


_INT64: Final = _integers(-(1 << 63), (1 << 63) - 1, lambda content: varint(content & MASK64))
_VALUES: Final[tuple[tuple[str, str, Callable[[Any, int], bytes]], ...]] = (
    ("stringValue", "string_value", lambda value, _: sized(1, _text(value))),
    ("boolValue", "bool_value", lambda value, _: b"\x10" + _bool(value)),
    ("intValue", "int_value", lambda value, _: b"\x18" + _INT64(value)),
    ("doubleValue", "double_value", lambda value, _: b"\x21" + _double(value)),
    ("arrayValue", "array_value", _list),
    ("kvlistValue", "kvlist_value", _map),
    ("bytesValue", "bytes_value", lambda value, _: sized(7, _base64(value))),
)


def _singular(kind: int, encode: Encode, keeps_default: bool, number: int, value: Any) -> bytes:
    content = encode(value)
    return varint(number << 3 | kind) + content if keeps_default or any(content) else b""


def _repeated(encode: Encode, number: int, value: Any) -> bytes:
    tag = varint(number << 3 | _LENGTH)
    return b"".join([tag + encode(item) for item in items(value)])


def _packed(encode: Encode, number: int, value: Any) -> bytes:
    content = b"".join(map(encode, items(value)))
    return sized(number, content) if content else b""


Row = tuple[int, str, str, Write]
Table = tuple[Row, ...]

_OWN: Final[Mapping[str, Encode]] = {
    "KeyValue": _delimited(lambda value: _pair(value, 0)),
    "AnyValue": _delimited(lambda value: _any(value, 0)),
}
_SCALARS: Final[Mapping[int, tuple[int, Encode]]] = {
    Field.TYPE_STRING: (_LENGTH, _delimited(_text)),
    Field.TYPE_BYTES: (_LENGTH, _delimited(_hex)),
    Field.TYPE_BOOL: (_VARINT, _bool),
    Field.TYPE_DOUBLE: (_FIXED64, _double),
    Field.TYPE_UINT32: (_VARINT, _integers(0, 0xFFFFFFFF, varint)),
    Field.TYPE_UINT64: (_VARINT, _integers(0, MASK64, varint)),
    Field.TYPE_SINT32: (
        _VARINT,
        _integers(-(1 << 31), (1 << 31) - 1, lambda content: varint(content << 1 ^ content >> 31)),
    ),
    Field.TYPE_FIXED32: (_FIXED32, _integers(0, 0xFFFFFFFF, struct.Struct("<I").pack)),
    Field.TYPE_FIXED64: (_FIXED64, _integers(0, MASK64, struct.Struct("<Q").pack)),
    Field.TYPE_SFIXED64: (_FIXED64, _integers(-(1 << 63), (1 << 63) - 1, struct.Struct("<q").pack)),
}
_NEWER: Final[Mapping[str, Table]] = {
    "LogRecord": (
        (12, "eventName", "event_name", partial(_singular, *_SCALARS[Field.TYPE_STRING], False)),
    )
}
"""Fields that are missing in the oldest protobuf classes which may be installed."""


def message(value: Any, kind: Descriptor) -> bytes:
    """Encode an object as a message of this type. Parts of it that are encoded already are given as
    bytes.

    Raises:
        InputError: naming the field and what was expected there, never the value.
    """
    if isinstance(value, bytes):
        return value
    if not isinstance(value, dict):
        raise InputError("expected an object")
    return b"".join([_field(row, value) for row in _table(kind)])


def _field(row: Row, fields: Mapping[str, Any]) -> bytes:
    number, camel, snake, write = row
    value = look_up(fields, camel, snake)
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
    repeated = {field.name for field in known.field if field.label == field.LABEL_REPEATED}
    rows = {
        field.number: (
            field.number,
            field.json_name,
            field.name,
            _writer(field, field.name in repeated),
        )
        for field in kind.fields
    }
    return tuple(rows[number] for number in sorted(rows)) + tuple(
        row for row in _NEWER.get(kind.name, ()) if row[0] not in rows
    )


def _writer(field: FieldDescriptor, is_repeated: bool) -> Write:
    kind, encode = _encoder(field)
    if encode is None:  # a type of field that is newer than this code
        return lambda number, value: b""
    if not is_repeated:
        return partial(_singular, kind, encode, field.has_presence)
    return partial(_repeated, encode) if kind == _LENGTH else partial(_packed, encode)


def _encoder(field: FieldDescriptor) -> tuple[int, Encode | None]:
    """The wire type of a field and the encoder of its content; None for a type that is not known
    here.
    """
    kind, enum = field.message_type, field.enum_type
    if kind is not None:
        return _LENGTH, _OWN.get(kind.name) or _delimited(lambda value: message(value, kind))
    if enum is not None:
        return _VARINT, partial(_read_enum, {member.name: member.number for member in enum.values})
    return _SCALARS.get(field.type, (_VARINT, None))
