"""Find the heaviest alignment of two sequences of groups that keeps the order of the groups on both
sides.

Within a group any order is allowed. A set of pairs is an alignment if no two pairs cross: of two
pairs in different row groups, the earlier one must not have the later column group. The weight is
the greatest over all orders that the groups allow.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from itertools import repeat
from typing import NamedTuple

from otel_eval.scorers.alignment.assignment import (
    WeightedAssignment,
    assign,
    assign_masks,
    positions,
)
from otel_eval.scorers.partial_order import walk

Rows = Sequence[Mapping[int, float]]
Pairs = list[tuple[int, int]]

_CLOSE = 1e-12  # sums of the same weights in a different order differ by less than this
_BLOCK = 512  # rows that are transposed at once, so that their text stays in the processor's cache


def align_masks_in_order(
    masks: Sequence[int],
    columns: int,
    groups: Sequence[range],
    column_groups: Sequence[range],
) -> Pairs:
    """Return what `align_in_order` does, if each pair weighs 1: `masks` are rows with one bit for
    each column.
    """
    if len(groups) <= 1 or len(column_groups) <= 1:
        return assign_masks(masks, columns)
    if len(groups) == len(masks) and len(column_groups) == columns:
        return common_of_masks(len(masks), transpose_bits(masks, columns))
    rows_by_mask = {mask: dict.fromkeys(positions(mask), 1.0) for mask in set(masks)}
    is_grid = len(groups) < len(masks) and len(column_groups) < columns
    least = len(common_of_masks(len(masks), transpose_bits(masks, columns))) if is_grid else 0
    return align_in_order(
        [rows_by_mask[mask] for mask in masks], groups, column_groups, least=least
    )


def align_in_order(
    rows: Rows,
    groups: Sequence[range],
    column_groups: Sequence[range],
    *,
    least: float = 0.0,
) -> Pairs:
    """Return the pairs (row, column) of a heaviest alignment.

    Args:
        rows: for each row, column → weight in (0, 1]; pairs with other columns are not allowed.
        groups: the rows in order, cut into groups.
        column_groups: the columns in order, cut into groups.
        least: a weight that some alignment is known to have.

    If all groups of one side have one member, the result is exact and takes O(rows² · columns · log
    columns) at worst. If both sides have larger groups, the number of states that are kept is
    bounded, see `partial_order`.
    """
    if len(groups) <= 1 or len(column_groups) <= 1:
        return assign(rows)
    columns = column_groups[-1].stop
    if len(groups) == len(rows):
        return _against_groups(rows, column_groups)
    if len(column_groups) == columns:
        return sorted(
            (row, column) for column, row in _against_groups(_transposed(rows, columns), groups)
        )
    return walk(rows, groups, column_groups, least=least)


def transpose_bits(rows: Sequence[int], columns: int) -> list[int]:
    """Transpose a matrix of bits: return for each column a mask of the rows that have its bit set.

    This goes through text, because slicing a text with a step is fast in CPython.

    >>> transpose_bits([0b01, 0b11], 2)
    [3, 2]
    """
    turned = [0] * columns
    for first in range(0, len(rows), _BLOCK):
        text = "".join(
            [format(row, f"0{columns}b") for row in reversed(rows[first : first + _BLOCK])]
        )
        for column in range(columns):
            turned[column] |= int(text[columns - 1 - column :: columns], 2) << first
    return turned


def _transposed(rows: Rows, columns: int) -> list[dict[int, float]]:
    turned: list[dict[int, float]] = [{} for _ in range(columns)]
    for row, weights in enumerate(rows):
        for column, weight in weights.items():
            turned[column][row] = weight
    return turned


def _against_groups(rows: Rows, column_groups: Sequence[range]) -> Pairs:
    """Align single rows with groups of columns: each group is assigned to a range of rows after
    that of the group before.

    ``best[j]`` is the weight of the heaviest alignment of the first j rows with the groups so far.
    The next group replaces it by the greatest ``best[i] + assignment(rows i to j, group)``; for
    each i the assignment is extended row by row.
    """
    best = [0.0] * (len(rows) + 1)
    history: list[list[int]] = []
    turned = _transposed(rows, column_groups[-1].stop)
    for columns in column_groups:
        best, origin = (
            _add_one(turned[columns.start], best)
            if len(columns) == 1
            else _add_all(turned, columns, best)
        )
        history.append(origin)
    pairs: Pairs = []
    end = len(rows)
    for columns, origin in zip(reversed(column_groups), reversed(history), strict=True):
        start = origin[end]
        if start < 0:
            continue
        group_pairs = (
            [(start, columns.start)]
            if len(columns) == 1
            else _pairs_of_group(rows, start, end, columns)
        )
        end = start
        pairs.extend(group_pairs)
    return sorted(pairs)


def _add_one(weights: Mapping[int, float], best: list[float]) -> tuple[list[float], list[int]]:
    """Add a group of one column, which is paired with one row or none: `origin[j]` is that row, or
    -1.
    """
    after, origin, end = best.copy(), [-1] * len(best), len(best)
    for row, weight in weights.items():  # in order
        reached, at = best[row] + weight, row + 1
        while at < end and reached > after[at] + _CLOSE:
            after[at], origin[at] = reached, row
            at += 1
    return after, origin


def _add_all(
    turned: Sequence[Mapping[int, float]], columns: range, best: list[float]
) -> tuple[list[float], list[int]]:
    """Add a group of columns, which is assigned to rows from some start on: `origin[j]` is that
    start, or -1.
    """
    edges: dict[int, dict[int, float]] = {}
    for column in columns:
        for row, weight in turned[column].items():
            edges.setdefault(row, {})[column] = weight
    touched = sorted(edges)
    after, origin = list(best), [-1] * len(best)
    max_weight = sum([max(turned[column].values()) for column in columns if turned[column]])
    last = -1.0
    for index, start in enumerate(touched):
        if best[start] <= last + _CLOSE or best[start] + max_weight <= after[start] + _CLOSE:
            # an earlier start has no less weight and more rows, or already exceeds what this one
            # can reach
            continue
        last = best[start]
        for row, total in _growing_weights(touched[index:], edges, best, last + max_weight):
            if last + total > after[row + 1] + _CLOSE:
                after[row + 1], origin[row + 1] = last + total, start
    for row in range(len(best) - 1):
        if after[row] > after[row + 1] + _CLOSE:
            after[row + 1], origin[row + 1] = after[row], origin[row]
    return after, origin


def _growing_weights(
    touched: Sequence[int],
    edges: Mapping[int, Mapping[int, float]],
    best: Sequence[float],
    max_weight: float,
) -> Iterator[tuple[int, float]]:
    """Yield row and weight of the group's assignment as rows are added, while that can exceed the
    alignment without the group.
    """
    group, start = WeightedAssignment(), best[touched[0]]
    for row in touched:
        if max_weight <= best[row + 1] + _CLOSE:
            return
        group.add(edges[row])
        yield row, group.total
        if start + group.total >= max_weight - _CLOSE:
            return


def _pairs_of_group(rows: Rows, start: int, end: int, columns: range) -> Pairs:
    """Assign rows from `start` to `end` to the columns of a group."""
    in_group = (
        {column: row[column] for column in columns if column in row} for row in rows[start:end]
    )
    return [(start + row, column) for row, column in assign(in_group)]


# Longest common subsequences, bit-parallel on large integers (Hyyrö 2004, "Bit-parallel LCS-length
# computation revisited"). A row is an integer with one bit for each member of the prepared side:
# bit p is 0 where the longest common subsequence of its first p + 1 members is one longer than that
# of its first p. Adding one member of the other side is then an addition and two logical operations
# on whole rows.


class Prepared(NamedTuple):
    """One sequence, prepared for many comparisons: `masks` maps each name to an integer with the
    bits of its positions set.
    """

    names: tuple[Hashable, ...]
    masks: Mapping[Hashable, int]


def prepare(names: Sequence[Hashable]) -> Prepared:
    """Prepare a sequence of names for `common`."""
    masks: dict[Hashable, int] = {}
    for position, name in enumerate(names):
        masks[name] = masks.get(name, 0) | 1 << position
    return Prepared(tuple(names), masks)


def common(prepared: Prepared, names: Sequence[Hashable]) -> Pairs:
    """Return the pairs (position in `prepared`, position in `names`) of one longest common
    subsequence, in order.

    >>> common(prepare(["a", "b", "c"]), ["b", "a", "c"])
    [(0, 1), (2, 2)]
    """
    try:
        return _as_subsequence(prepared.names, names)
    except ValueError:
        return common_of_masks(len(prepared.names), list(map(prepared.masks.get, names, repeat(0))))


def _as_subsequence(names: Sequence[Hashable], sequence: Sequence[Hashable]) -> Pairs:
    """Pair each of the names with its earliest position in `sequence`, which is what
    `common_of_masks` finds.

    Raises:
        ValueError: `names` is not a subsequence of `sequence`.
    """
    pairs, position = [], -1
    for row, name in enumerate(names):
        position = sequence.index(name, position + 1)
        pairs.append((row, position))
    return pairs


def common_of_masks(length: int, masks: Sequence[int]) -> Pairs:
    """Return what `common` does, given the length of one side and, for each member of the other, a
    mask of the members it equals.

    Takes two passes over the masks, with a few operations on integers of `length` bits for each
    mask. The rows take up to `length` bits for each mask.
    """
    row = full = (1 << length) - 1
    changes: list[tuple[int, int]] = []  # each member that changed the row, and the row before it
    for position, mask in enumerate(masks):
        if hits := row & mask:
            changes.append((position, row))
            row = (row + hits | row - hits) & full
    pairs: Pairs = []
    below = full  # the positions that are still to be paired
    for position, before in reversed(changes):
        gains = below & ~row
        if not gains:
            break
        # The pair belongs to this member only if it cleared the highest bit; otherwise an earlier
        # member did.
        highest = gains.bit_length() - 1
        if before >> highest & 1:
            pairs.append((highest, position))
            below = (1 << highest) - 1
        row = before
    pairs.reverse()
    return pairs
