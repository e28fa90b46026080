"""Span trees of a trace whose root has not arrived: when each can be evaluated, and what is kept of it afterwards.

Such a trace is divided into trees: a span whose parent has not arrived, with everything below it. A tree with an agent
span passes through these states:

* *open*: its spans stand among the trace's open frames. Each further span starts the wait anew.
* *due*: no span joined it for `decision_wait_detached_s` (`decision_wait_partial_s` where its top is a local root). It is
  handed over together with the spans that can show that something of it is missing: trees without an agent span, and tops whose
  parent is known to be a span of the same process.
* *kept*: it has left the open frames and no longer counts against the limits of the trace. A span that joins it from
  below, or an agent span that joins it from above, opens it again, which gives revisions of the runs that change.
  Other spans above it change no run and are added to it. A tree whose runs were not evaluated, because a span may be
  missing, is open and due again at the next look; `idle_s` after its last span it is evaluated as it is.
* *released*: when `keep_s` are over (`grace_period_s` where its top is a local root), or what is kept of the trace grows too
  large, only the outermost runs' own spans
  stay, directly below the parent that the tree lacks. An enclosing agent that arrives still makes them inner runs; it is
  itself incomplete. After as long again these go too, and of the tree only the id of the missing parent is known.

Trees without an agent span stay open, since what comes from the same place may be a part of some run. They are given up
`max_age_s` after their first span. Every tree is handed over when the whole trace had no span for `idle_s`, or for
`decision_wait_partial_s` if the top of one of them is a local root. What hangs beside a kept tree,
from the same missing parent, is added to that tree after `decision_wait_detached_s`.

When a span arrived is known as exactly as the trace is looked at, and never taken for earlier than it was.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Final, NamedTuple

from otel_eval.assembly.closing import NOTHING, BufferCounts, Closing, Limits, Logs, Version, evidence_of, joined, listed, rank
from otel_eval.assembly.kept_trees import KeptTree, KeptTrees
from otel_eval.conventions.reader import is_local_root, parent_is_remote
from otel_eval.interfaces import ClosedTrace, Frame, LastEvaluation, Part
from otel_eval.model import Completeness, Evidence

# What one span costs beside its payload: ids, the frame's tuple, its place in a dictionary (measured, CPython 3.11).
SPAN_OVERHEAD_BYTES: Final = 280


@dataclass(slots=True, eq=False)
class OpenTrace:
    """What is held of one trace."""

    touched: float
    created: float
    check: float  # when it is looked at next
    check_number: int = 0  # of the entry for that
    frames: dict[bytes, Frame] = field(default_factory=dict)
    logs: Logs = field(default_factory=dict)
    records: int = 0  # in `logs`
    versions: dict[bytes, Version] = field(default_factory=dict)  # of spans that arrived more than once
    size: int = 0  # of what is open and what is kept
    cut: str = ""
    changed: set[bytes] | None = None
    last_evaluations: dict[bytes, LastEvaluation] = field(default_factory=dict)
    look: float = inf  # when its trees are looked at, however many spans arrive
    trees: SpanTrees | None = None

    @property
    def kept_bytes(self) -> int:
        """Of `size`, what is kept of trees that were evaluated."""
        return 0 if self.trees is None else self.trees.kept.size


class _Subtree(NamedTuple):
    """An open tree, and when its spans arrived."""

    top: bytes
    ids: list[bytes]
    has_agent: bool
    first: float
    last: float


def trees_of(frames: Mapping[bytes, Frame]) -> dict[bytes, list[bytes]]:
    """Top → ids of its tree. Links that run in a circle make a tree whose top is the smallest id on the circle."""
    top_of: dict[bytes, bytes] = {}
    trees: dict[bytes, list[bytes]] = {}
    for start in frames:
        chain: list[bytes] = []
        at = start
        while at in frames and at not in top_of:
            top_of[at] = b""  # until the top is known
            chain.append(at)
            at = frames[at][0]
        if chain:
            top = top_of.get(at, chain[-1]) or min(chain[chain.index(at) :])
            top_of.update(dict.fromkeys(chain, top))
            trees.setdefault(top, []).extend(chain)
    return trees


@dataclass(slots=True)
class SpanTrees:
    """The trees of one open trace.

    Attributes:
        looked, next_look: the instants of the last look, and of the next one if nothing arrives.
        kept: the trees that were handed over.
    """

    limits: Limits
    counts: BufferCounts
    is_agent: Callable[[Frame], bool]
    looked: float
    next_look: float = 0.0
    kept: KeptTrees = field(init=False)
    _known: set[bytes] = field(default_factory=set)  # open spans that were handed over before
    _arrived: dict[bytes, float] = field(default_factory=dict)  # open span → when
    _agents: set[bytes] = field(default_factory=set)
    _evaluated: Evidence = NOTHING  # of all spans that were handed over
    _handed: list[bytes] = field(default_factory=list)  # tops of trees of which perhaps some run was not evaluated

    def __post_init__(self) -> None:
        self.kept = KeptTrees(self.limits)

    # ------------------------------------------------------------------ look

    def look(self, trace: OpenTrace, now: float) -> tuple[dict[Completeness, list[bytes]], float]:
        """The tops of trees that are due, by why these are evaluated now, and when to look next if nothing arrives."""
        self.looked = now
        self._free(trace, *self.kept.expire(now, trace.last_evaluations))
        due: dict[Completeness, list[bytes]] = {}
        following = [self.kept.next_end()]
        trees = self._read(trace)
        rest = self._rest(trace, trees)
        for tree in trees:
            when, reason = min(self._deadline(tree, trace, now), rest)
            if when <= now:
                due.setdefault(reason, []).append(tree.top)
            else:
                following.append(when)
        return due, min(following)

    def agent_trees(self, trace: OpenTrace) -> tuple[bytes, ...]:
        """The tops of all open trees with an agent span."""
        return tuple([tree.top for tree in self._read(trace) if tree.has_agent])

    def has_agents(self, trace: OpenTrace) -> bool:
        """Whether the trace has, or had, an agent span."""
        self._note(trace)
        return bool(self._agents or self.kept.parents)

    def _rest(self, trace: OpenTrace, trees: list[_Subtree]) -> tuple[float, Completeness]:
        """When all trees are handed over, as the trace had no span for so long, and why."""
        if any(is_local_root(trace.frames[tree.top]) for tree in trees):
            return trace.touched + self.limits.decision_wait_partial_s, Completeness.REMOTE_PARENT
        return trace.touched + self.limits.idle_s, Completeness.IDLE

    def _deadline(self, tree: _Subtree, trace: OpenTrace, now: float) -> tuple[float, Completeness]:
        """When the tree is to be handed over if nothing joins it, and why."""
        limits = self.limits
        aged = (tree.first + limits.max_age_s, Completeness.AGED)
        if not tree.has_agent:
            return aged
        last = min(aged, (tree.last + limits.idle_s, Completeness.IDLE))
        if last[0] <= now:
            return last
        wait = limits.decision_wait_partial_s if is_local_root(trace.frames[tree.top]) else limits.decision_wait_detached_s
        return min((tree.last + wait, Completeness.DETACHED), last)

    def _read(self, trace: OpenTrace) -> list[_Subtree]:
        """The open trees, after new spans were joined to what is kept."""
        self._open_unevaluated(trace)
        self._note(trace)
        trees = []
        for top, ids in trees_of(trace.frames).items():
            has_agent = not self._agents.isdisjoint(ids)
            if has_agent:
                self._open_hanging(trace, ids)
            times = [self._arrived[each] for each in ids]
            tree = _Subtree(top, ids, has_agent, min(times), max(times))
            if has_agent or not self._is_beside(trace, tree):
                trees.append(tree)
            else:
                self._keep(trace, tree, self.looked)
        return trees

    # ------------------------------------------------------- what has arrived

    def _note(self, trace: OpenTrace) -> None:
        """Look at the spans that arrived since the last look."""
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
        """A span of a kept tree arrived again: of two versions the greater counts."""
        self.counts.spans_duplicate += 1
        top = self.kept.tree_of[span_id]
        earlier = self.kept.trees[top].frames[span_id]
        if rank(frame) > rank(earlier):
            self._open(trace, top)
            trace.frames[span_id] = frame
            self._known.discard(span_id)
        else:
            trace.size -= self._share(trace, 1)
            del trace.frames[span_id]

    def _drop(self, trace: OpenTrace, span_id: bytes) -> None:
        """Forget a span whose run's other spans are gone."""
        trace.size -= self._share(trace, 1)
        del trace.frames[span_id]
        self.counts.spans_too_late += 1

    def _is_beside(self, trace: OpenTrace, tree: _Subtree) -> bool:
        """Whether a tree without an agent stands above what is kept, or has stood beside it long enough."""
        parent = trace.frames[tree.top][0]
        if self.kept.pass_up(tree.ids, parent):
            return True
        return parent in self.kept.parents and tree.last + self.limits.decision_wait_detached_s <= self.looked

    def _open_hanging(self, trace: OpenTrace, ids: list[bytes]) -> None:
        """Open what hangs from the spans of a tree with an agent, and from what hangs there: it belongs to the tree."""
        for span_id in ids:  # which grows meanwhile
            for top in self.kept.hanging(span_id):
                ids += self._open(trace, top)

    def note_log(self, trace: OpenTrace, span_id: bytes) -> None:
        """A log record of the span arrived: if the span is kept, its runs change."""
        if span_id in self.kept.tree_of:
            self._open(trace, self.kept.tree_of[span_id])
            self._known.discard(span_id)

    # -------------------------------------------------------- between the states

    def _keep(self, trace: OpenTrace, tree: _Subtree, now: float) -> None:
        """Move an open tree to the kept ones."""
        size, parent = self._share(trace, len(tree.ids)), trace.frames[tree.top][0]
        # What encloses a local root is in another process, whose spans arrive within `grace_period_s`.
        keep_s = (
            min(self.limits.grace_period_s, self.limits.keep_s) if is_local_root(trace.frames[tree.top]) else self.limits.keep_s
        )
        frames = {each: trace.frames.pop(each) for each in tree.ids}
        for each in tree.ids:
            del self._arrived[each]
        self._evaluated = joined(self._evaluated, evidence_of([each for each in tree.ids if each not in self._known]))
        self._known.difference_update(tree.ids)
        self.kept.add(KeptTree(tree.top, parent, frames, size, tree.first, tree.last, now + keep_s, keep_s))

    def _open(self, trace: OpenTrace, top: bytes) -> list[bytes]:
        """Move a tree, or a run's own span, back to the open frames; the ids of its spans."""
        tree = self.kept.take(top)
        self._arrived.update(dict.fromkeys(tree.frames, trace.touched))
        self._known.update(tree.frames)
        trace.frames.update(tree.frames)
        return list(tree.frames)

    def open_all(self, trace: OpenTrace) -> None:
        """Move everything back to the open frames, because the trace as a whole is closed."""
        self._note(trace)
        for tree in self.kept.trees.values():
            self.kept.finish(tree, trace.last_evaluations)
        for top in [*self.kept.trees, *self.kept.runs]:
            self._open(trace, top)

    def _open_unevaluated(self, trace: OpenTrace) -> None:
        """Open the trees that were handed over and have a run that was put off; they are as old as they were."""
        handed, self._handed = self._handed, []
        for top in handed:
            if (tree := self.kept.trees.get(top)) is None:
                continue
            revisions = [trace.last_evaluations[each].revision for each in tree.frames if each in trace.last_evaluations]
            if not revisions:
                self._handed.append(top)  # it is being evaluated
            elif min(revisions) < 0:
                self._open(trace, top)
                self._arrived.update(dict.fromkeys(tree.frames, tree.last))
                self._arrived[top] = tree.first

    def give_up(self, trace: OpenTrace) -> None:
        """Forget all that is kept."""
        self._free(trace, *self.kept.expire(float("inf"), trace.last_evaluations))

    def _free(self, trace: OpenTrace, size: int, gone: list[bytes]) -> None:
        trace.size -= size
        self._agents.difference_update(gone)
        for each in gone:
            trace.last_evaluations.pop(each, None)
            trace.records -= len(trace.logs.pop(each, ()))

    def _share(self, trace: OpenTrace, spans: int) -> int:
        """About the bytes of so many open spans that are taken out, as a share: sizes are known of few, and are forgotten."""
        trace.versions.clear()
        return (trace.size - self.kept.size) * spans // max(1, len(trace.frames))

    # ---------------------------------------------------------------- hand over

    def hand_over(self, trace: OpenTrace, closing: Closing, now: float) -> ClosedTrace | None:
        """Move the due trees to the kept ones; the part of the trace by which their runs are evaluated."""
        self._free(trace, *self.kept.expire(now, trace.last_evaluations))
        trees = self._read(trace)
        tops = set(closing.tops)  # after a restart one may lie within a tree
        chosen = [tree for tree in trees if tree.top in tops or not tops.isdisjoint(tree.ids)]
        if not chosen:
            return None
        own = {each: trace.frames[each] for tree in chosen for each in tree.ids}
        others = self._evidence(trace, [tree for tree in trees if tree.top not in own])
        changed = frozenset(own.keys() - self._known)
        for tree in chosen:
            self.kept.remember(trace.frames[tree.top][0])
            self._keep(trace, tree, now)
        self._handed += [tree.top for tree in chosen]
        self.counts.parts_closed += len(chosen)
        part, released = Part(tuple([tree.top for tree in chosen]), frozenset(own)), self.kept.released()
        frames, evidence = others | own, self.evidence(trace)
        logs = listed(trace.logs, frames)
        return ClosedTrace(
            closing.trace_id, frames, closing.reason, logs, "", changed, trace.last_evaluations, part, released, evidence
        )

    def _evidence(self, trace: OpenTrace, trees: list[_Subtree]) -> dict[bytes, Frame]:
        """Spans of other trees that can show that something of a run is missing."""
        frames = trace.frames
        found = {each: frames[each] for tree in trees if not tree.has_agent for each in tree.ids}
        tops = [(tree.top, frames[tree.top]) for tree in trees if tree.has_agent]
        tops += [(tree.top, tree.frames[tree.top]) for tree in self.kept.trees.values()]
        return found | {top: frame for top, frame in tops if frame[0] and parent_is_remote(frame) is False}

    def whole(self, trace_id: bytes, trace: OpenTrace) -> ClosedTrace:
        """All that is held of the trace; what of it is kept is the part, and what is neither new nor kept is not changed."""
        kept = [*self.kept.trees.values(), *self.kept.runs.values()]
        frames = dict(trace.frames)
        for tree in kept:
            frames.update(tree.frames)
        part = Part(tuple([tree.top for tree in kept]), frozenset(frames.keys() - trace.frames.keys()))
        changed = frozenset(trace.frames.keys() - self._known)
        reason, released = Completeness.DETACHED, self.kept.released()
        logs = listed(trace.logs, frames)
        return ClosedTrace(trace_id, frames, reason, logs, "", changed, trace.last_evaluations, part, released)

    def changed(self, trace: OpenTrace) -> set[bytes] | None:
        """Open spans that were never handed over; None if nothing was."""
        return trace.frames.keys() - self._known if self._known or self.kept.parents else None

    def adopt(self, known: set[bytes]) -> None:
        """These spans were handed over before, with the whole trace."""
        self._evaluated = joined(self._evaluated, evidence_of(known - self._known))
        self._known |= known

    def evidence(self, trace: OpenTrace) -> Evidence:
        """Of all spans of the trace that were ever known here."""
        return joined(self._evaluated, evidence_of([each for each in trace.frames if each not in self._known]))
