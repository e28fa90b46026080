"""The first byte of a journaled request: its signal and encoding, and whether it has to be forwarded."""

from __future__ import annotations

from typing import Final

from otel_eval.otlp import RawRequest

__all__ = ["form_of", "is_onward", "origin_of"]

_FORMS: Final = (("traces", "protobuf"), ("traces", "json"), ("logs", "protobuf"), ("logs", "json"), ("metrics", "protobuf"))
"""By their place here they are on disks."""
_ONWARD: Final = 0x80


def form_of(signal: str, encoding: str, *, onward: bool = False) -> bytes:
    """The byte before a request's own."""
    return bytes((_FORMS.index((signal, encoding)) | _ONWARD * onward,))


def is_onward(payload: bytes) -> bool:
    """Whether the request of a record has to be forwarded."""
    return bool(payload[0] & _ONWARD)


def origin_of(payload: bytes) -> RawRequest:
    """The request of a record.

    Raises:
        IndexError: this version does not know such requests.
    """
    return RawRequest(*_FORMS[payload[0] & ~_ONWARD], payload[1:])
