"""The spans of a trace in preorder, whatever their parent links look like.

Everything is iterative: a chain of 10,000 spans is as good as any other tree, and links that run in a circle are cut.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from otel_eval.interfaces import Frame

__all__ = ["SpanTree", "span_tree_of"]

_NO_PARENT: Final = frozenset({b"", b"\0" * 8})

_Children = dict[bytes, list[bytes]]


@dataclass(slots=True)
class SpanTree:
    """Spans in preorder, so that a subtree is a range of places. Where parents are missing there are several tops.

    Attributes:
        ids: span ids.
        parent: place of the parent, -1 for the top of a tree.
        size: number of spans in the subtree, itself included.
        tops: places of the tops, in order of their ids.
        missing: top's place → the id of the parent that is not there, b"" for a true root. The top of a circle names
            the parent that it would hang from, so it is an orphan like any other.
    """

    ids: list[bytes] = field(default_factory=list)
    parent: list[int] = field(default_factory=list)
    size: list[int] = field(default_factory=list)
    tops: list[int] = field(default_factory=list)
    missing: dict[int, bytes] = field(default_factory=dict)

    def top_of(self, place: int) -> int:
        """The top of the tree that the span is in."""
        return self.tops[bisect_right(self.tops, place) - 1]


def span_tree_of(frames: Mapping[bytes, Frame]) -> SpanTree:
    """The trees that the parent links make."""
    children: _Children = {}
    tops: list[tuple[bytes, bytes]] = []
    for span_id, frame in frames.items():
        parent = frame[0]
        siblings = children.get(parent)
        if siblings is not None:
            siblings.append(span_id)
        elif parent in frames:
            children[parent] = [span_id]
        else:
            tops.append((span_id, b"" if parent in _NO_PARENT else parent))
    tops.sort()
    tree = SpanTree()
    for span_id, missing in tops:
        _add(tree, span_id, missing, children)
    if len(tree.ids) < len(frames):
        _cut_circles(tree, frames, children)
    return tree


def _add(tree: SpanTree, top: bytes, missing: bytes, children: _Children) -> None:
    """One tree in preorder, the last of siblings first. Siblings without children of their own are added at once."""
    ids, parents, size = tree.ids, tree.parent, tree.size
    tree.tops.append(len(ids))
    tree.missing[len(ids)] = missing
    visited: list[int] = []
    stack = [(top, -1)]
    while stack:
        span_id, parent = stack.pop()
        place = len(ids)
        visited.append(place)
        ids.append(span_id)
        parents.append(parent)
        size.append(1)
        below = children.get(span_id)
        if below is None:
            continue
        if children.keys().isdisjoint(below):
            ids += reversed(below)
            parents += [place] * len(below)
            size += [1] * len(below)
            size[place] += len(below)
        else:
            stack += [(each, place) for each in below]
    for place in reversed(visited[1:]):
        size[parents[place]] += size[place]


def _cut_circles(tree: SpanTree, frames: Mapping[bytes, Frame], children: _Children) -> None:
    """What no top leads to hangs from a circle: its smallest id becomes a top."""
    left = set(frames).difference(tree.ids)
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
        first = len(tree.ids)
        parent = frames[top][0]
        children[parent].remove(top)  # opens the circle: it is a tree now
        _add(tree, top, parent, children)
        left.difference_update(tree.ids[first:])
