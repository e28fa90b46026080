"""Compute longest common subsequences with bit-parallel operations on large integers.

A row is an integer with one bit for each member of the prepared side: bit p is 0 where the longest
common subsequence of its first p + 1 members is one longer than that of its first p. Adding one
member of the other side is then an addition and two logical operations on whole rows (Hyyrö 2004,
"Bit-parallel LCS-length computation revisited").
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from itertools import repeat
from typing import NamedTuple

Pairs = list[tuple[int, int]]


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


def _as_subsequence(names: Sequence[Hashable], others: Sequence[Hashable]) -> Pairs:
    """Pair each of the names with its earliest position in `others`, which is what
    `common_of_masks` finds.

    Raises:
        ValueError: `names` is not a subsequence of `others`.
    """
    pairs, position = [], -1
    for row, name in enumerate(names):
        position = others.index(name, position + 1)
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
