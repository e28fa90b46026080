"""The heaviest alignment of two sequences of groups that keeps the order of both.

Inside a group any order is good, so a set of pairs is an alignment if no two of them cross: of two pairs in different groups
of rows, the earlier one's group of columns is not the later. The value is the greatest over every order that the groups allow.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from otel_eval.interfaces import Steps
from otel_eval.scorers.alignment.assignment import WeightedAssignment, assign, assign_masks, positions
from otel_eval.scorers.alignment.lcs import Pairs, common_of_masks
from otel_eval.scorers.alignment.partial_order import walk

Rows = Sequence[Mapping[int, float]]

_CLOSE = 1e-12  # sums of the same weights in another order differ by less
_COPIED = 30  # numbers that are copied at the cost of a step
_PASSED = 3  # numbers that are looked at once more at the cost of a step
_ROW = 5  # steps for a row of a group
_SEEN = 4  # bits that are looked at one by one at the cost of a step
_BIT = 50  # bits that are turned at the cost of a step
_BLOCK = 512  # rows that are turned at once: the text of more than some is beyond the processor's cache


def align_masks_in_order(
    masks: Sequence[int], columns: int, groups: Sequence[range], batches: Sequence[range], work: Steps | None = None
) -> Pairs:
    """As `align_in_order`, where each pair weighs the same: `masks` are rows with one bit for each of so many columns.

    Raises:
        TooLarge: it would take more work than is allowed.
    """
    work = work or Steps()
    if len(groups) <= 1 or len(batches) <= 1:
        return assign_masks(masks, columns, work)
    if len(groups) == len(masks) and len(batches) == columns:
        work.take(len(masks) * columns // _BIT)
        return common_of_masks(len(masks), transpose_bits(masks, columns))
    work.take(sum([columns // _SEEN + mask.bit_count() for mask in set(masks)]))
    known = {mask: dict.fromkeys(positions(mask), 1.0) for mask in set(masks)}
    is_grid = len(groups) < len(masks) and len(batches) < columns
    least = len(common_of_masks(len(masks), transpose_bits(masks, columns))) if is_grid else 0
    return align_in_order([known[mask] for mask in masks], groups, batches, work=work, least=least)


def align_in_order(
    rows: Rows, groups: Sequence[range], batches: Sequence[range], *, work: Steps | None = None, least: float = 0.0
) -> Pairs:
    """The pairs (row, column) of a heaviest alignment.

    Args:
        rows: for each row, column → weight in (0, 1]; missing columns weigh nothing.
        groups: the rows in order, cut into groups.
        batches: the columns in order, cut into groups.
        work: how many steps it may take; left out, as many as it takes.
        least: a weight that some alignment is known to have.

    If the groups of one side all hold one member the answer is exact and costs O(rows² · columns · log columns) at
    worst. If both sides have larger groups the number of states that are kept is bounded, see `partial_order`.

    Raises:
        TooLarge: it would take more work than is allowed.
    """
    work = work or Steps()
    if len(groups) <= 1 or len(batches) <= 1:
        return assign(rows, work)
    columns = batches[-1].stop
    if len(groups) == len(rows):
        return _against_groups(rows, batches, work)
    if len(batches) == columns:
        return sorted((row, column) for column, row in _against_groups(_transposed(rows, columns, work), groups, work))
    return walk(rows, groups, batches, work=work, least=least)


def transpose_bits(rows: Sequence[int], columns: int) -> list[int]:
    """By column the bits of the rows that have its bit. Through text, which the interpreter cuts in steps at full speed.

    >>> transpose_bits([0b01, 0b11], 2)
    [3, 2]
    """
    turned = [0] * columns
    for first in range(0, len(rows), _BLOCK):
        text = "".join([format(row, f"0{columns}b") for row in reversed(rows[first : first + _BLOCK])])
        for column in range(columns):
            turned[column] |= int(text[columns - 1 - column :: columns], 2) << first
    return turned


def _transposed(rows: Rows, columns: int, work: Steps) -> list[dict[int, float]]:
    work.take(sum([len(row) for row in rows]))
    turned: list[dict[int, float]] = [{} for _ in range(columns)]
    for row, weights in enumerate(rows):
        for column, weight in weights.items():
            turned[column][row] = weight
    return turned


def _against_groups(rows: Rows, batches: Sequence[range], work: Steps) -> Pairs:
    """Rows one by one against groups of columns: each group is assigned to some run of rows after the last.

    ``best[j]``, the heaviest alignment of the first j rows with the groups so far, becomes the greatest
    ``best[i] + assignment(rows i to j, group)``; from each i the assignment grows row by row.
    """
    best = [0.0] * (len(rows) + 1)
    history: list[list[int]] = []
    turned = _transposed(rows, batches[-1].stop, work)
    for batch in batches:
        best, origin = _alone(turned[batch.start], best, work) if len(batch) == 1 else _together(turned, batch, best, work)
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


def _alone(weights: Mapping[int, float], best: list[float], work: Steps) -> tuple[list[float], list[int]]:
    """One column: it goes to one row or to none. `origin[j]` is the row it goes to, or negative."""
    after, origin, end, taken = best.copy(), [-1] * len(best), len(best), 0
    for row, weight in weights.items():  # in order
        reached, at = best[row] + weight, row + 1
        while at < end and reached > after[at] + _CLOSE:
            after[at], origin[at] = reached, row
            at += 1
        taken += at - row
    work.take(taken + 1 + len(best) // _COPIED)
    return after, origin


def _together(
    turned: Sequence[Mapping[int, float]], batch: range, best: list[float], work: Steps
) -> tuple[list[float], list[int]]:
    """A group of columns: it is assigned to some of the rows that follow a start. `origin[j]` is the start, or negative."""
    edges: dict[int, dict[int, float]] = {}
    for column in batch:
        for row, weight in turned[column].items():
            edges.setdefault(row, {})[column] = weight
    work.take(_ROW * len(edges) + len(best) // _PASSED)
    touched = sorted(edges)
    after, origin = list(best), [-1] * len(best)
    most = sum([max(turned[column].values()) for column in batch if turned[column]])
    last = -1.0
    for index, start in enumerate(touched):
        if best[start] <= last + _CLOSE or best[start] + most <= after[start] + _CLOSE:
            continue  # an earlier start has as much behind it and more rows ahead, or is beyond what this one can reach
        last = best[start]
        for row, total in _growing(touched[index:], edges, best, last + most, work):
            if last + total > after[row + 1] + _CLOSE:
                after[row + 1], origin[row + 1] = last + total, start
    for row in range(len(best) - 1):
        if after[row] > after[row + 1] + _CLOSE:
            after[row + 1], origin[row + 1] = after[row], origin[row]
    return after, origin


def _growing(
    touched: Sequence[int], edges: Mapping[int, Mapping[int, float]], best: Sequence[float], most: float, work: Steps
) -> Iterator[tuple[int, float]]:
    """What a group weighs with one row more after another, as long as that can be more than without the group."""
    group, start = WeightedAssignment(work), best[touched[0]]
    for row in touched:
        if most <= best[row + 1] + _CLOSE:
            return
        group.add(edges[row])
        yield row, group.total
        if start + group.total >= most - _CLOSE:
            return


def _used(rows: Rows, start: int, end: int, batch: range) -> Pairs:
    group = WeightedAssignment()
    for row in range(start, end):
        group.add({column: rows[row][column] for column in batch if column in rows[row]})
    return [(start + row, column) for row, column in group.pairs()]
