"""The validity of certificates, against the library that writes them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID
from hypothesis import example, given
from hypothesis import strategies as st

from otel_eval.otlp.tls import Validity, validity_of

KEY = ec.generate_private_key(ec.SECP256R1())
FIRST, LAST = datetime(1950, 1, 1), datetime(9999, 12, 31, 23, 59, 58)


def certificate(
    not_before: datetime, not_after: datetime, names: Sequence[str] = ("server",)
) -> bytes:
    issuer = x509.Name(
        [x509.NameAttribute(NameOID.ORGANIZATIONAL_UNIT_NAME, name) for name in names]
    )
    builder = (
        x509.CertificateBuilder()
        .subject_name(issuer)
        .issuer_name(issuer)
        .public_key(KEY.public_key())
    )
    builder = (
        builder.serial_number(x509.random_serial_number())
        .not_valid_before(not_before)
        .not_valid_after(not_after)
    )
    return builder.sign(KEY, SHA256()).public_bytes(Encoding.PEM)


def seconds(moment: datetime) -> int:
    return int(moment.replace(tzinfo=UTC).timestamp())


@given(
    st.datetimes(FIRST, LAST),
    st.datetimes(FIRST, LAST),
    st.sampled_from([["a"], ["é" * 30] * 2, ["x" * 60] * 6]),
)
# the ends of the shorter form of time
@example(datetime(1950, 1, 1), datetime(2049, 12, 31, 23, 59, 59), ["a"])
@example(datetime(2049, 12, 31, 23, 59, 59), datetime(2050, 1, 1), ["a"])
@example(datetime(2024, 2, 29), LAST + timedelta(seconds=1), ["a"])
def test_the_validity_of_any_certificate(one: datetime, other: datetime, names: list[str]) -> None:
    """Whatever the years, which have two forms, and the length of what stands before it."""
    first, last = sorted((one.replace(microsecond=0), other.replace(microsecond=0)))
    assert validity_of(certificate(first, last, names)) == Validity(seconds(first), seconds(last))


def test_the_first_certificate_counts() -> None:
    """A server's own, before its chain, whatever text or key stands around it."""
    own, chain = (certificate(FIRST, datetime(year, 1, 1)) for year in (2030, 2040))
    key = b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"
    assert validity_of(
        b"subject=server\n" + key + own.replace(b"\n", b"\r\n") + chain
    ) == validity_of(own)


# once: the length of a signature differs by some bytes
ISSUED = certificate(datetime(2020, 1, 1), datetime(2030, 1, 1))


@given(st.data())
def test_no_bytes_break_it(data: st.DataObject) -> None:
    """Cut or changed anywhere it gives a validity or none."""
    raw = bytearray(ISSUED)
    for _ in range(data.draw(st.integers(1, 5))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    found = validity_of(bytes(raw[: data.draw(st.integers(0, len(raw)))]))
    assert found is None or isinstance(found, Validity)


@pytest.mark.parametrize(
    ("now", "problem"),
    [
        (99, "is not valid before 1970-01-01T00:01:40Z"),
        (100, None),
        (200.5, None),
        (201.5, "has expired at 1970-01-01T00:03:20Z"),
    ],
)
def test_a_certificate_is_valid_at_both_ends_of_its_period(now: float, problem: str | None) -> None:
    """Of which the last second is a whole one."""
    assert Validity(100, 200).problem(now) == problem
