"""Classify the spans of a trace as agents, model calls, tool calls or others, and arrange them in
trees.

Spans of evaluations, of this project and of others, are left out with everything below them.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from operator import itemgetter
from typing import Any, Final

from otel_eval.caching import cached_property
from otel_eval.conventions import TABLES, Convention, Field
from otel_eval.conventions.fields import NO_TABLE, ReadTable
from otel_eval.conventions.reader import DROPPED, Classification, Reader
from otel_eval.conventions.tool_spans import ToolSpanReader
from otel_eval.globs import any_glob
from otel_eval.interfaces import (
    ClosedTrace,
    Frame,
    ResourceScope,
    SpanEvent,
    SpanReader,
    Wanted,
)
from otel_eval.model import Kind, SpanRef
from otel_eval.span_trees import SpanTree, grouped, in_order_of_time, span_tree_of

ALL_NEEDS: Final = frozenset({"arguments", "results", "content", "spans", "tokens"})


class Plan:
    """What to read.

    Args:
        tables: the conventions, the first that knows a span wins.
        needs: what is read beyond names, times and errors of calls, any of `ALL_NEEDS`; call ids
            are read with "arguments" or "results".
        attributes: keys of further attributes that a trajectory shall carry.
        records_tool_spans: globs of instrumentation scopes that the configuration declares to
            record each tool call as a span.

    Attributes:
        tables, needs, records_tool_spans: as above.
        wants_content_of_calls: whether anything of a call beyond name, times and error is needed.
        run_wanted: the attributes that are read of a run's own span that no table recognises.
        agent_fields: the fields that are read of an agent span.
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
        self.agent_fields: Final = (
            *(Field.AGENT_NAME, Field.CONVERSATION, Field.RESPONSE_ID),
            *tokens,
            *content,
        )
        unrecognized = NO_TABLE.keys_wanted(*self.agent_fields)
        self.run_wanted: Final = Wanted(unrecognized.keys | attributes, unrecognized.prefixes)
        self._declared: Final = any_glob(records_tool_spans)
        self._tool_readers: Final[dict[str, ToolSpanReader]] = {}

    def tool_reader(self, table: ReadTable) -> ToolSpanReader:
        """What reads the tool spans of the table."""
        reader = self._tool_readers.get(table.name)
        if reader is None:
            reader = self._tool_readers[table.name] = ToolSpanReader(table, self.needs)
        return reader

    def declared(self, scope: str) -> bool:
        """Whether the configuration declares that each tool call of the scope leaves a span."""
        return self._declared.fullmatch(scope) is not None


# Longer chains of ancestors are cut to the nearest ones: whole ones would cost the square of the
# trace.
MAX_ENCLOSING: Final = 64


@dataclass
class ClassifiedTrace:
    """The spans of a trace with their kinds and their nearest relevant ancestors: what all runs of
    the trace share.

    Attributes (lists are by index in the tree):
        tables: the table that recognised each span.
        kinds: what each span is.
        starts: when each span started, in Unix nanoseconds.
        ancestor: the nearest ancestor that is an agent, model or tool span, -1 if there is none.
        enclosing_agent: the nearest ancestor that is an agent span, -1 if there is none.
        owners: the agent span that encloses a span, or where there is none a negative number for
            the span's tree.
        arguments, argument_keys, call_ids: by index, what `tool_calls` read of calls whose content
            no scorer needs.
        pauses: index of each tool span that waits for a person → the tool's name; see `pauses`.
        unexecuted: index of each span of a request that was not executed → the tool's name.
        has_spans_below_calls: whether a span lies below that of a call, as in few traces.
        agents, models, tools: their indexes, ascending.
        model_calls: those of the models that do not lie directly below another one: a framework's
            and its client's describe one model call. `call_builders` fills `tools`; `link` fills
            the other three, `ancestor`, `enclosing_agent` and `owners`.
    """

    trace: ClosedTrace
    plan: Plan
    tree: SpanTree
    readers: list[SpanReader]
    resource_scopes: list[ResourceScope]
    classifications: list[Classification]
    tables: list[ReadTable]
    kinds: list[Kind]
    starts: list[int]
    ancestor: list[int] = field(default_factory=list)
    enclosing_agent: list[int] = field(default_factory=list)
    owners: list[int] = field(default_factory=list)
    agents: list[int] = field(default_factory=list)
    models: list[int] = field(default_factory=list)
    model_calls: list[int] = field(default_factory=list)
    tools: list[int] = field(default_factory=list)
    arguments: dict[int, Any] = field(default_factory=dict)
    argument_keys: dict[int, Hashable] = field(default_factory=dict)
    call_ids: dict[int, str] = field(default_factory=dict)
    pauses: dict[int, str] = field(default_factory=dict)
    unexecuted: dict[int, str] = field(default_factory=dict)
    has_spans_below_calls: bool = False
    _logs: dict[int, tuple[SpanEvent, ...]] = field(default_factory=dict)
    _span_refs: list[SpanRef] = field(default_factory=list)

    def link(self) -> None:
        """Find ancestors, agents and model calls, once it is known which of the tool spans are
        calls.
        """
        kinds, agents, models, model_calls = self.kinds, self.agents, self.models, self.model_calls
        ancestor, enclosing_agent, owners = self.ancestor, self.enclosing_agent, self.owners
        other, agent, model = Kind.OTHER, Kind.AGENT, Kind.MODEL
        before = nearest = enclosing = owner = -1
        for index, parent in enumerate(self.tree.parent):
            if parent != before or parent < 0:  # else all is as of the sibling before
                nearest = ancestor[parent] if parent >= 0 and kinds[parent] is other else parent
                is_below_agent = nearest < 0 or kinds[nearest] is agent
                enclosing = nearest if is_below_agent else enclosing_agent[nearest]
                owner = (
                    enclosing if enclosing >= 0 else owners[parent] if parent >= 0 else -1 - index
                )
                before = parent
            ancestor.append(nearest)
            enclosing_agent.append(enclosing)
            owners.append(owner)
            kind = kinds[index]
            if kind is model:
                models.append(index)
                if nearest < 0 or kinds[nearest] is not model:
                    model_calls.append(index)
            elif kind is agent:
                agents.append(index)
        clients = {index for index in self.model_calls if self.tables[index].convention.repeats}
        if clients:
            self._put_below_instrumentations(clients)

    def _put_below_instrumentations(self, clients: set[int]) -> None:
        """Put a client's own span below the one beside it during which it started, if that is the
        same model call.
        """
        beside: dict[int, list[tuple[int, int]]] = {}
        for index in self.model_calls:
            if index not in clients:
                beside.setdefault(self.ancestor[index], []).append((self.starts[index], index))
        for indexes in beside.values():
            indexes.sort()
        for client in clients:
            candidates, start = beside.get(self.ancestor[client], []), self.starts[client]
            at = bisect_right(candidates, start, key=itemgetter(0)) - 1
            index = candidates[at][1] if at >= 0 else -1
            scope = self.resource_scopes[index].scope_name
            if (
                at >= 0
                and start <= self.readers[index].end_ns
                and self.tables[client].is_repeated_by(scope)
            ):
                self.ancestor[client] = index
        self.model_calls = [
            index
            for index in self.model_calls
            if self.ancestor[index] < 0 or self.kinds[self.ancestor[index]] is not Kind.MODEL
        ]

    def records_tools(self, index: int) -> bool:
        """Whether each tool call of the span's instrumentation leaves a span."""
        scope = self.resource_scopes[index].scope_name
        promised = self.tables[index].convention.tool_spans is True
        return (
            promised and not self.plan.reader.of_scope(scope).lacks_tool_spans
        ) or self.plan.declared(scope)

    def end(self, index: int) -> int:
        """Where the subtree of the span ends."""
        return index + self.tree.size[index]

    def moment(self, index: int) -> tuple[int, int, bytes]:
        """The key by which spans are ordered in time."""
        return self.starts[index], self.readers[index].end_ns, self.tree.ids[index]

    def in_order(self, indexes: list[int]) -> list[int]:
        """The spans in order of time."""
        starts = [self.starts[index] for index in indexes]
        return in_order_of_time(indexes, starts, self.moment)

    @cached_property
    def used_tables(self) -> set[ReadTable]:
        """The tables that recognised spans: few."""
        return set(self.tables)

    def hex_id(self, index: int) -> str:
        """The span's id as text."""
        return self.tree.ids[index].hex()

    def logs(self, index: int) -> tuple[SpanEvent, ...]:
        """The log records joined to the span."""
        if not self.trace.logs:
            return ()
        events = self._logs.get(index)
        if events is None:
            frames = self.trace.logs.get(self.tree.ids[index], ())
            events = self._logs[index] = tuple(
                resource_scope.event(payload) for payload, resource_scope in frames
            )
        return events

    def events(self, index: int) -> Iterable[SpanEvent]:
        """The span's events and the log records joined to it; see `SpanReader.events`."""
        events = self.readers[index].events()
        return chain(events, self.logs(index)) if self.trace.logs else events

    def nested_models(self, index: int) -> Sequence[int]:
        """The model spans directly below a model span: a framework's and its client's describe one
        model call.
        """
        if len(self.models) == len(self.model_calls):
            return ()
        return self._models_below.get(index, ())

    @cached_property
    def _models_below(self) -> dict[int, list[int]]:
        return grouped(self.models, self.ancestor.__getitem__)

    @cached_property
    def model_calls_in_order(self) -> list[int]:
        """The indexes of model calls in order of time."""
        return self.in_order(self.model_calls)

    @cached_property
    def model_calls_of(self) -> dict[int, list[int]]:
        """Owner → indexes of its model calls in order of time."""
        return grouped(self.model_calls_in_order, self.owners.__getitem__)

    @cached_property
    def model_starts_of(self) -> dict[int, list[int]]:
        """Owner → when its model calls started, ascending."""
        starts = self.starts
        return {
            owner: [starts[index] for index in models]
            for owner, models in self.model_calls_of.items()
        }

    def span_ref(self, index: int) -> SpanRef:
        """The span as scorers of spans see it; runs within runs share these."""
        if not self._span_refs:
            for number, span in enumerate(self.readers):
                up = self.tree.parent[number]
                parent = self._span_refs[up] if up >= 0 else None
                enclosing = (
                    () if parent is None else (*parent.enclosing, parent.span_id)[-MAX_ENCLOSING:]
                )
                self._span_refs.append(
                    SpanRef(span.name, span.start_ns, span.end_ns, self.hex_id(number), enclosing)
                )
        return self._span_refs[index]


def classified(trace: ClosedTrace, plan: Plan) -> ClassifiedTrace:
    """Classify every span; `call_builders` reads the tool spans next, and `link` finds ancestors
    after that.
    """
    spans, dropped = classified_with(trace, trace.frames, plan)
    if dropped:
        spans, _ = classified_with(trace, _without(spans, dropped), plan)
    return spans


def classified_with(
    trace: ClosedTrace, frames: Mapping[bytes, Frame], plan: Plan
) -> tuple[ClassifiedTrace, set[bytes]]:
    """Classify these frames of the trace; also returns the ids of those that are spans of
    evaluations.
    """
    tree = span_tree_of(frames)
    ordered = [frames[span_id] for span_id in tree.ids]
    readers = [resource_scope.reader(payload) for _, payload, resource_scope in ordered]
    resource_scopes = [frame[2] for frame in ordered]
    read_by = {
        resource_scope: plan.reader.of_scope(resource_scope.scope_name).read
        for resource_scope in dict.fromkeys(resource_scopes)
    }
    classifications = [
        read_by[resource_scope](span)
        for resource_scope, span in zip(resource_scopes, readers, strict=True)
    ]
    spans = ClassifiedTrace(
        trace=trace,
        plan=plan,
        tree=tree,
        readers=readers,
        resource_scopes=resource_scopes,
        classifications=classifications,
        tables=[classification.table for classification in classifications],
        kinds=[classification.kind for classification in classifications],
        starts=[span.start_ns for span in readers],
    )
    if DROPPED not in classifications:
        return spans, set()
    return spans, {
        span_id
        for span_id, classification in zip(tree.ids, classifications, strict=True)
        if classification is DROPPED
    }


def _without(spans: ClassifiedTrace, dropped: set[bytes]) -> dict[bytes, Frame]:
    """The frames without those that are dropped and their descendants."""
    remaining: dict[bytes, Frame] = {}
    until = 0  # the end of the dropped subtrees so far
    for index, span_id in enumerate(spans.tree.ids):
        if span_id in dropped:
            until = max(until, spans.end(index))
        if index >= until:
            remaining[span_id] = spans.trace.frames[span_id]
    return remaining
