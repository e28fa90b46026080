"""Compressed bodies (gzip, deflate, zstd), decompressed piece by piece and never beyond a limit.

The memory of each piece is reserved before the next one is decompressed, so a decompression bomb
takes at most one piece more than the limit.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from functools import cache, partial
from importlib import import_module
from typing import Any, Final

from otel_eval.errors import InputError, RequestTooLarge
from otel_eval.sources.receiver.memory import Reservation

_PIECE: Final = 4 * 1024 * 1024
# input at a time; at the end of each member its unused part is copied, so it is small
_FED: Final = 16 * 1024
_WBITS: Final = {"gzip": 31, "deflate": 15}
# 8 MiB, which RFC 8878 recommends that decoders support; a frame can require gigabytes
_WINDOW_LOG: Final = 23


PLAIN: Final = ("", "identity", "none")
"""The names of no compression."""


@cache
def _zstd() -> Any:
    """The zstd library: part of Python from 3.14 on, before that of the extra `zstd`; None if it is
    not installed.
    """
    for name in ("compression.zstd", "backports.zstd"):
        try:
            return import_module(name)
        except ImportError:
            continue
    return None


@cache
def supported_encodings() -> tuple[str, ...]:
    """The names of the encodings that can be decompressed in this installation."""
    return (*_WBITS, "zstd") if _zstd() else tuple(_WBITS)


def decompress(coding: str, data: bytes, limit: int, reservation: Reservation) -> bytes:
    """Decompress a body in one of `PLAIN` or `supported_encodings()`.

    Raises:
        InputError: it is not in this encoding, or it is truncated.
        RequestTooLarge: it decompresses to more than `limit` bytes; at most `limit` and one piece
            were decompressed.
        Overloaded: the memory for it is not available now.
    """
    if coding in PLAIN:
        return data
    parts: list[bytes] = []
    total = 0
    for piece in _pieces(coding, data):
        total += len(piece)
        if total > limit:
            raise RequestTooLarge(f"the body unpacks to more than {limit} bytes")
        reservation.grow(len(piece))
        parts.append(piece)
    return b"".join(parts)


def _decoder(coding: str) -> tuple[Callable[[], Any], type[Exception]]:
    """A function that makes a decompressor of one gzip member or zstd frame, and the error that it
    raises.
    """
    if coding != "zstd":
        return partial(zlib.decompressobj, _WBITS[coding]), zlib.error
    library = _zstd()
    options = {library.DecompressionParameter.window_log_max: _WINDOW_LOG}
    return partial(library.ZstdDecompressor, options=options), library.ZstdError


def _pieces(coding: str, data: bytes) -> Iterator[bytes]:
    """Yield the decompressed pieces of a body of one or several members."""
    make, broken = _decoder(coding)
    at = 0
    fed = b""
    while fed or at < len(data):
        member = make()
        while not member.eof:
            # zlib returns the input that it did not use; zstd keeps it, and needs no new input for
            # the next piece.
            if not fed and getattr(member, "needs_input", True):
                fed, at = data[at : at + _FED], at + _FED
            try:
                piece = member.decompress(fed, _PIECE)
            except broken:
                raise InputError(f"the body is not {coding}") from None
            fed = getattr(member, "unconsumed_tail", b"")
            if not (piece or member.eof or fed or at < len(data)):
                raise InputError(f"the {coding} body is cut")
            yield piece
        fed = member.unused_data
