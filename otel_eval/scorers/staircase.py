"""Alignments where both sides have groups: walks down and right through the grid of groups.

Knows weights and groups only. The groups that are paired form a staircase: after group g met batch b, either g meets
the next batch, or the next group meets b. What is already taken of the group (or batch) that goes on is the state.
No way is known to choose the best staircase in polynomial time where names repeat across groups, so states that
another one is sure to beat are dropped, and beyond `limit` the heaviest are kept: exact for every alignment that a
person writes down, and for larger ones a value that is reached by some order but might not be the greatest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

__all__ = ["walk"]

Rows = Sequence[Mapping[int, float]]
Chain = tuple[int, int, "Chain"] | None
States = dict[int, tuple[float, Chain]]  # bits taken → (weight, pairs)

_WORK: Final = 2_000_000  # states in all, spread over the grid
_FEWEST, _MOST = 16, 4096


def walk(rows: Rows, groups: Sequence[range], batches: Sequence[range]) -> list[tuple[int, int]]:
    """The pairs (row, column) of a heaviest alignment.

    >>> walk([{1: 1.0}, {0: 1.0}], [range(0, 2)], [range(0, 2)])
    [(0, 1), (1, 0)]
    """
    limit = max(_FEWEST, min(_MOST, _WORK // (1 + sum(map(len, groups)) * sum(map(len, batches)))))
    from_above: list[States] = [{} for _ in batches]
    if from_above:
        from_above[0] = {0: (0.0, None)}
    end: States = {}
    for group in groups:
        from_left: States = {}
        for index, batch in enumerate(batches):
            right, down = _cell(rows, group, batch, from_left, from_above[index])
            from_left, from_above[index] = _best(right, limit), _best(down, limit)
        end = from_left
    chain = max(end.values(), key=lambda state: state[0])[1] if end else None
    pairs = []
    while chain is not None:
        row, column, chain = chain
        pairs.append((row, column))
    return pairs[::-1]


def _cell(rows: Rows, group: range, batch: range, from_left: States, from_above: States) -> tuple[States, States]:
    """Pair what is free of the group with what is free of the batch; the states that go right, and down."""
    right: States = {}
    down: States = {}
    met = [(row, [(column, rows[row][column]) for column in batch if column in rows[row]]) for row in group]
    edges = [(row, columns) for row, columns in met if columns]
    turned: dict[int, list[tuple[int, float]]] = {}
    for row, columns in edges:
        for column, weight in columns:
            turned.setdefault(column, []).append((row, weight))
    for taken_rows, taken_columns, state in [
        *((taken, 0, state) for taken, state in from_left.items()),
        *((0, taken, state) for taken, state in from_above.items()),
    ]:
        free_rows = [each for each in edges if not taken_rows >> (each[0] - group.start) & 1]
        free_columns = [each for each in turned.items() if not taken_columns >> (each[0] - batch.start) & 1]
        _merge(down, _pair(free_rows, batch.start, taken_columns, state, rows_first=True))
        _merge(right, _pair(free_columns, group.start, taken_rows, state, rows_first=False))
    return right, down


def _pair(
    members: Sequence[tuple[int, Sequence[tuple[int, float]]]],
    first: int,
    taken: int,
    state: tuple[float, Chain],
    *,
    rows_first: bool,
) -> States:
    """Give each member one of its free partners or none; the states are what is then taken of the partners' side."""
    states: States = {taken: state}
    for member, partners in members:
        after = dict(states)
        for bits, (weight, chain) in states.items():
            for partner, gain in partners:
                bit = 1 << partner - first
                if bits & bit:
                    continue
                known = after.get(bits | bit)
                if known is None or weight + gain > known[0]:
                    pair = (member, partner) if rows_first else (partner, member)
                    after[bits | bit] = (weight + gain, (*pair, chain))
        states = _best(after, _MOST)
    return states


def _merge(states: States, more: States) -> None:
    for bits, state in more.items():
        if bits not in states or state[0] > states[bits][0]:
            states[bits] = state


def _best(states: States, limit: int) -> States:
    """The states that none beats: what is free is worth at most 1 a piece, so a lead of as much can never be lost."""
    kept: States = {}
    for bits, state in sorted(states.items(), key=lambda item: (-item[1][0], item[0].bit_count(), item[0])):
        if len(kept) == limit:
            break
        if not any(other[0] >= state[0] + (taken & ~bits).bit_count() for taken, other in kept.items()):
            kept[bits] = state
    return kept
