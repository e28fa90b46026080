"""Attribute values: from the bytes of a `KeyValue` or `AnyValue` to plain Python values, and back.

Two shortcuts read the wire format themselves; whatever is not written in the one usual way goes to protobuf, so that the result
is always what a full parse would give. Source: opentelemetry-proto, common.proto.
"""

from __future__ import annotations

import struct
from base64 import b64encode
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Any, Final

from google.protobuf.message import DecodeError

from otel_eval.otlp.schema import parse_any, parse_pair
from otel_eval.wire import read_varint, sized, varint

__all__ = ["MAX_DEPTH", "TOO_DEEP", "decode", "decode_all", "encode_attributes", "plain_value", "split", "text"]

MAX_DEPTH: Final = 64
"""Lists and maps within each other; deeper ones become `TOO_DEEP`."""

TOO_DEEP: Final = "…"

_KEY_TAG: Final = 0x0A  # field 1, length-delimited: KeyValue.key and AnyValue.string_value
_VALUE_TAG: Final = 0x12  # field 2, length-delimited: KeyValue.value


def text(raw: bytes) -> str:
    """UTF-8, and a replacement character for what is none: one bad byte does not cost a whole request."""
    return raw.decode("utf-8", "replace")


def split(pair: bytes) -> tuple[bytes, bytes]:
    """Key and value of a `KeyValue`, both still bytes; DecodeError if it is none.

    The shortcut takes exactly one key, shorter than 128 bytes, followed by exactly one value up to the end: every
    encoder writes that. Anything else may hold a second key or value (in protobuf the last one wins).
    """
    try:
        at = pair[1] + 2
        if pair[0] == _KEY_TAG and at < 130 and pair[at] == _VALUE_TAG:
            size, start = read_varint(pair, at + 1)
            if start + size == len(pair):
                return pair[2:at], pair[start:]
    except (IndexError, ValueError):
        pass
    whole = parse_pair(pair)
    return whole.key, b"".join(whole.value)


def decode(raw: bytes, depth: int = 0) -> Any:
    """The value of an `AnyValue`: None, bool, int, float, str, list or dict; bytes become base64 text.

    Raises:
        DecodeError: the bytes are no `AnyValue`.
    """
    plain = _plain_text(raw)
    return plain_value(parse_any(raw), depth) if plain is None else plain


def plain_value(value: Any, depth: int = 0) -> Any:
    """The same of an `AnyValue` that is parsed already."""
    if string := value.string_value:
        return text(string)
    kind = value.WhichOneof("value")
    return _DECODERS[kind](getattr(value, kind), depth) if kind else None


def _plain_text(raw: bytes) -> str | None:
    """The text of an `AnyValue` that is one string and nothing else, by far the commonest; else None."""
    if not raw or raw[0] != _KEY_TAG:
        return None
    try:
        size, start = read_varint(raw, 1)
    except (IndexError, ValueError):
        return None
    return raw[start:].decode("utf-8", "replace") if start + size == len(raw) else None


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
    """Every attribute. Of equal keys the last wins; one that cannot be read is left out, the rest is kept."""
    found: dict[str, Any] = {}
    for pair in pairs:
        try:
            key, value = split(pair)
            found[text(key)] = decode(value, depth)
        except DecodeError:
            continue
    return found


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
