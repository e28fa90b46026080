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


def write_unsigned(number: int, value: Any) -> bytes:
    """A uint32."""
    content = read_integer(value, 0, 0xFFFFFFFF)
    return varint(number << 3) + varint(content) if content else b""


def write_enum(names: Mapping[str, int], number: int, value: Any) -> bytes:
    """A number, or a name; an unknown name is the unspecified value."""
    if isinstance(value, str) and not value.lstrip("-").isdigit():
        value = names.get(value, 0)
    # An enum is an int32, and protobuf writes a negative one as ten bytes: sign-extended to 64 bits.
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
        # protobuf's JSON mapping asks readers to take both alphabets, with and without padding.
        return b64decode(value.replace("-", "+").replace("_", "/") + "=" * (-len(value) % 4), validate=True)
    except ValueError:
        raise InputError("expected base64 text") from None


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


Write = Callable[[int, Any], bytes]
Row = tuple[int, str, str, Write]
Table = tuple[Row, ...]

_OWN: Final[Mapping[str, Write]] = {"KeyValue": write_pair, "AnyValue": write_value}
_SCALARS: Final[Mapping[int, Write]] = {
    Field.TYPE_STRING: write_text,
    Field.TYPE_BYTES: write_hex,
    Field.TYPE_UINT32: write_unsigned,
    Field.TYPE_FIXED32: write_fixed32,
    Field.TYPE_FIXED64: write_fixed64,
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
