"""What recorded messages add to tool calls: names for bare arguments, missing results and ids, or
the requests of
calls that left no span, see `recovery`.

Outputs of models are always read; histories only where something is missing.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import Any

from otel_eval.caching import cached_property
from otel_eval.conventions import Field, MessageRow, Side
from otel_eval.conventions.fields import NO_TABLE, ReadTable
from otel_eval.conventions.messages import (
    Mention,
    ToolRequest,
    ToolResult,
    nested,
    read_messages,
    without_positional_id,
)
from otel_eval.conventions.model_calls import (
    OFFERED_WANTED,
    Finish,
    Histories,
    finish_of,
    finish_of_messages,
    is_choice,
    may_mention_in,
    offered_tools,
)
from otel_eval.conventions.table import KEPT_MESSAGES, KEPT_TOOLS
from otel_eval.conventions.values import decode
from otel_eval.interfaces import ClosedTrace, SpanEvent, Wanted
from otel_eval.model import Kind
from otel_eval.span_trees import grouped
from otel_eval.trajectory.classify import ClassifiedTrace, Plan, classified
from otel_eval.trajectory.kept_messages import offered_value, restored, written
from otel_eval.trajectory.limits import RunLimits
from otel_eval.trajectory.pairing import (
    NO_MESSAGES,
    AgentMessages,
    SpanMessages,
    Window,
    fill,
    join,
    lacks_result,
)
from otel_eval.trajectory.tool_calls import ToolCallBuilder, call_builders, named


class TraceMessages(dict[int, SpanMessages]):
    """The messages of a trace by the index of a span: the requests and results in them, or for a
    model span without any in those of the model spans below it. Each is read once, when it is
    first needed.
    """

    def __init__(self, spans: ClassifiedTrace) -> None:
        super().__init__()
        self._spans = spans
        self._of_spans_alone: dict[int, SpanMessages] = {}
        self._nearest: dict[int, AgentMessages] = {}
        self._histories = Histories()
        self._finishes: dict[int, Finish] = {}

    def __missing__(self, index: int) -> SpanMessages:
        messages = self.of_span_itself(index)
        if not messages.recorded:
            inner = self._spans.nested_models(index)
            if inner and self._spans.kinds[index] is Kind.MODEL:
                messages = _merged(messages, [*map(self.of_span_itself, inner)])
        self[index] = messages
        return messages

    def of_span_itself(self, index: int) -> SpanMessages:
        """The requests and results in the messages of this span alone."""
        messages = self._of_spans_alone.get(index)
        if messages is None:
            messages = self._of_spans_alone[index] = self._read(index)
        return messages

    def _read(self, index: int) -> SpanMessages:
        """Read the messages of the span's output, span events and log records; those of its input
        are read when they are first needed.
        """
        spans, table = self._spans, self._spans.tables[index]
        if table is NO_TABLE:
            return NO_MESSAGES
        attributes = _attributes(spans, index, table.outputs_wanted)
        if KEPT_MESSAGES in attributes:
            kept_messages_of_span = restored(attributes[KEPT_MESSAGES])
            if kept_messages_of_span is not None:
                return kept_messages_of_span
        is_recorded = False
        output: list[Mention] = []
        before: list[Mention] = []  # earlier requests and results, of attributes
        after: list[Mention] = []  # and of events
        for row, value in table.output_rows(attributes) if attributes else ():
            is_recorded = is_recorded or row.conclusive
            if may_mention_in(value):
                mentions, earlier = _read_output(row, value, attributes, table)
                output += mentions
                before += _results(mentions)
                before += earlier
        for event in spans.events(index):
            is_recorded = self._read_event(event, table, output, after) or is_recorded
        if not (is_recorded or output or before or after) and not _attributes(
            spans, index, table.histories_wanted
        ):
            return NO_MESSAGES
        messages = SpanMessages(
            recorded=is_recorded,
            read_history=partial(_read_history, spans, self._histories, index, before, after),
        )
        if output:
            _put_output(messages, output, table)
        return messages

    def _read_event(
        self, event: SpanEvent, table: ReadTable, output: list[Mention], earlier: list[Mention]
    ) -> bool:
        """Add what an event or log record of a span holds; whether finding no request in it proves
        that none was made.
        """
        is_conclusive = False
        for side, mentions in self._histories.of_event(event):
            if side is Side.HISTORY:
                earlier += mentions
            else:
                is_conclusive = table.convention.conclusive_events
                output += mentions
                earlier += _results(mentions)
        if table.convention.results_in_user_events:
            earlier += self._histories.of_user_event(event)
        return is_conclusive

    def finish(self, index: int) -> Finish:
        """How the model call of a span ended, by the span, or by one within it that says so."""
        finish = self._finishes.get(index)
        if finish is None:
            finish = self._finish_of_span_itself(index)
            for inner in self._spans.nested_models(index):
                if finish is Finish.UNKNOWN:
                    finish = self._finish_of_span_itself(inner)
            self._finishes[index] = finish
        return finish

    def _finish_of_span_itself(self, index: int) -> Finish:
        table, span = self._spans.tables[index], self._spans.readers[index]
        attributes = span.attributes(table.finish_wanted)
        finish = finish_of(table, attributes)
        if finish is not Finish.UNKNOWN:
            return finish
        recorded = span.attributes(table.outputs_wanted)
        outputs = [
            _decoded(row, value)
            for row, value in table.output_rows(recorded)
            # A key in JSON text could also hide in an escape.
            if not isinstance(value, str) or "eason" in value or "\\u00" in value
        ]
        return finish_of_messages(table, attributes, outputs, self._spans.events(index))

    def fill(self, calls: list[ToolCallBuilder], limits: RunLimits) -> None:
        """Give the calls what only messages recorded: by call id, else by order among calls of the
        same name.
        """
        groups = grouped(calls, lambda call: self._spans.enclosing_agent[call.index])
        for agent, group in groups.items():
            if any(self._misses(call) for call in group):
                messages = self._nearest_of(agent)
                if messages:
                    fill(messages, group, self._spans.plan.needs, limits)

    def _misses(self, call: ToolCallBuilder) -> bool:
        plan = self._spans.plan
        lacks_arguments = "arguments" in plan.needs and not named(call.arguments)
        return (
            lacks_arguments
            or lacks_result(call, plan.needs)
            or (plan.wants_content_of_calls and not call.call_id)
        )

    def _nearest_of(self, agent: int) -> AgentMessages:
        """The messages of the agent, or of the nearest agent that encloses it and recorded any (one
        run, several spans).
        """
        first, walked = agent, []
        while agent not in self._nearest:
            walked.append(agent)
            messages = self._of_agent(agent)
            if messages or agent < 0:
                self._nearest[agent] = messages
            else:
                agent = self._spans.enclosing_agent[agent]
        self._nearest.update(dict.fromkeys(walked, self._nearest[agent]))
        return self._nearest[agent] or self._of_steps(first)

    def _of_steps(self, agent: int) -> AgentMessages:
        """The messages of agents directly below the agent: a framework may record the step that
        calls the model as an agent.
        """
        models = [
            index
            for step in self._steps_of.get(agent, ())
            for index in self._models_of.get(step, ())
        ]
        return self._joined(self._spans.in_order(models))

    def _of_agent(self, agent: int) -> AgentMessages:
        models = self._models_of.get(agent, [])
        return self._joined(models, [agent] if agent >= 0 else [], self.windows(models))

    @cached_property
    def _models_of(self) -> dict[int, list[int]]:
        """The indexes of model spans in order of time, by the agent that encloses them."""
        models = self._spans.in_order(self._spans.models)
        return grouped(models, self._spans.enclosing_agent.__getitem__)

    @cached_property
    def _steps_of(self) -> dict[int, list[int]]:
        """The indexes of agent spans, by the agent that encloses them."""
        return grouped(self._spans.agents, self._spans.enclosing_agent.__getitem__)

    def _joined(
        self, models: list[int], agents: Sequence[int] = (), windows: Sequence[Window] = ()
    ) -> AgentMessages:
        """The messages of these spans, in order of time, as those of one agent."""
        return join([self[index] for index in models], [self[index] for index in agents], windows)

    def windows(self, models: list[int]) -> list[Window]:
        """When the calls that each model call requested can have started: before the next model
        call of the agent.

        They may start before the model call ends, since its output may be streamed.
        """
        readers = self._spans.readers
        starts = [self._spans.starts[index] for index in models]
        following = [
            max(number, bisect_left(starts, readers[index].end_ns))
            for number, index in enumerate(models, 1)
        ]
        return [
            (start, starts[number] if number < len(starts) else None)
            for start, number in zip(starts, following, strict=True)
        ]


def _put_output(messages: SpanMessages, output: Sequence[Mention], table: ReadTable) -> None:
    """Put in what a span's output, of which something was recorded, mentions."""
    requests = [mention for mention in output if isinstance(mention, ToolRequest) and mention.name]
    messages.answers = _results(output)
    messages.broken = len(requests) + len(messages.answers) < len(output)
    messages.recorded = messages.recorded and not messages.broken
    if table.convention.positional_ids:
        requests = list(map(without_positional_id, requests))
    messages.requests = requests


def _results(mentions: Iterable[Mention]) -> list[ToolResult]:
    return [mention for mention in mentions if isinstance(mention, ToolResult)]


def _merged(outer: SpanMessages, inner: list[SpanMessages]) -> SpanMessages:
    """Combine the messages of a model span with those of the spans below it that describe the same
    model call.
    """

    def read_history() -> Sequence[Mention]:
        requests, results = outer.history()
        requests = requests or list(chain.from_iterable(span.history()[0] for span in inner))
        results = results or list(chain.from_iterable(span.history()[1] for span in inner))
        return (*requests, *results)

    return SpanMessages(
        requests=outer.requests or list(chain.from_iterable(span.requests for span in inner)),
        recorded=all(span.recorded for span in inner) and not outer.broken,
        broken=outer.broken,
        read_history=read_history,
    )


def _read_history(
    spans: ClassifiedTrace,
    histories: Histories,
    index: int,
    before: Sequence[Mention],
    after: Sequence[Mention],
) -> Sequence[Mention]:
    """Read the messages from before the span. They are decoded only here, so histories that are
    not needed take no memory.

    Args:
        spans, histories: the trace, and the histories of its messages that were read.
        index: the span.
        before, after: what further messages of the span hold, which come before and after those.
    """
    table = spans.tables[index]
    attributes = _attributes(spans, index, table.histories_wanted)
    if not (attributes or before or after):
        return ()
    mentions = [*before]
    for row, value in table.history_rows(attributes):
        conversation = (spans.enclosing_agent[index], row.key)
        if row.key.endswith("."):
            mentions += histories.of_family(conversation, value)
        elif not isinstance(value, str):
            mentions += read_messages(value)
        elif (history := histories.of_text(conversation, value)) and table.is_masked(value):
            mentions += [_unmasked(mention, table) for mention in history]
        else:
            mentions += history
    mentions += after
    if table.convention.positional_ids:
        return list(map(without_positional_id, mentions))
    return mentions


def _attributes(spans: ClassifiedTrace, index: int, keys: Wanted) -> dict[str, Any]:
    """The attributes of a span, and those of its log records that it has not itself; of equal
    keys the first one counts.
    """
    attributes = spans.readers[index].attributes(keys)
    if spans.trace.logs:
        for event in spans.logs(index):
            attributes = {
                **{key: value for key, value in event.attributes.items() if key not in attributes},
                **attributes,
            }
    return attributes


def _unmasked(mention: Mention, table: ReadTable) -> Mention:
    """What messages of which a part was replaced still show: ids, and names that are whole."""
    name = "" if table.is_masked(mention.name) else mention.name
    if isinstance(mention, ToolRequest):
        return ToolRequest(name, mention.call_id)
    return ToolResult(mention.call_id, name)


def _read_output(
    row: MessageRow, value: Any, attributes: dict[str, Any], table: ReadTable
) -> tuple[list[Mention], list[Mention]]:
    """The requests and results that were produced in the span, and those from before it."""
    messages = _decoded(row, value)
    first_new = table.value(attributes, Field.FIRST_NEW_MESSAGE)
    if isinstance(messages, list) and isinstance(first_new, int) and first_new > 0:
        messages = messages[first_new:]  # some record the messages of earlier runs before their own
    earlier: list[Mention] = []
    if row.choices and isinstance(messages, list):
        earlier = read_messages(
            [message for message in messages if not is_choice(message)], plain=True
        )
        messages = [message for message in messages if is_choice(message)]
    mentions = read_messages(messages, plain=not isinstance(messages, str))
    if row.made:
        mentions = [
            replace(mention, hosted=True) if isinstance(mention, ToolRequest) else mention
            for mention in mentions
        ]
    return mentions, earlier


def _decoded(row: MessageRow, value: Any) -> Any:
    if row.key.endswith("."):
        return nested(value)
    return decode(value, literals=False)


def kept_messages(trace: ClosedTrace, plan: Plan) -> dict[bytes, dict[str, str]]:
    """What to keep of the messages of a trace whose content is left out: span id → attributes."""
    spans = classified(trace, plan)
    call_builders(spans)
    messages = TraceMessages(spans)
    attributes_of: dict[bytes, dict[str, str]] = {}
    tables = {
        id(classification.table): classification.table for classification in spans.classifications
    }.values()
    for index, kind in enumerate(spans.kinds):
        if kind not in (Kind.MODEL, Kind.AGENT) or spans.tables[index] is NO_TABLE:
            continue
        attributes = {KEPT_MESSAGES: written(messages.of_span_itself(index), tables)}
        offered = spans.readers[index].attributes(OFFERED_WANTED)
        if offered:
            attributes[KEPT_TOOLS] = offered_value(offered_tools(offered))
        attributes_of[spans.tree.ids[index]] = attributes
    return attributes_of


def offered_names(trace: ClosedTrace, plan: Plan) -> dict[bytes, frozenset[str]]:
    """The names of the tools that model calls offered, where they are recorded: span id → names."""
    spans = classified(trace, plan)
    names: dict[bytes, frozenset[str]] = {}
    for index, kind in enumerate(spans.kinds):
        if kind is Kind.MODEL:
            offered = offered_tools(spans.readers[index].attributes(OFFERED_WANTED))
            if offered.names:
                names[spans.tree.ids[index]] = offered.names - offered.outputs
    return names
