"""Readers of spans and log records in protobuf bytes; values are decoded when they are needed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any, Final

from google.protobuf.message import DecodeError

from otel_eval.caching import cached_property
from otel_eval.conventions.reader import exported_resource
from otel_eval.interfaces import DEPLOYMENT, Deployment, SpanEvent, SpanReader, Wanted
from otel_eval.native import extension
from otel_eval.otlp.schema import (
    decode,
    decode_all,
    decode_wanted,
    parse_event,
    parse_log,
    parse_resource,
    parse_scope,
    parse_span,
    parse_status,
    split,
    text,
)
from otel_eval.wire import places

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
        code: int = self._status().code
        return code

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
        number: int = self._head.dropped_attributes
        return number

    def attributes(self, wanted: Wanted) -> dict[str, Any]:
        """The wanted attributes that the span has; the others are never decoded."""
        return decode_wanted(self._head.attributes, wanted)

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
        found = decode_wanted(self._resource, _SERVICE).get("service.name")
        return found if isinstance(found, str) else ""

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
        kept = self._shared  # read for every trace, nearly always with the same `wanted`
        if kept is None or kept[0] is not wanted:
            kept = self._shared = (
                wanted,
                decode_wanted(self._scope, wanted) | decode_wanted(self._resource, wanted),
            )
        return dict(kept[1])

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
            kept = [
                payload[start:stop]
                for number, start, content, stop in places(payload, 0, len(payload))
                if number not in _LEFT_OUT
                or (number == _ATTRIBUTES and _is_wanted(payload[content:stop], wanted))
            ]
        except ValueError:
            return payload
        slim = b"".join(kept)
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
