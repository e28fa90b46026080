"""What recorded messages add to tool calls: names for bare arguments, missing results and ids, or whole calls.

Messages are decoded only where something is missing. They fill gaps of tool spans, and only where a run has no tool span do
they make calls.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from itertools import chain
from typing import Any, Final

from otel_eval.conventions import Field, MessageRow, Side
from otel_eval.conventions.fields import ReadTable
from otel_eval.conventions.messages import ToolRequest, ToolResult, nested, read_messages
from otel_eval.conventions.model_calls import Histories
from otel_eval.conventions.values import decode
from otel_eval.interfaces import Steps, steps_of
from otel_eval.model import UNRECORDED, Kind, ToolCall, ToolError
from otel_eval.trajectory.classify import ClassifiedTrace
from otel_eval.trajectory.pairing import AgentMessages, SpanMessages, Window, fill, ids_of, join
from otel_eval.trajectory.tool_calls import ToolCallBuilder, named

_SPAN_STEPS: Final = 50
_EVENT_STEPS: Final = 40
_PART_STEPS: Final = 30  # of a part of flattened messages
_JOIN_STEPS: Final = 10


class TraceMessages:
    """The messages of a trace, read when they are needed, and once."""

    def __init__(self, read: ClassifiedTrace) -> None:
        self._read = read
        self._of_spans: dict[int, SpanMessages] = {}
        self._owns: dict[int, SpanMessages] = {}
        self._of_agents: dict[int, AgentMessages] = {}
        self._nearest: dict[int, AgentMessages] = {}
        self._steps_of: dict[int, list[int]] | None = None
        self._models: dict[int, list[int]] | None = None
        self._histories = Histories(read.steps)

    def of_span(self, place: int) -> SpanMessages:
        """What the messages of the span hold; of a model span that holds none, those of the model spans directly below it."""
        known = self._of_spans.get(place)
        if known is None:
            known = self._own(place)
            if not known.recorded and self._read.kinds[place] is Kind.MODEL:
                known = _merged(known, [self._own(inner) for inner in self._read.nested_models(place)])
            self._of_spans[place] = known
        return known

    def is_known_to_request(self, place: int) -> bool:
        """Whether messages that were read already show that the model span requested calls; this reads none."""
        return place in self._of_spans and bool(self._of_spans[place].requests)

    def _own(self, place: int) -> SpanMessages:
        known = self._owns.get(place)
        if known is None:
            table = self._read.table(place)
            known = self._owns[place] = SpanMessages() if table is None else _read_span(self._read, place, table, self._histories)
        return known

    def outputs(self, place: int, table: ReadTable) -> list[Any]:
        """The output messages of the span's attributes, decoded."""
        attributes = self._read.views[place].attributes(table.messages_wanted)
        if not attributes:
            return []
        rows, steps = [row for row in table.convention.messages if row.side is Side.OUTPUT], self._read.steps
        return [value for row in rows if (value := _row_value(row, attributes, table, steps)) is not None]

    def fill(self, drafts: list[ToolCallBuilder]) -> None:
        """Give the calls what only messages recorded: by call id, else by order among calls of the same name."""
        groups: dict[int, list[ToolCallBuilder]] = {}
        for draft in drafts:
            groups.setdefault(self._read.agent_above[draft.place], []).append(draft)
        for agent, group in groups.items():
            if any(self._misses(draft) for draft in group):
                messages = self._nearest_of(agent)
                if messages:
                    fill(messages, group, self._read.plan.needs, self._read.steps)

    def _misses(self, draft: ToolCallBuilder) -> bool:
        needs = self._read.plan.needs
        if "arguments" in needs and not named(draft.arguments):
            return True
        if "results" in needs and draft.result is UNRECORDED:
            return True
        return self._read.plan.wants_content_of_calls and not draft.call_id

    def _nearest_of(self, agent: int) -> AgentMessages:
        """The messages of the agent, or of the nearest one around it that recorded any (one run, several spans)."""
        own, walked = agent, []
        while agent not in self._nearest:
            walked.append(agent)
            messages = self._of_agent(agent)
            if messages or agent < 0:
                self._nearest[agent] = messages
            else:
                agent = self._read.agent_above[agent]
        self._nearest.update(dict.fromkeys(walked, self._nearest[agent]))
        return self._nearest[agent] or self._of_steps(own)

    def _of_steps(self, agent: int) -> AgentMessages:
        """The messages of the agents directly below: a framework may mark the step that asks the model as an agent."""
        if self._steps_of is None:
            self._steps_of = {}
            for place in self._read.agents:
                self._steps_of.setdefault(self._read.agent_above[place], []).append(place)
        models = [place for step in self._steps_of.get(agent, ()) for place in self._models_of(step)]
        return self._joined(sorted(models, key=self._read.moment), [])

    def _of_agent(self, agent: int) -> AgentMessages:
        known = self._of_agents.get(agent)
        if known is None:
            models = self._models_of(agent)
            known = self._of_agents[agent] = self._joined(models, [agent] if agent >= 0 else [], self._windows(models))
        return known

    def _joined(self, models: list[int], agents: list[int], windows: Sequence[Window] = ()) -> AgentMessages:
        found, of_agents = [self.of_span(place) for place in models], [self.of_span(place) for place in agents]
        for each in (*found, *of_agents):
            self._read.steps.take(_JOIN_STEPS + len(each.requests) + len(each.earlier) + len(each.results))
        return join(found, of_agents, windows)

    def _windows(self, models: list[int]) -> list[Window]:
        """When the calls that each model call requested can have started: before the next model call of the agent.

        They may start before the model call ends, since its output is streamed.
        """
        views = [self._read.views[place] for place in models]
        starts = [view.start_ns for view in views]
        after = [max(at + 1, bisect_left(starts, view.end_ns)) for at, view in enumerate(views)]
        return [
            (view.start_ns, starts[next_at] if next_at < len(starts) else None)
            for view, next_at in zip(views, after, strict=True)
        ]

    def _models_of(self, agent: int) -> list[int]:
        if self._models is None:
            self._models = {}
            for place in sorted(self._read.models, key=self._read.moment):
                self._models.setdefault(self._read.agent_above[place], []).append(place)
        return self._models.get(agent, [])

    def recover(self, models: list[int], agents: list[int]) -> list[tuple[int, ToolCall]]:
        """Calls of a run without tool spans, each with the place of the span that recorded it.

        Args:
            models: places of the run's model spans in order of time.
            agents: places of the run's agent spans in order of time.
        """
        outer = [place for place in models if not self._repeats(place)]
        sources = outer if any(self.of_span(place).requests for place in outer) else [*outer, *agents]
        requests: list[tuple[int, ToolRequest]] = []
        seen: set[str] = set()
        for place in sources:
            for request in self._made(place, spans_expected=bool(models)):
                if request.call_id not in seen:
                    requests.append((place, request))
                if request.call_id:
                    seen.add(request.call_id)
        if not requests:
            return []
        messages = self._joined([*models, *agents], [])
        ids = ids_of(messages, [(self.of_span(place), request) for place, request in requests])
        _forget_uneven(messages, [(request.name, call_id) for (_, request), call_id in zip(requests, ids, strict=True)])
        needs = self._read.plan.needs
        return [
            (place, _recovered(request, call_id, messages, needs))
            for (place, request), call_id in zip(requests, ids, strict=True)
        ]

    def _made(self, place: int, *, spans_expected: bool) -> list[ToolRequest]:
        """The requests of a span that count as calls in a run without tool spans.

        Where each call of the agent would have left a span, only those count whose tool the model's provider ran: the others
        were refused, or wait for an approval.
        """
        read, table, held = self._read, self._read.table(place), self.of_span(place)
        agent = place if read.kinds[place] is Kind.AGENT else read.agent_above[place]
        requests = [each for each in held.requests if table is not None and table.is_request(each.name)]
        if spans_expected and agent >= 0 and read.records_tools(agent):
            return [each for each in requests if each.call_id in held.executed]
        return requests

    def _repeats(self, place: int) -> bool:
        """Whether the model span describes the same model call as one around it (framework and client)."""
        above = self._read.above[place]
        return above >= 0 and self._read.kinds[above] is Kind.MODEL and self.of_span(above).recorded


def _merged(found: SpanMessages, inner: list[SpanMessages]) -> SpanMessages:
    """What one model call's messages hold, read from the spans below its own."""
    if not inner:
        return found
    return SpanMessages(
        requests=found.requests or [request for each in inner for request in each.requests],
        earlier=found.earlier or [request for each in inner for request in each.earlier],
        results=found.results or [result for each in inner for result in each.results],
        recorded=all(each.recorded for each in inner) and not found.broken,
        broken=found.broken,
    )


def _forget_uneven(messages: AgentMessages, requests: list[tuple[str, str]]) -> None:
    """Results without ids belong to requests (name, id) by their order, which holds only if none of them is missing."""
    requested = Counter(name for name, call_id in requests if call_id not in messages.results)
    for name in [name for name, results in messages.without_id.items() if len(results) != requested[name]]:
        del messages.without_id[name]


def _read_span(read: ClassifiedTrace, place: int, table: ReadTable, histories: Histories) -> SpanMessages:
    found = SpanMessages()
    read.steps.take(_SPAN_STEPS)
    view = read.views[place]
    attributes = view.attributes(table.messages_wanted)
    logs = read.logs(place)
    for event in logs:
        attributes = {**{key: value for key, value in event.attributes.items() if key not in attributes}, **attributes}
    first_new = table.value(attributes, Field.FIRST_NEW_MESSAGE)
    for row in table.convention.messages if attributes else ():
        if not (row.key in attributes or row.key.endswith(".")):
            continue
        if row.side is not Side.OUTPUT:
            found.add(row.side, _history(row, attributes, table, read.agent_above[place], histories), conclusive=row.conclusive)
            continue
        value = _row_value(row, attributes, table, read.steps)
        if value is not None:
            is_decoded = not isinstance(value, str) and not row.key.endswith(".")
            messages = read_messages(_new_messages(value, first_new), plain=is_decoded)
            found.add(row.side, messages, conclusive=row.conclusive)
    for event in chain(view.events(), logs):
        read.steps.take(_EVENT_STEPS)
        for side, mentions in histories.of_event(event):
            found.add(side, mentions, conclusive=table.convention.conclusive_events)
    if table.convention.positional_ids:
        found.forget_positional_ids()
    return found


def _history(
    row: MessageRow, attributes: dict[str, Any], table: ReadTable, agent: int, histories: Histories
) -> Sequence[ToolRequest | ToolResult]:
    if row.key.endswith("."):
        return histories.of_family(attributes, row.key) if _is_captured(attributes, row.key) else ()
    value = _recorded(row, attributes, table)
    if isinstance(value, str):
        return histories.of_text((agent, row.key), value)
    return () if value is None else read_messages(value)


def _row_value(row: MessageRow, attributes: dict[str, Any], table: ReadTable, steps: Steps) -> Any:
    if row.key.endswith("."):
        steps.take(_PART_STEPS * len(attributes))
        return nested(attributes, row.key) or None if _is_captured(attributes, row.key) else None
    value = _recorded(row, attributes, table)
    if value is None:
        return None
    steps.take(steps_of(value))
    return decode(value, literals=False)


def _recorded(row: MessageRow, attributes: dict[str, Any], table: ReadTable) -> Any:
    """The value of the row's own key; None where it is a word for none, or only a part of it is there."""
    value = attributes.get(row.key)
    if value is None:
        return None
    hidden = table.is_placeholder(row.key, value) or table.is_cut(attributes, row.key) or table.is_masked(value)
    return None if hidden else value


def _is_captured(attributes: dict[str, Any], prefix: str) -> bool:
    """Whether a flattened family of messages is there with more than what is there without their content."""
    return not all(_says_nothing(key) for key in attributes if key.startswith(prefix))


def _says_nothing(key: str) -> bool:
    """Whether a part of flattened messages is there also where their content is not captured."""
    return key.rpartition(".")[2] in ("role", "finish_reason") and "tool_call" not in key


def _new_messages(value: Any, first_new: Any) -> Any:
    """Without the messages of earlier runs that some record before their own."""
    if isinstance(value, list) and isinstance(first_new, int) and first_new > 0:
        return value[first_new:]
    return value


def _recovered(request: ToolRequest, call_id: str, messages: AgentMessages, needs: frozenset[str]) -> ToolCall:
    result = messages.results.get(call_id) if call_id else None
    if result is None and messages.without_id.get(request.name):
        result = messages.without_id[request.name].pop(0)
    arguments = request.arguments if "arguments" in needs else UNRECORDED
    if arguments is not UNRECORDED and not named(arguments):
        arguments = {} if arguments in (None, "") else {"__value__": arguments}
    return ToolCall(
        name=request.name,
        arguments=arguments,
        result=result.result if result is not None and "results" in needs else UNRECORDED,
        error=ToolError("_OTHER") if result is not None and result.failed else None,
        call_id=request.call_id,
        failure_unknown=result is None or (result.result is UNRECORDED and not result.failed),
    )
