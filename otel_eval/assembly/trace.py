"""One trace in assembly: its spans, what was evaluated of them, and its trees."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from math import inf
from typing import Any, Final, NamedTuple

from otel_eval.assembly.evidence import NOTHING, evidence_of, joined
from otel_eval.assembly.limits import Limits
from otel_eval.conventions.reader import is_local_root, parent_is_remote
from otel_eval.interfaces import (
    ClosedTrace,
    EvaluationHistory,
    Frame,
    LogFrame,
    Part,
    Released,
    Role,
    SpanRoles,
)
from otel_eval.model import Completeness, Evidence
from otel_eval.span_trees import span_tree_of

SPAN_OVERHEAD_BYTES: Final = 280
"""Memory of one span beside its payload: ids, the frame's tuple, its entry in a dictionary
(measured, CPython 3.11).
"""

RUN_ROLES: Final = frozenset({Role.AGENT, Role.STEP})


class State(Enum):
    """What is held of a trace."""

    __hash__ = object.__hash__  # that of `Enum` is written in Python, and the states are keys

    NEW = "nothing"
    OPEN = "spans that are evaluated once they have rested long enough"
    WAITING = "spans that are part of no run, unless one arrives"
    PART = "as OPEN; some of its trees are closed, and wait for their evaluation"
    READY = "all spans; it is closed and waits for its evaluation"
    KEPT = "all spans; they are evaluated"
    CUT = "that a limit dropped spans of it; the others were evaluated"
    ENDED = "its id; it had a run"
    LEFT = "its id; it had a run in a process that other processes may call again"
    LATE = "the first spans that came too late"
    REPORTED = "its id; a row says that spans came too late"


class Closing(NamedTuple):
    """A closed trace and the reason, or the roots of those of its trees that are closed while the
    trace stays open.
    """

    trace_id: bytes
    reason: Completeness
    roots: tuple[bytes, ...] = ()

    @classmethod
    def of(cls, trace: ClosedTrace) -> Closing:
        """Return the closing by which this trace, or this part of one, was closed."""
        return cls(trace.trace_id, trace.reason, trace.part.roots if trace.part else ())


class Version(NamedTuple):
    """The version that is kept of a span that arrived more than once.

    Attributes:
        rank: see `rank`; stored, because the kept version may be large and is compared with each
            repetition.
        size: its payload in bytes; 0 for the version that arrived first: its size is not known and
            stays in `Trace.size`.
    """

    rank: tuple[Any, ...]
    size: int


def rank(frame: Frame) -> tuple[Any, ...]:
    """Return the sort key of a version of a span: the greatest version is kept, whatever the order
    of arrival.
    """
    parent, payload, resource_scope = frame
    return (
        *resource_scope.rank(payload),
        parent,
        resource_scope.service,
        resource_scope.scope_name,
    )


class Tree(NamedTuple):
    """A span whose parent has not arrived, with everything below it.

    Attributes:
        missing: the id of the parent; in a cycle of parents that of a span of the tree.
        has_agent: whether an agent span is in it.
        has_steps: whether an agent, model or tool span is in it that is no server's.
        is_entry: whether its root is certainly the first span of its process.
        first, last: when its first and its last span arrived.
        is_fresh: whether a span of it is new or changed since it was evaluated.
    """

    root: bytes
    missing: bytes
    ids: list[bytes]
    has_agent: bool
    has_steps: bool
    is_entry: bool
    first: float
    last: float
    is_fresh: bool

    @property
    def is_fragment(self) -> bool:
        """Whether it has steps of a run whose own span has not arrived."""
        return self.has_steps and not self.has_agent and not self.is_entry


@dataclass(slots=True, eq=False)
class Trace:
    """The record of one trace.

    Attributes:
        created: when it was opened, or opened again after it was evaluated.
        touched: when its last span arrived.
        check: when it is examined next.
        examine_by: when it is examined even if spans keep arriving.
        frames: all held spans by id.
        is_shared: whether `frames` is being evaluated, so that it is copied before it is changed.
        log_count: the number of log records in `logs`.
        versions: of spans that arrived more than once.
        size: bytes of spans and log records.
        cut: the limit that dropped spans of it, or "".
        fresh: ids of spans that are new or changed since they were evaluated; None: all, nothing
            was evaluated.
        closing: why and what of it is closed, in `PART` and `READY`.
        is_rooted: whether a span without a parent was there when it was evaluated as a whole.
        is_evicted: it was closed to make room, and is not kept.
        until: when it is forgotten.
        is_thinned: spans of it were forgotten after their evaluation.
        arrived, agents, steps: of a trace without a root, when each span arrived, which spans are
            agents' and which are agents' or other steps of a run.
        slim: of spans that were part of no run when their tree rested, whether they are held
            without their attributes.
        parents: the missing parents of evaluated trees with runs.
        lost: those of them whose trees were forgotten.
        forgotten: the evidence of spans that are no longer held.
    """

    trace_id: bytes
    state: State
    created: float
    touched: float
    check: float = inf
    examine_by: float = inf
    frames: dict[bytes, Frame] = field(default_factory=dict)
    is_shared: bool = False
    logs: dict[bytes, dict[LogFrame, None]] = field(default_factory=dict)
    log_count: int = 0
    versions: dict[bytes, Version] = field(default_factory=dict)
    size: int = 0
    cut: str = ""
    fresh: set[bytes] | None = None
    history: EvaluationHistory = field(default_factory=EvaluationHistory)
    closing: Closing | None = None
    is_rooted: bool = False
    is_evicted: bool = False
    until: float = inf
    is_thinned: bool = False
    arrived: dict[bytes, float] = field(default_factory=dict)
    agents: set[bytes] = field(default_factory=set)
    steps: set[bytes] = field(default_factory=set)
    slim: dict[bytes, bool] = field(default_factory=dict)
    parents: dict[bytes, None] = field(default_factory=dict)
    lost: dict[bytes, None] = field(default_factory=dict)
    forgotten: Evidence = NOTHING

    def writable_frames(self) -> dict[bytes, Frame]:
        """Return `frames` for a change: a copy replaces what is being evaluated."""
        if self.is_shared:
            self.frames, self.is_shared = dict(self.frames), False
        return self.frames

    def note_change(self, span_id: bytes) -> None:
        """Note that a span is new or changed, or that a log record of it arrived."""
        self.arrived.pop(span_id, None)  # its tree has to rest again
        if self.fresh is not None:
            self.fresh.add(span_id)

    # ------------------------------------------------------------------ when it closes

    def rest(self, limits: Limits) -> tuple[float, Completeness] | None:
        """Return how long it has to rest to be closed as a whole, and the reason; None if it is
        closed tree by tree, because its root has not arrived.
        """
        frames = self.frames
        if not frames:
            return limits.idle_s, Completeness.IDLE
        missing = {frame[0] for frame in frames.values()}.difference(frames)
        if b"" not in missing:
            return None
        if len(missing) > 1:
            return limits.decision_wait_partial_s, Completeness.REMOTE_PARENT
        scopes = {frame[2] for frame in frames.values()}  # far fewer than spans
        services = {scope.service for scope in scopes} if len(scopes) > 1 else scopes
        wait = limits.decision_wait_s if len(services) == 1 else limits.decision_wait_partial_s
        return wait, Completeness.COMPLETE

    def is_over(self) -> bool:
        """Whether its root or a local root has arrived: what is missing of it has ended, too."""
        frames = self.frames
        return any(is_local_root(frame) for frame in frames.values() if frame[0] not in frames)

    # ----------------------------------------------------------------------- trees

    def trees(self, roles: SpanRoles) -> list[Tree]:
        """Return the trees, and note when spans arrived and which of them are steps of a run.

        Spans get the arrival time of the last span of the trace, which may be too late and never
        too early.
        """
        arrived, frames = self.arrived, self.frames
        if len(arrived) < len(frames):
            for span_id in frames.keys() - arrived.keys():
                arrived[span_id] = self.touched
                role = Role.PLAIN if self.slim.get(span_id) else roles.role_of(frames[span_id])
                self.agents.add(span_id) if role is Role.AGENT else self.agents.discard(span_id)
                self.steps.add(span_id) if role in RUN_ROLES else self.steps.discard(span_id)
        forest = span_tree_of(frames)
        ends = [*forest.roots[1:], len(forest.ids)]
        return [
            self._tree(forest.ids[root:end], forest.missing[root])
            for root, end in zip(forest.roots, ends, strict=True)
        ]

    def _tree(self, ids: list[bytes], missing: bytes) -> Tree:
        times = [self.arrived[span_id] for span_id in ids]
        return Tree(
            root=ids[0],
            missing=missing,
            ids=ids,
            has_agent=not self.agents.isdisjoint(ids),
            has_steps=not self.steps.isdisjoint(ids),
            is_entry=is_local_root(self.frames[ids[0]]),
            first=min(times),
            last=max(times),
            is_fresh=self.fresh is None or not self.fresh.isdisjoint(ids),
        )

    def is_open_question(self, tree: Tree) -> bool:
        """Whether the last evaluation of a tree may change although no span of it did: its run was
        incomplete, or it was a run only because no agent was known.
        """
        evaluations = [
            last
            for span_id in (*tree.ids, tree.missing)
            if (last := self.history.last(span_id)) is not None
        ]
        is_replaced = bool(self.agents) and not tree.has_agent
        return any(last.incomplete or (is_replaced and last.outermost) for last in evaluations)

    def share_of(self, spans: int) -> int:
        """Estimate the bytes of a number of spans as their share of all, and forget the sizes of
        single versions.
        """
        self.versions.clear()
        return self.size * spans // max(1, len(self.frames))

    def drop(self, tree: Tree) -> int:
        """Drop the spans of a tree, but not the evaluations of its runs; return its estimated
        bytes.
        """
        size, frames = self.share_of(len(tree.ids)), self.writable_frames()
        self.forgotten = joined(self.forgotten, evidence_of(tree.ids))
        if tree.has_steps or not self.lost.keys().isdisjoint(tree.ids):
            self.lost[tree.missing] = None
            self.is_thinned = True
        for span_id in tree.ids:
            del frames[span_id]
            self.arrived.pop(span_id, None)
            self.slim.pop(span_id, None)
            self.log_count -= len(self.logs.pop(span_id, ()))
        for ids in (self.agents, self.steps, self.fresh or set()):
            ids.difference_update(tree.ids)
        return size

    # ------------------------------------------------------------------ for evaluation

    def released(self) -> Released:
        """Return what is known of spans that are not handed over for an evaluation."""
        return Released(
            frozenset(self.parents), frozenset(self.lost), self.is_thinned, bool(self.agents)
        )

    def whole(self, reason: Completeness, *, is_late: bool = False) -> ClosedTrace:
        """Return the trace for evaluation. Its frames are no longer changed: late spans go into
        copies.
        """
        is_part = bool(self.parents or self.is_thinned)
        return ClosedTrace(
            self.trace_id,
            self.frames,
            reason,
            logs=self._logs_of(self.logs),
            cut=self.cut,
            changed=None if self.fresh is None else frozenset(self.fresh),
            history=self.history,
            released=self.released() if is_part else None,
            evidence=self.evidence() if is_part else None,
            is_late=is_late,
            # what remains after spans were dropped is an estimate
            bytes_at_most=self.size if self.forgotten is NOTHING else None,
        )

    def part(self, closing: Closing, trees: Sequence[Tree], chosen: Sequence[Tree]) -> ClosedTrace:
        """Return some of its trees for evaluation, with the spans that can show that a part of them
        is missing; from now on they are evaluated.
        """
        frames = self.frames
        evaluated = {span_id: frames[span_id] for tree in chosen for span_id in tree.ids}
        possible_parts = self._possible_parts(
            [tree for tree in trees if tree.root not in evaluated], chosen
        )
        if self.fresh is None:
            self.fresh = set(frames)
        changed = self.fresh & evaluated.keys()
        is_late = self.is_thinned and all(tree.is_fragment for tree in chosen)
        self.fresh -= changed
        self.parents |= dict.fromkeys([tree.missing for tree in chosen if not tree.is_fragment])
        return ClosedTrace(
            self.trace_id,
            possible_parts | evaluated,
            closing.reason,
            logs=self._logs_of({*evaluated, *possible_parts}),
            changed=frozenset(changed),
            history=self.history,
            part=Part(tuple([tree.root for tree in chosen]), frozenset(evaluated)),
            released=self.released(),
            evidence=self.evidence(),
            is_late=is_late,
        )

    def _possible_parts(self, trees: Sequence[Tree], chosen: Sequence[Tree]) -> dict[bytes, Frame]:
        """The spans of `trees` that may belong below the chosen ones: all of a tree without an
        agent, and of one with an agent its root, if its parent was in the same process.
        """
        frames, parents = self.frames, {tree.missing for tree in chosen}
        spans: dict[bytes, Frame] = {}
        for tree in trees:
            root = frames[tree.root]
            if not tree.has_agent:
                # an evaluated one with the same missing parent is a sibling, and no part
                if tree.is_fresh or {tree.missing} != parents:
                    spans.update({span_id: frames[span_id] for span_id in tree.ids})
            elif root[0] and parent_is_remote(root) is False:
                spans[tree.root] = root
        return spans

    def evidence(self) -> Evidence:
        """Return the evidence of all spans of the trace that were ever held."""
        return joined(self.forgotten, evidence_of(self.frames))

    def _logs_of(self, span_ids: Collection[bytes]) -> dict[bytes, tuple[LogFrame, ...]]:
        """Return copies of log records: more may be added while the trace is evaluated."""
        logs = self.logs
        return (
            {span_id: tuple(logs[span_id]) for span_id in span_ids if span_id in logs}
            if logs
            else {}
        )

    def make_slim(self, span_ids: Iterable[bytes], roles: SpanRoles) -> int:
        """Reduce spans that are part of no run to what shows their place and time; return the bytes
        that this frees.
        """
        frames, freed = self.writable_frames(), 0
        for span_id in span_ids:
            if span_id not in self.slim:
                before = frames[span_id]
                after = frames[span_id] = roles.slim(before)
                self.slim[span_id] = after is not before
                if isinstance(before[1], bytes):
                    freed += len(before[1]) - len(after[1])
        return freed
