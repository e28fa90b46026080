"""Estimates of the memory that evaluation takes for the content of requests: attributes, and JSON text in them.

A list of three bytes becomes an object of seventy, and several copies of it where calls are compared. The figures are a third of
what was measured on CPython, with the extension in C and without it; `tests/cost` holds that reading and evaluating a request
take no more than three times its estimate. Bytes that are marks of JSON or tags of protobuf count wherever they stand, which
takes no more than a search in memory.
"""

from __future__ import annotations

import random
from typing import Final

__all__ = ["content_weight", "excess", "is_dense"]

_JSON: Final = ((b"{", 96), (b"[", 64), (b":", 32), (b",", 16))
_PARTS: Final = (b"\x4a", b"\x5a", b"\x6a")  # tags of a span's attributes, events and links; in text J, Z and j
_PART: Final = 32
_NESTED: Final = 160  # a list or a map that is no JSON text
_LIST_OR_MAP: Final = (0x2A, 0x32)  # tags in an AnyValue; in text * and 2
# A list or a map is empty, or begins with the tag of its first member after one or two bytes of length.
_KINDS: Final = bytes(0x63 if each in _LIST_OR_MAP else {0x0A: 0x6E, 0x00: 0x7A}.get(each, 0x78) for each in range(256))
_SHAPES: Final = (b"cz", b"cn", b"cxn", b"ccn", b"cxxn")

_ORDINARY: Final = 4  # times its bytes: what evaluation makes of ordinary content weighs less
_PIECE: Final = 1024
_PIECES: Final = 4
_STRIDE: Final = 64 * _PIECE
"""Of a request of more than four pieces one in each so many bytes, and four at least, are looked at. Where they are is random, so
that nothing can be written around them."""


def content_weight(body: bytes) -> int:
    """What evaluation makes of a request in protobuf, in bytes: a third of the most that is known."""
    stride = min(_STRIDE, len(body) // _PIECES)
    if stride <= _PIECE:
        return _counted(body)
    starts = [at + random.randrange(stride - _PIECE) for at in range(0, len(body) - stride + 1, stride)]
    sample = b"".join([body[at : at + _PIECE] for at in starts])
    return _counted(sample) * len(body) // len(sample)


def is_dense(body: bytes) -> bool:
    """Whether evaluation makes far more of a request than of an ordinary one."""
    return content_weight(body) > _ORDINARY * len(body)


def excess(payload: bytes) -> int:
    """What counts of a span or a log record against the limits of what is held, beside its bytes: 0 for ordinary ones.

    Otherwise a trace within `max_bytes_per_trace` could take fifty times as much memory when it is evaluated.
    """
    return max(0, _counted(payload) - _ORDINARY * len(payload))


def _counted(body: bytes) -> int:
    kinds = body.translate(_KINDS)
    json = sum([body.count(mark) * cost for mark, cost in _JSON])
    return json + sum(map(body.count, _PARTS)) * _PART + sum(map(kinds.count, _SHAPES)) * _NESTED
