"""A digest of which spans of a trace were known, the same whatever the order in which they arrived."""

from __future__ import annotations

from collections.abc import Collection
from hashlib import blake2b
from struct import unpack
from typing import Final

from otel_eval.model import Evidence

__all__ = ["NOTHING", "evidence_of", "joined"]

_MODULUS: Final = 2**64
NOTHING: Final = Evidence(0, "0" * 16)
"""Of no span."""


def evidence_of(span_ids: Collection[bytes]) -> Evidence:
    """How many spans there are, and the sum modulo 2**64 of the 64-bit blake2b of their ids as 16 hex digits.

    A sum can be taken in any order and in parts; hashing first keeps ids that count upwards from adding up alike.

    >>> evidence_of([b"12345678", b"abcdefgh"]) == evidence_of([b"abcdefgh", b"12345678"])
    True
    """
    hashes = b"".join([blake2b(span_id, digest_size=8).digest() for span_id in span_ids])
    total = sum(unpack(f">{len(span_ids)}Q", hashes))
    return Evidence(len(span_ids), f"{total % _MODULUS:016x}")


def joined(some: Evidence, others: Evidence) -> Evidence:
    """The evidence of two disjoint sets of spans.

    >>> joined(evidence_of([b"12345678"]), evidence_of([b"abcdefgh"])) == evidence_of([b"12345678", b"abcdefgh"])
    True
    """
    total = int(some.digest, 16) + int(others.digest, 16)
    return Evidence(some.spans + others.spans, f"{total % _MODULUS:016x}")
