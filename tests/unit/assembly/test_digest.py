"""The digest of the spans of a trace."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from otel_eval.assembly import evidence_of
from otel_eval.model import Evidence

IDS = st.lists(st.binary(min_size=8, max_size=8), unique=True, max_size=30)


def test_known_digests() -> None:
    """Computed by hand: the sum of `b2sum -l 64` of the ids, modulo 2**64. Digests in existing
    files must stay comparable.
    """
    assert evidence_of([b"12345678"]) == Evidence(1, "36461ccffad062d4")
    assert evidence_of([]) == Evidence(0, "0" * 16)


@given(IDS, st.randoms(use_true_random=False))
def test_order_makes_no_difference(ids: list[bytes], rng: object) -> None:
    """Spans arrive in any order."""
    assert evidence_of(ids) == evidence_of(sorted(ids))


@given(IDS.filter(bool))
def test_one_span_less_is_another_digest(ids: list[bytes]) -> None:
    """Another span in its place changes the digest, too."""
    assert evidence_of(ids).digest != evidence_of(ids[1:]).digest
    assert (
        evidence_of([*ids[1:], b"other id"]).digest != evidence_of(ids).digest or b"other id" in ids
    )


@given(IDS, IDS)
def test_the_digest_of_two_parts_is_their_sum(one: list[bytes], other: list[bytes]) -> None:
    """Modulo 2**64: so a digest can be updated while spans arrive and are dropped."""
    apart = [span_id for span_id in other if span_id not in one]
    total = int(evidence_of(one).digest, 16) + int(evidence_of(apart).digest, 16)
    assert evidence_of([*one, *apart]).digest == f"{total % 2**64:016x}"
