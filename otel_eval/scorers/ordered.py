"""The heaviest alignment of two sequences of groups that keeps the order of both.

Knows weights, groups of rows and groups of columns (each a range of positions); knows no calls. Inside a group any
order is good, so a set of pairs is an alignment if no two of them cross: of two pairs in different groups of rows, the
earlier one's group of columns is not the later. The value is the greatest over every order that the groups allow.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from otel_eval.scorers.assignment import Assignment, Work, assign
from otel_eval.scorers.staircase import walk
from otel_eval.scorers.subsequence import common_of_masks

__all__ = ["align_in_order"]

Rows = Sequence[Mapping[int, float]]
Pairs = list[tuple[int, int]]

_CLOSE = 1e-12  # sums of the same weights in another order differ by less


def align_in_order(
    rows: Rows, groups: Sequence[range], batches: Sequence[range], *, alike: bool, work: Work | None = None
) -> Pairs:
    """The pairs (row, column) of a heaviest alignment.

    Args:
        rows: for each row, column → weight in (0, 1]; missing columns weigh nothing.
        groups: the rows in order, cut into groups.
        batches: the columns in order, cut into groups.
        alike: every weight is 1, and columns that share one row share all of theirs, as with names.
        work: how many steps it may take; left out, as many as it takes.

    If the groups of one side all hold one member the answer is exact and costs O(rows² · columns · log columns) at
    worst. If both sides have larger groups the number of states that are kept is bounded, see `staircase`.

    Raises:
        TooMuch: it would take more work than is allowed.
    """
    work = work or Work(None)
    if len(groups) <= 1 or len(batches) <= 1:
        return assign(rows, work)
    columns = batches[-1].stop
    if len(groups) == len(rows) and len(batches) == columns and all(weight == 1 for row in rows for weight in row.values()):
        turned = _transposed(rows, columns)
        return common_of_masks(len(rows), [sum([1 << row for row in column]) for column in turned])
    if len(groups) == len(rows):
        return _against_groups(rows, batches, work)
    if len(batches) == columns:
        return sorted((row, column) for column, row in _against_groups(_transposed(rows, columns), groups, work))
    return sorted(walk(rows, groups, batches, alike=alike, work=work))


def _transposed(rows: Rows, columns: int) -> list[dict[int, float]]:
    turned: list[dict[int, float]] = [{} for _ in range(columns)]
    for row, weights in enumerate(rows):
        for column, weight in weights.items():
            turned[column][row] = weight
    return turned


def _against_groups(rows: Rows, batches: Sequence[range], work: Work) -> Pairs:
    """Rows one by one against groups of columns: each group is assigned to some run of rows after the last.

    ``best[j]``, the heaviest alignment of the first j rows with the groups so far, becomes the greatest
    ``best[i] + assignment(rows i to j, group)``; from each i the assignment grows row by row.
    """
    best = [0.0] * (len(rows) + 1)
    history: list[list[int]] = []
    turned = _transposed(rows, batches[-1].stop)
    for batch in batches:
        work.spend(len(rows))
        best, origin = _alone(turned[batch.start], best) if len(batch) == 1 else _together(rows, batch, best, work)
        history.append(origin)
    pairs: Pairs = []
    end = len(rows)
    for batch, origin in zip(reversed(batches), reversed(history), strict=True):
        start = origin[end]
        if start < 0:
            continue
        used = [(start, batch.start)] if len(batch) == 1 else _used(rows, start, end, batch)
        end = start
        pairs.extend(used)
    return sorted(pairs)


def _alone(weights: Mapping[int, float], best: list[float]) -> tuple[list[float], list[int]]:
    """One column: it goes to one row or to none. `origin[j]` is the row it goes to, or negative."""
    after, origin, end = best.copy(), [-1] * len(best), len(best)
    for row, weight in weights.items():  # in order
        reached, at = best[row] + weight, row + 1
        while at < end and reached > after[at] + _CLOSE:
            after[at], origin[at] = reached, row
            at += 1
    return after, origin


def _together(rows: Rows, batch: range, best: list[float], work: Work) -> tuple[list[float], list[int]]:
    edges = [{column: weights[column] for column in batch if column in weights} for weights in rows]
    touched = [row for row, weights in enumerate(edges) if weights]
    after, origin = list(best), [-1] * len(best)
    heaviest: dict[int, float] = {}
    for weights in edges:
        for column, weight in weights.items():
            heaviest[column] = max(weight, heaviest.get(column, 0.0))
    most = sum(heaviest.values())
    last = -1.0
    for index, start in enumerate(touched):
        if best[start] <= last + _CLOSE or best[start] + most <= after[start] + _CLOSE:
            continue  # an earlier start has as much behind it and more rows ahead, or is beyond what this one can reach
        last = best[start]
        group = Assignment(work)
        for row in touched[index:]:
            group.add(edges[row])
            if best[start] + group.total > after[row + 1] + _CLOSE:
                after[row + 1], origin[row + 1] = best[start] + group.total, start
            if group.total >= most - _CLOSE:
                break
    for row in range(len(rows)):
        if after[row] > after[row + 1] + _CLOSE:
            after[row + 1], origin[row + 1] = after[row], origin[row]
    return after, origin


def _used(rows: Rows, start: int, end: int, batch: range) -> Pairs:
    group = Assignment()
    for row in range(start, end):
        group.add({column: rows[row][column] for column in batch if column in rows[row]})
    return [(start + row, column) for row, column in group.pairs()]
