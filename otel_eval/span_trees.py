"""Build the trees of a trace from the parent links of its spans.

Nothing here recurses, so a chain of 10,000 spans is a tree like any other. Parent links can form a
cycle: each is cut at its smallest span id, and that span becomes a root.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from operator import gt, lt
from typing import Final, TypeVar

from otel_eval.interfaces import Frame
from otel_eval.records import record

_NO_PARENT: Final = frozenset({b"", b"\0" * 8})

_Children = dict[bytes, list[bytes]]
_Value = TypeVar("_Value")
_Key = TypeVar("_Key", bound=Hashable)


@record
class SpanTree:
    """Spans in preorder, so that a subtree is a range of indexes. Where parents are missing there
    are several roots.

    Attributes:
        ids: span ids.
        parent: index of the parent, -1 for the root of a tree.
        size: number of spans in the subtree, itself included.
        roots: indexes of the roots, in order of their ids: spans without a parent, and orphans.
        missing: index of a root → the id of the parent that did not arrive, b"" if it has none. The
            root of a circle is an orphan like any other, and names the parent to which it is
            linked.
    """

    ids: list[bytes]
    parent: list[int]
    size: list[int]
    roots: list[int]
    missing: dict[int, bytes]

    def root_of(self, index: int) -> int:
        """The root of the tree that the span is in."""
        return self.roots[bisect_right(self.roots, index) - 1]


def grouped(values: Iterable[_Value], key: Callable[[_Value], _Key]) -> dict[_Key, list[_Value]]:
    """The values by their keys, in order."""
    groups: dict[_Key, list[_Value]] = {}
    for value in values:
        groups.setdefault(key(value), []).append(value)
    return groups


def in_order_of_time(
    values: list[_Value], starts: list[int], moment: Callable[[_Value], tuple[int, int, bytes]]
) -> list[_Value]:
    """The values in the order of their moments, which are compared only where their starts do not
    decide.
    """
    if all(map(lt, starts, starts[1:])):
        return values
    if all(map(gt, starts, starts[1:])):
        return values[::-1]
    return sorted(values, key=moment)


def within(indexes: list[int], first: int, last: int) -> list[int]:
    """Those of ascending indexes that are in a range."""
    return indexes[bisect_left(indexes, first) : bisect_left(indexes, last)]


def first_within(indexes: Sequence[int], first: int, last: int) -> int | None:
    """The first of ascending indexes that is in a range, or None."""
    at = bisect_left(indexes, first)
    return indexes[at] if at < len(indexes) and indexes[at] < last else None


def holds(indexes: list[int], first: int, last: int) -> bool:
    """Whether one of ascending indexes is in a range."""
    return first_within(indexes, first, last) is not None


def span_tree_of(frames: Mapping[bytes, Frame]) -> SpanTree:
    """Build the trees from the parent links."""
    children: _Children = {}
    roots: list[tuple[bytes, bytes]] = []
    for span_id, frame in frames.items():
        parent = frame[0]
        siblings = children.get(parent)
        if siblings is not None:
            siblings.append(span_id)
        elif parent in frames:
            children[parent] = [span_id]
        else:
            roots.append((span_id, b"" if parent in _NO_PARENT else parent))
    roots.sort()
    tree = SpanTree([], [], [], [], {})
    for span_id, missing in roots:
        _add(tree, span_id, missing, children)
    if len(tree.ids) < len(frames):
        _cut_circles(tree, frames, children)
    return tree


def _add(tree: SpanTree, root: bytes, missing: bytes, children: _Children) -> None:
    """One tree in preorder, the last of siblings first. Siblings without children of their own are
    added at once.
    """
    ids, parents, size = tree.ids, tree.parent, tree.size
    tree.roots.append(len(ids))
    tree.missing[len(ids)] = missing
    visited: list[int] = []
    stack = [(root, -1)]
    while stack:
        span_id, parent = stack.pop()
        index = len(ids)
        visited.append(index)
        ids.append(span_id)
        parents.append(parent)
        size.append(1)
        below = children.get(span_id)
        if below is None:
            continue
        if children.keys().isdisjoint(below):
            ids += below[::-1]
            parents += [index] * len(below)
            size += [1] * len(below)
            size[index] += len(below)
        else:
            stack += [(child, index) for child in below]
    for index in reversed(visited[1:]):
        size[parents[index]] += size[index]


def _cut_circles(tree: SpanTree, frames: Mapping[bytes, Frame], children: _Children) -> None:
    """Add the spans that no root leads to: those of each circle of links, whose smallest id becomes
    a root, and those below.
    """
    unreached = set(frames).difference(tree.ids)
    for start in sorted(unreached):
        if start not in unreached:
            continue
        walked: dict[bytes, None] = {}
        span_id = start
        while span_id not in walked:
            walked[span_id] = None
            span_id = frames[span_id][0]
        order = list(walked)
        root = min(order[order.index(span_id) :])
        first = len(tree.ids)
        parent = frames[root][0]
        children[parent].remove(root)  # opens the circle: it is a tree now
        _add(tree, root, parent, children)
        unreached.difference_update(tree.ids[first:])
