"""What recorded messages add to tool calls: names for bare arguments, missing results and ids, or
the requests of
calls that left no span, see `recovery`.

Outputs of models are always read; histories only where something is missing.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import Any, NamedTuple

from otel_eval.caching import cached_property
from otel_eval.conventions import Field, MessageRow, Side
from otel_eval.conventions.fields import NO_TABLE, ReadTable
from otel_eval.conventions.messages import (
    Mention,
    ToolRequest,
    ToolResult,
    may_mention,
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
from otel_eval.interfaces import ClosedTrace, Wanted
from otel_eval.model import Kind
from otel_eval.span_trees import grouped
from otel_eval.trajectory.classify import ClassifiedTrace, Plan, classified
from otel_eval.trajectory.kept_messages import offered_value, restored, written
from otel_eval.trajectory.limits import RunLimits
from otel_eval.trajectory.pairing import (
    AgentMessages,
    SpanMessages,
    Window,
    fill,
    join,
    lacks_result,
)
from otel_eval.trajectory.tool_calls import ToolCallBuilder, call_builders, named


class TraceMessages:
    """The messages of a trace; each is read once, when it is first needed."""

    def __init__(self, spans: ClassifiedTrace) -> None:
        self._spans = spans
        self._of_spans: dict[int, SpanMessages] = {}
        self._of_spans_alone: dict[int, SpanMessages] = {}
        self._nearest: dict[int, AgentMessages] = {}
        self._histories = Histories()
        self._finishes: dict[int, Finish] = {}

    def of_span(self, index: int) -> SpanMessages:
        """The requests and results in the span's messages; for a model span without any, those of
        the model spans below it.
        """
        messages = self._of_spans.get(index)
        if messages is None:
            messages = self.of_span_itself(index)
            if not messages.recorded and self._spans.kinds[index] is Kind.MODEL:
                inner = self._spans.nested_models(index)
                if inner:
                    messages = _merged(messages, [*map(self.of_span_itself, inner)])
            self._of_spans[index] = messages
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
            return SpanMessages()
        attributes = _attributes(spans, index, table.messages_wanted[Side.OUTPUT])
        if KEPT_MESSAGES in attributes:
            kept_messages_of_span = restored(attributes[KEPT_MESSAGES])
            if kept_messages_of_span is not None:
                return kept_messages_of_span
        of_attributes: list[_Part] = []
        if attributes:
            for row, value in table.message_rows(Side.OUTPUT, attributes):
                of_attributes += _read_output(row, value, attributes, table)
        of_events = self._read_events(index, table)
        parts = of_attributes + of_events
        is_recorded = bool(parts) and any(part.conclusive for part in parts)
        if not (parts and any(part.mentions for part in parts)):
            read_history = partial(_read_history, spans, self._histories, index)
            return SpanMessages(recorded=is_recorded, read_history=read_history)
        output = [
            mention for part in parts if part.side is Side.OUTPUT for mention in part.mentions
        ]
        requests = [
            mention for mention in output if isinstance(mention, ToolRequest) and mention.name
        ]
        answers = [mention for mention in output if isinstance(mention, ToolResult)]
        is_broken = len(requests) + len(answers) < len(output)
        if table.convention.positional_ids:
            requests = list(map(without_positional_id, requests))
        return SpanMessages(
            requests=requests,
            answers=answers,
            recorded=is_recorded and not is_broken,
            broken=is_broken,
            read_history=partial(
                _read_history, spans, self._histories, index, of_attributes, of_events
            ),
        )

    def _read_events(self, index: int, table: ReadTable) -> list[_Part]:
        """Read the messages in the span's events and log records."""
        parts: list[_Part] = []
        for event in self._spans.events(index):
            for side, mentions in self._histories.of_event(event):
                is_conclusive = side is Side.OUTPUT and table.convention.conclusive_events
                parts.append(_Part(side, mentions, is_conclusive))
            if table.convention.results_in_user_events:
                parts.append(_Part(Side.HISTORY, self._histories.of_user_event(event)))
        return parts

    def finish(self, index: int) -> Finish:
        """How the model call of a span ended, by the span, or by one within it that says so."""
        finish = self._finishes.get(index)
        if finish is None:
            finish = Finish.UNKNOWN
            for span_index in (index, *self._spans.nested_models(index)):
                if finish is Finish.UNKNOWN:
                    finish = self._finish_of_span_itself(span_index)
            self._finishes[index] = finish
        return finish

    def _finish_of_span_itself(self, index: int) -> Finish:
        table, span = self._spans.tables[index], self._spans.readers[index]
        attributes = span.attributes(table.finish_wanted)
        finish = finish_of(table, attributes)
        if finish is not Finish.UNKNOWN:
            return finish
        recorded = span.attributes(table.messages_wanted[Side.OUTPUT])
        outputs = [
            _decoded(row, value)
            for row, value in table.message_rows(Side.OUTPUT, recorded)
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
        return self.joined(self._spans.in_order(models))

    def _of_agent(self, agent: int) -> AgentMessages:
        models = self._models_of.get(agent, [])
        return self.joined(models, [agent] if agent >= 0 else [], self.windows(models))

    @cached_property
    def _models_of(self) -> dict[int, list[int]]:
        """The indexes of model spans in order of time, by the agent that encloses them."""
        models = self._spans.in_order(self._spans.models)
        return grouped(models, self._spans.enclosing_agent.__getitem__)

    @cached_property
    def _steps_of(self) -> dict[int, list[int]]:
        """The indexes of agent spans, by the agent that encloses them."""
        return grouped(self._spans.agents, self._spans.enclosing_agent.__getitem__)

    def joined(
        self, models: list[int], agents: Sequence[int] = (), windows: Sequence[Window] = ()
    ) -> AgentMessages:
        """The messages of these spans, in order of time, as those of one agent."""
        return join([*map(self.of_span, models)], [*map(self.of_span, agents)], windows)

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


class _Part(NamedTuple):
    """What one attribute or event of a span holds.

    Attributes:
        side: whether that was produced in the span, or is from before it.
        conclusive: whether finding no tool call in it proves that none was requested.
    """

    side: Side
    mentions: Sequence[Mention]
    conclusive: bool = False


def _from_before(parts: Sequence[_Part]) -> list[Mention]:
    """The requests from before the span, and the results of tools, also those in its output."""
    return [
        mention
        for part in parts
        for mention in part.mentions
        if part.side is Side.HISTORY or isinstance(mention, ToolResult)
    ]


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
    before: Sequence[_Part] = (),
    after: Sequence[_Part] = (),
) -> Sequence[Mention]:
    """Read the messages from before the span. They are decoded only here, so histories that are
    not needed take no memory.

    Args:
        spans, histories: the trace, and the histories of its messages that were read.
        index: the span.
        before, after: further messages of the span, which come before and after those.
    """
    table = spans.tables[index]
    attributes = _attributes(spans, index, table.messages_wanted[Side.HISTORY])
    if not (attributes or before or after):
        return ()
    mentions = _from_before(before) if before else []
    for row, value in table.message_rows(Side.HISTORY, attributes, masked_too=True):
        conversation = (spans.enclosing_agent[index], row.key)
        if row.key.endswith("."):
            mentions += histories.of_family(conversation, value)
        elif not isinstance(value, str):
            mentions += read_messages(value)
        elif (history := histories.of_text(conversation, value)) and table.is_masked(value):
            mentions += [_unmasked(mention, table) for mention in history]
        else:
            mentions += history
    if after:
        mentions += _from_before(after)
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
) -> list[_Part]:
    """The requests and results that were produced in the span, and those from before it."""
    is_family = row.key.endswith(".")
    if not (
        may_mention_in(value) if is_family else not isinstance(value, str) or may_mention(value)
    ):
        return [_Part(Side.OUTPUT, (), row.conclusive)]
    messages = _decoded(row, value)
    first_new = table.value(attributes, Field.FIRST_NEW_MESSAGE)
    if isinstance(messages, list) and isinstance(first_new, int) and first_new > 0:
        messages = messages[first_new:]  # some record the messages of earlier runs before their own
    earlier: list[Any] = []
    if row.choices and isinstance(messages, list):
        earlier = [message for message in messages if not is_choice(message)]
        messages = [message for message in messages if is_choice(message)]
    mentions = read_messages(messages, plain=not isinstance(messages, str))
    if row.made:
        mentions = [
            replace(mention, hosted=True) if isinstance(mention, ToolRequest) else mention
            for mention in mentions
        ]
    parts = [_Part(Side.OUTPUT, mentions, row.conclusive)]
    if earlier:
        parts.append(_Part(Side.HISTORY, read_messages(earlier, plain=True)))
    return parts


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
