"""Read OTLP spans and log records: messages with most of their fields left out (opentelemetry-proto
1.x), attribute values, and the readers of them; each value is decoded when it is needed.

The cost of OTLP in Python is not the parse, which protobuf does in C, but each attribute turned
into an object. So the messages here, which are made when the module is loaded, keep the same field
numbers but declare less: spans are opaque `bytes`, attributes are opaque `bytes`, strings are
`bytes`, so that nothing is decoded before it is needed. A singular message that is kept as bytes is
declared `repeated bytes`: protobuf merges the occurrences of such a field, and merging is joining
their bytes.

Attribute values are decoded from the bytes of a `KeyValue` or `AnyValue` to plain Python values,
and encoded. Two fast paths read the wire format themselves; whatever is not written in the one
usual way is left to protobuf, so that the result is always that of a full parse. Source:
opentelemetry-proto, common.proto.
"""

from __future__ import annotations

import re
import struct
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any, Final

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.descriptor_pb2 import FieldDescriptorProto as Field
from google.protobuf.message import DecodeError

from otel_eval.caching import cached_property
from otel_eval.conventions.reader import exported_resource
from otel_eval.interfaces import DEPLOYMENT, Deployment, SpanEvent, SpanReader, Wanted
from otel_eval.native import extension
from otel_eval.wire import plain_fields, read_varint, sized, varint

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
    """Add the definition of a message to a file."""
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
    """A pool with the messages of `_MESSAGES`."""
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
    descriptor = _POOL.FindMessageTypeByName(f"{_PACKAGE}.{name}")
    parse: Callable[[bytes], Any] = message_factory.GetMessageClass(descriptor).FromString
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
    """Decode an `AnyValue` to None, bool, int, float, str, list or dict; bytes become base64 text,
    and lists and maps nested too deep become `TOO_DEEP`.

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


def encode_pairs(attributes: Mapping[Any, Any], depth: int = 0) -> list[bytes]:
    """Encode attributes one by one, as `encode_attributes` does; so do keys become their `str`."""
    return [_key(key) + sized(2, _value(value, depth)) for key, value in attributes.items()]


_COLLECTIONS: Final = (list, tuple, Mapping)


@lru_cache(maxsize=256)  # there are a few dozen keys, and each event has most of them
def _key(key: object) -> bytes:
    return sized(1, str(key).encode("utf-8", "replace"))


def _value(value: Any, depth: int = 0) -> bytes:
    """Encode a value as an AnyValue."""
    if isinstance(value, str):
        return sized(1, value.encode("utf-8", "replace"))
    if isinstance(value, bool):
        return b"\x10" + varint(value)
    if isinstance(value, int) and -(1 << 63) <= value < 1 << 63:
        return b"\x18" + varint(value & (1 << 64) - 1)
    if isinstance(value, float):
        return b"\x21" + struct.pack("<d", value)
    if value is None:
        return b""
    if not isinstance(value, _COLLECTIONS):
        return sized(1, str(value).encode("utf-8", "replace"))
    if depth >= MAX_DEPTH:
        return sized(1, TOO_DEEP.encode())
    if isinstance(value, Mapping):
        return sized(6, b"".join([sized(1, pair) for pair in encode_pairs(value, depth + 1)]))
    return sized(5, b"".join([sized(1, _value(item, depth + 1)) for item in value]))


_native: Final = extension("_native")
NATIVE: Final = _native is not None
"""Whether spans are read by the extension."""

_SERVICE: Final = Wanted(frozenset({"service.name"}))
_EVENT_NAME: Final = Wanted(frozenset({"event.name"}))
_HAS_IS_REMOTE: Final = 0x100  # SpanFlags of opentelemetry-proto: the next flag is valid
_IS_REMOTE: Final = 0x200

_CACHED_SCOPES: Final = 1024
_ATTRIBUTE_BYTES: Final = 16  # memory that parsing adds to each attribute
# of a resource and its scope, not counted: nearly all have as much, and many spans share it
_FREE_BYTES: Final = 1024
_CACHED_BYTES: Final = 16 * 1024
"""Larger resources are not cached from batch to batch: together with `_CACHED_SCOPES` this limits
the cache to 16 MiB.
"""


_ATTRIBUTES: Final = 9
# fields of a span that a slim one lacks: trace state, attributes, events, links
_LEFT_OUT: Final = frozenset({3, _ATTRIBUTES, 11, 13})


def _is_wanted(pair: bytes, wanted: Wanted) -> bool:
    """Whether an attribute, still encoded, is one of the wanted ones."""
    try:
        key, _ = split(pair)
    except DecodeError:
        return False
    return key in wanted.raw_keys or (
        bool(wanted.raw_prefixes) and key.startswith(wanted.raw_prefixes)
    )


class OtlpSpanReader:
    """Reads one span, which is parsed once; values are decoded each time they are read."""

    __slots__ = ("_head", "end_ns", "name", "span_kind", "start_ns")

    def __init__(self, payload: bytes) -> None:
        self._head = head = parse_span(payload)
        self.name = text(head.name)
        self.span_kind: int = head.kind
        self.start_ns: int = head.start
        self.end_ns: int = head.end

    def _status(self) -> Any:
        raw = b"".join(self._head.status)
        try:
            return parse_status(raw)
        except DecodeError:
            return parse_status(b"")

    @property
    def status_code(self) -> int:
        """0 unset, 1 ok, 2 error."""
        return int(self._status().code)

    @property
    def status_message(self) -> str:
        """The message of the status, or ""."""
        return text(self._status().message)

    @property
    def parent_is_remote(self) -> bool | None:
        """Whether the flags mark the parent as remote; None from senders that do not set them."""
        flags: int = self._head.flags
        return bool(flags & _IS_REMOTE) if flags & _HAS_IS_REMOTE else None

    @property
    def dropped_attributes(self) -> int:
        """How many attributes the sender left out."""
        return int(self._head.dropped_attributes)

    def attributes(self, wanted: Wanted) -> dict[str, Any]:
        """The wanted attributes that the span has; the others are never decoded."""
        return decode_wanted(self._head.attributes, wanted)

    def fingerprint(self, wanted: Wanted) -> None:
        """None: attributes are compared once they are decoded."""

    def events(self) -> Iterator[SpanEvent]:
        """The events in the order of the span, each decoded when it is reached."""
        return events_of(self._head.events)


def events_of(recorded: Iterable[bytes]) -> Iterator[SpanEvent]:
    """The events, each decoded when it is reached."""
    return (event for raw in recorded if (event := _event(raw)) is not None)


def _event(raw: bytes) -> SpanEvent | None:
    try:
        event = parse_event(raw)
    except DecodeError:
        return None
    return SpanEvent(text(event.name), decode_all(event.attributes))


def _span_reader() -> Callable[[bytes], SpanReader]:
    if _native is None:
        return OtlpSpanReader
    # used for what is encoded in an unusual way
    _native.configure(OtlpSpanReader, events_of, decode, DecodeError)
    make_reader: Callable[[bytes], SpanReader] = _native.view
    return make_reader


read_span: Final = _span_reader()
"""Makes the reader of a span: an `OtlpSpanReader`, or the extension's, which reads the same
faster.
"""


class OtlpResourceScope:
    """What the spans of one resource and scope share; values are decoded when they are needed.

    `attributes` is the number of attributes of the resource or of the scope, whichever has more;
    `extra` the bytes that both take in memory beyond those of ordinary ones.

    Raises:
        DecodeError: either is malformed.
    """

    def __init__(self, resource: bytes, scope: bytes) -> None:
        self.raw = (resource, scope)
        parsed = parse_scope(scope)
        self._resource = parse_resource(resource).attributes
        self._scope = parsed.attributes
        self._shared: tuple[Wanted, dict[str, Any]] | None = None
        self.scope_name = text(parsed.name)
        counts = len(self._resource), len(self._scope)
        self.attributes = max(counts)
        self.extra = max(
            0, len(resource) + len(scope) + _ATTRIBUTE_BYTES * sum(counts) - _FREE_BYTES
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return resource_scope, self.raw  # cached, so that it is parsed once in another process too

    @cached_property
    def service(self) -> str:
        """`service.name` of the resource, or ""."""
        name = decode_wanted(self._resource, _SERVICE).get("service.name")
        return name if isinstance(name, str) else ""

    @cached_property
    def deployment(self) -> Deployment:
        """The service's version and environment."""
        return Deployment.of(decode_wanted(self._resource, DEPLOYMENT))

    @cached_property
    def resource(self) -> Mapping[str, Any]:
        """The attributes of the resource that are exported with results."""
        return exported_resource(decode_all(self._resource))

    def shared(self, wanted: Wanted) -> dict[str, Any]:
        """The wanted attributes of the resource and of the scope; if both have one, that of the
        resource.
        """
        shared = self._shared  # read for every trace, nearly always with the same `wanted`
        if shared is None or shared[0] is not wanted:
            shared = self._shared = (
                wanted,
                decode_wanted(self._scope, wanted) | decode_wanted(self._resource, wanted),
            )
        return dict(shared[1])

    reader = staticmethod(read_span)

    def rank(self, payload: bytes) -> tuple[int, int, bytes]:
        """(end, number of attributes, bytes): of two spans with the same id the one with the
        greater rank counts.
        """
        head = parse_span(payload)
        return head.end, len(head.attributes), payload

    def size(self, payload: bytes) -> int:
        """The bytes of all text that the span recorded, or more: also of bytes in base64."""
        return 2 * len(payload)

    def slim(self, payload: bytes, wanted: Wanted) -> bytes:
        """The span without events, links and attributes other than the wanted ones."""
        try:
            fields_left = [
                payload[start:stop]
                for number, start, content, stop in plain_fields(payload, 0, len(payload))
                if number not in _LEFT_OUT
                or (number == _ATTRIBUTES and _is_wanted(payload[content:stop], wanted))
            ]
        except ValueError:
            return payload
        slim = b"".join(fields_left)
        return slim if len(slim) < len(payload) else payload


_cached: Final = lru_cache(maxsize=_CACHED_SCOPES)(OtlpResourceScope)


def resource_scope(resource: bytes, scope: bytes) -> OtlpResourceScope:
    """Return one object for equal bytes, cached from batch to batch. Raises DecodeError if either
    is malformed.
    """
    if len(resource) + len(scope) > _CACHED_BYTES:
        return OtlpResourceScope(resource, scope)
    return _cached(resource, scope)


def read_log(record: Any) -> SpanEvent:
    """A parsed log record as an event: its name from the field, or from the attribute that older
    senders use.
    """
    name = text(record.event_name) or decode_wanted(record.attributes, _EVENT_NAME).get(
        "event.name", ""
    )
    return SpanEvent(
        name if isinstance(name, str) else "", decode_all(record.attributes), _body(record)
    )


def _body(record: Any) -> Any:
    try:
        return decode(b"".join(record.body))
    except DecodeError:
        return None


class OtlpLogReader:
    """Reads log records; nothing of their resource is needed."""

    __slots__ = ()

    def event(self, payload: bytes) -> SpanEvent:
        """The record as an event of its span, body decoded."""
        return read_log(parse_log(payload))


LOG_READER: Final = OtlpLogReader()
