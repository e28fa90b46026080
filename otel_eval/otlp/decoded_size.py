"""Estimates of the memory that reading and evaluating a request takes, made before it is read.

A span of two bytes becomes objects of hundreds, and a list of three bytes an object of seventy, with several copies where calls
are compared. The figures for reading are upper bounds, those for evaluating content a third of what was measured, both on CPython
with the extension and without it; `tests/unit/otlp/test_decoded_size.py` and `tests/cost` hold memory against them. Bytes that
are marks of JSON or tags of protobuf count wherever they occur, which takes no more than a search in memory.
"""

from __future__ import annotations

import random
import re
from contextlib import suppress
from typing import Final

from otel_eval.interfaces import all_but
from otel_eval.wire import places

_JSON: Final = ((b"{", 96), (b"[", 64), (b":", 32), (b",", 16))
_PARTS: Final = (b"\x4a", b"\x5a", b"\x6a")  # tags of a span's attributes, events and links; in text J, Z and j
_PART: Final = 32
_NESTED: Final = 160  # a list or a map that is no JSON text
# The tag of a list or a map in an AnyValue; in text * and 2. It is empty, or begins with the tag of its first member after one or
# two bytes of length. One pattern for each tag: a search for one byte is six times as fast as one for either.
_LISTS_AND_MAPS: Final = [re.compile(tag + rb"(?=[\0\n]|[^\0\n]\n|[^*2\0\n]{2}\n)") for tag in (rb"\*", b"2")]
_UNMARKED: Final = all_but(b"".join([*_PARTS, *[mark for mark, _ in _JSON]]))

_ORDINARY: Final = 4  # times its bytes: what evaluation makes of ordinary content weighs less
_PIECE: Final = 1024
_PIECES: Final = 4
_STRIDE: Final = 64 * _PIECE
"""Of a request of more than four pieces one in each so many bytes, and four at least, are looked at. Where they are is random, so
that nothing can be written around them."""


def content_size(body: bytes) -> int:
    """What evaluation makes of a request in protobuf, in bytes: a third of the most that is known."""
    stride = min(_STRIDE, len(body) // _PIECES)
    if stride <= _PIECE:
        return _counted(body)
    starts = [at + random.randrange(stride - _PIECE) for at in range(0, len(body) - stride + 1, stride)]
    sample = b"".join([body[at : at + _PIECE] for at in starts])
    return _counted(sample) * len(body) // len(sample)


def is_dense(body: bytes) -> bool:
    """Whether evaluation makes far more of a request than of an ordinary one."""
    return content_size(body) > _ORDINARY * len(body)


def excess_size(payload: bytes) -> int:
    """What counts of a span or a log record against the limits of what is held, beside its bytes: 0 for ordinary ones.

    Otherwise a trace within `max_bytes_per_trace` could take fifty times as much memory when it is evaluated.
    """
    return max(0, _counted(payload) - _ORDINARY * len(payload))


def _counted(body: bytes) -> int:
    marks = body.translate(None, _UNMARKED)  # one pass instead of one for each
    json = sum([marks.count(mark) * cost for mark, cost in _JSON])
    nested = sum([len(pattern.findall(body)) for pattern in _LISTS_AND_MAPS])
    return json + sum(map(marks.count, _PARTS)) * _PART + nested * _NESTED


_GROUP: Final = 160
_HEAD: Final = 144  # each part of a resource or a scope: nearly always there is one
_SCOPE: Final = 2560  # with what its spans share
_ITEM: Final = 512  # a span or a log record
_FIELD: Final = 48  # of a resource, a scope or a log record, which are parsed as they come
_COSTS: Final = {
    "traces": (_GROUP, _HEAD, _SCOPE, _ITEM, _FIELD, 0),
    "logs": (_GROUP, _HEAD, _SCOPE, _ITEM, _FIELD, 1),
    "metrics": (_FIELD, 0, 0, 0, 0, 0),
}
"""Of a group, a head, a scope, an item and a field; and whether the fields of items count."""

_LENGTH: Final = 2  # the lower bits of the tag of a field with a length, the upper ones are its number
_FIRST, _SECOND = 1 << 3 | _LENGTH, 2 << 3 | _LENGTH

_OBJECT: Final = 184
_LIST: Final = 96
_KEY: Final = 48
_MEMBER: Final = 72
_MARKS: Final = ((b"{", _OBJECT), (b"[", _LIST), (b":", _KEY), (b",", _MEMBER), (b'"scope', _SCOPE))
_COPIES: Final = 3  # the text, its parts, and what they are written as
_WIDE_COPIES: Final = 8  # one character beyond ASCII makes each of a text take up to four bytes


def protobuf_decoded_size(signal: str, body: bytes, enough: int) -> int:
    """Bytes beside the body itself; some number above `enough` if it is more than that.

    Args:
        signal: traces, logs or metrics.
    """
    return len(body) + _decoded_size(body, _COSTS[signal], enough)


def json_decoded_size(body: bytes) -> int:
    """The same of a JSON document. Marks within texts count too: it is a bound, not a measure."""
    structure = sum(body.count(mark) * cost for mark, cost in _MARKS)
    return structure + len(body) * (_COPIES if body.isascii() else _WIDE_COPIES)


def _decoded_size(body: bytes, costs: tuple[int, ...], enough: int) -> int:
    """Go along the fields of a request, as deep as something costs, up to where they are broken or it is enough."""
    group, head, scope, item, field, deep = costs
    # By level and tag of a field what it costs, and the level of what is in it if that costs anything.
    levels: tuple[dict[int, tuple[int, int | None]], ...] = (
        {_FIRST: (group, 1 if head else None)},
        {_FIRST: (head, 3), _SECOND: (scope, 2)},
        {_FIRST: (head, 3), _SECOND: (item, 3 if deep else None)},
        {_FIRST: (field, None)},
    )
    weight = 0

    def walk(at: int, end: int, level: int) -> None:
        nonlocal weight
        rules, other = levels[level], (field if level == 3 else 0, None)
        while at < end and weight <= enough:
            rule = rules.get(body[at])
            # Nearly every length has one byte or two; a call for each would take twice as long.
            if rule is not None and (size := body[at + 1]) < 0x80:
                content, at = at + 2, at + 2 + size
            elif rule is not None and (more := body[at + 2]) < 0x80:
                content, at = at + 3, at + 3 + (size & 0x7F | more << 7)
            else:
                number, _, content, at = next(places(body, at, end))
                rule = rules.get(number << 3 | _LENGTH, other)
            if at > end:
                raise ValueError("a field is cut short")
            cost, inner = rule
            weight += cost
            if inner is not None:
                walk(content, at, inner)

    with suppress(ValueError, IndexError):  # no reader goes further than this
        walk(0, len(body), 0)
    return weight
