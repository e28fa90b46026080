"""Segments as bytes: sound records are read, whatever is damaged behind or between them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_eval.storage.segments import (
    HEAD_BYTES,
    RECORD_BYTES,
    Damage,
    header_bytes,
    record_header,
    scan,
)
from tests.support.counted_work import is_in_proportion

SALT = b"saltsalt"
RECORDS = st.lists(st.tuples(st.integers(0, 255), st.binary(max_size=60)), max_size=8)


def written(records: list[tuple[int, bytes]], salt: bytes = SALT) -> bytes:
    return header_bytes(salt) + b"".join(
        record_header(salt, kind, [payload]) + payload for kind, payload in records
    )


def read(data: bytes) -> tuple[list[tuple[int, bytes]], Damage]:
    damage = Damage()
    return [(kind, payload) for kind, payload, _ in scan(data, damage)], damage


@given(RECORDS)
def test_records_are_read_as_they_were_written(records: list[tuple[int, bytes]]):
    """In order, and no damage is reported."""
    data = written(records)
    assert read(data) == (records, Damage(0, len(data)))


@given(RECORDS, st.data())
def test_a_cut_anywhere_leaves_a_beginning(records: list[tuple[int, bytes]], data: st.DataObject):
    """After a crash the first records are read completely, and the offset to continue from is
    known.
    """
    whole = written(records)
    left = whole[: data.draw(st.integers(0, len(whole)))]
    found, damage = read(left)
    assert found == records[: len(found)]
    assert damage.gaps == 0
    assert read(left[: damage.tail])[0] == found
    if len(left) >= HEAD_BYTES:
        assert len(found) == sum(
            len(written(records[: n + 1])) <= len(left) for n in range(len(records))
        )


def test_a_flipped_bit_costs_its_record_alone(subtests: pytest.Subtests) -> None:
    """The bit is in the header of a record or in its payload."""
    for at in range(HEAD_BYTES, HEAD_BYTES + 2 * RECORD_BYTES + len(b"first") + len(b"second" * 3)):
        with subtests.test(at=at):
            records = [(1, b"first"), (2, b"second" * 3), (3, b"third")]
            data = bytearray(written(records))
            data[at] ^= 0x10
            found, damage = read(bytes(data))
            hit = next(n for n in range(3) if at < len(written(records[: n + 1])))
            assert found == records[:hit] + records[hit + 1 :]
            assert damage == Damage(gaps=1, tail=len(data))


@given(RECORDS, st.binary(max_size=300))
def test_noise_behind_the_records_changes_nothing(records: list[tuple[int, bytes]], noise: bytes):
    """Zeros of a file that grew before it was written, or any other bytes."""
    whole = written(records)
    assert read(whole + noise) == (records, Damage(0, len(whole), len(noise)))


def test_a_flipped_bit_in_the_head_of_a_segment_costs_nothing(subtests: pytest.Subtests) -> None:
    """The header is written twice."""
    for at in range(HEAD_BYTES):
        for bit in [0, 7]:
            with subtests.test(at=at, bit=bit):
                records = [(1, b"first"), (2, b"second" * 3)]
                data = bytearray(written(records))
                data[at] ^= 1 << bit
                assert read(bytes(data)) == (records, Damage(0, len(data)))


def test_older_records_are_skipped_without_a_look_at_each():
    """The records of this segment begin with another magic."""
    data = written([(1, b"a"), (2, b"b")])
    few, many = (written([(1, b"x")] * count, salt=b"former00") for count in (1, 10_000))
    assert read(data + many) == ([(1, b"a"), (2, b"b")], Damage(0, len(data), len(many)))
    assert is_in_proportion(lambda: read(data + few), lambda: read(data + many), most=2.0)


def test_records_of_another_segment_are_no_records():
    """Nor are records that a client writes into an attribute, because it does not know the salt."""
    inside = written([(7, b"planted")], salt=b"a guess.")[HEAD_BYTES:]
    data = bytearray(written([(1, b"a"), (1, inside), (1, b"b")]))
    data[HEAD_BYTES + RECORD_BYTES + 1] ^= 0xFF  # so that the next record has to be looked for
    assert read(bytes(data))[0] == [(1, b"a"), (1, b"b")]


@pytest.mark.parametrize(
    "data",
    [b"", b"oe-jrnl", header_bytes(SALT)[:-1], header_bytes(SALT).replace(b"4", b"3"), bytes(64)],
)
def test_bytes_that_are_no_segment_have_no_records(data: bytes):
    """All of it is torn."""
    assert read(data) == ([], Damage(torn=len(data)))
