"""The validity of X.509 certificates in PEM. Python's `ssl` tells it of authorities only, so it is read from the DER encoding.

Source: RFC 5280, section 4.1; ITU-T X.690, section 8.1.
"""

from __future__ import annotations

import binascii
import calendar
import re
import time
from typing import Final, NamedTuple

__all__ = ["Validity", "validity_of"]

_BLOCK: Final = re.compile(rb"-----BEGIN (?:X509 |TRUSTED )?CERTIFICATE-----([^-]+)-----END")
_DIGITS: Final = re.compile(rb"[0-9]{14}")
_SEQUENCE: Final = 0x30
_VERSION: Final = 0xA0  # [0], left out by version 1
_UTC_TIME: Final = 0x17
_GENERALIZED_TIME: Final = 0x18
_BEFORE_VALIDITY: Final = 3  # serial number, signature algorithm, issuer


class Validity(NamedTuple):
    """When a certificate is valid, in seconds since the epoch, both ends included."""

    not_before: int
    not_after: int

    def problem(self, now: float) -> str | None:
        """Why it cannot be used at a time; None if it can."""
        if now < self.not_before:
            return f"is not valid before {_written(self.not_before)}"
        if now > self.not_after + 1:  # the last second belongs to it
            return f"has expired at {_written(self.not_after)}"
        return None


def validity_of(pem: bytes) -> Validity | None:
    """The validity of the first certificate, which is a server's own; None if it cannot be read.

    >>> validity_of(b"no certificate")
    """
    block = _BLOCK.search(pem)
    if block is None:
        return None
    try:
        return _validity(binascii.a2b_base64(block[1]))
    except (ValueError, IndexError):  # no base64, no DER, or a time that is none
        return None


def _validity(der: bytes) -> Validity:
    certificate, _ = _content(der, 0, _SEQUENCE)
    at, _ = _content(der, certificate, _SEQUENCE)
    if der[at] == _VERSION:
        at = _element(der, at)[2]
    for _ in range(_BEFORE_VALIDITY):
        at = _element(der, at)[2]
    start, _ = _content(der, at, _SEQUENCE)
    not_before, at = _time(der, start)
    not_after, _ = _time(der, at)
    return Validity(not_before, not_after)


def _element(der: bytes, at: int) -> tuple[int, int, int]:
    """Tag, first place of the content and place behind it."""
    tag, length, start = der[at], der[at + 1], at + 2
    if length > 0x7F:  # the number of bytes that hold the length
        start += length & 0x7F
        length = int.from_bytes(der[at + 2 : start], "big")
    if start + length > len(der):
        raise ValueError("an element is longer than what holds it")
    return tag, start, start + length


def _content(der: bytes, at: int, wanted: int) -> tuple[int, int]:
    tag, start, end = _element(der, at)
    if tag != wanted:
        raise ValueError(f"tag {tag}, not {wanted}")
    return start, end


def _time(der: bytes, at: int) -> tuple[int, int]:
    """Seconds since the epoch and the place behind; both forms of time end with seconds and Z there."""
    tag, start, end = _element(der, at)
    text = der[start : end - 1]
    if tag == _UTC_TIME:  # years 1950 to 2049
        text = (b"19" if text[:2] >= b"50" else b"20") + text
    elif tag != _GENERALIZED_TIME:
        raise ValueError(f"tag {tag} is no time")
    if der[end - 1 : end] != b"Z" or not _DIGITS.fullmatch(text):
        raise ValueError("a time in another form than RFC 5280 asks for")
    return calendar.timegm(time.strptime(text.decode(), "%Y%m%d%H%M%S")), end


def _written(moment: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(moment))
