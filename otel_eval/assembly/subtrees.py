"""Span trees of a trace whose root has not arrived: when each can be evaluated, and what is kept of
it afterwards.

Such a trace is divided into trees. The root of a tree is a span whose parent has not arrived; all
spans below it belong to the tree. A tree with an agent span passes through these states:

* *open*: its spans are among the open frames of the trace. Each further span restarts the wait.
* *due*: no span joined it for `decision_wait_detached_s` (`decision_wait_partial_s` where its root
  is a local root). It is
  closed: handed to the evaluation, together with the spans that can show that a part of it is
      missing. These are the trees
  without an agent span, and tree roots whose parent is known to be a span of the same process.
* *kept*: it has left the open frames and no longer counts against the limits of the trace. A late
  span below one of its spans, or an agent span above its root, opens it again, which gives
  revisions of the runs that change. Other spans above its root change no run and are added to the
  kept trees. A tree whose runs were deferred, because a part of them may still arrive, is opened at
  the next check and is due again; `idle_s` after its last span it is evaluated as it is.
* *released*: `keep_s` after it was closed (`grace_period_s` where its root is a local root), or
  when the kept trees of the trace grow too large, only the own spans of its outermost runs are
  kept, directly below the missing parent of the tree. An enclosing agent that arrives still makes
  them inner runs, and is itself incomplete. After the same time again these spans are dropped, and
  only the id of the missing parent is known.

Trees without an agent span stay open, since spans below the same missing parent may be a part of
some run. They are closed `max_age_s` after their first span. All trees are closed when the trace
had no span for `idle_s`, or for `decision_wait_partial_s` if the root of one of them is a local
root. A tree without an agent whose missing parent is also that of a closed tree is added to the
kept trees after `decision_wait_detached_s`.

Spans get their arrival times at the next check: that of the last span of the trace, which may be
too late and never too early.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import inf
from operator import is_, itemgetter
from typing import Final, NamedTuple

from otel_eval.assembly.closing import (
    NOTHING,
    BufferCounts,
    Closing,
    Limits,
    Logs,
    Version,
    evidence_of,
    joined,
    listed,
    rank,
)
from otel_eval.assembly.kept_trees import KeptTree, KeptTrees
from otel_eval.conventions.reader import is_local_root, parent_is_remote
from otel_eval.interfaces import ClosedTrace, Frame, LastEvaluation, Part
from otel_eval.model import Completeness, Evidence

# Memory of one span beside its payload: ids, the frame's tuple, its entry in a dictionary
# (measured, CPython 3.11).
SPAN_OVERHEAD_BYTES: Final = 280


@dataclass(slots=True, eq=False)
class OpenTrace:
    """The state of a trace: its spans and log records, and when it is checked next."""

    touched: float
    created: float
    check: float  # when it is checked next
    check_number: int = 0  # identifies the entry of the schedule for that check
    frames: dict[bytes, Frame] = field(default_factory=dict)
    logs: Logs = field(default_factory=dict)
    records: int = 0  # number of log records in `logs`
    # of spans that arrived more than once
    versions: dict[bytes, Version] = field(default_factory=dict)
    size: int = 0  # bytes of its spans and log records, kept trees included
    cut: str = ""
    changed: set[bytes] | None = None
    last_evaluations: dict[bytes, LastEvaluation] = field(default_factory=dict)
    tree_check: float = inf  # when its trees are checked even if spans keep arriving
    trees: SpanTrees | None = None

    @property
    def kept_bytes(self) -> int:
        """The bytes of `size` that belong to kept trees."""
        return 0 if self.trees is None else self.trees.kept.size

    @property
    def open_bytes(self) -> int:
        """The bytes of `size` that count against the limit of a trace: those that do not belong to
        kept trees.
        """
        return self.size - self.kept_bytes


class _Subtree(NamedTuple):
    """An open tree, and when its first and its last span arrived."""

    root: bytes
    ids: list[bytes]
    has_agent: bool
    first: float
    last: float


def trees_of(frames: Mapping[bytes, Frame]) -> dict[bytes, list[bytes]]:
    """Map the root of each tree to the ids of its spans. The root of a circle of parent links is
    the smallest id on it.
    """
    root_of: dict[bytes, bytes] = {}
    trees: dict[bytes, list[bytes]] = {}
    for start in frames:
        chain: list[bytes] = []
        at = start
        while at in frames and at not in root_of:
            root_of[at] = b""  # until the root is known
            chain.append(at)
            at = frames[at][0]
        if chain:
            root = root_of.get(at, chain[-1]) or min(chain[chain.index(at) :])
            root_of.update(dict.fromkeys(chain, root))
            trees.setdefault(root, []).extend(chain)
    return trees


@dataclass(slots=True)
class SpanTrees:
    """The trees of one open trace.

    Attributes:
        last_check, next_check: when the trees were checked last, and when they are checked next if
            no span arrives.
        kept: the closed trees.
        maybe_deferred: root of a closed tree whose runs may have been deferred, which the next
            check finds out → the last evaluation of each of its spans when it was closed.
    """

    limits: Limits
    counts: BufferCounts
    is_agent: Callable[[Frame], bool]
    last_check: float
    next_check: float = 0.0
    kept: KeptTrees = field(init=False)
    _known: set[bytes] = field(default_factory=set)  # open spans that were in a closed tree before
    _arrived: dict[bytes, float] = field(default_factory=dict)  # open span → when it arrived
    _agents: set[bytes] = field(default_factory=set)
    _evaluated: Evidence = NOTHING  # of all spans that were in a closed tree
    maybe_deferred: dict[bytes, list[LastEvaluation | None]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.kept = KeptTrees(self.limits)

    # ----------------------------------------------------------------- check

    def due(self, trace: OpenTrace, now: float) -> tuple[dict[Completeness, list[bytes]], float]:
        """Return the roots of the due trees by the reason to close them, and when to check again if
        no span arrives.
        """
        self.last_check = now
        self._free(trace, *self.kept.expire(now, trace.last_evaluations))
        due: dict[Completeness, list[bytes]] = {}
        following = [self.kept.next_end()]
        trees = self._read(trace)
        rest = self._idle_deadline(trace, trees)
        for tree in trees:
            # `rest` defers no run
            when, reason = min(rest, self._deadline(tree, trace, now), key=itemgetter(0))
            if when <= now:
                due.setdefault(reason, []).append(tree.root)
            else:
                following.append(when)
        return due, min(following)

    def agent_trees(self, trace: OpenTrace) -> tuple[bytes, ...]:
        """Return the roots of all open trees with an agent span."""
        return tuple([tree.root for tree in self._read(trace) if tree.has_agent])

    def has_agents(self, trace: OpenTrace) -> bool:
        """Whether the trace has, or had, an agent span."""
        self._assign_arrivals(trace)
        return bool(self._agents or self.kept.parents)

    def _idle_deadline(self, trace: OpenTrace, trees: list[_Subtree]) -> tuple[float, Completeness]:
        """Return when all trees are closed if the trace gets no further span, and the reason."""
        if any(is_local_root(trace.frames[tree.root]) for tree in trees):
            return trace.touched + self.limits.decision_wait_partial_s, Completeness.REMOTE_PARENT
        return trace.touched + self.limits.idle_s, Completeness.IDLE

    def _deadline(self, tree: _Subtree, trace: OpenTrace, now: float) -> tuple[float, Completeness]:
        """Return when the tree is closed if no span joins it, and the reason."""
        limits = self.limits
        aged = (tree.first + limits.max_age_s, Completeness.AGED)
        if not tree.has_agent:
            return aged
        last = min(aged, (tree.last + limits.idle_s, Completeness.IDLE))
        if last[0] <= now:
            return last
        wait = (
            limits.decision_wait_partial_s
            if is_local_root(trace.frames[tree.root])
            else limits.decision_wait_detached_s
        )
        return min((tree.last + wait, Completeness.DETACHED), last)

    def _read(self, trace: OpenTrace) -> list[_Subtree]:
        """Assign new spans to kept trees or open ones, and return the open trees."""
        self._open_deferred(trace)
        self._assign_arrivals(trace)
        trees = []
        for root, ids in trees_of(trace.frames).items():
            has_agent = not self._agents.isdisjoint(ids)
            if has_agent:
                self._open_below(trace, ids)
            times = [self._arrived[each] for each in ids]
            tree = _Subtree(root, ids, has_agent, min(times), max(times))
            if has_agent or not self._joins_kept(trace, tree):
                trees.append(tree)
            else:
                self._keep(trace, tree, self.last_check)
        return trees

    # --------------------------------------------------------------- arrivals

    def _assign_arrivals(self, trace: OpenTrace) -> None:
        """Process the spans that arrived since the last check."""
        frames, kept = trace.frames, self.kept
        for span_id in [each for each in frames if each not in self._arrived]:
            frame = frames[span_id]
            if span_id in kept.tree_of:
                self._replace(trace, span_id, frame)
            elif frame[0] in kept.runs or span_id in kept.runs:
                self._drop(trace, span_id)
            else:
                self._arrived[span_id] = trace.touched
                if self.is_agent(frame):
                    self._agents.add(span_id)
                if frame[0] in kept.tree_of:
                    self.counts.spans_late += 1
                    self._open(trace, kept.tree_of[frame[0]])

    def _replace(self, trace: OpenTrace, span_id: bytes, frame: Frame) -> None:
        """Handle another version of a span of a kept tree: open the tree if it is the greater one,
        else drop it.
        """
        self.counts.spans_duplicate += 1
        root = self.kept.tree_of[span_id]
        earlier = self.kept.trees[root].frames[span_id]
        if rank(frame) > rank(earlier):
            self._open(trace, root)
            trace.frames[span_id] = frame
            self._known.discard(span_id)
        else:
            trace.size -= self._share(trace, 1)
            del trace.frames[span_id]

    def _drop(self, trace: OpenTrace, span_id: bytes) -> None:
        """Drop a span of a released run: the other spans of the run are no longer known."""
        trace.size -= self._share(trace, 1)
        del trace.frames[span_id]
        self.counts.spans_too_late += 1

    def _joins_kept(self, trace: OpenTrace, tree: _Subtree) -> bool:
        """Whether to keep a tree without an agent: it encloses closed trees, or waited long enough
        below their missing parent.
        """
        parent = trace.frames[tree.root][0]
        if self.kept.replace_missing_parents(tree.ids, parent):
            return True
        return (
            parent in self.kept.parents
            and tree.last + self.limits.decision_wait_detached_s <= self.last_check
        )

    def _open_below(self, trace: OpenTrace, ids: list[bytes]) -> None:
        """Open the kept trees below the spans of a tree with an agent, and those below them, and
        add their spans to `ids`.
        """
        for span_id in ids:  # grows in the loop
            for root in self.kept.below(span_id):
                ids += self._open(trace, root)

    def note_log(self, trace: OpenTrace, span_id: bytes) -> None:
        """Note that a log record of the span arrived: the tree of a kept span is opened, because
        its runs change.
        """
        if span_id in self.kept.tree_of:
            self._open(trace, self.kept.tree_of[span_id])
            self._known.discard(span_id)

    # -------------------------------------------------------- between the states

    def _keep(self, trace: OpenTrace, tree: _Subtree, now: float) -> None:
        """Move an open tree to the kept trees."""
        size, parent = self._share(trace, len(tree.ids)), trace.frames[tree.root][0]
        # The parent of a local root is a span of another process, and those arrive within
        # `grace_period_s`.
        keep_s = (
            min(self.limits.grace_period_s, self.limits.keep_s)
            if is_local_root(trace.frames[tree.root])
            else self.limits.keep_s
        )
        frames = {each: trace.frames.pop(each) for each in tree.ids}
        for each in tree.ids:
            del self._arrived[each]
        self._evaluated = joined(
            self._evaluated, evidence_of([each for each in tree.ids if each not in self._known])
        )
        self._known.difference_update(tree.ids)
        self.kept.add(
            KeptTree(tree.root, parent, frames, size, tree.first, tree.last, now + keep_s, keep_s)
        )

    def _open(self, trace: OpenTrace, root: bytes) -> list[bytes]:
        """Move a kept tree, or a run's own span, back to the open frames; returns the ids of its
        spans.
        """
        tree = self.kept.pop(root)
        self._arrived.update(dict.fromkeys(tree.frames, trace.touched))
        self._known.update(tree.frames)
        trace.frames.update(tree.frames)
        return list(tree.frames)

    def open_all(self, trace: OpenTrace) -> None:
        """Move all kept trees and runs back to the open frames, because the whole trace is
        closed.
        """
        self._assign_arrivals(trace)
        for tree in self.kept.trees.values():
            self.kept.finish(tree, trace.last_evaluations)
        for root in [*self.kept.trees, *self.kept.runs]:
            self._open(trace, root)

    def _open_deferred(self, trace: OpenTrace) -> None:
        """Open the closed trees with a deferred run; the arrival times of their first and last span
        stay.
        """
        closed, self.maybe_deferred = self.maybe_deferred, {}
        for root, before in closed.items():
            if (tree := self.kept.trees.get(root)) is None:
                continue
            last = [trace.last_evaluations.get(each) for each in tree.frames]
            if all(map(is_, last, before)):
                self.maybe_deferred[root] = before  # its evaluation has not ended
            elif min([each.revision for each in last if each is not None], default=0) < 0:
                self._open(trace, root)
                self._arrived.update(dict.fromkeys(tree.frames, tree.last))
                self._arrived[root] = tree.first

    def drop_kept(self, trace: OpenTrace) -> None:
        """Drop all kept trees and runs."""
        self._free(trace, *self.kept.expire(float("inf"), trace.last_evaluations))

    def _free(self, trace: OpenTrace, size: int, dropped: list[bytes]) -> None:
        trace.size -= size
        self._agents.difference_update(dropped)
        for each in dropped:
            trace.last_evaluations.pop(each, None)
            trace.records -= len(trace.logs.pop(each, ()))

    def _share(self, trace: OpenTrace, spans: int) -> int:
        """Estimate the bytes of a number of open spans as their share of all, and forget the sizes
        of single versions.
        """
        trace.versions.clear()
        return trace.open_bytes * spans // max(1, len(trace.frames))

    # ---------------------------------------------------------------- closing

    def close(self, trace: OpenTrace, closing: Closing, now: float) -> ClosedTrace | None:
        """Close trees: move them to the kept ones.

        Returns:
            The part of the trace that is evaluated; None if no tree of the closing is open.
        """
        self._free(trace, *self.kept.expire(now, trace.last_evaluations))
        trees = self._read(trace)
        roots = set(closing.roots)  # after a restart one of these spans may be inside a tree
        chosen = [tree for tree in trees if tree.root in roots or not roots.isdisjoint(tree.ids)]
        if not chosen:
            return None
        own = {each: trace.frames[each] for tree in chosen for each in tree.ids}
        parents = {trace.frames[tree.root][0] for tree in chosen}
        others = self._possible_parts(
            trace, [tree for tree in trees if tree.root not in own], parents
        )
        changed = frozenset(own.keys() - self._known)
        for tree in chosen:
            self.kept.add_missing_parent(trace.frames[tree.root][0])
            if tree.has_agent:
                self.maybe_deferred[tree.root] = [
                    trace.last_evaluations.get(each) for each in tree.ids
                ]
            self._keep(trace, tree, now)
        self.counts.parts_closed += len(chosen)
        part, released = (
            Part(tuple([tree.root for tree in chosen]), frozenset(own)),
            self.kept.released(),
        )
        frames, evidence = others | own, self.evidence(trace)
        logs = listed(trace.logs, frames)
        return ClosedTrace(
            closing.trace_id,
            frames,
            closing.reason,
            logs,
            "",
            changed,
            trace.last_evaluations,
            part,
            released,
            evidence,
        )

    def _possible_parts(
        self, trace: OpenTrace, trees: list[_Subtree], parents: set[bytes]
    ) -> dict[bytes, Frame]:
        """Return the spans of other trees that can show that a part of a run is missing; `parents`
        are those of its tree.
        """
        frames = trace.frames
        found = {each: frames[each] for tree in trees if not tree.has_agent for each in tree.ids}
        roots = [(tree.root, frames[tree.root]) for tree in trees if tree.has_agent]
        for kept in self.kept.trees.values():
            roots.append((kept.root, kept.frames[kept.root]))
            # else they are siblings, and no part
            if {kept.parent} != parents and self._agents.isdisjoint(kept.frames):
                found |= kept.frames
        return found | {
            root: frame for root, frame in roots if frame[0] and parent_is_remote(frame) is False
        }

    def snapshot(self, trace_id: bytes, trace: OpenTrace) -> ClosedTrace:
        """Return all spans held of the trace; `changed` are the open ones that were in no closed
        tree.
        """
        self._assign_arrivals(trace)  # of a kept span another version may have arrived
        frames = dict(trace.frames)
        for tree in [*self.kept.trees.values(), *self.kept.runs.values()]:
            frames.update(tree.frames)
        changed = frozenset(trace.frames.keys() - self._known)
        reason, released = Completeness.DETACHED, self.kept.released()
        logs = listed(trace.logs, frames)
        return ClosedTrace(
            trace_id, frames, reason, logs, "", changed, trace.last_evaluations, None, released
        )

    def changed(self, trace: OpenTrace) -> set[bytes] | None:
        """Return the open spans that were never in a closed tree; None if no tree was closed."""
        return trace.frames.keys() - self._known if self._known or self.kept.parents else None

    def mark_evaluated(self, known: set[bytes]) -> None:
        """Note that these spans were evaluated before, when the whole trace was closed."""
        self._evaluated = joined(self._evaluated, evidence_of(known - self._known))
        self._known |= known

    def evidence(self, trace: OpenTrace) -> Evidence:
        """Return the evidence of all spans of the trace that were ever held, those that were
        dropped since included.
        """
        return joined(
            self._evaluated, evidence_of([each for each in trace.frames if each not in self._known])
        )
