"""Longest common subsequences, as many bits at a time as an integer holds.

A row is an integer with one bit for each member of the prepared side: bit p is 0 where the longest common subsequence of
its first p + 1 members is one longer than that of its first p. Adding one member of the other side is then an addition
and two logical operations on whole rows (Hyyrö 2004, "Bit-parallel LCS-length computation revisited").
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from otel_eval.interfaces import Steps, TooLarge
from otel_eval.scorers.alignment.assignment import UnweightedAssignment, positions

Pairs = list[tuple[int, int]]

_MOST_CELLS: Final = 1 << 28  # bits in all rows: 32 MiB
_BITS: Final = 4  # bits that are looked at one by one at the cost of a step
_PLACE: Final = 5  # steps for looking up where a member stands next


@dataclass(frozen=True, slots=True)
class Prepared:
    """One side, ready to be compared with many others: per name the bits and the positions where it stands."""

    names: tuple[Hashable, ...]
    masks: Mapping[Hashable, int]
    places: Mapping[Hashable, list[int]]


def prepare(names: Sequence[Hashable]) -> Prepared:
    """Names in order, ready for `common`."""
    masks: dict[Hashable, int] = {}
    places: dict[Hashable, list[int]] = {}
    for position, name in enumerate(names):
        masks[name] = masks.get(name, 0) | 1 << position
        places.setdefault(name, []).append(position)
    return Prepared(tuple(names), masks, places)


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
    _check_size(length, len(masks))
    full = (1 << length) - 1
    row, rows = full, []
    for mask in masks:
        hits = row & mask
        if hits:
            row = (row + hits | row - hits) & full
        rows.append(row)
    pairs: Pairs = []
    below = full  # the names that are still to be paired
    rows.append(full)
    for position in range(len(masks) - 1, -1, -1):
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


def _check_size(length: int, others: int) -> None:
    if length * others > _MOST_CELLS:
        raise TooLarge


def common_of_masks_in_groups(length: int, masks: Sequence[int], groups: Sequence[range], work: Steps) -> Pairs:
    """As `common_of_masks`, the longest over every order of the other side that keeps its groups in order.

    A group of one is a step on a row as in `common_of_masks`. For larger ones the row is unrolled into the shortest prefix
    of the prepared side that reaches each length. Which members of the prepared side can be assigned to a group together
    is a matroid (transversal), so from each prefix the earliest ones that can be reach the next lengths.

    Raises:
        TooLarge: it would take more work than is allowed.
    """
    _check_size(length, len(groups))
    full = (1 << length) - 1
    row = full
    steps: list[tuple[int, _Group | None]] = []
    for group in groups:
        before = row
        if len(group) == 1:
            hits = row & masks[group.start]
            row = (row + hits | row - hits) & full
            steps.append((before, None))
        else:
            work.take(length // _BITS)
            members = _Group(masks, group, work)
            row = full - sum([1 << prefix - 1 for prefix in members.extend(full & ~row)])
            steps.append((before, members))
    return _traced(groups, steps, row, full)


def _traced(groups: Sequence[range], steps: Sequence[tuple[int, _Group | None]], row: int, below: int) -> Pairs:
    """The pairs behind the last row, group by group from the last; each step holds the row before its group."""
    pairs: Pairs = []
    for group, (before, members) in zip(reversed(groups), reversed(steps), strict=True):
        gains, row = below & ~row, before
        if members is None:
            place = gains.bit_length() - 1
            if gains and before >> place & 1:
                pairs.append((place, group.start))
                below = (1 << place) - 1
            continue
        prefix, used = members.origin(gains.bit_count())
        if used:
            pairs.extend(members.paired(used))
            below = (1 << prefix) - 1
    pairs.sort()
    return pairs


class _Group:
    """A group of several members, each with the bits of those it equals on the prepared side.

    For each position of the prepared side that some member equals, from the last to the first, `_found` has the earliest
    positions from there on that can be assigned to the group. One more position in front takes part in their place if it
    can be assigned as well, or else in place of the last of those that could make room for it.
    """

    def __init__(self, masks: Sequence[int], group: range, work: Steps) -> None:
        self._start, self._masks, self._work = group.start, [masks[position] for position in group], work
        some = 0
        for mask in self._masks:
            some |= mask
        self._positions = positions(some)
        self._found: list[list[int]] = []
        self._before: list[int] = []  # the shortest prefix that reaches each length without the group
        self._origin: list[int] = []  # by length with the group, the length that it extends
        assigned, found = UnweightedAssignment(len(self._masks), work), list[int]()
        for position in reversed(self._positions):
            out = assigned.exchange(self._row(position))  # rows are numbered from the last position on
            found = [position, *found] if out < 0 else found
            if out >= 0:
                gone = self._positions[-1 - out]
                found = [position, *[each for each in found if each != gone]] if gone != position else found
            work.take(len(found))
            self._found.append(found)

    def extend(self, gains: int) -> list[int]:
        """The shortest prefixes that reach each length from 1 on with the group, by the bits where it grows without it."""
        self._before = [0, *(place + 1 for place in positions(gains))]
        after, origin = list(self._before), list(range(len(self._before)))
        for length, prefix in enumerate(self._before):
            for more, place in enumerate(self._places(prefix), start=length + 1):
                if more == len(after):
                    after.append(place + 1)
                    origin.append(length)
                elif place + 1 < after[more]:
                    after[more], origin[more] = place + 1, length
        self._origin = origin
        return after[1:]

    def _places(self, prefix: int) -> list[int]:
        """Where, from `prefix` on, one more of the group can be assigned."""
        self._work.take(_PLACE)
        first = bisect_left(self._positions, prefix)
        return self._found[len(self._positions) - 1 - first] if first < len(self._positions) else []

    def origin(self, length: int) -> tuple[int, list[int]]:
        """The prefix that the group extends to such a length, and the positions it takes; none if it does without."""
        shorter = self._origin[length]
        prefix = self._before[shorter]
        return prefix, self._places(prefix)[: length - shorter]

    def paired(self, used: Sequence[int]) -> Pairs:
        """These members of the prepared side, each with one of the group."""
        assigned = UnweightedAssignment(len(self._masks), self._work)
        for position in used:
            assigned.add(self._row(position))
        return [(used[row], self._start + column) for row, column in assigned.pairs()]

    def _row(self, position: int) -> int:
        return sum([1 << column for column, mask in enumerate(self._masks) if mask >> position & 1])
