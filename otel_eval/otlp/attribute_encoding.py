"""Encode attributes as OTLP's KeyValue messages.

Source: opentelemetry-proto, common.proto.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from otel_eval.wire import sized, varint

__all__ = ["encode_attributes"]


def encode_attributes(field: int, attributes: Mapping[str, Any]) -> bytes:
    r"""The attributes as a repeated field of the message that has them; a value that JSON does not have becomes its text.

    >>> encode_attributes(1, {"a": "b"})
    b'\n\x08\n\x01a\x12\x03\n\x01b'
    """
    return b"".join([sized(field, _key(key) + sized(2, _value(value))) for key, value in attributes.items()])


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
