"""Estimates of the memory that reading and evaluating a request takes, made before it is read.

A span of two bytes becomes objects of hundreds, and a list of three bytes an object of seventy, with several copies where calls
are compared. The figures for reading are upper bounds, those for evaluating content a third of what was measured, both on CPython
with the extension and without it; `tests/unit/otlp/test_decoded_size.py` and `tests/cost` hold memory against them. Bytes that
are marks of JSON or tags of protobuf count wherever they occur, which takes no more than a search in memory.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from otel_eval.native import extension
from otel_eval.wire import WireField, fields

_JSON: Final = ((b"{", 96), (b"[", 64), (b":", 32), (b",", 16))
_PARTS: Final = (b"\x4a", b"\x5a", b"\x6a")  # tags of a span's attributes, events and links; in text J, Z and j
_PART: Final = 32
_NESTED: Final = 160  # a list or a map that is no JSON text
# The tag of a list or a map in an AnyValue; in text * and 2. It is empty, or begins with the tag of its first member after one or
# two bytes of length.
_LIST_OR_MAP: Final = re.compile(rb"[*2](?=[\0\n]|[^\0\n]\n|[^*2\0\n]{2}\n)")
_UNMARKED: Final = bytes(set(range(256)).difference(b"".join([*_PARTS, *[mark for mark, _ in _JSON]])))

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
    return json + sum(map(marks.count, _PARTS)) * _PART + len(_LIST_OR_MAP.findall(body)) * _NESTED


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


def _weigh(body: bytes, costs: tuple[int, ...], enough: int) -> int:
    """The decoded size, which the extension computes in C."""
    return _SizeWalk(body, costs, enough).weight


class _SizeWalk:
    """Goes along the fields of a request, as deep as something costs."""

    __slots__ = ("_body", "_costs", "_enough", "weight")

    def __init__(self, body: bytes, costs: tuple[int, ...], enough: int) -> None:
        self._body, self._costs, self._enough = body, costs, enough
        self.weight = 0
        with suppress(ValueError):  # no reader goes further than this
            self._level(0, len(body), 0)

    def _level(self, at: int, end: int, level: int) -> None:
        for each in fields(self._body, at, end):
            if self.weight > self._enough:
                return
            if each.number >= 0:
                self._add(each, level)
            elif level == 3:
                self.weight += self._costs[4]

    def _add(self, found: WireField, level: int) -> None:
        """A field with a length: what it costs, and what is in it."""
        group, head, scope, item, field, deep = self._costs
        number = found.number
        if level == 0 and number == 1:
            self.weight += group
            if head:
                self._level(found.content, found.stop, 1)
        elif level in (1, 2) and number == 1:
            self.weight += head
            self._level(found.content, found.stop, 3)
        elif level == 1 and number == 2:
            self.weight += scope
            self._level(found.content, found.stop, 2)
        elif level == 2 and number == 2:
            self.weight += item
            if deep:
                self._level(found.content, found.stop, 3)
        elif level == 3:
            self.weight += field


_native: Final = extension("_native")
_decoded_size: Final[Callable[[bytes, tuple[int, ...], int], int]] = _weigh if _native is None else _native.weigh
