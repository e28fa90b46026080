"""Cut calls into groups of parallel calls, and align two sides that both have such groups (two
partial orders).

An alignment is a monotone path through the grid of row groups and column groups: after a cell, it
goes right (the row group continues with the next column group) or down (the column group continues
with the next row group). The state is the set of members of the continuing group that are paired
already. No polynomial algorithm is known if names repeat across groups, so dominated states are
dropped, and beyond `limit` only the heaviest are kept. The result is exact for alignments of the
size that people write by hand; for larger ones its weight is that of some allowed order, but might
not be the greatest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Literal

from otel_eval.model import SpanRef, ToolCall

TimedCall = ToolCall | SpanRef
"""What is cut into groups, by times, span id and enclosing calls; the name is what scorers
compare.
"""


def is_timed(call: TimedCall) -> bool:
    """Whether start and end were recorded. Both 0 means that no time was recorded; a start of 0
    with a later end is a time.
    """
    return (
        call.start_ns is not None
        and call.end_ns is not None
        and (call.start_ns, call.end_ns) != (0, 0)
    )


def parallel_groups(calls: Sequence[TimedCall]) -> list[range]:
    """Return the positions of each group of parallel calls, in order; every position is in exactly
    one group.

    A call joins the group before it if no call of that group had ended when it started and none of
    them encloses it, or if both have the same `message`. A call that starts in the instant when
    another ends starts after it; calls with equal starts are parallel. Other calls without times
    are sequential.

    >>> from otel_eval.testing import call
    >>> parallel_groups(
    ...     [
    ...         call("a", start_ns=1, end_ns=4),
    ...         call("b", start_ns=2, end_ns=3),
    ...         call("c", start_ns=3, end_ns=9),
    ...     ]
    ... )
    [range(0, 2), range(2, 3)]
    """
    groups = _parallel_in_time(calls)
    if not any(call.message for call in calls):
        return groups
    merged: list[range] = []
    for group in groups:
        before, first = (calls[group.start - 1] if merged else None), calls[group.start]
        if before is not None and first.message and first.message == before.message:
            group = range(merged.pop().start, group.stop)
        merged.append(group)
    return merged


Concurrency = Literal["respect", "ignore"]
"""Whether parallel calls are grouped, or taken in order of start."""


def groups_of(calls: Sequence[TimedCall], concurrency: Concurrency) -> list[range]:
    """The positions of each group of parallel calls; of each call if concurrency is ignored."""
    if concurrency == "respect":
        return parallel_groups(calls)
    return [range(at, at + 1) for at in range(len(calls))]


def _parallel_in_time(calls: Sequence[TimedCall]) -> list[range]:
    """The groups of `parallel_groups`, by times and enclosing calls alone."""
    groups: list[range] = []
    first = 0
    latest: int | None = None  # the latest start in the group; None if no call can join it
    ended_before = ended_at = 0  # the earliest end of members that started before, or at, `latest`
    for position, call in enumerate(calls):
        start, end = call.start_ns, call.end_ns
        if start is None or end is None or not (start or end):
            joins, start, end = False, None, 0
        elif latest is None or start < latest:
            joins = False
        else:
            open_until = ended_before if start == latest else min(ended_before, ended_at)
            joins = (start == latest or start < open_until) and not (
                call.enclosing and _within(call, calls[first:position])
            )
        if not joins:
            if position:
                groups.append(range(first, position))
            first, ended_before, ended_at = position, _NEVER, end
        elif start == latest:
            ended_at = min(ended_at, end)
        else:
            ended_before, ended_at = open_until, end
        latest = start
    if calls:
        groups.append(range(first, len(calls)))
    return groups


def is_sequential(calls: Sequence[TimedCall]) -> bool:
    """Return True only if no two calls are parallel; faster than `parallel_groups`. False does not
    mean that some are.

    >>> from otel_eval.testing import call
    >>> is_sequential([call("a", start_ns=1, end_ns=4), call("b", start_ns=4, end_ns=5)])
    True
    """
    free = 1  # the earliest start of a call that is sequential to those before
    for call in calls:
        start, end = call.start_ns, call.end_ns
        if call.message:
            return False
        if start is None or end is None:
            continue
        if start < free:
            return False
        free = end if end > start else start + 1
    return True


_NEVER = 1 << 80


def _within(call: TimedCall, members: Sequence[TimedCall]) -> bool:
    """Whether one of the members encloses the call."""
    enclosing = call.enclosing
    return any(member.span_id in enclosing for member in members if member.span_id)


Rows = Sequence[Mapping[int, float]]
Chain = tuple[int, int, "Chain"] | None
States = dict[int, tuple[float, Chain]]  # bits taken → (weight, pairs)
# a row or column, and its weights with members of the other side
Member = tuple[int, Mapping[int, float]]

_WORK: Final = 50_000  # number of states in the whole grid
_FEWEST, _MOST = 8, 128


def walk(
    rows: Rows,
    groups: Sequence[range],
    column_groups: Sequence[range],
    *,
    least: float = 0.0,
) -> list[tuple[int, int]]:
    """Return the pairs (row, column) of a heaviest alignment, sorted.

    `least` is a weight that some alignment is known to have; cells through which no path can reach
    it are skipped.

    >>> walk([{1: 1.0}, {0: 1.0}], [range(0, 2)], [range(0, 2)])
    [(0, 1), (1, 0)]
    """
    return _Walk(rows, groups, column_groups).pairs(least) if groups and column_groups else []


class _Walk:
    """The grid of row groups and column groups."""

    def __init__(self, rows: Rows, groups: Sequence[range], column_groups: Sequence[range]) -> None:
        self._rows, self._row_groups, self._column_groups = rows, groups, column_groups
        self._limit: Final = max(
            _FEWEST, min(_MOST, _WORK // (1 + groups[-1].stop * column_groups[-1].stop))
        )
        self._kinds_of_rows, self._kinds_of_columns = _kinds(rows, column_groups[-1].stop)

    def pairs(self, least: float) -> list[tuple[int, int]]:
        """Return the pairs on a heaviest path through the grid, sorted."""
        height, width = self._row_groups[-1].stop, self._column_groups[-1].stop
        from_above: list[States] = [{} for _ in self._column_groups]
        from_above[0] = {0: (0.0, None)}
        end: States = {}
        for group in self._row_groups:
            from_left: States = {}
            for index, columns in enumerate(self._column_groups):
                if (
                    min(group.stop, columns.stop) + min(height - group.start, width - columns.start)
                    < least
                ):
                    from_left = from_above[index] = {}
                else:
                    right, down = self._cell(group, columns, from_left, from_above[index])
                    from_left, from_above[index] = self._best(right), self._best(down)
            end = from_left
        chain = max(end.values(), key=_weight)[1] if end else None
        pairs = []
        while chain is not None:
            row, column, chain = chain
            pairs.append((row, column))
        return sorted(pairs)

    def _cell(
        self, group: range, columns: range, from_left: States, from_above: States
    ) -> tuple[States, States]:
        """Pair free members of the row group with free members of the column group; return the
        states to the right and below.

        To the right the column group is complete, so a state holds the paired members of the row
        group; below it is the reverse.
        """
        by_row = [
            (
                row,
                {
                    column: self._rows[row][column]
                    for column in columns
                    if column in self._rows[row]
                },
            )
            for row in group
        ]
        by_column = [
            (column, {row: weights[column] for row, weights in by_row if column in weights})
            for column in columns
        ]
        right = self._pair(by_column, group.start, from_left, rows_first=False)
        down = self._pair(by_row, columns.start, from_above, rows_first=True)
        for paired, state in from_above.items():
            free = [member for member in by_column if not paired >> member[0] - columns.start & 1]
            _merge(right, self._pair(free, group.start, {0: state}, rows_first=False))
        for paired, state in from_left.items():
            free = [member for member in by_row if not paired >> member[0] - group.start & 1]
            _merge(down, self._pair(free, columns.start, {0: state}, rows_first=True))
        return right, down

    def _pair(
        self, members: Sequence[Member], first: int, states: States, *, rows_first: bool
    ) -> States:
        """Pair each member with one of its free partners or with none; return the states of the
        partners' side.
        """
        kinds = self._kinds_of_columns if rows_first else self._kinds_of_rows
        for member, partners in members:
            if not partners:
                continue
            after: States = {}
            for bits, (weight, chain) in states.items():
                _merge(after, {bits: (weight, chain)})
                first_free: dict[int, int] = {}  # kind → its first free partner
                for partner in partners:
                    if not bits >> partner - first & 1:
                        first_free.setdefault(kinds[partner], partner)
                for partner in first_free.values():
                    pair = (member, partner) if rows_first else (partner, member)
                    _merge(
                        after,
                        {bits | 1 << partner - first: (weight + partners[partner], (*pair, chain))},
                    )
            states = self._best(after)
        return dict(states)

    def _best(self, states: States) -> States:
        """Return the states that none dominates: a free member adds at most 1, so a lead of one per
        member is never lost.
        """
        best: States = {}
        for bits, state in sorted(
            states.items(), key=lambda item: (-item[1][0], item[0].bit_count(), item[0])
        ):
            if len(best) == self._limit:
                break
            if not any(
                other[0] >= state[0] + (other_bits & ~bits).bit_count()
                for other_bits, other in best.items()
            ):
                best[bits] = state
        return best


def _kinds(rows: Rows, columns: int) -> tuple[list[int], list[int]]:
    """Return for each row and each column the first of its kind: rows that are the same object,
    columns with equal weights.
    """
    of_rows: list[int] = []
    first: dict[int, int] = {}
    weights: list[list[tuple[int, float]]] = [[] for _ in range(columns)]
    for at, row in enumerate(rows):
        if id(row) not in first:
            first[id(row)] = at
            for column, weight in row.items():
                weights[column].append((at, weight))
        of_rows.append(first[id(row)])
    alike: dict[tuple[tuple[int, float], ...], int] = {}
    return of_rows, [alike.setdefault(tuple(column), at) for at, column in enumerate(weights)]


def _weight(state: tuple[float, Chain]) -> float:
    return state[0]


def _merge(states: States, added: States) -> None:
    """Add states; of two that are equal the heavier one stays."""
    for bits, state in added.items():
        if bits not in states or state[0] > states[bits][0]:
            states[bits] = state
