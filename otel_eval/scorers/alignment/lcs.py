"""Longest common subsequences, as many bits at a time as an integer holds.

A row is an integer with one bit for each member of the prepared side: bit p is 0 where the longest common subsequence of
its first p + 1 members is one longer than that of its first p. Adding one member of the other side is then an addition
and two logical operations on whole rows (Hyyrö 2004, "Bit-parallel LCS-length computation revisited").
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from otel_eval.interfaces import TooLarge

Pairs = list[tuple[int, int]]

_MOST_CELLS: Final = 1 << 28  # bits in all rows: 32 MiB


@dataclass(frozen=True, slots=True)
class Prepared:
    """One side, ready to be compared with many others: per name the bits of the positions where it stands."""

    names: tuple[Hashable, ...]
    masks: Mapping[Hashable, int]


def prepare(names: Sequence[Hashable]) -> Prepared:
    """Names in order, ready for `common`."""
    masks: dict[Hashable, int] = {}
    for position, name in enumerate(names):
        masks[name] = masks.get(name, 0) | 1 << position
    return Prepared(tuple(names), masks)


def common(prepared: Prepared, names: Sequence[Hashable]) -> Pairs:
    """The pairs (position in `prepared`, position in `names`) of one longest common subsequence, in order.

    >>> common(prepare(["a", "b", "c"]), ["b", "a", "c"])
    [(0, 1), (2, 2)]
    """
    masks = prepared.masks
    return common_of_masks(len(prepared.names), [masks.get(name, 0) for name in names])


def common_of_masks(length: int, masks: Sequence[int]) -> Pairs:
    """As `common`, for one side of `length` members and, per member of the other, the bits of those it equals.

    Costs one step on integers of `length` bits for each mask, there and back.

    Raises:
        TooLarge: the rows would take too much memory.
    """
    if length * len(masks) > _MOST_CELLS:
        raise TooLarge
    full = (1 << length) - 1
    row, rows = full, []
    for mask in masks:
        hits = row & mask
        if hits:
            row = (row + hits | row - hits) & full
        rows.append(row)
        if not row:
            break  # all names are paired, and what follows changes nothing
    pairs: Pairs = []
    below = full  # the names that are still to be paired
    last = len(rows) - 1
    rows.append(full)  # before the first
    for position in range(last, -1, -1):
        row = rows[position]
        before = rows[position - 1]
        gains = below & ~row
        if not gains:
            break
        # Only a member that changed the row can have made its highest step; else an earlier one did.
        if row != before:
            place = gains.bit_length() - 1
            if before >> place & 1:
                pairs.append((place, position))
                below = (1 << place) - 1
    pairs.reverse()
    return pairs
