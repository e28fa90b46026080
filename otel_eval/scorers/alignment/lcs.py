"""Longest common subsequences, as many bits at a time as an integer holds.

A row is an integer with one bit for each member of the prepared side: bit p is 0 where the longest common subsequence of
its first p + 1 members is one longer than that of its first p. Adding one member of the other side is then an addition
and two logical operations on whole rows (Hyyrö 2004, "Bit-parallel LCS-length computation revisited").
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from otel_eval.interfaces import Steps, TooLarge
from otel_eval.scorers.alignment.assignment import UnweightedAssignment, positions

Pairs = list[tuple[int, int]]
Places = Callable[[int, range], list[int]]  # (first position, group) → positions that the group extends a subsequence at
Paired = Callable[[list[int], range], Pairs]

_MOST_CELLS: Final = 1 << 28  # bits in all rows: 32 MiB
_BITS: Final = 4  # bits that are looked at one by one at the cost of a step
_PLACE: Final = 5  # steps for looking up where a name stands next


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


class _Step(NamedTuple):
    """What a group of several did: the shortest prefix per length before it, and where each length came from."""

    before: list[int]
    origin: list[int]


def common_in_groups(prepared: Prepared, names: Sequence[Hashable], groups: Sequence[range], work: Steps | None = None) -> Pairs:
    """As `common`, the longest over every order of `names` that keeps the groups in order.

    A group of one is a step on a row as in `common`. For larger ones the row is unrolled into the shortest prefix of
    the prepared side that reaches each length: from each such prefix the group reaches the next lengths at the first
    places that its names, each as often as it has it, stand at. The time grows with
    `len(prepared.names) * (names in larger groups)`, whatever their sizes.

    >>> common_in_groups(prepare(["a", "b", "c"]), ["b", "a", "c"], [range(0, 2), range(2, 3)])
    [(0, 1), (1, 0), (2, 2)]
    """
    work = work or Steps()
    known: list[tuple[range, Mapping[Hashable, int]]] = [(range(0), {})]  # the last group and its names

    def wanted(group: range) -> Mapping[Hashable, int]:
        if known[0][0] != group:
            known[0] = group, Counter([names[position] for position in group])
        return known[0][1]

    def places(prefix: int, group: range) -> list[int]:
        work.take(_PLACE * len(wanted(group)))
        return _places(prepared, prefix, wanted(group))

    def paired(used: list[int], group: range) -> Pairs:
        return _assign(prepared, used, names, group)

    masks = [prepared.masks.get(name, 0) for name in names]
    return _in_groups(len(prepared.names), masks, groups, places, paired, work)


def common_of_masks_in_groups(length: int, masks: Sequence[int], groups: Sequence[range], work: Steps) -> Pairs:
    """As `common_in_groups`, where members are equal in any way: `masks` as `common_of_masks` takes them.

    Which members of the prepared side can be assigned to a group together is a matroid (transversal), so from each prefix
    the earliest ones that can be are at the places that `common_in_groups` looks up.

    Raises:
        TooLarge: it would take more work than is allowed.
    """
    known: dict[range, _Group] = {}

    def places(prefix: int, group: range) -> list[int]:
        if group not in known:
            known[group] = _Group(masks, group, work)
        return known[group].places(prefix)

    def paired(used: list[int], group: range) -> Pairs:
        return [(used[row], group.start + column) for row, column in known[group].assigned(used).pairs()]

    return _in_groups(length, masks, groups, places, paired, work)


class _Group:
    """A group of several members, each with the bits of those it equals on the prepared side.

    For each position of the prepared side that some member equals, from the last to the first, `_found` has the earliest
    positions from there on that can be assigned to the group. One more position in front takes part in their place if it
    can be assigned as well, or else in place of the last of those that could make room for it.
    """

    def __init__(self, masks: Sequence[int], group: range, work: Steps) -> None:
        self._masks = [masks[position] for position in group]
        self._work = work
        some = 0
        for mask in self._masks:
            some |= mask
        self._positions = positions(some)
        self._found: list[list[int]] = []
        assigned, found = UnweightedAssignment(len(self._masks), work), list[int]()
        for position in reversed(self._positions):
            out = assigned.exchange(self._row(position))  # rows are numbered from the last position on
            found = [position, *found] if out < 0 else found
            if out >= 0:
                gone = self._positions[-1 - out]
                found = [position, *[each for each in found if each != gone]] if gone != position else found
            work.take(len(found))
            self._found.append(found)

    def places(self, prefix: int) -> list[int]:
        """Where, from `prefix` on, one more of the group can be assigned."""
        self._work.take(_PLACE)
        first = bisect_left(self._positions, prefix)
        return self._found[len(self._positions) - 1 - first] if first < len(self._positions) else []

    def assigned(self, used: Sequence[int]) -> UnweightedAssignment:
        """These members of the prepared side, assigned to the group."""
        assigned = UnweightedAssignment(len(self._masks), self._work)
        for position in used:
            assigned.add(self._row(position))
        return assigned

    def _row(self, position: int) -> int:
        return sum([1 << column for column, mask in enumerate(self._masks) if mask >> position & 1])


def _in_groups(length: int, masks: Sequence[int], groups: Sequence[range], places: Places, paired: Paired, work: Steps) -> Pairs:
    _check_size(length, len(groups))
    full = (1 << length) - 1
    rows: list[int] = [full]
    steps: list[_Step | None] = []
    for group in groups:
        row = rows[-1]
        if len(group) == 1:
            hits = row & masks[group.start]
            rows.append((row + hits | row - hits) & full)
            steps.append(None)
        else:
            work.take(length // _BITS)
            before = _reach(full & ~row)
            after, origin = _extend(before, group, places)
            rows.append(full - sum([1 << prefix - 1 for prefix in after[1:]]))
            steps.append(_Step(before, origin))
    return _traced(groups, rows, steps, places, paired)


def _reach(gains: int) -> list[int]:
    """For each length the shortest prefix that reaches it, from the bits where the length grows."""
    return [0, *(place for place, bit in enumerate(bin(gains)[:1:-1], start=1) if bit == "1")]


def _traced(groups: Sequence[range], rows: Sequence[int], steps: Sequence[_Step | None], places: Places, paired: Paired) -> Pairs:
    """The pairs behind the last row, group by group from the last; row n is what it was before group n."""
    pairs: Pairs = []
    below = rows[0]
    for index in range(len(groups) - 1, -1, -1):
        gains, step, group = below & ~rows[index + 1], steps[index], groups[index]
        if step is None:
            place = gains.bit_length() - 1
            if gains and rows[index] >> place & 1:
                pairs.append((place, group.start))
                below = (1 << place) - 1
            continue
        length = gains.bit_count()
        came_from = step.origin[length]
        if came_from != length:
            used = places(step.before[came_from], group)[: length - came_from]
            pairs.extend(paired(used, group))
            below = (1 << step.before[came_from]) - 1
    pairs.sort()
    return pairs


def _extend(reach: list[int], group: range, places: Places) -> tuple[list[int], list[int]]:
    after, origin = list(reach), list(range(len(reach)))
    for length, prefix in enumerate(reach):
        for more, place in enumerate(places(prefix, group), start=length + 1):
            if more == len(after):
                after.append(place + 1)
                origin.append(length)
            elif place + 1 < after[more]:
                after[more], origin[more] = place + 1, length
    return after, origin


def _places(prepared: Prepared, prefix: int, wanted: Mapping[Hashable, int]) -> list[int]:
    """Where, from `prefix` on, the wanted names stand first, each as often as it is wanted."""
    found: list[int] = []
    for name, count in wanted.items():
        places = prepared.places.get(name)
        if places:
            first = bisect_left(places, prefix)
            found += places[first : first + count]
    found.sort()
    return found


def _assign(prepared: Prepared, used: Sequence[int], names: Sequence[Hashable], group: Sequence[int]) -> Pairs:
    waiting: dict[Hashable, list[int]] = {}
    for position in reversed(group):
        waiting.setdefault(names[position], []).append(position)
    return [(place, waiting[prepared.names[place]].pop()) for place in used]
