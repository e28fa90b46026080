"""OTLP messages with most of their fields left out (opentelemetry-proto 1.x), built when the module
is loaded.

The cost of OTLP in Python is not the parse, which protobuf does in C, but each attribute turned
into an object. So the schemas here keep the same field numbers but declare less: spans are opaque
`bytes`, attributes are opaque `bytes`, strings are `bytes`, so that nothing is decoded before it is
needed. A singular message that is kept as bytes is declared `repeated bytes`: protobuf merges the
occurrences of such a field, and merging is joining their bytes.

Attribute values are decoded from the bytes of a `KeyValue` or `AnyValue` to plain Python values,
and encoded. Two fast paths read the wire format themselves; whatever is not written in the one
usual way is left to protobuf, so that the result is always that of a full parse. Source:
opentelemetry-proto, common.proto.
"""

from __future__ import annotations

import re
import struct
from base64 import b64encode
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Any, Final

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.descriptor_pb2 import FieldDescriptorProto as Field
from google.protobuf.message import DecodeError

from otel_eval.interfaces import Wanted
from otel_eval.wire import read_varint, sized, varint

_PACKAGE: Final = "otel_eval.partial"
# As in a .proto file. RawTraces is ExportTraceServiceRequest and TracesData: they are the same on
# the wire.
_MESSAGES: Final = """
message RawTraces { repeated RawTraceGroup groups = 1; }
message RawTraceGroup { repeated bytes resource = 1; repeated RawScope scopes = 2; }
message RawScope { repeated bytes scope = 1; repeated bytes items = 2; }
message SpanIds { repeated SpanIdGroup groups = 1; }
message SpanIdGroup { repeated SpanIdScope scopes = 2; }
message SpanIdScope { repeated Ids items = 2; }
message Ids { bytes trace_id = 1; bytes span_id = 2; bytes parent_span_id = 4; }
message Logs { repeated LogGroup groups = 1; }
message LogGroup { repeated LogScope scopes = 2; }
message LogScope { repeated Log items = 2; }
message Log { repeated bytes body = 5; repeated bytes attributes = 6; bytes trace_id = 9;
  bytes span_id = 10; bytes event_name = 12; }
message Span { bytes name = 5; int32 kind = 6; fixed64 start = 7; fixed64 end = 8;
  repeated bytes attributes = 9; uint32 dropped_attributes = 10; repeated bytes events = 11;
  repeated bytes status = 15;
  fixed32 flags = 16; }
message LimitedFields { repeated bytes attributes = 9; repeated bytes events = 11;
  repeated bytes links = 13; }
message Link { repeated bytes attributes = 4; }
message Status { bytes message = 2; int32 code = 3; }
message Event { bytes name = 2; repeated bytes attributes = 3; }
message Resource { repeated bytes attributes = 1; }
message Scope { bytes name = 1; repeated bytes attributes = 3; }
message Pair { bytes key = 1; repeated bytes value = 2; }
message Values { repeated bytes values = 1; }
message Metrics { repeated bytes groups = 1; }
message Any { oneof value { bytes string_value = 1; bool bool_value = 2; int64 int_value = 3;
  double double_value = 4; Values array_value = 5; Values kvlist_value = 6;
  bytes bytes_value = 7; } }
"""
_MESSAGE: Final = re.compile(r"message (\w+) \{(.*?)\}\n", re.DOTALL)
_FIELD: Final = re.compile(r"(repeated )?(\w+) (\w+) = (\d+);")


def _add(file: descriptor_pb2.FileDescriptorProto, name: str, fields: str) -> None:
    message = file.message_type.add(name=name)
    if is_choice := "oneof" in fields:  # then every field of the message is in the oneof
        message.oneof_decl.add(name="value")
    for repeated, kind, field_name, number in _FIELD.findall(fields):
        label = Field.LABEL_REPEATED if repeated else Field.LABEL_OPTIONAL
        field = message.field.add(name=field_name, number=int(number), label=label)
        if kind.islower():
            field.type = Field.Type.Value(f"TYPE_{kind.upper()}")
        else:
            field.type, field.type_name = Field.TYPE_MESSAGE, f".{_PACKAGE}.{kind}"
        if is_choice:
            field.oneof_index = 0


def _pool() -> descriptor_pool.DescriptorPool:
    file = descriptor_pb2.FileDescriptorProto(
        name="otel_eval/partial.proto", package=_PACKAGE, syntax="proto3"
    )
    for name, fields in _MESSAGE.findall(_MESSAGES):
        _add(file, name, fields)
    pool = descriptor_pool.DescriptorPool()  # our own: nothing here can collide with generated code
    pool.Add(file)
    return pool


_POOL: Final = _pool()


def _parser(name: str) -> Callable[[bytes], Any]:
    found = _POOL.FindMessageTypeByName(f"{_PACKAGE}.{name}")
    parse: Callable[[bytes], Any] = message_factory.GetMessageClass(found).FromString
    return parse


# Each parses bytes to a message of the schema above, or raises
# `google.protobuf.message.DecodeError`.
parse_raw_traces: Final = _parser("RawTraces")
parse_raw_logs: Final = parse_raw_traces  # the same numbers
parse_span_ids: Final = _parser("SpanIds")
parse_log_ids: Final = _parser("Logs")
parse_log: Final = _parser("Log")
parse_metrics: Final = _parser("Metrics")
parse_span: Final = _parser("Span")
parse_limited_fields: Final = _parser("LimitedFields")
parse_link: Final = _parser("Link")
parse_status: Final = _parser("Status")
parse_event: Final = _parser("Event")
parse_resource: Final = _parser("Resource")
parse_scope: Final = _parser("Scope")
parse_pair: Final = _parser("Pair")
parse_any: Final = _parser("Any")


MAX_DEPTH: Final = 64
"""How deep lists and maps may be nested; deeper ones become `TOO_DEEP`."""

TOO_DEEP: Final = "…"

_KEY_TAG: Final = 0x0A  # field 1, length-delimited: KeyValue.key and AnyValue.string_value
_VALUE_TAG: Final = 0x12  # field 2, length-delimited: KeyValue.value


def text(raw: bytes) -> str:
    """Decode UTF-8, with replacement characters for invalid bytes: one of them must not invalidate
    a whole request.
    """
    return raw.decode("utf-8", "replace")


def split(pair: bytes) -> tuple[bytes, bytes]:
    """Split a `KeyValue` into key and value, both still bytes; raises DecodeError if it is
    malformed.

    The fast path accepts exactly one key, shorter than 128 bytes, followed by exactly one value up
    to the end: every encoder writes that. Anything else may hold a second key or value (in protobuf
    the last one wins).
    """
    try:
        at = pair[1] + 2
        if pair[0] == _KEY_TAG and at < 130 and pair[at] == _VALUE_TAG:
            start = _content_start(pair, at + 1)
            if start:
                return pair[2:at], pair[start:]
    except (IndexError, ValueError):
        pass
    parsed = parse_pair(pair)
    return parsed.key, b"".join(parsed.value)


def decode(raw: bytes, depth: int = 0) -> Any:
    """Decode an `AnyValue` to None, bool, int, float, str, list or dict; bytes become base64 text.

    Raises:
        DecodeError: the bytes are malformed.
    """
    single = _single_text(raw)
    if single is not None:
        return single
    value = parse_any(raw)
    kind = value.WhichOneof("value")
    return _DECODERS[kind](getattr(value, kind), depth) if kind else None


def _single_text(raw: bytes) -> str | None:
    """The text of an `AnyValue` that is one string and nothing else, by far the commonest; else
    None.
    """
    if not raw or raw[0] != _KEY_TAG:
        return None
    try:
        start = _content_start(raw, 1)
    except (IndexError, ValueError):
        return None
    return raw[start:].decode("utf-8", "replace") if start else None


def _content_start(raw: bytes, at: int) -> int:
    """Where the content begins whose length stands at `at`, or 0 if it does not end where the bytes
    end.

    Raises:
        IndexError, ValueError: see `read_varint`.
    """
    size, start = raw[at], at + 1
    if size > 0x7F:  # a length of more than one byte; nearly all others have two
        if raw[start] > 0x7F:
            size, start = read_varint(raw, at)
        else:
            size, start = size & 0x7F | raw[start] << 7, start + 1
    return start if start + size == len(raw) else 0


def _list(value: Any, depth: int) -> Any:
    if depth >= MAX_DEPTH:
        return TOO_DEEP
    return [decode(item, depth + 1) for item in value.values]


def _map(value: Any, depth: int) -> Any:
    return TOO_DEEP if depth >= MAX_DEPTH else decode_all(value.values, depth + 1)


_DECODERS: Final[dict[str, Callable[[Any, int], Any]]] = {
    "string_value": lambda value, _: text(value),
    "bool_value": lambda value, _: value,
    "int_value": lambda value, _: value,
    "double_value": lambda value, _: value,
    "array_value": _list,
    "kvlist_value": _map,
    "bytes_value": lambda value, _: b64encode(value).decode(),
}


def decode_all(pairs: Iterable[bytes], depth: int = 0) -> dict[str, Any]:
    """Decode all attributes. Of equal keys the last wins; malformed attributes are left out."""
    attributes: dict[str, Any] = {}
    for pair in pairs:
        try:
            key, value = split(pair)
            attributes[text(key)] = decode(value, depth)
        except DecodeError:
            continue
    return attributes


def decode_wanted(pairs: Iterable[bytes], wanted: Wanted) -> dict[str, Any]:
    """Decode the wanted attributes; one that cannot be read counts as missing."""
    keys, prefixes = wanted.raw_keys, wanted.raw_prefixes
    attributes: dict[str, Any] = {}
    for pair in pairs:
        try:
            key, value = split(pair)
            if key in keys or (prefixes and key.startswith(prefixes)):
                attributes[text(key)] = decode(value)
        except DecodeError:
            continue
    return attributes


def encode_attributes(field: int, attributes: Mapping[str, Any]) -> bytes:
    r"""Encode attributes as a repeated field of a message; a value of a type that JSON does not
    have becomes its `str`.

    >>> encode_attributes(1, {"a": "b"})
    b'\n\x08\n\x01a\x12\x03\n\x01b'
    """
    return b"".join(
        [sized(field, _key(key) + sized(2, _value(value))) for key, value in attributes.items()]
    )


@lru_cache(maxsize=256)  # there are a few dozen keys, and each event has most of them
def _key(key: str) -> bytes:
    return sized(1, key.encode("utf-8", "replace"))


def _value(value: Any) -> bytes:
    if isinstance(value, str):
        return sized(1, value.encode("utf-8", "replace"))
    if isinstance(value, bool):
        return b"\x10" + varint(value)
    if isinstance(value, int) and -(1 << 63) <= value < 1 << 63:
        return b"\x18" + varint(value & (1 << 64) - 1)
    if isinstance(value, float):
        return b"\x21" + struct.pack("<d", value)
    if isinstance(value, list | tuple):
        return sized(5, b"".join([sized(1, _value(each)) for each in value]))
    if isinstance(value, Mapping):
        return sized(6, encode_attributes(1, value))
    return b"" if value is None else sized(1, str(value).encode("utf-8", "replace"))
