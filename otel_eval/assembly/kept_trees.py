"""What is kept after an evaluation: span trees, the runs' own spans of released trees, and
tombstones of traces.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

from otel_eval.assembly.closing import Limits
from otel_eval.interfaces import Frame, LastEvaluation, Released

# kept trees may use a quarter of a trace's limits, and runs' own spans a quarter of its spans
_SHARE: Final = 4


@dataclass(slots=True, eq=False)
class KeptTree:
    """A closed tree, or the own span of a run of a released tree.

    Attributes:
        root, parent: ids of its root, and of the missing parent of its root.
        frames: its spans by id.
        size: bytes of its spans.
        first, last: when its first and its last span arrived.
        until: when it expires.
        keep_s: the seconds from its closing until it is released, and from then until its runs' own
            spans are forgotten.
    """

    root: bytes
    parent: bytes
    frames: dict[bytes, Frame]
    size: int
    first: float
    last: float
    until: float
    keep_s: float


@dataclass(slots=True)
class KeptTrees:
    """The closed trees of one trace.

    Attributes:
        trees: kept trees by the id of their root, the oldest first.
        runs: own spans of the outermost runs of released trees, by their id, the oldest first.
        tree_of: id of a span of a kept tree → id of the tree's root.
        parents: id of a missing parent of closed trees → whether spans of these trees were
            released.
        size: bytes of all trees and runs.
        final: ids of runs whose results are final: of released trees, and of all trees once the
            trace is closed as a whole.
    """

    limits: Limits
    trees: dict[bytes, KeptTree] = field(default_factory=dict)
    runs: dict[bytes, KeptTree] = field(default_factory=dict)
    tree_of: dict[bytes, bytes] = field(default_factory=dict)
    parents: dict[bytes, bool] = field(default_factory=dict)
    size: int = 0
    final: list[bytes] = field(default_factory=list)
    # missing parent → roots of the trees and runs below it
    _below: dict[bytes, dict[bytes, None]] = field(default_factory=dict)
    # runs of which only the own span is known → missing parent
    _released_runs: dict[bytes, bytes] = field(default_factory=dict)

    def add(self, tree: KeptTree) -> None:
        """Keep a tree."""
        self.tree_of.update(dict.fromkeys(tree.frames, tree.root))
        self._put(self.trees, tree)

    def _put(self, kept: dict[bytes, KeptTree], tree: KeptTree) -> None:
        kept[tree.root] = tree
        self.size += tree.size
        self._below.setdefault(tree.parent, {})[tree.root] = None

    def pop(self, root: bytes) -> KeptTree:
        """Remove and return a tree, or a run's own span."""
        tree = self.trees.pop(root, None) or self.runs.pop(root)
        self.size -= tree.size
        for each in tree.frames:
            self.tree_of.pop(each, None)
        below = self._below[tree.parent]
        del below[root]
        if not below:
            del self._below[tree.parent]
        return tree

    def below(self, span_id: bytes) -> list[bytes]:
        """Return the roots of the kept trees and runs whose parent is this span."""
        return list(self._below.get(span_id, ()))

    def add_missing_parent(self, parent: bytes, *, is_released: bool = False) -> None:
        """Note that trees below this missing parent were closed; `is_released`: spans of them were
        released.
        """
        self.parents[parent] = self.parents.get(parent, False) or is_released
        if len(self.parents) > self.limits.max_spans_per_trace:
            del self.parents[next(iter(self.parents))]

    def replace_missing_parents(self, span_ids: Iterable[bytes], parent: bytes) -> bool:
        """Replace those of the spans, which have arrived, that were missing parents with `parent`;
        False if none was missing.
        """
        found = [each for each in span_ids if each in self._below or each in self.parents]
        for each in found:
            self.add_missing_parent(parent, is_released=self.parents.pop(each, False))
        return bool(found)

    # ------------------------------------------------------------------ release

    def next_end(self) -> float:
        """Return when the next tree is released or the next run's own span is forgotten; infinity
        if none is kept.
        """
        ends = [tree.until for kept in (self.trees, self.runs) for tree in list(kept.values())[:1]]
        return min(ends, default=float("inf"))

    def expire(
        self, now: float, last_evaluations: dict[bytes, LastEvaluation]
    ) -> tuple[int, list[bytes]]:
        """Release trees and forget runs' own spans that expired or exceed the limits.

        Returns:
            The freed bytes, and the ids of the spans that were dropped.
        """
        freed, dropped = 0, list[bytes]()
        while self.trees and (self._is_over(self.trees, now) or self._is_too_much()):
            size, ids = self.release(last_evaluations)
            freed, dropped = freed + size, dropped + ids
        while self.runs and (
            self._is_over(self.runs, now)
            or len(self.runs) > self.limits.max_spans_per_trace // _SHARE
        ):
            tree = self.pop(next(iter(self.runs)))
            freed, dropped = freed + tree.size, [*dropped, tree.root]
        for each in dropped:
            self._released_runs.pop(each, None)
        return freed, dropped

    def _is_over(self, kept: Mapping[bytes, KeptTree], now: float) -> bool:
        return next(iter(kept.values())).until <= now

    def _is_too_much(self) -> bool:
        limits = self.limits
        return (
            len(self.tree_of) > limits.max_spans_per_trace // _SHARE
            or self.size > limits.max_bytes_per_trace // _SHARE
        )

    def release(self, last_evaluations: Mapping[bytes, LastEvaluation]) -> tuple[int, list[bytes]]:
        """Keep only the outermost runs' own spans of the oldest tree; returns the same as
        `expire`.
        """
        tree = self.pop(next(iter(self.trees)))
        runs = [
            each
            for each in tree.frames
            if (last := last_evaluations.get(each)) is not None and last.outermost
        ]
        size = tree.size // len(tree.frames)
        for run in runs:
            frame = (tree.parent, *tree.frames[run][1:])
            until = tree.until + tree.keep_s
            self._put(
                self.runs,
                KeptTree(
                    run, tree.parent, {run: frame}, size, tree.first, tree.last, until, tree.keep_s
                ),
            )
        self.finish(tree, last_evaluations)
        self._released_runs.update(dict.fromkeys(runs, tree.parent))
        self._reparent_below(tree)
        self.add_missing_parent(tree.parent, is_released=True)
        return tree.size - size * len(runs), [each for each in tree.frames if each not in self.runs]

    def finish(self, tree: KeptTree, last_evaluations: Mapping[bytes, LastEvaluation]) -> None:
        """Note that the results of the tree's runs are final."""
        self.final += [each for each in tree.frames if each in last_evaluations]

    def restore_released(self, parents: Mapping[bytes, bool], runs: Mapping[bytes, bytes]) -> None:
        """Restore after a restart what `released` returned: the kept tree of each run is its own
        span, below a missing parent.
        """
        for run, parent in runs.items():
            if run in self.trees:
                tree = self.pop(run)
                tree.parent, tree.frames = parent, {run: (parent, *tree.frames[run][1:])}
                self._put(self.runs, tree)
                self._released_runs[run] = parent
        self.parents.update(parents)

    def _reparent_below(self, released: KeptTree) -> None:
        """Attach the trees and runs below spans of a released tree to the missing parent of that
        tree.
        """
        for span_id in released.frames:
            for root in self._below.pop(span_id, ()):
                tree = self.trees.get(root) or self.runs[root]
                tree.parent, tree.frames[root] = (
                    released.parent,
                    (released.parent, *tree.frames[root][1:]),
                )
                self._below.setdefault(released.parent, {})[root] = None
                if root in self.runs:
                    self._released_runs[root] = released.parent

    def released(self) -> Released | None:
        """Return the missing parents of closed trees, and the runs of released ones; None if no
        tree was closed.
        """
        if not self.parents:
            return None
        lost = frozenset([parent for parent, is_released in self.parents.items() if is_released])
        return Released(frozenset(self.parents), lost, dict(self._released_runs))


_ID: Final = 16  # bytes of a trace id


class Tombstones:
    """Ids of traces of which nothing else is kept, each until an instant.

    At most `most` recent and `most` compacted ids are held; the oldest are dropped first.
    """

    def __init__(self, most: int) -> None:
        self._most: Final = most
        self._recent = OrderedDict[bytes, float]()  # in the order in which they expire
        self._ids = b""  # compacted ids in ascending order
        self._until: array[float] = array("d")

    def add(self, trace_id: bytes, until: float) -> None:
        """Hold an id until an instant."""
        self._recent[trace_id] = until
        if len(self._recent) > self._most:
            self._recent.popitem(last=False)

    def holds(self, trace_id: bytes, now: float) -> bool:
        """Whether the id is held at this instant; recent ids expire only in `expire`."""
        if trace_id in self._recent or not self._ids:
            return trace_id in self._recent
        place = bisect_left(range(len(self._until)), trace_id, key=self._id)
        return place < len(self._until) and self._id(place) == trace_id and self._until[place] > now

    def _id(self, place: int) -> bytes:
        return self._ids[place * _ID : (place + 1) * _ID]

    def expire(self, now: float) -> None:
        """Drop recent ids that have expired; amortised O(1)."""
        while self._recent and (first := next(iter(self._recent.items())))[1] <= now:
            del self._recent[first[0]]

    def items(self) -> Iterator[tuple[bytes, float]]:
        """Yield every id and until when it is held; an id that was added again may be yielded
        twice, the later instant last.
        """
        yield from ((self._id(place), until) for place, until in enumerate(self._until))
        yield from self._recent.items()

    def compact(self, now: float) -> None:
        """Move the recent ids into the compacted block and drop expired ids; O(n log n)."""
        kept = {trace_id: until for trace_id, until in self.items() if until > now}
        latest = sorted(islice(sorted(kept, key=kept.__getitem__, reverse=True), self._most))
        self._ids, self._until = b"".join(latest), array("d", map(kept.__getitem__, latest))
        self._recent.clear()
