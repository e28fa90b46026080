"""Longest common subsequences of names, as many bits at a time as an integer holds.

Knows names, groups of positions and how to recover which positions were paired; knows no weights.
A row is an integer with one bit for each name of the prepared side: bit p is 0 where the longest common
subsequence of its first p + 1 names is one longer than that of its first p. Adding one name to the other side is then
an addition and two logical operations on whole rows (Hyyrö 2004, "Bit-parallel LCS-length computation revisited").
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

__all__ = ["Prepared", "common", "common_in_groups", "common_length", "common_of_masks", "prepare"]

Pairs = list[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Prepared:
    """One side, ready to be compared with many others: per name the bits and the positions where it stands, and how often."""

    names: tuple[Hashable, ...]
    masks: Mapping[Hashable, int]
    places: Mapping[Hashable, list[int]]
    counts: dict[Hashable, int]


def prepare(names: Sequence[Hashable]) -> Prepared:
    """Names in order, ready for `common`."""
    masks: dict[Hashable, int] = {}
    places: dict[Hashable, list[int]] = {}
    for position, name in enumerate(names):
        masks[name] = masks.get(name, 0) | 1 << position
        places.setdefault(name, []).append(position)
    return Prepared(tuple(names), masks, places, {name: len(found) for name, found in places.items()})


def common(prepared: Prepared, names: Sequence[Hashable]) -> Pairs:
    """The pairs (position in `prepared`, position in `names`) of one longest common subsequence, in order.

    >>> common(prepare(["a", "b", "c"]), ["b", "a", "c"])
    [(0, 1), (2, 2)]
    """
    masks = prepared.masks
    return common_of_masks(len(prepared.names), [masks.get(name, 0) for name in names])


def common_length(prepared: Prepared, names: Sequence[Hashable]) -> int:
    """The length of a longest common subsequence: half the work of `common`.

    >>> common_length(prepare(["a", "b", "c"]), ["b", "a", "x", "c"])
    2
    """
    masks_of = prepared.masks.get
    full = row = (1 << len(prepared.names)) - 1
    for name in names:
        mask = masks_of(name)
        if mask:
            hits = row & mask
            if hits:
                row = row + hits | row - hits  # what is carried beyond the last name stays there
    return (full & ~row).bit_count()


def common_of_masks(length: int, masks: Sequence[int]) -> Pairs:
    """As `common`, for one side of `length` members and, per member of the other, the bits of those it equals.

    Costs one step on integers of `length` bits for each mask, there and back.
    """
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


class _Step(NamedTuple):
    """What a group of several did: the shortest prefix per length before it, and where each length came from."""

    before: list[int]
    origin: list[int]


def common_in_groups(prepared: Prepared, names: Sequence[Hashable], groups: Sequence[range]) -> Pairs:
    """As `common`, the longest over every order of `names` that keeps the groups in order.

    A group of one is a step on a row as in `common`. For larger ones the row is unrolled into the shortest prefix of
    the prepared side that reaches each length: from each such prefix the group reaches the next lengths at the first
    places that its names, each as often as it has it, stand at. The time grows with
    `len(prepared.names) * (names in larger groups)`, whatever their sizes.

    >>> common_in_groups(prepare(["a", "b", "c"]), ["b", "a", "c"], [range(0, 2), range(2, 3)])
    [(0, 1), (1, 0), (2, 2)]
    """
    full = (1 << len(prepared.names)) - 1
    rows: list[int] = [full]
    steps: list[_Step | None] = []
    for group in groups:
        row = rows[-1]
        if len(group) == 1:
            hits = row & prepared.masks.get(names[group.start], 0)
            rows.append((row + hits | row - hits) & full)
            steps.append(None)
        else:
            before = _reach(full & ~row)
            after, origin = _extend(prepared, before, Counter([names[position] for position in group]))
            rows.append(full - sum([1 << prefix - 1 for prefix in after[1:]]))
            steps.append(_Step(before, origin))
    return _traced(prepared, names, groups, rows, steps)


def _reach(gains: int) -> list[int]:
    """For each length the shortest prefix that reaches it, from the bits where the length grows."""
    return [0, *(place for place, bit in enumerate(bin(gains)[:1:-1], start=1) if bit == "1")]


def _traced(
    prepared: Prepared, names: Sequence[Hashable], groups: Sequence[range], rows: Sequence[int], steps: Sequence[_Step | None]
) -> Pairs:
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
            wanted = Counter([names[position] for position in group])
            used = _places(prepared, step.before[came_from], wanted)[: length - came_from]
            pairs.extend(_assign(prepared, used, names, group))
            below = (1 << step.before[came_from]) - 1
    pairs.sort()
    return pairs


def _extend(prepared: Prepared, reach: list[int], wanted: Mapping[Hashable, int]) -> tuple[list[int], list[int]]:
    after, origin = list(reach), list(range(len(reach)))
    for length, prefix in enumerate(reach):
        for more, place in enumerate(_places(prepared, prefix, wanted), start=length + 1):
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
