"""Classifies the spans of a trace as agent, model, tool or other spans, and links each to its nearest relevant ancestors.

Spans of evaluations, of this project and of others, are left out with everything below them. Spans are in preorder. All loops are
iterative, so that a chain of 10,000 spans does not exceed the recursion limit; cycles of parent links are cut.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Final

from otel_eval.conventions import TABLES, Convention, Field
from otel_eval.conventions.fields import NO_TABLE, ReadTable, ToolReader
from otel_eval.conventions.reader import DROPPED, Classification, Reader, ScopeReader
from otel_eval.globs import glob
from otel_eval.interfaces import ClosedTrace, Frame, ResourceScope, SpanEvent, SpanReader, Steps, Wanted
from otel_eval.model import Kind, SpanRef

ALL_NEEDS: Final = frozenset({"arguments", "results", "content", "spans", "tokens"})


class Plan:
    """What to read.

    Args:
        tables: the conventions, the first that knows a span wins.
        needs: what is read beyond names, times and errors of calls, any of `ALL_NEEDS`; call ids are read with
            "arguments" or "results".
        attributes: keys of further attributes that a trajectory shall carry.
        records_tool_spans: globs of instrumentation scopes that the configuration declares to record each tool call as
            a span.

    Attributes:
        tables, needs, records_tool_spans: as above.
        wants_content_of_calls: whether anything of a call beyond name, times and error is needed.
        agent_wanted, tool_readers: what to ask an agent span, and how to read a tool span, by the name of the table.
    """

    def __init__(
        self,
        tables: Sequence[Convention] = TABLES,
        needs: frozenset[str] = frozenset(),
        attributes: frozenset[str] = frozenset(),
        records_tool_spans: Sequence[str] = (),
    ) -> None:
        self.tables: Final = tables
        self.needs: Final = needs
        self.records_tool_spans: Final = records_tool_spans
        self.wants_content_of_calls: Final = not needs.isdisjoint(("arguments", "results"))
        self.reader: Final = Reader(tables)
        self.attributes_wanted: Final = Wanted(attributes)
        content = (Field.INPUT, Field.OUTPUT, Field.FIRST_NEW_MESSAGE) if "content" in needs else ()
        tokens = (Field.INPUT_TOKENS, Field.OUTPUT_TOKENS) if "tokens" in needs else ()
        agent = (Field.AGENT_NAME, Field.CONVERSATION, Field.RESPONSE_ID, *tokens, *content)
        self.agent_wanted: Final = {each.name: each.keys_wanted(*agent) for each in (NO_TABLE, *self.reader.tables)}
        self._declared: Final = [glob(each) for each in records_tool_spans]
        self.tool_readers: Final = {each.name: ToolReader(each, needs) for each in self.reader.tables}

    def declared(self, scope: str) -> bool:
        """Whether the configuration declares that each tool call of the scope leaves a span."""
        return any(each.fullmatch(scope) for each in self._declared)


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


# Longer chains of ancestors are cut to the nearest ones: whole ones would cost the square of the trace.
MAX_ENCLOSING: Final = 64


@dataclass(slots=True)
class ClassifiedTrace:
    """The spans of a trace with their kinds and their nearest relevant ancestors: what all runs of the trace share.

    Attributes (lists are by place in the tree):
        kinds: agent, model, tool or other, of each span.
        above: the nearest agent, model or tool span above, -1 if there is none.
        agent_above: the nearest agent span above, -1 if there is none.
        steps: counts the work; it ends the evaluation of a trace that takes too much.
        argument_keys: see `calls.arguments_key`.
        agents, models, tools: their places, ascending.
        model_calls: the models without a model span directly above: a framework's span and its client's describe one model
            call. `call_builders` fills `tools`; `link` fills `agents`, `models`, `model_calls`, `above` and `agent_above`.
    """

    trace: ClosedTrace
    plan: Plan
    tree: SpanTree
    views: list[SpanReader]
    resource_scopes: list[ResourceScope]
    readings: list[Classification]
    kinds: list[Kind]
    steps: Steps
    above: list[int] = field(default_factory=list)
    agent_above: list[int] = field(default_factory=list)
    agents: list[int] = field(default_factory=list)
    models: list[int] = field(default_factory=list)
    model_calls: list[int] = field(default_factory=list)
    tools: list[int] = field(default_factory=list)
    argument_keys: dict[int, Hashable] = field(default_factory=dict)
    _nested_models: dict[int, list[int]] | None = None
    _logs: dict[int, tuple[SpanEvent, ...]] = field(default_factory=dict)
    _visits: list[SpanRef] = field(default_factory=list)

    def link(self) -> None:
        """Follow the parents, once it is known which of the tool spans are calls."""
        kinds, above, agent_above = self.kinds, self.above, self.agent_above
        other, agent, model = Kind.OTHER, Kind.AGENT, Kind.MODEL
        for place, (kind, up) in enumerate(zip(kinds, self.tree.parent, strict=True)):
            if up >= 0 and kinds[up] is other:
                up = above[up]
            above.append(up)
            agent_above.append(up if up < 0 or kinds[up] is agent else agent_above[up])
            if kind is model:
                self.models.append(place)
                if up < 0 or kinds[up] is not model:
                    self.model_calls.append(place)
            elif kind is agent:
                self.agents.append(place)
        clients = {place for place in self.model_calls if self.readings[place].table.convention.repeats}
        if clients:
            self._put_below_instrumentations(clients)

    def _put_below_instrumentations(self, clients: set[int]) -> None:
        """Put a client's own span below the one beside it during which it started, if that is the same model call."""
        beside: dict[int, list[tuple[int, int]]] = {}
        for place in self.model_calls:
            if place not in clients:
                beside.setdefault(self.above[place], []).append((self.views[place].start_ns, place))
        for places in beside.values():
            places.sort()
        for client in clients:
            others, start = beside.get(self.above[client], []), self.views[client].start_ns
            at = bisect_right(others, start, key=itemgetter(0)) - 1
            place = others[at][1] if at >= 0 else -1
            scope = self.resource_scopes[place].scope_name
            if at >= 0 and start <= self.views[place].end_ns and self.table(client).is_repeated_by(scope):
                self.above[client] = place
        self.model_calls = [
            place for place in self.model_calls if self.above[place] < 0 or self.kinds[self.above[place]] is not Kind.MODEL
        ]

    def table(self, place: int) -> ReadTable:
        """The table that knew the span."""
        return self.readings[place].table

    def records_tools(self, place: int) -> bool:
        """Whether each tool call of the span's instrumentation leaves a span."""
        return self.table(place).tool_spans is True or self.plan.declared(self.resource_scopes[place].scope_name)

    def end(self, place: int) -> int:
        """Where the subtree of the span ends."""
        return place + self.tree.size[place]

    def moment(self, place: int) -> tuple[int, int, bytes]:
        """What spans are ordered by."""
        view = self.views[place]
        return view.start_ns, view.end_ns, self.tree.ids[place]

    def hex_id(self, place: int) -> str:
        """The span's id as text."""
        return self.tree.ids[place].hex()

    def logs(self, place: int) -> tuple[SpanEvent, ...]:
        """The log records joined to the span."""
        if not self.trace.logs:
            return ()
        known = self._logs.get(place)
        if known is None:
            frames = self.trace.logs.get(self.tree.ids[place], ())
            known = self._logs[place] = tuple(resource_scope.event(payload) for payload, resource_scope in frames)
        return known

    def nested_models(self, place: int) -> Sequence[int]:
        """The model spans directly below a model span: a framework's and its client's describe one model call."""
        if len(self.models) == len(self.model_calls):
            return ()
        if self._nested_models is None:
            self._nested_models = {}
            for model in self.models:
                self._nested_models.setdefault(self.above[model], []).append(model)
        return self._nested_models.get(place, ())

    def visit(self, place: int) -> SpanRef:
        """The span as scorers of spans see it; runs within runs share these."""
        if not self._visits:
            for each, view in enumerate(self.views):
                up = self.tree.parent[each]
                above = self._visits[up] if up >= 0 else None
                around = () if above is None else (*above.enclosing, above.span_id)[-MAX_ENCLOSING:]
                self._visits.append(SpanRef(view.name, view.start_ns, view.end_ns, self.hex_id(each), around))
        return self._visits[place]


def classified(trace: ClosedTrace, plan: Plan, steps: Steps) -> ClassifiedTrace:
    """Classify every span of the trace. Afterwards `calls.drafts` reads the tool spans, and then `link` is called."""
    spans, dropped = classified_with(trace, trace.frames, plan, steps)
    if dropped:
        spans, _ = classified_with(trace, _without(spans, dropped), plan, steps)
    return spans


def classified_with(
    trace: ClosedTrace, frames: Mapping[bytes, Frame], plan: Plan, steps: Steps
) -> tuple[ClassifiedTrace, set[bytes]]:
    """Classify these frames of the trace; also returns the ids of those that are spans of evaluations."""
    tree = span_tree_of(frames)
    held = [frames[span_id] for span_id in tree.ids]
    views = [resource_scope.view(payload) for _, payload, resource_scope in held]
    resource_scopes = list(map(itemgetter(2), held))
    read_by = {each: _read(plan.reader.of_scope(each.scope_name)) for each in set(resource_scopes)}
    readings = [read_by[resource_scope](view) for resource_scope, view in zip(resource_scopes, views, strict=True)]
    kinds = [each.kind for each in readings]
    read = ClassifiedTrace(trace, plan, tree, views, resource_scopes, readings, kinds, steps)
    if DROPPED not in readings:
        return read, set()
    return read, {span_id for span_id, reading in zip(tree.ids, readings, strict=True) if reading is DROPPED}


def _read(scope: ScopeReader) -> Callable[[SpanReader], Classification]:
    return _drop if scope.dropped else scope.read


def _drop(_: SpanReader) -> Classification:
    return DROPPED


def _without(read: ClassifiedTrace, dropped: set[bytes]) -> dict[bytes, Frame]:
    """The frames that neither are dropped nor hang below one that is."""
    kept: dict[bytes, Frame] = {}
    until = 0  # the end of the dropped subtrees so far
    for place, span_id in enumerate(read.tree.ids):
        if span_id in dropped:
            until = max(until, read.end(place))
        if place >= until:
            kept[span_id] = read.trace.frames[span_id]
    return kept
