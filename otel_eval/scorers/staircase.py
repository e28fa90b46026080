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

from otel_eval.scorers.assignment import Work

__all__ = ["walk"]

Rows = Sequence[Mapping[int, float]]
Chain = tuple[int, int, "Chain"] | None
States = dict[int, tuple[float, Chain]]  # bits taken → (weight, pairs)

_WORK: Final = 50_000  # states in all, spread over the grid
_FEWEST, _MOST = 8, 128
_STATE: Final = 15  # a state costs as much as looking at so many pairs


def walk(
    rows: Rows, groups: Sequence[range], batches: Sequence[range], *, alike: bool, work: Work | None = None
) -> list[tuple[int, int]]:
    """The pairs (row, column) of a heaviest alignment.

    Where all are `alike` (weights are 1, and columns that share one row share all) a member always takes the first
    free partner: whichever of group and batch is done after the cell cannot use it better later, nor another one.

    >>> walk([{1: 1.0}, {0: 1.0}], [range(0, 2)], [range(0, 2)], alike=True)
    [(1, 0), (0, 1)]
    """
    work = work or Work(None)
    limit = max(_FEWEST, min(_MOST, _WORK // (1 + sum(map(len, groups)) * sum(map(len, batches)))))
    from_above: list[States] = [{} for _ in batches]
    if from_above:
        from_above[0] = {0: (0.0, None)}
    end: States = {}
    for group in groups:
        from_left: States = {}
        for index, batch in enumerate(batches):
            right, down = _cell(rows, group, batch, from_left, from_above[index], 1 if alike else limit, work)
            from_left, from_above[index] = _best(right, limit), _best(down, limit)
        end = from_left
    chain = max(end.values(), key=lambda state: state[0])[1] if end else None
    pairs = []
    while chain is not None:
        row, column, chain = chain
        pairs.append((row, column))
    return pairs[::-1]


def _cell(
    rows: Rows, group: range, batch: range, from_left: States, from_above: States, limit: int, work: Work
) -> tuple[States, States]:
    """Pair what is free of the group with what is free of the batch; the states that go right, and down.

    On the way right the batch is done, so only what is taken of the group counts; on the way down the other way round.
    """
    by_row = [(row, {column: rows[row][column] for column in batch if column in rows[row]}) for row in group]
    by_column = [(column, {row: found[column] for row, found in by_row if column in found}) for column in batch]
    if not any(found for _, found in by_row):
        nothing = [max(states.values(), key=_weight) for states in (from_above, from_left) if states]
        right, down = dict(from_left), dict(from_above)
        _merge(right, {0: nothing[0]} if from_above else {})
        _merge(down, {0: nothing[-1]} if from_left else {})
        return right, down
    right = _pair(by_column, group.start, from_left, limit, work, rows_first=False)
    down = _pair(by_row, batch.start, from_above, limit, work, rows_first=True)
    for taken, state in from_above.items():
        free = [each for each in by_column if not taken >> (each[0] - batch.start) & 1]
        _merge(right, _pair(free, group.start, {0: state}, limit, work, rows_first=False))
    for taken, state in from_left.items():
        free = [each for each in by_row if not taken >> (each[0] - group.start) & 1]
        _merge(down, _pair(free, batch.start, {0: state}, limit, work, rows_first=True))
    return right, down


def _weight(state: tuple[float, Chain]) -> float:
    return state[0]


def _pair(
    members: Sequence[tuple[int, Mapping[int, float]]], first: int, states: States, limit: int, work: Work, *, rows_first: bool
) -> States:
    """Give each member one of its free partners or none; the states are what is then taken of the partners' side."""
    for member, partners in members:
        if not partners:
            continue
        after: States = {}
        work.spend(_STATE * len(states) * (1 + len(partners)))
        for bits, (weight, chain) in states.items():
            free = [(partner, gain) for partner, gain in partners.items() if not bits >> (partner - first) & 1]
            if limit == 1:
                free = free[:1]
            if not free or limit > 1:
                _merge(after, {bits: (weight, chain)})
            for partner, gain in free:
                pair = (member, partner) if rows_first else (partner, member)
                _merge(after, {bits | 1 << partner - first: (weight + gain, (*pair, chain))})
        states = after if limit == 1 else _best(after, limit)
    return dict(states)


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
