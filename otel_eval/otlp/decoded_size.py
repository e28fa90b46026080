"""Estimates the memory that decoding and evaluating a request takes, before it is decoded.

A span of two bytes becomes objects of hundreds of bytes, a list of three bytes one of seventy, with
several copies where calls are compared. The estimates for decoding are upper bounds, those for
evaluating content a third of what was measured, both on CPython with the extension and without it;
`tests/unit/otlp/test_decoded_size.py` and `tests/cost` compare memory with them. Bytes that are
punctuation in JSON or tags in protobuf count wherever they occur, so that a search in memory is
enough.
"""

from __future__ import annotations

import random
import re
from array import array
from contextlib import suppress
from typing import Final

from otel_eval.interfaces import all_but
from otel_eval.native import extension
from otel_eval.wire import plain_fields

_native: Final = extension("_native")

_JSON: Final = ((b"{", 96), (b"[", 64), (b":", 32), (b",", 16))
# tags of a span's attributes, events and links; in text J, Z and j
_PARTS: Final = (b"\x4a", b"\x5a", b"\x6a")
_PART: Final = 32
_NESTED: Final = 160  # a list or a map that is an AnyValue, not JSON text
# The tag of a list or a map in an AnyValue; in text * and 2. It is empty, or begins with the tag of
# its first member after one or two bytes of length. One pattern for each tag: a search for one byte
# is six times as fast as one for either.
_LISTS_AND_MAPS: Final = [
    re.compile(tag + rb"(?=[\0\n]|[^\0\n]\n|[^*2\0\n]{2}\n)") for tag in (rb"\*", b"2")
]
_NATIVE_COSTS: Final = bytes(
    {**{mark[0]: cost for mark, cost in _JSON}, **{part[0]: _PART for part in _PARTS}}.get(byte, 0)
    for byte in range(256)
)
_UNMARKED: Final = all_but(b"".join([*_PARTS, *[mark for mark, _ in _JSON]]))

ORDINARY: Final = 4
"""Evaluation of ordinary content takes less memory than this number times its bytes."""
_PIECE_BYTES: Final = 1024
_PIECES: Final = 4
_STRIDE: Final = 64 * _PIECE_BYTES
"""A larger request is sampled: one piece from each stride of this many bytes, and four pieces at
least. Their positions are random, so that a sender cannot place dense content between them.
"""


def content_size(body: bytes) -> int:
    """Estimate the memory in bytes that evaluation of a protobuf request takes: a third of the most
    that was measured.
    """
    stride = min(_STRIDE, len(body) // _PIECES)
    if stride <= _PIECE_BYTES:
        return _weighted_size(body)
    starts = [
        at + int(random.random() * (stride - _PIECE_BYTES))
        for at in range(0, len(body) - stride + 1, stride)
    ]
    sample = b"".join([body[at : at + _PIECE_BYTES] for at in starts])
    return _weighted_size(sample) * len(body) // len(sample)


def excess_size(payload: bytes) -> int:
    """The bytes that a span or a log record counts beside its own against the limits of open
    traces: 0 for ordinary ones.

    Without them a trace within `max_bytes_per_trace` could take fifty times as much memory when it
    is evaluated.
    """
    return max(0, _weighted_size(payload) - ORDINARY * len(payload))


def _weighted_size(body: bytes) -> int:
    """The costs of all bytes that may be tags of fields or punctuation of JSON, wherever they
    stand: nothing is parsed.
    """
    if _native is not None:
        size: int = _native.content_size(body, _NATIVE_COSTS, _NESTED)
        return size
    marks = body.translate(None, _UNMARKED)  # one pass instead of one for each
    json = sum([marks.count(mark) * cost for mark, cost in _JSON])
    nested = sum([len(pattern.findall(body)) for pattern in _LISTS_AND_MAPS])
    return json + sum(map(marks.count, _PARTS)) * _PART + nested * _NESTED


_GROUP: Final = 160
_HEAD: Final = 144  # each part of a resource or a scope: nearly always there is one
_SCOPE: Final = 2560  # with what its spans share
_ITEM: Final = 512  # a span or a log record
_FIELD: Final = 48  # a field of a resource, a scope or a log record, all of which are parsed

_Rule = tuple[int, int]
"""The cost of a field, and the level of its content, or 0 if that has no costs."""
_Level = tuple[_Rule, _Rule, _Rule]
"""The rules of fields 1 and 2, both length-delimited, after that of all others."""


def _levels(item: _Rule) -> tuple[_Level, ...]:
    """The levels of a request of such items."""
    free, head, field = (0, 0), (_HEAD, 3), (_FIELD, 0)
    return (
        (free, (_GROUP, 1), free),
        (free, head, (_SCOPE, 2)),
        (free, head, item),
        (field, field, field),
    )


_LEVELS: Final[dict[str, tuple[_Level, ...]]] = {
    "traces": _levels((_ITEM, 0)),
    "logs": _levels((_ITEM, 3)),
    "metrics": (((0, 0), (_FIELD, 0), (0, 0)),),
}
_NATIVE_LEVELS: Final = {
    signal: array("i", [number for level in levels for rule in level for number in rule]).tobytes()
    for signal, levels in _LEVELS.items()
}

_OBJECT: Final = 184
_LIST: Final = 96
_KEY: Final = 48
_MEMBER: Final = 72
_MARKS: Final = ((b"{", _OBJECT), (b"[", _LIST), (b":", _KEY), (b",", _MEMBER), (b'"scope', _SCOPE))
_COPIES: Final = 3  # the text, the strings in it, and their bytes in protobuf
# with one character beyond ASCII each character of a text takes up to four bytes
_WIDE_COPIES: Final = 8


def protobuf_decoded_size(signal: str, body: bytes, limit: int) -> int:
    """Estimate the memory in bytes that decoding a protobuf request takes, with its body: the sum
    of the costs of its fields, up to a malformed one.

    Args:
        signal: traces, logs or metrics.
        limit: where counting stops, so that a greater result is a lower bound.
    """
    if _native is not None:
        size: int | None = _native.fields_size(body, _NATIVE_LEVELS[signal], limit)
        if size is not None:
            return len(body) + size
    levels, total = _LEVELS[signal], 0
    # A function that calls itself for a level would be in a cycle of references with the body,
    # which would then be held until the garbage collector runs.
    walks = [(levels[0], plain_fields(body, 0, len(body)))]
    with suppress(ValueError):  # a malformed field, at which every parser stops
        while walks and total <= limit:
            rules, walk = walks[-1]
            if (field := next(walk, None)) is None:
                walks.pop()
                continue
            number, _, content, end = field
            cost, inner = rules[number if number in (1, 2) else 0]
            total += cost
            if inner:
                walks.append((levels[inner], plain_fields(body, content, end)))
    return len(body) + total


def json_decoded_size(body: bytes) -> int:
    """Estimate the memory in bytes that decoding a JSON document takes. Punctuation in strings
    counts, too: an upper bound.
    """
    structure = sum(body.count(mark) * cost for mark, cost in _MARKS)
    return structure + len(body) * (_COPIES if body.isascii() else _WIDE_COPIES)
