"""Refuse spans, events, links, resources and scopes with more attributes, and spans with more events or links, than allowed.

What exceeds a limit is rejected as a whole and counted: cutting it would make up a span that was never sent.
"""

from __future__ import annotations

from typing import Any, Final

from google.protobuf.message import DecodeError

from otel_eval.otlp.schema import parse_crowd, parse_event, parse_link
from otel_eval.wire import read_varint

__all__ = ["UNLIMITED", "limit_exceeded", "too_many"]

UNLIMITED: Final = 2**62

# Each has one of these bytes in its tag, whatever else they may stand for: attributes of a span, of an event, of a link;
# events, links.
_TAGS: Final = ((b"\x4a", b"\xca"), (b"\x1a", b"\x9a"), (b"\x22", b"\xa2"), (b"\x5a", b"\xda"), (b"\x6a", b"\xea"))
_GREAT: Final = 64  # times the limit, in bytes: parsing what is smaller takes little memory, whatever is in it
_OTHERS: Final = 64  # fields that are neither attributes nor events nor links: the most that is known is 13
_FIXED: Final = {1: 8, 5: 4}


def too_many(where: str, most: int, what: str = "attributes") -> str:
    """What to tell the sender."""
    return f"{where} has more than {most} {what}, which is the limit here (receivers.otlp.max_attributes)"


def limit_exceeded(payload: bytes, most: int) -> str:
    """Why a span has too many attributes, events or links, or ""."""
    if len(payload) // 2 <= most:  # each takes two bytes at the least
        return ""
    if not any(sum(map(payload.count, tags)) > most for tags in _TAGS):
        return ""
    return _counted(payload, most)


def _counted(payload: bytes, most: int) -> str:
    if _has_more_fields(payload, 3 * most + _OTHERS, most):
        return too_many("a span", most, "attributes, events or links")
    span = parse_crowd(payload)
    for what in ("attributes", "events", "links"):
        if len(getattr(span, what)) > most:
            return too_many("a span", most, what)
    for where, parts, parse in (("an event", span.events, parse_event), ("a link", span.links, parse_link)):
        if any(_holds(parse, part, most) for part in parts):
            return too_many(where, most)
    return ""


def _holds(parse: Any, part: bytes, most: int) -> bool:
    if len(part) // 2 <= most:
        return False
    try:
        return _has_more_fields(part, most + _OTHERS, most) or len(parse(part).attributes) > most
    except DecodeError:
        return False  # it is not read later either


def _has_more_fields(message: bytes, fields: int, most: int) -> bool:
    """Whether a great message has more fields; only so many are looked at, while parsing takes memory for each."""
    if len(message) <= _GREAT * most:
        return False
    at = 0
    try:
        for _ in range(fields + 1):
            if at >= len(message):
                return False
            at = _behind(message, at)
    except (IndexError, ValueError):
        return False  # parsing fails on it too
    return True


def _behind(message: bytes, at: int) -> int:
    """The place behind the field at `at`."""
    tag, at = read_varint(message, at)
    kind = tag & 7
    if kind in (0, 2):
        number, at = read_varint(message, at)
        return at + number if kind == 2 else at
    return at + _FIXED.get(kind, 0)
