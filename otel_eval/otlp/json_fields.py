"""Encodes OTLP/JSON objects as protobuf.

protobuf itself encodes the messages, so the same message sent as JSON and as protobuf becomes the
same bytes. It limits how deep messages may be nested, so attribute values, which may be nested
deeper, are encoded here, and are bytes to it. Unknown fields are ignored, as the specification
asks. What known senders write differently is accepted: snake_case keys, enum names, numbers as
text, null.
"""

from __future__ import annotations

import math
import struct
from base64 import b64decode
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache, partial
from typing import Any, Final

from google.protobuf import descriptor_pool, message_factory
from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pb2 import FieldDescriptorProto as Field
from google.protobuf.message import Message
from opentelemetry.proto.common.v1 import common_pb2
from opentelemetry.proto.logs.v1 import logs_pb2
from opentelemetry.proto.metrics.v1 import metrics_pb2
from opentelemetry.proto.resource.v1 import resource_pb2
from opentelemetry.proto.trace.v1 import trace_pb2

from otel_eval.errors import InputError
from otel_eval.otlp.spans import MAX_DEPTH, TOO_DEEP
from otel_eval.wire import MASK64, sized, varint

# ------------------------------------------------------------------- scalars


def _integer(low: int, high: int, value: Any) -> int:
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


_int32: Final = partial(_integer, -(1 << 31), (1 << 31) - 1)
_int64: Final = partial(_integer, -(1 << 63), (1 << 63) - 1)


def _enum(numbers: Mapping[str, int], value: Any) -> int:
    """The number of an enum value, given as its number or its name; an unknown name is the
    unspecified value, 0.
    """
    is_name = isinstance(value, str) and not value.lstrip("-").isdigit()
    return _int32(numbers.get(value, 0) if is_name else value)


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


def _bool(value: Any) -> bool:
    if not isinstance(value, bool):
        raise InputError("expected true or false")
    return value


def _double(value: Any) -> float:
    try:
        if isinstance(value, bool) or not isinstance(value, (int, float, str)):
            raise ValueError
        # The JSON mapping of protobuf writes numbers that JSON lacks as text.
        return float(value)  # also "NaN", "Infinity" and "-Infinity"
    except OverflowError:
        return math.inf if value > 0 else -math.inf
    except ValueError:
        raise InputError("expected a number") from None


# --------------------------------------------------------- attribute values


def _encode_pair(value: Any, depth: int = 0) -> bytes:
    """Encode a KeyValue; bytes are one that is encoded already."""
    if isinstance(value, bytes):
        return value
    if not isinstance(value, dict):
        raise InputError("expected an object with key and value")
    key, content = _text(value.get("key") or ""), value.get("value")
    return (sized(1, key) if key else b"") + (
        b"" if content is None else sized(2, _encode_any(content, depth))
    )


def _encode_any(value: Any, depth: int = 0) -> bytes:
    """Encode an AnyValue. Unlike elsewhere, defaults are written: 0 and "" are not a missing
    value.
    """
    if value is None:
        return b""
    if not isinstance(value, dict):
        raise InputError('expected a value such as {"stringValue": "x"}')
    # A sender has to set one of them; of several the first in this order counts.
    for camel, snake, encode in _VALUES:
        content = look_up(value, camel, snake)
        if content is not None:
            return encode(content, depth)
    return b""


_LIST, _MAP = 5, 6  # fields of AnyValue


def _encode_collection(
    number: int, encode: Callable[[Any, int], bytes], value: Any, depth: int
) -> bytes:
    """Encode an AnyValue that is a list or a map; null is a member of a list only."""
    if depth >= MAX_DEPTH:
        return sized(1, TOO_DEEP.encode())
    members = value.get("values") if isinstance(value, dict) else 0
    if not (members is None or isinstance(members, list)):
        raise InputError('expected an object with a list "values"')
    encoded = [
        sized(1, encode(member, depth + 1))
        for member in members or ()
        if member is not None or number == _LIST
    ]
    return sized(number, b"".join(encoded))


_VALUES: Final[tuple[tuple[str, str, Callable[[Any, int], bytes]], ...]] = (
    ("stringValue", "string_value", lambda value, _: sized(1, _text(value))),
    ("boolValue", "bool_value", lambda value, _: b"\x10\x01" if _bool(value) else b"\x10\x00"),
    ("intValue", "int_value", lambda value, _: b"\x18" + varint(_int64(value) & MASK64)),
    ("doubleValue", "double_value", lambda value, _: b"\x21" + struct.pack("<d", _double(value))),
    ("arrayValue", "array_value", partial(_encode_collection, _LIST, _encode_any)),
    ("kvlistValue", "kvlist_value", partial(_encode_collection, _MAP, _encode_pair)),
    ("bytesValue", "bytes_value", lambda value, _: sized(7, _base64(value))),
)


# ------------------------------------------------------------------ messages


def look_up(fields: Mapping[str, Any], camel: str, snake: str) -> Any:
    """Return a field by its JSON name or, for senders that write it, by its proto name; None if it
    is missing or null.
    """
    value = fields.get(camel)
    return fields.get(snake) if value is None else value


Read = Callable[[Any, list[str]], Any]
"""Returns what protobuf takes as the value of a field, from its JSON value. Adds to the list why
spans and log records cannot be encoded, which are left out; for anything else raises InputError
with what was expected.
"""


def _members(value: Any) -> list[Any]:
    """The members of a repeated field, without nulls."""
    if not isinstance(value, list):
        raise InputError("expected a list")
    return [item for item in value if item is not None]


def _read_message(name: str, value: Any, reasons: list[str]) -> Message:
    """Make the message with this name from a JSON object."""
    if not isinstance(value, dict):
        raise InputError("expected an object")
    make, fields = _messages()[name]
    contents = {}
    for camel, snake, read in fields:
        content = look_up(value, camel, snake)
        if content is not None:
            try:
                contents[snake] = read(content, reasons)
            except InputError as error:
                raise InputError(f"{camel}: {error}") from None
    return make(**contents)


def _read_items(name: str, value: Any, reasons: list[str]) -> list[bytes]:
    """Encode spans or log records."""
    encoded = []
    for item in _members(value):
        try:
            encoded.append(_read_message(name, item, reasons).SerializeToString())
        except InputError as error:
            reasons.append(str(error))
    return encoded


def encode_document(document: Mapping[str, Any], name: str) -> tuple[bytes, list[str]]:
    """Encode a document as the message with this name.

    Returns:
        The message, without spans and log records that cannot be encoded; and for each of these the
        field and what was expected there, never its value.

    Raises:
        InputError: anything else cannot be encoded, with the same.
    """
    reasons: list[str] = []
    message = _read_message(name, document, reasons)
    return message.SerializeToString(), reasons


_OTLP: Final = "opentelemetry.proto"
_LOG_RECORD: Final = f".{_OTLP}.logs.v1.LogRecord"
_ITEMS: Final = (f".{_OTLP}.trace.v1.Span", _LOG_RECORD)
_VALUE_ENCODERS: Final[Mapping[str, Callable[[Any], bytes]]] = {
    f".{_OTLP}.common.v1.KeyValue": _encode_pair,
    f".{_OTLP}.common.v1.AnyValue": _encode_any,
}
_SCALARS: Final[Mapping[int, Callable[[Any], Any]]] = {
    Field.TYPE_STRING: _text,
    Field.TYPE_BYTES: _hex,
    Field.TYPE_BOOL: _bool,
    **dict.fromkeys((Field.TYPE_DOUBLE, Field.TYPE_FLOAT), _double),
    **dict.fromkeys((Field.TYPE_UINT32, Field.TYPE_FIXED32), partial(_integer, 0, 0xFFFFFFFF)),
    **dict.fromkeys((Field.TYPE_UINT64, Field.TYPE_FIXED64), partial(_integer, 0, MASK64)),
    **dict.fromkeys((Field.TYPE_INT32, Field.TYPE_SINT32, Field.TYPE_SFIXED32), _int32),
    **dict.fromkeys((Field.TYPE_INT64, Field.TYPE_SINT64, Field.TYPE_SFIXED64), _int64),
}
_EVENT_NAME: Final = Field(
    name="event_name", number=12, type=Field.TYPE_STRING, label=Field.LABEL_OPTIONAL
)
"""A field of log records that the oldest classes which may be installed lack."""


def _reader(field: Field) -> Read:
    """The reader of a field."""
    is_list, name = field.label == Field.LABEL_REPEATED, field.type_name[1:]
    if field.type_name in _ITEMS:
        return partial(_read_items, name)
    if encode := _VALUE_ENCODERS.get(field.type_name):
        return lambda value, _: list(map(encode, _members(value) if is_list else (value,)))
    if field.type == Field.TYPE_MESSAGE:
        if not is_list:
            return partial(_read_message, name)
        return lambda value, reasons: [
            _read_message(name, item, reasons) for item in _members(value)
        ]
    if field.type == Field.TYPE_ENUM:
        values = descriptor_pool.Default().FindEnumTypeByName(name).values
        scalar: Callable[[Any], Any] = partial(
            _enum, {value.name: value.number for value in values}
        )
    else:
        scalar = _SCALARS[field.type]
    if is_list:
        return lambda value, _: list(map(scalar, _members(value)))
    return lambda value, _: scalar(value)


def _definitions(
    scope: str, messages: Iterable[DescriptorProto]
) -> Iterator[tuple[str, DescriptorProto]]:
    """Yield the full name and the definition of each message, those within it included."""
    for message in messages:
        name = f"{scope}.{message.name}"
        yield name, message
        yield from _definitions(name, message.nested_type)


@cache
def _messages() -> Mapping[str, tuple[type[Message], Sequence[tuple[str, str, Read]]]]:
    """By the name of each message of OTLP: its class, and for each field its names in JSON and in
    the definition and its reader.

    In these classes attribute values, spans and log records are bytes. A value that is no list is a
    list of one, so that an empty value is written, too.
    """
    pool = descriptor_pool.DescriptorPool()
    readers: dict[str, Read] = {}
    names: list[str] = []
    for module in (common_pb2, resource_pb2, trace_pb2, logs_pb2, metrics_pb2):
        file = FileDescriptorProto()
        module.DESCRIPTOR.CopyToProto(file)
        for name, message in _definitions(file.package, file.message_type):
            names.append(name)
            if f".{name}" == _LOG_RECORD and all(
                field.number != _EVENT_NAME.number for field in message.field
            ):
                message.field.append(_EVENT_NAME)
            for field in message.field:
                readers[f"{name}.{field.name}"] = _reader(field)
                if field.type_name in (*_ITEMS, *_VALUE_ENCODERS):
                    field.type, field.label = Field.TYPE_BYTES, Field.LABEL_REPEATED
                    field.ClearField("type_name")
        pool.Add(file)
    kinds = map(pool.FindMessageTypeByName, names)
    return {
        kind.full_name: (
            message_factory.GetMessageClass(kind),
            [(field.json_name, field.name, readers[field.full_name]) for field in kind.fields],
        )
        for kind in kinds
    }
