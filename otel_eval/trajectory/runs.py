"""Which spans are agent runs, and whether the evidence of each is complete.

What closed the trace does not matter here: a run is evaluated if its own span arrived and nothing
is known to be missing below it. The reasons given name no content.

A span whose parent never arrived (an orphan) makes a run incomplete if it may belong below that
run. It does not if it certainly belongs elsewhere:

* it is the run, or one of its ancestors;
* its parent is in another process (by its flags, or without flags because the span serves or
  consumes): then that parent is no span of the run's own process;
* its missing parent is also that of the run's own tree: they are siblings;
* it started before the run did, or after it had ended;
* it has no flags and its tree holds an agent span: it is an agent that another service called;
* it has no flags, it belongs to another service, and its tree holds neither model nor tool span:
  nothing that could be missing from the run.

A tool call is no agent run: neither a tool span that is a local root, nor an MCP server's tool
spans in a tree without an agent or a model call. Each of these is a call by itself.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum

from otel_eval.conventions.reader import is_mcp_server, parent_is_remote
from otel_eval.model import Kind, Trajectory
from otel_eval.records import record
from otel_eval.span_trees import holds, within
from otel_eval.trajectory.classify import ClassifiedTrace

CUT = "a parent of spans within the run never arrived"
NEVER_ARRIVED = "the run's own span never arrived"
RELEASED = "a run within it was evaluated and forgotten before the run's own span arrived"
# Each run lists its spans, so runs within runs without end would cost the square of the trace.
MAX_NESTED = 64


class Origin(Enum):
    """Where a tree comes from."""

    ROOT = "no parent"
    REMOTE = "its parent is in another process"
    LOST = "its parent is a span of the same process that did not arrive"
    UNKNOWN = (
        "its parent did not arrive; without flags it may be a span of this process or of"
        " another one"
    )


@record
class Candidate:
    """A run: a range of indexes.

    Attributes:
        first, last: the range of its subtree; `first` is the run's own span, unless that never
            arrived.
        span_id: the id of the run's own span, or the parent that its fragments name.
        incomplete: "" or why it cannot be evaluated.
        outermost: no other run encloses it.
        origin: where the tree comes from that it is in.
        fragment: its own span is not there.
        other_ranges: ranges of further fragments that belong to the same missing run.
    """

    first: int
    last: int
    span_id: bytes
    incomplete: str = ""
    outermost: bool = True
    origin: Origin = Origin.ROOT
    fragment: bool = False
    other_ranges: tuple[tuple[int, int], ...] = ()

    @property
    def ranges(self) -> tuple[tuple[int, int], ...]:
        """The ranges of all its indexes."""
        return ((self.first, self.last), *self.other_ranges)


@record
class _Tree:
    """What `find_runs` uses of one tree of spans.

    Attributes:
        root, last: the range of its indexes.
        missing: the id of the root's parent that did not arrive; b"" if the root has none.
        start: when the root started, in Unix nanoseconds.
        agents: it has an agent span.
        content: it has a model or tool span.
        calls: if it is no agent run, the indexes of its calls; see `_lone_calls`.
    """

    root: int
    last: int
    missing: bytes
    origin: Origin
    start: int
    service: str
    agents: bool
    content: bool
    calls: tuple[int, ...]


@record
class _Orphans:
    """Start times of orphans that may make runs incomplete: all of them, and by missing parent."""

    starts: list[int] = field(default_factory=list)
    by_parent: dict[bytes, list[int]] = field(default_factory=dict)

    def add(self, tree: _Tree) -> None:
        self.starts.append(tree.start)
        self.by_parent.setdefault(tree.missing, []).append(tree.start)

    def sort(self) -> _Orphans:
        self.starts.sort()
        for starts in self.by_parent.values():
            starts.sort()
        return self

    def within(self, first: int, last: int, but: bytes) -> bool:
        """Whether one of them started in the interval and has another missing parent than `but`."""
        return _count(self.starts, first, last) > _count(self.by_parent.get(but, []), first, last)


def _count(starts: list[int], first: int, last: int) -> int:
    return bisect_right(starts, last) - bisect_left(starts, first)


def find_runs(spans: ClassifiedTrace) -> list[Candidate]:
    """The runs of the trace, and the tool calls that belong to none, in no particular order."""
    roots = spans.tree.roots
    if len(roots) == 1 and not spans.tree.missing[roots[0]]:
        return _find_runs_of_single_tree(spans)
    trees = [_describe_tree(spans, root) for root in roots]
    calls = {index for tree in trees for index in tree.calls}
    indexes = [
        index for index in _addressable(spans) or _local_roots(spans, trees) if index not in calls
    ]
    strong, weak = _orphans(trees)
    by_root = {tree.root: tree for tree in trees}
    candidates = []
    for index in (*indexes, *sorted(calls)):
        tree = by_root[spans.tree.root_of(index)]
        cut = (
            spans.trace.cut
            or _released(spans, index)
            or (CUT if _is_cut(spans, index, tree, strong, weak) else "")
        )
        is_former = index not in calls and _is_former(spans, index)
        outermost = spans.enclosing_agent[index] < 0 and not is_former
        candidates.append(
            Candidate(index, spans.end(index), spans.tree.ids[index], cut, outermost, tree.origin)
        )
    runs, run_indexes = candidates[: len(indexes)], set(indexes)
    fragments = [tree for tree in trees if _is_fragment(tree) and tree.root not in run_indexes]
    lost = _lost_run(spans, fragments, runs, by_root)
    return [*candidates, lost] if lost is not None else candidates


def roots_of(spans: ClassifiedTrace) -> list[tuple[int, bytes, str]]:
    """The index of each root, the id of its parent that did not arrive (b"" if it has none), and
    where the root comes from.
    """
    trees = [_describe_tree(spans, root) for root in spans.tree.roots]
    return [(tree.root, tree.missing, tree.origin.value) for tree in trees]


def _find_runs_of_single_tree(spans: ClassifiedTrace) -> list[Candidate]:
    """The result of `find_runs` for a trace that is one tree with a true root, as nearly every
    trace is, so that no parent is missing.

    The runs are agent spans, also those within others, and former runs; in a trace without any the
    root, if there are model or tool spans.
    """
    ids, size, enclosing_agent, cut = (
        spans.tree.ids,
        spans.tree.size,
        spans.enclosing_agent,
        spans.trace.cut,
    )
    calls = dict.fromkeys(_lone_calls(spans, 0, spans.end(0)))
    has_content = bool(spans.models or spans.tools)
    indexes = _addressable(spans) or (
        [0] if has_content and not calls and not _has_agents(spans) else []
    )
    indexes = [index for index in indexes if index not in calls]
    return [
        Candidate(
            index,
            index + size[index],
            ids[index],
            cut or _released(spans, index),
            enclosing_agent[index] < 0 and (index in calls or not _is_former(spans, index)),
        )
        for index in (*indexes, *calls)
    ]


def _lone_calls(spans: ClassifiedTrace, root: int, last: int) -> tuple[int, ...]:
    """The calls of a tree that belong to no agent run: its root, or those of an MCP server.

    Empty if the tree is an agent run or part of one.
    """
    if spans.kinds[root] is Kind.TOOL:
        return (root,)
    if holds(spans.agents, root, last) or holds(spans.models, root, last):
        return ()
    calls: list[int] = []
    until = root  # the end of the calls so far: what lies below one is part of it
    for index in within(spans.tools, root, last):
        if index >= until:
            if not is_mcp_server(spans.readers[index]):
                return ()
            calls.append(index)
            until = spans.end(index)
    return tuple(calls)


def _released(spans: ClassifiedTrace, index: int) -> str:
    """Why a run is incomplete, if spans below it were released before; else ""."""
    released = spans.trace.released
    if released is None or not released.lost:
        return ""
    span_ids = spans.tree.ids[index : spans.end(index)]
    return "" if released.lost.isdisjoint(span_ids) else RELEASED


def _has_agents(spans: ClassifiedTrace) -> bool:
    """Whether an agent span is known in the trace, here or among its other spans."""
    released = spans.trace.released
    return bool(spans.agents) or (released is not None and released.has_agents)


def _local_roots(spans: ClassifiedTrace, trees: list[_Tree]) -> list[int]:
    """The runs of a trace without an agent span, and former runs."""
    if _has_agents(spans):
        return _former_runs(spans)
    return [
        tree.root
        for tree in trees
        if tree.content and not tree.calls and _is_local_root(spans, tree, alone=len(trees) == 1)
    ]


def _addressable(spans: ClassifiedTrace) -> list[int]:
    """The agent spans that are runs of their own, and former runs; deeper ones only belong to those
    that enclose them.
    """
    agents = spans.agents
    if len(agents) > MAX_NESTED:
        depth: dict[int, int] = {}
        for index in agents:
            depth[index] = depth.get(spans.enclosing_agent[index], 0) + 1
        agents = [index for index in agents if depth[index] <= MAX_NESTED]
    return agents + _former_runs(spans) if agents and spans.trace.history.runs else agents


def _former_runs(spans: ClassifiedTrace) -> list[int]:
    """The spans that were evaluated as runs because no agent span was there."""
    last = spans.trace.history.evaluations
    indexes = [index for index, kind in enumerate(spans.kinds) if kind is not Kind.AGENT]
    evaluated = [(index, last.get(spans.tree.ids[index])) for index in indexes]
    return [index for index, before in evaluated if before is not None and before.outermost]


def _is_former(spans: ClassifiedTrace, index: int) -> bool:
    return spans.kinds[index] is not Kind.AGENT and _has_agents(spans)


def _describe_tree(spans: ClassifiedTrace, root: int) -> _Tree:
    """Return what `find_runs` uses of the tree with this root."""
    last = spans.end(root)
    missing = spans.tree.missing[root]
    origin = _origin(spans, root) if missing else Origin.ROOT
    is_local = origin is Origin.ROOT or origin is Origin.REMOTE
    return _Tree(
        root=root,
        last=last,
        missing=missing,
        origin=origin,
        start=spans.starts[root],
        service=spans.resource_scopes[root].service,
        agents=holds(spans.agents, root, last),
        content=holds(spans.tools, root, last) or holds(spans.models, root, last),
        calls=_lone_calls(spans, root, last) if is_local else (),
    )


def _origin(spans: ClassifiedTrace, root: int) -> Origin:
    remote = parent_is_remote(spans.trace.frames[spans.tree.ids[root]], spans.readers[root])
    if remote is None:
        return Origin.UNKNOWN
    return Origin.REMOTE if remote else Origin.LOST


def _is_local_root(spans: ClassifiedTrace, tree: _Tree, *, alone: bool) -> bool:
    """Whether the root of a tree without agents is a run's own span."""
    if tree.origin is Origin.UNKNOWN:
        return alone and spans.kinds[tree.root] is Kind.OTHER
    return tree.origin is not Origin.LOST


def _orphans(trees: Iterable[_Tree]) -> tuple[_Orphans, dict[str, _Orphans]]:
    """Orphans that may make any run incomplete, and by service those that may affect only runs of
    their own service.
    """
    strong = _Orphans()
    weak: dict[str, _Orphans] = {}
    for tree in trees:
        if tree.origin is Origin.LOST or (
            tree.origin is Origin.UNKNOWN and not tree.agents and tree.content
        ):
            strong.add(tree)
        elif tree.origin is Origin.UNKNOWN and not tree.agents:
            weak.setdefault(tree.service, _Orphans()).add(tree)
    return strong.sort(), {service: orphans.sort() for service, orphans in weak.items()}


def _is_cut(
    spans: ClassifiedTrace, index: int, tree: _Tree, strong: _Orphans, weak: dict[str, _Orphans]
) -> bool:
    span = spans.readers[index]
    first, last = span.start_ns, max(span.start_ns, span.end_ns)
    # `tree.missing` is the parent of the run's own tree, so leaving it out leaves out the run's own
    # ancestors, too.
    if strong.within(first, last, tree.missing):
        return True
    same_service = weak.get(spans.resource_scopes[index].service)
    return same_service is not None and same_service.within(first, last, tree.missing)


def _is_fragment(tree: _Tree) -> bool:
    return tree.content and not tree.agents and tree.origin in (Origin.LOST, Origin.UNKNOWN)


def _lost_run(
    spans: ClassifiedTrace, fragments: list[_Tree], runs: list[Candidate], by_root: dict[int, _Tree]
) -> Candidate | None:
    """One run for the fragments whose own span never arrived, unless a run that did arrive accounts
    for them.
    """
    released = spans.trace.released
    if any(run.incomplete for run in runs) or (released and released.is_thinned):
        # in the second case they may be late spans of a run that was evaluated and forgotten
        return None
    siblings = {by_root[spans.tree.root_of(run.first)].missing for run in runs}
    siblings |= released.parents if released else set()
    lost = [tree for tree in fragments if tree.missing not in siblings]
    if not lost:
        return None
    earliest = min(lost, key=lambda tree: (tree.start, spans.tree.ids[tree.root]))
    other_ranges = tuple((tree.root, tree.last) for tree in lost if tree is not earliest)
    reason = spans.trace.cut or NEVER_ARRIVED
    return Candidate(
        earliest.root,
        earliest.last,
        earliest.missing,
        reason,
        origin=earliest.origin,
        fragment=True,
        other_ranges=other_ranges,
    )


@dataclass(slots=True)
class Run:
    """A trajectory, and which spans it was read from.

    Attributes:
        members: ids of the spans of the run's subtree, or of all its fragments, each once, in any
            order. The first is the run's own span, or the root of a fragment, unless the run is the
            only one of its trace.
        span_id: the id of the run's own span (8 bytes), also where only fragments of it arrived.
        enclosing: the same of the outermost run that encloses it, b"" if there is none.
        former: it was evaluated as a run before an agent's span of the trace arrived, and is none
            any more.
    """

    trajectory: Trajectory
    members: Sequence[bytes] = field(compare=False)
    span_id: bytes
    enclosing: bytes = b""
    former: bool = False
