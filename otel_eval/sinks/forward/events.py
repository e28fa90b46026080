"""Results as span events in OTLP's bytes, ready to be appended to a span.

Knows the messages Span.Event and KeyValue. A span in protobuf may be continued by appending fields: `events` is
repeated, so what is appended is one more event, and nothing before it is touched.
Source: opentelemetry-proto, trace.proto (Span.events = 11) and common.proto.
"""

from __future__ import annotations

import struct
import time
from functools import lru_cache
from typing import Any, Final

from otel_eval.model import Report, Result, Scored
from otel_eval.sinks import attributes as names
from otel_eval.sinks.forward.cut import sized, varint

__all__ = ["events_of"]

_EVENTS: Final = 11
_NAME: Final = sized(2, names.EVENT_NAME.encode())
_ATTRIBUTES: Final = 3
_ONE_BYTE: Final = 120


def events_of(report: Report) -> bytes:
    """One `events` field of a span for each result; the time is now, when it was judged."""
    head = b"\x09" + struct.pack("<Q", time.time_ns()) + _NAME + _pairs(names.run_attributes(report))
    return b"".join([sized(_EVENTS, head + _kind(result) + _pairs(names.own_attributes(result))) for result in report.results])


def _kind(result: Result) -> bytes:
    """What results of one kind share, encoded once."""
    outcome = result.outcome
    told = outcome.passed if isinstance(outcome, Scored) else getattr(outcome, "error_type", "")
    key = (result.scorer, result.type, result.version, type(outcome), told)
    known = _kinds.get(key)
    if known is None:
        known = _pairs(names.kind_attributes(result))
        if len(_kinds) < _MOST_KINDS and len(known) < _MOST_KIND_BYTES:
            _kinds[key] = known
    return known


_MOST_KINDS: Final = 1024
_MOST_KIND_BYTES: Final = 1024
_kinds: Final[dict[tuple[object, ...], bytes]] = {}


def _pairs(attributes: dict[str, Any]) -> bytes:
    return b"".join([_pair(key, value) for key, value in attributes.items()])


def _pair(key: str, value: str | bool | int | float) -> bytes:
    head, content = _key(key), _value(value)
    size = len(content)
    if len(head) + size < _ONE_BYTE:  # the lengths take one byte each
        return b"\x1a" + _LENGTHS[len(head) + size + 2] + head + b"\x12" + _LENGTHS[size] + content
    return sized(_ATTRIBUTES, head + sized(2, content))


_LENGTHS: Final = [bytes((number,)) for number in range(128)]


@lru_cache(maxsize=256)
def _key(key: str) -> bytes:
    return sized(1, key.encode())


def _value(value: str | bool | int | float) -> bytes:
    if isinstance(value, str):
        encoded = value.encode("utf-8", "replace")
        size = len(encoded)
        return b"\x0a" + (_LENGTHS[size] if size < 128 else varint(size)) + encoded
    if isinstance(value, bool):
        return b"\x10" + varint(value)
    if isinstance(value, int):
        return b"\x18" + varint(value & (1 << 64) - 1)
    return b"\x21" + struct.pack("<d", value)
