"""Compressed bodies (gzip, deflate, zstd), decompressed piece by piece and never beyond a limit.

Memory is reserved before the next piece is decompressed, so a body of a few bytes that becomes gigabytes costs one piece more
than the limit.
"""

from __future__ import annotations

import functools
import zlib
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any, Final

from otel_eval.errors import InputError, RequestTooLarge
from otel_eval.sources.receiver.memory import Reservation

_PIECE: Final = 4 * 1024 * 1024
_FED: Final = 16 * 1024  # what follows a member is copied at its end: of a body of many small ones, this much each time
_WBITS: Final = {"gzip": 31, "deflate": 15}
_WINDOW_LOG: Final = 23  # 8 MiB, what RFC 8878 asks every decoder to support; a frame may ask for gigabytes


@functools.cache
def _zstd() -> Any:
    """The library, if there is one: Python 3.14 brings it, the extra `zstd` before."""
    for name in ("compression.zstd", "backports.zstd"):
        try:
            return import_module(name)
        except ImportError:
            continue
    return None


@functools.cache
def supported_encodings() -> tuple[str, ...]:
    """The names of the encodings that can be unpacked here."""
    return (*_WBITS, "zstd") if _zstd() else tuple(_WBITS)


def decompress(coding: str, data: bytes, limit: int, reservation: Reservation) -> bytes:
    """The content of a body in one of `supported_encodings()`.

    Raises:
        InputError: it is not in this encoding, or it is cut.
        RequestTooLarge: it unpacks to more than `limit` bytes; not more than `limit` and one piece were ever unpacked.
        Overloaded: there is no room for it now.
    """
    pieces = _zstd_pieces(data) if coding == "zstd" else _inflated(data, coding)
    parts: list[bytes] = []
    total = 0
    for piece in pieces:
        total += len(piece)
        if total > limit:
            raise RequestTooLarge(f"the body unpacks to more than {limit} bytes")
        reservation.grow(len(piece))
        parts.append(piece)
    return b"".join(parts)


def _inflated(data: bytes, coding: str) -> Iterator[bytes]:
    at = 0
    fed = b""
    while fed or at < len(data):
        member = zlib.decompressobj(wbits=_WBITS[coding])
        while not member.eof:
            if not fed:
                fed, at = data[at : at + _FED], at + _FED
            piece = _piece(lambda: member.decompress(fed, _PIECE), zlib.error, coding)  # noqa: B023 - called at once
            fed = member.unconsumed_tail
            if not (piece or member.eof or fed or at < len(data)):
                raise InputError(f"the {coding} body is cut")
            yield piece
        fed = member.unused_data


def _zstd_pieces(data: bytes) -> Iterator[bytes]:
    library = _zstd()
    options = {library.DecompressionParameter.window_log_max: _WINDOW_LOG}
    at = 0
    fed = b""
    while fed or at < len(data):
        frame = library.ZstdDecompressor(options=options)
        while not frame.eof:
            if frame.needs_input and not fed:
                fed, at = data[at : at + _FED], at + _FED
                if not fed:
                    raise InputError("the zstd body is cut")
            given, fed = fed, b""
            yield _piece(lambda: frame.decompress(given, _PIECE), library.ZstdError, "zstd")  # noqa: B023 - called at once
        fed = frame.unused_data


def _piece(unpacked: Callable[[], bytes], broken: type[Exception], coding: str) -> bytes:
    try:
        return unpacked()
    except broken:
        raise InputError(f"the body is not {coding}") from None
