"""Spoil bytes, the same way for the same seed.

Knows which bytes tend to matter to decoders of protobuf, JSON and gzip. Knows nothing of what is
being decoded.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from typing import Final

__all__ = ["TOKENS", "spoilt"]

TOKENS: Final = (
    b"\x00",
    b"\xff" * 9 + b"\x01",  # the greatest varint
    b"\x80" * 12,  # a varint without end
    b"\xff\xff\xff\xff\x0f",
    b"\x0b\x0c",  # the groups of old
    b"\x0a\x00",
    b"\xed\xa0\x80",  # a surrogate, which is no UTF-8
    b"\xf4\x90\x80\x80",
    b"\xef\xbb\xbf",
    b"null",
    b"true",
    b"-1",
    b"1e999",
    b"NaN",
    b"9" * 30,
    b"9" * 5000,
    b"[" * 2000,
    b'{"a":' * 2000,
    b'"\\ud800"',
    b'"kvlistValue"',
    b'"resourceSpans":[{"scopeSpans":[{"spans":[{}]}]}],',
    b"0" * 32,
    b"\n",
    b"\r\n",
    b"ffffffff",
    b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03",
)
LONGEST: Final = 60_000


def _place(rng: random.Random, data: bytearray) -> int:
    return rng.randrange(len(data) + 1)


def _stretch(rng: random.Random, data: bytearray) -> slice:
    start = _place(rng, data)
    return slice(start, start + rng.choice((1, 1, 2, 4, 8, 16, 64, 1024)))


def _flip(rng: random.Random, data: bytearray, _: bytes) -> None:
    if data:
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)


def _replace(rng: random.Random, data: bytearray, _: bytes) -> None:
    stretch = _stretch(rng, data)
    data[stretch] = rng.randbytes(len(data[stretch]))


def _cut(rng: random.Random, data: bytearray, _: bytes) -> None:
    del data[_stretch(rng, data)]


def _end(rng: random.Random, data: bytearray, _: bytes) -> None:
    del data[_place(rng, data) :]


def _repeat(rng: random.Random, data: bytearray, _: bytes) -> None:
    part = bytes(data[_stretch(rng, data)])
    at = _place(rng, data)
    data[at:at] = part * rng.choice((1, 2, 50))


def _token(rng: random.Random, data: bytearray, _: bytes) -> None:
    at = _place(rng, data)
    data[at : at + rng.choice((0, 0, 1, 4))] = rng.choice(TOKENS)


def _splice(rng: random.Random, data: bytearray, other: bytes) -> None:
    start = rng.randrange(len(other) + 1)
    at = _place(rng, data)
    data[at:at] = other[start : start + rng.choice((8, 64, 1024))]


_WAYS: Final[tuple[Callable[[random.Random, bytearray, bytes], None], ...]] = (
    _flip,
    _flip,
    _replace,
    _cut,
    _end,
    _repeat,
    _token,
    _token,
    _splice,
)


def spoilt(given: Sequence[bytes], seed: int) -> Iterator[bytes]:
    """Each of the inputs as it is, then without end one of them with one to six changes."""
    yield from given
    rng = random.Random(seed)
    while True:
        data = bytearray(rng.choice(given))
        for _ in range(rng.choice((1, 1, 1, 2, 3, 6))):
            rng.choice(_WAYS)(rng, data, rng.choice(given))
        yield bytes(data[:LONGEST])
