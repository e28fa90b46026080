"""OTLP messages with most of their fields left out (opentelemetry-proto 1.x), built when the module is loaded.

The cost of OTLP in Python is not the parse, which protobuf does in C, but each attribute turned into an object. So the
schemas here keep the same field numbers but declare less: spans are opaque `bytes`, attributes are opaque `bytes`, strings
are `bytes`, so that nothing is decoded before it is needed. A singular message that is kept as bytes is declared
`repeated bytes`: protobuf merges the occurrences of such a field, and merging is joining their bytes.

A list of `KeyValue` is on the wire what protobuf calls a map, so `MappedSpan` declares it as one: attributes are then
looked up in C, of equal keys the last wins, and only the values that are needed become Python objects. It is
stricter than `Span`, which takes each attribute as bytes and can lose one without losing the others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.descriptor_pb2 import FieldDescriptorProto as Field

__all__ = [
    "parse_any",
    "parse_crowd",
    "parse_event",
    "parse_ids",
    "parse_link",
    "parse_log",
    "parse_log_ids",
    "parse_mapped_span",
    "parse_metrics",
    "parse_pair",
    "parse_raw_logs",
    "parse_raw_traces",
    "parse_resource",
    "parse_scope",
    "parse_span",
    "parse_span_ids",
    "parse_status",
]

_PACKAGE: Final = "otel_eval.partial"
_BYTES: Final = Field.TYPE_BYTES
_Shape = tuple[int, int | str, bool]


def _one(number: int, kind: int | str = _BYTES) -> _Shape:
    return number, kind, False


def _many(number: int, kind: int | str = _BYTES) -> _Shape:
    return number, kind, True


_IDS: Final = {"trace_id": _one(1), "span_id": _one(2), "parent_span_id": _one(4)}
_HEAD: Final = {
    "name": _one(5),
    "kind": _one(6, Field.TYPE_INT32),
    "start": _one(7, Field.TYPE_FIXED64),
    "end": _one(8, Field.TYPE_FIXED64),
    "events": _many(11),
    "status": _many(15),
    "flags": _one(16, Field.TYPE_FIXED32),
}
_LOG: Final = {
    "body": _many(5),
    "attributes": _many(6),
    "trace_id": _one(9),
    "span_id": _one(10),
    "event_name": _one(12),
}

_MESSAGES: Final[Mapping[str, Mapping[str, _Shape]]] = {
    # ExportTraceServiceRequest and TracesData are the same on the wire.
    "RawTraces": {"groups": _many(1, "RawTraceGroup")},
    "RawTraceGroup": {"resource": _many(1), "scopes": _many(2, "RawScope")},
    "RawScope": {"scope": _many(1), "items": _many(2)},
    "SpanIds": {"groups": _many(1, "SpanIdGroup")},
    "SpanIdGroup": {"scopes": _many(2, "SpanIdScope")},
    "SpanIdScope": {"items": _many(2, "Ids")},
    "Ids": _IDS,
    "Logs": {"groups": _many(1, "LogGroup")},
    "LogGroup": {"scopes": _many(2, "LogScope")},
    "LogScope": {"items": _many(2, "Log")},
    "Log": _LOG,
    "Span": {"attributes": _many(9), **_HEAD},
    "MappedSpan": _HEAD,
    "Crowd": {"attributes": _many(9), "events": _many(11), "links": _many(13)},
    "Link": {"attributes": _many(4)},
    "Status": {"message": _one(2), "code": _one(3, Field.TYPE_INT32)},
    "Event": {"name": _one(2), "attributes": _many(3)},
    "Resource": {"attributes": _many(1)},
    "Scope": {"name": _one(1), "attributes": _many(3)},
    "Pair": {"key": _one(1), "value": _many(2)},
    "Values": {"values": _many(1)},
    "Metrics": {"groups": _many(1)},
}

_ANY: Final[Mapping[str, _Shape]] = {
    "string_value": _one(1),
    "bool_value": _one(2, Field.TYPE_BOOL),
    "int_value": _one(3, Field.TYPE_INT64),
    "double_value": _one(4, Field.TYPE_DOUBLE),
    "array_value": _one(5, "Values"),
    "kvlist_value": _one(6, "Values"),
    "bytes_value": _one(7),
}


def _add(file: descriptor_pb2.FileDescriptorProto, name: str, fields: Mapping[str, _Shape]) -> descriptor_pb2.DescriptorProto:
    message = file.message_type.add(name=name)
    for field_name, (number, kind, repeated) in fields.items():
        field = message.field.add(name=field_name, number=number)
        field.label = Field.LABEL_REPEATED if repeated else Field.LABEL_OPTIONAL
        if isinstance(kind, str):
            field.type, field.type_name = Field.TYPE_MESSAGE, f".{_PACKAGE}.{kind}"
        else:
            field.type = Field.Type.ValueType(kind)
    return message


def _add_attribute_map(span: descriptor_pb2.DescriptorProto) -> None:
    entry = span.nested_type.add(name="AttributesEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=Field.TYPE_STRING, label=Field.LABEL_OPTIONAL)
    value = entry.field.add(name="value", number=2, type=Field.TYPE_MESSAGE, label=Field.LABEL_OPTIONAL)
    value.type_name = f".{_PACKAGE}.Any"
    field = span.field.add(name="attributes", number=9, type=Field.TYPE_MESSAGE, label=Field.LABEL_REPEATED)
    field.type_name = f".{_PACKAGE}.MappedSpan.AttributesEntry"


def _build() -> Callable[[str], Callable[[bytes], Any]]:
    file = descriptor_pb2.FileDescriptorProto(name="otel_eval/partial.proto", package=_PACKAGE, syntax="proto3")
    messages = {name: _add(file, name, fields) for name, fields in _MESSAGES.items()}
    _add_attribute_map(messages["MappedSpan"])
    any_value = _add(file, "Any", _ANY)
    any_value.oneof_decl.add(name="value")
    for field in any_value.field:
        field.oneof_index = 0
    pool = descriptor_pool.DescriptorPool()  # our own: nothing here can collide with generated code
    pool.Add(file)

    def parser(name: str) -> Callable[[bytes], Any]:
        found = pool.FindMessageTypeByName(f"{_PACKAGE}.{name}")
        parse: Callable[[bytes], Any] = message_factory.GetMessageClass(found).FromString
        return parse

    return parser


_parser: Final = _build()

# Each takes bytes, gives a message of the shape above and raises `google.protobuf.message.DecodeError`.
parse_raw_traces: Final = _parser("RawTraces")
parse_raw_logs: Final = parse_raw_traces  # the same numbers
parse_span_ids: Final = _parser("SpanIds")
parse_log_ids: Final = _parser("Logs")
parse_ids: Final = _parser("Ids")
parse_log: Final = _parser("Log")
parse_metrics: Final = _parser("Metrics")
parse_span: Final = _parser("Span")
parse_mapped_span: Final = _parser("MappedSpan")
parse_crowd: Final = _parser("Crowd")
parse_link: Final = _parser("Link")
parse_status: Final = _parser("Status")
parse_event: Final = _parser("Event")
parse_resource: Final = _parser("Resource")
parse_scope: Final = _parser("Scope")
parse_pair: Final = _parser("Pair")
parse_any: Final = _parser("Any")
