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

from otel_eval.model import Report
from otel_eval.sinks import attributes as names
from otel_eval.sinks.forward.cut import sized, varint

__all__ = ["events_of"]

_EVENTS: Final = 11
_NAME: Final = sized(2, names.EVENT_NAME.encode())
_ATTRIBUTES: Final = 3
_SHORT: Final = 128
_ONE_BYTE: Final = 120


def events_of(report: Report) -> bytes:
    """One `events` field of a span for each result; the time is now, when it was judged."""
    head = b"\x09" + struct.pack("<Q", time.time_ns()) + _NAME
    return b"".join([sized(_EVENTS, head + _pairs(names.event_attributes(report, result))) for result in report.results])


def _pairs(attributes: dict[str, Any]) -> bytes:
    return b"".join(
        [
            _kept_text(key, value) if isinstance(value, str) and len(value) < _SHORT else _pair(key, value)
            for key, value in attributes.items()
        ]
    )


def _pair(key: str, value: str | bool | int | float) -> bytes:
    content = _value(value)
    head = _key(key)
    size = len(content)
    if len(head) + size < _ONE_BYTE:  # the lengths take one byte each
        return b"\x1a" + bytes((len(head) + size + 2,)) + head + bytes((0x12, size)) + content
    return sized(_ATTRIBUTES, head + sized(2, content))


@lru_cache(maxsize=256)
def _key(key: str) -> bytes:
    return sized(1, key.encode())


def _value(value: str | bool | int | float) -> bytes:
    if isinstance(value, str):
        encoded = value.encode("utf-8", "replace")
        return b"\x0a" + varint(len(encoded)) + encoded
    if isinstance(value, bool):
        return b"\x10" + varint(value)
    if isinstance(value, int):
        return b"\x18" + varint(value & (1 << 64) - 1)
    return b"\x21" + struct.pack("<d", value)


@lru_cache(maxsize=1024)
def _kept_text(key: str, value: str) -> bytes:
    """Most texts of a result are names and recur."""
    return _pair(key, value)
