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
from contextlib import suppress
from typing import Final

from otel_eval.interfaces import all_but
from otel_eval.wire import plain_fields

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
_UNMARKED: Final = all_but(b"".join([*_PARTS, *[mark for mark, _ in _JSON]]))

_ORDINARY: Final = 4  # times its bytes: evaluation of ordinary content takes less memory
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
        at + random.randrange(stride - _PIECE_BYTES)
        for at in range(0, len(body) - stride + 1, stride)
    ]
    sample = b"".join([body[at : at + _PIECE_BYTES] for at in starts])
    return _weighted_size(sample) * len(body) // len(sample)


def is_dense(body: bytes) -> bool:
    """Whether evaluation of a request takes far more memory, for its size, than that of an ordinary
    one.
    """
    return content_size(body) > _ORDINARY * len(body)


def excess_size(payload: bytes) -> int:
    """The bytes that a span or a log record counts beside its own against the limits of open
    traces: 0 for ordinary ones.

    Without them a trace within `max_bytes_per_trace` could take fifty times as much memory when it
    is evaluated.
    """
    return max(0, _weighted_size(payload) - _ORDINARY * len(payload))


def _weighted_size(body: bytes) -> int:
    """The costs of all bytes that may be tags of fields or punctuation of JSON, wherever they
    stand: nothing is parsed.
    """
    marks = body.translate(None, _UNMARKED)  # one pass instead of one for each
    json = sum([marks.count(mark) * cost for mark, cost in _JSON])
    nested = sum([len(pattern.findall(body)) for pattern in _LISTS_AND_MAPS])
    return json + sum(map(marks.count, _PARTS)) * _PART + nested * _NESTED


_GROUP: Final = 160
_HEAD: Final = 144  # each part of a resource or a scope: nearly always there is one
_SCOPE: Final = 2560  # with what its spans share
_ITEM: Final = 512  # a span or a log record
_FIELD: Final = 48  # a field of a resource, a scope or a log record, all of which are parsed
_LENGTH: Final = 2  # the wire type of a length-delimited field: the lower three bits of its tag
_FIRST, _SECOND = 1 << 3 | _LENGTH, 2 << 3 | _LENGTH

_Rule = tuple[int, int | None]
"""The cost of a field, and the level of its content if that has costs."""


def _levels(item: _Rule) -> tuple[tuple[dict[int, _Rule], _Rule], ...]:
    """By level: the rules of fields by their tag, and the rule of all others."""
    free, head, field = (0, None), (_HEAD, 3), (_FIELD, None)
    return (
        ({_FIRST: (_GROUP, 1)}, free),
        ({_FIRST: head, _SECOND: (_SCOPE, 2)}, free),
        ({_FIRST: head, _SECOND: item}, free),
        ({_FIRST: field}, field),
    )


_LEVELS: Final[dict[str, tuple[tuple[dict[int, _Rule], _Rule], ...]]] = {
    "traces": _levels((_ITEM, None)),
    "logs": _levels((_ITEM, 3)),
    "metrics": (({_FIRST: (_FIELD, None)}, (0, None)),),
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
    levels, total, at = _LEVELS[signal], 0, 0
    (rules, other_rule), end = levels[0], len(body)
    # a level ends where its field does, and the level around it goes on there
    outer = [(rules, other_rule, -1)]
    # A function that calls itself for a level would be in a cycle of references with the body,
    # which would then be held until the garbage collector runs.
    with suppress(ValueError, IndexError):  # a malformed field, at which every parser stops
        while total <= limit and end >= 0:
            if at == end:
                rules, other_rule, end = outer.pop()
                continue
            rule = rules.get(body[at])
            # Nearly every length has one byte or two; a function call for each would take twice as
            # long.
            if rule is not None and (size := body[at + 1]) < 0x80:
                content, at = at + 2, at + 2 + size
            elif rule is not None and (second := body[at + 2]) < 0x80:
                content, at = at + 3, at + 3 + (size & 0x7F | second << 7)
            else:
                number, _, content, at = next(plain_fields(body, at, end))
                rule = rules.get(number << 3 | _LENGTH, other_rule)
            if at > end:
                raise ValueError("a field is cut short")
            cost, inner = rule
            total += cost
            if inner is not None:
                outer.append((rules, other_rule, end))
                (rules, other_rule), at, end = levels[inner], content, at
    return len(body) + total


def json_decoded_size(body: bytes) -> int:
    """Estimate the memory in bytes that decoding a JSON document takes. Punctuation in strings
    counts, too: an upper bound.
    """
    structure = sum(body.count(mark) * cost for mark, cost in _MARKS)
    return structure + len(body) * (_COPIES if body.isascii() else _WIDE_COPIES)
