"""The spans of a trace as trees, whatever the parent links look like.

Knows ids and parent links only; knows neither kinds nor times. Everything is iterative: a chain of 10,000 spans is
as good as any other tree, and links that run in a circle end somewhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from otel_eval.native import extension
from otel_eval.ports import Frame

__all__ = ["Forest", "plant", "plant_slowly"]

_forest: Final = extension("_forest")
_NO_PARENT: Final = frozenset({b"", b"\0" * 8})


@dataclass(slots=True)
class Forest:
    """Spans in preorder, so that a subtree is a range.

    Attributes:
        ids: span ids.
        parent: place of the parent, -1 for the top of a tree.
        size: number of spans in the subtree, itself included.
        tops: places of the tops.
        missing: top's place → the id of the parent that is not there, b"" for a true root. The top of a circle names
            the parent that it would hang from, so it is an orphan like any other.
    """

    ids: list[bytes]
    parent: list[int]
    size: list[int]
    tops: list[int]
    missing: dict[int, bytes]

    def top_of(self, place: int) -> int:
        """The top of the tree that the span is in."""
        low, high = 0, len(self.tops)
        while high - low > 1:
            middle = (low + high) // 2
            if self.tops[middle] <= place:
                low = middle
            else:
                high = middle
        return self.tops[low]


def plant(frames: Mapping[bytes, Frame]) -> Forest:
    """The trees that the parent links make."""
    found = None if _forest is None else _forest.plant(frames)  # None too where links run in a circle
    return plant_slowly(frames) if found is None else Forest(*found)


def plant_slowly(frames: Mapping[bytes, Frame]) -> Forest:
    """The same in Python, whatever the links look like."""
    children: dict[bytes, list[bytes]] = {}
    tops: list[tuple[bytes, bytes]] = []
    for span_id, frame in frames.items():
        parent = frame[0]
        if parent in frames:
            children.setdefault(parent, []).append(span_id)
        else:
            tops.append((span_id, b"" if parent in _NO_PARENT else parent))
    tops.sort()
    forest = Forest([], [], [], [], {})
    for span_id, missing in tops:
        _grow(forest, span_id, missing, children)
    if len(forest.ids) < len(frames):
        _cut_circles(forest, frames, children)
    _measure(forest)
    return forest


def _grow(forest: Forest, top: bytes, missing: bytes, children: dict[bytes, list[bytes]]) -> None:
    """One tree in preorder."""
    ids, parents = forest.ids, forest.parent
    forest.tops.append(len(ids))
    forest.missing[len(ids)] = missing
    stack = [(top, -1)]
    while stack:
        span_id, parent = stack.pop()
        place = len(ids)
        ids.append(span_id)
        parents.append(parent)
        below = children.get(span_id)
        if below:
            stack.extend((each, place) for each in below)


def _cut_circles(forest: Forest, frames: Mapping[bytes, Frame], children: dict[bytes, list[bytes]]) -> None:
    """What no top leads to hangs from a circle: its smallest id becomes a top."""
    left = set(frames).difference(forest.ids)
    for start in sorted(left):
        if start not in left:
            continue
        walked: dict[bytes, None] = {}
        span_id = start
        while span_id not in walked:
            walked[span_id] = None
            span_id = frames[span_id][0]
        order = list(walked)
        top = min(order[order.index(span_id) :])
        first = len(forest.ids)
        parent = frames[top][0]
        children[parent].remove(top)  # opens the circle: it is a tree now
        _grow(forest, top, parent, children)
        left.difference_update(forest.ids[first:])


def _measure(forest: Forest) -> None:
    size = forest.size = [1] * len(forest.ids)
    parent = forest.parent
    for place in range(len(size) - 1, -1, -1):
        if parent[place] >= 0:
            size[parent[place]] += size[place]
