"""Ids that are held after everything else of a trace was dropped."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from otel_eval.assembly.tombstones import Tombstones


def of(number: int) -> bytes:
    return number.to_bytes(16, "big")


steps = st.lists(st.tuples(st.integers(0, 20), st.booleans(), st.integers(0, 3)), max_size=60)


@given(steps)
def test_compacting_changes_nothing_that_can_be_seen(sequence):
    """The same ids are held at every instant, with and without compacting."""
    plain, compacted, now = Tombstones(1000), Tombstones(1000), 0.0
    for number, compact, pause in sequence:
        now += pause
        for each in (plain, compacted):
            each.expire(now)
            if not each.holds(of(number), now):
                each.add(of(number), now + 10)
        if compact:
            compacted.compact(now)
        assert [plain.holds(of(n), now) for n in range(21)] == [
            compacted.holds(of(n), now) for n in range(21)
        ]
        held = {trace_id for trace_id, until in compacted.items() if until > now}
        assert held == {of(n) for n in range(21) if plain.holds(of(n), now)}


def test_the_oldest_is_forgotten_first():
    """Recent ids as well as compacted ones."""
    stones = Tombstones(2)
    for number in range(3):
        stones.add(of(number), 10 + number)
    assert [stones.holds(of(n), 0) for n in range(3)] == [False, True, True]
    stones.compact(0)
    stones.add(of(3), 13)
    stones.compact(0)
    assert [stones.holds(of(n), 0) for n in range(4)] == [False, False, True, True]
