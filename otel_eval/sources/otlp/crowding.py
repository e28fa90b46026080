"""Spans, events, links, resources and scopes with more attributes than anybody writes.

Knows where attributes stand. What has too many is refused as a whole and said: cutting it would make up a span that
nobody sent.
"""

from __future__ import annotations

from typing import Any, Final

from google.protobuf.message import DecodeError

from otel_eval.sources.otlp.schema import parse_crowd, parse_event, parse_link

__all__ = ["UNLIMITED", "crowded", "too_many"]

UNLIMITED: Final = 2**62

# Each attribute has one of these bytes in its tag, whatever else they may stand for: of a span, of an event, of a link.
_TAGS: Final = ((b"\x4a", b"\xca"), (b"\x1a", b"\x9a"), (b"\x22", b"\xa2"))


def too_many(where: str, most: int) -> str:
    """What to tell the sender."""
    return f"{where} has more than {most} attributes, which is the limit here (receivers.otlp.max_attributes)"


def crowded(payload: bytes, most: int) -> str:
    """Why a span has too many attributes, or ""."""
    if len(payload) // 2 <= most:  # each takes two bytes at the least
        return ""
    if not any(sum(map(payload.count, tags)) > most for tags in _TAGS):
        return ""
    return _counted(payload, most)


def _counted(payload: bytes, most: int) -> str:
    span = parse_crowd(payload)
    if len(span.attributes) > most:
        return too_many("a span", most)
    for where, parts, parse in (("an event", span.events, parse_event), ("a link", span.links, parse_link)):
        if any(_holds(parse, part, most) for part in parts):
            return too_many(where, most)
    return ""


def _holds(parse: Any, part: bytes, most: int) -> bool:
    try:
        return len(part) // 2 > most and len(parse(part).attributes) > most
    except DecodeError:
        return False  # nobody reads it either
