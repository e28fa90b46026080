"""What a request in the journal is, in one byte.

Knows the forms in which the receiver takes requests.
"""

from __future__ import annotations

from typing import Final

from otel_eval.sources.receiver import Origin

__all__ = ["form_of", "origin_of"]

_FORMS: Final = (("traces", "protobuf"), ("traces", "json"), ("logs", "protobuf"), ("logs", "json"))
"""By their place here they are on disks."""


def form_of(signal: str, encoding: str) -> bytes:
    """The byte before a request's own."""
    return bytes((_FORMS.index((signal, encoding)),))


def origin_of(payload: bytes) -> Origin:
    """The request of a record.

    Raises:
        IndexError: this version does not know such requests.
    """
    return Origin(*_FORMS[payload[0]], payload[1:])
