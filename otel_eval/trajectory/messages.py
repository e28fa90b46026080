"""What recorded messages add to tool calls: names for bare arguments, missing results and ids, or
whole calls.

Messages are decoded only where something is missing. They fill gaps of tool spans, and only where a
run has no tool span do they make calls.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property, partial
from itertools import chain
from typing import Any, Final

from otel_eval.conventions import Field, MessageRow, Side
from otel_eval.conventions.fields import NO_TABLE, ReadTable
from otel_eval.conventions.messages import (
    ToolRequest,
    ToolResult,
    may_mention,
    nested,
    read_messages,
)
from otel_eval.conventions.model_calls import SEARCHED, Histories, may_mention_in
from otel_eval.conventions.values import SPACES, decode
from otel_eval.interfaces import Steps, Wanted, copier, steps_of
from otel_eval.model import UNRECORDED, Kind, ToolCall, ToolError, Unnamed
from otel_eval.trajectory.classify import ClassifiedTrace
from otel_eval.trajectory.pairing import (
    AgentMessages,
    History,
    SpanMessages,
    Window,
    fill,
    history_of,
    ids_of,
    join,
    lacks_result,
    reused_ids,
)
from otel_eval.trajectory.tool_calls import ToolCallBuilder, named

_NO_CALL: Final = ToolCall(name="")
_call: Final = copier(
    ToolCall, "name", "arguments", "result", "error", "call_id", "failure_unknown"
)

_SPAN_STEPS: Final = 50
_EVENT_STEPS: Final = 40
_PART_STEPS: Final = 15  # of a part of flattened messages, and again of one that is read
_JOIN_STEPS: Final = 10


class TraceMessages:
    """The messages of a trace; each is read once, when it is first needed."""

    def __init__(self, spans: ClassifiedTrace) -> None:
        self._spans = spans
        self._of_spans: dict[int, SpanMessages] = {}
        self._owns: dict[int, SpanMessages] = {}
        self._nearest: dict[int, AgentMessages] = {}
        self._histories = Histories(spans.steps)

    def of_span(self, place: int) -> SpanMessages:
        """The requests and results in the span's messages; for a model span without any, those of
        the model spans below it.
        """
        known = self._of_spans.get(place)
        if known is None:
            known = self._own(place)
            if not known.recorded and self._spans.kinds[place] is Kind.MODEL:
                known = _merged(
                    known, [self._own(inner) for inner in self._spans.nested_models(place)]
                )
            self._of_spans[place] = known
        return known

    def is_known_to_request(self, place: int) -> bool:
        """Whether messages that were read before show that the model span requested calls; reads no
        messages.
        """
        return place in self._of_spans and bool(self._of_spans[place].requests)

    def _own(self, place: int) -> SpanMessages:
        known = self._owns.get(place)
        if known is None:
            table = self._spans.table(place)
            is_known = table is not NO_TABLE
            known = self._owns[place] = (
                _read_span(self._spans, place, table, self._histories)
                if is_known
                else SpanMessages()
            )
        return known

    def outputs(self, place: int, table: ReadTable) -> list[Any]:
        """The output messages of the span's attributes, decoded, without texts that cannot hold a
        finish reason.
        """
        attributes, steps = (
            self._spans.readers[place].attributes(table.messages_wanted[Side.OUTPUT]),
            self._spans.steps,
        )
        return [
            _decoded(row, value, steps)
            for row, value in _rows(table, Side.OUTPUT, attributes, steps)
            # A key in JSON text could also hide in an escape.
            if not isinstance(value, str) or "eason" in value or "\\u00" in value
        ]

    def fill(self, calls: list[ToolCallBuilder]) -> None:
        """Give the calls what only messages recorded: by call id, else by order among calls of the
        same name.
        """
        groups: dict[int, list[ToolCallBuilder]] = {}
        for call in calls:
            groups.setdefault(self._spans.enclosing_agent[call.place], []).append(call)
        for agent, group in groups.items():
            if any(self._misses(call) for call in group):
                messages = self._nearest_of(agent)
                if messages:
                    fill(messages, group, self._spans.plan.needs, self._spans.steps)

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
        own, walked = agent, []
        while agent not in self._nearest:
            walked.append(agent)
            messages = self._of_agent(agent)
            if messages or agent < 0:
                self._nearest[agent] = messages
            else:
                agent = self._spans.enclosing_agent[agent]
        self._nearest.update(dict.fromkeys(walked, self._nearest[agent]))
        return self._nearest[agent] or self._of_steps(own)

    def _of_steps(self, agent: int) -> AgentMessages:
        """The messages of agents directly below the agent: a framework may record the step that
        calls the model as an agent.
        """
        models = [
            place
            for step in self._steps_of.get(agent, ())
            for place in self._models_of.get(step, ())
        ]
        return self._joined(sorted(models, key=self._spans.moment), [])

    def _of_agent(self, agent: int) -> AgentMessages:
        models = self._models_of.get(agent, [])
        return self._joined(models, [agent] if agent >= 0 else [], self._windows(models))

    @cached_property
    def _models_of(self) -> dict[int, list[int]]:
        """The places of model spans in order of time, by the agent that encloses them."""
        return self._by_agent(sorted(self._spans.models, key=self._spans.moment))

    @cached_property
    def _steps_of(self) -> dict[int, list[int]]:
        """The places of agent spans, by the agent that encloses them."""
        return self._by_agent(self._spans.agents)

    def _by_agent(self, places: list[int]) -> dict[int, list[int]]:
        found: dict[int, list[int]] = {}
        for place in places:
            found.setdefault(self._spans.enclosing_agent[place], []).append(place)
        return found

    def _joined(
        self, models: list[int], agents: list[int], windows: Sequence[Window] = ()
    ) -> AgentMessages:
        found, of_agents = (
            [self.of_span(place) for place in models],
            [self.of_span(place) for place in agents],
        )
        for each in (*found, *of_agents):
            self._spans.steps.take(_JOIN_STEPS + len(each.requests))
        return join(found, of_agents, windows, self._spans.steps)

    def _windows(self, models: list[int]) -> list[Window]:
        """When the calls that each model call requested can have started: before the next model
        call of the agent.

        They may start before the model call ends, since its output may be streamed.
        """
        readers = [self._spans.readers[place] for place in models]
        starts = [span.start_ns for span in readers]
        after = [max(at + 1, bisect_left(starts, span.end_ns)) for at, span in enumerate(readers)]
        return [
            (span.start_ns, starts[next_at] if next_at < len(starts) else None)
            for span, next_at in zip(readers, after, strict=True)
        ]

    def recover(self, models: list[int], agents: list[int]) -> list[tuple[int, ToolCall]]:
        """Calls of a run without tool spans, each with the place of the span that recorded it.

        Args:
            models: places of the run's model calls in order of time.
            agents: places of the run's agent spans in order of time.
        """
        sources = models if self._are_conclusive(models) else [*models, *agents]
        made = [
            (place, each)
            for place in sources
            for each in self._made(place, spans_expected=bool(models))
        ]
        if not made:
            return []
        reused = reused_ids(map(self.of_span, models))
        # Of requests with one id the first one counts.
        first = {each.call_id: each for _, each in reversed(made) if each.call_id not in reused}
        made = [
            (place, each)
            for place, each in made
            if not each.call_id or first.get(each.call_id, each) is each
        ]
        history, needs = (
            history_of(map(self.of_span, (*models, *agents)), self._spans.steps, reused),
            self._spans.plan.needs,
        )
        ids = [request.call_id for _, request in made]
        if not all(ids):
            ids = ids_of(
                self._joined([*models, *agents], []),
                [(self.of_span(place), request) for place, request in made],
            )
        _forget_uneven(
            history,
            [(request.name, call_id) for (_, request), call_id in zip(made, ids, strict=True)],
        )
        calls = [
            _recovered(request, call_id, history, needs)
            for (_, request), call_id in zip(made, ids, strict=True)
        ]
        return [
            (place, self._with_outcome(place, call))
            for (place, _), call in zip(made, calls, strict=True)
        ]

    def _with_outcome(self, place: int, call: ToolCall) -> ToolCall:
        """The call, whose outcome is unknown if the instrumentation leaves failures out of its
        messages.
        """
        lacks_failures = self._spans.table(place).convention.failures_unrecorded
        return (
            replace(call, failure_unknown=True) if lacks_failures and call.error is None else call
        )

    def _are_conclusive(self, models: list[int]) -> bool:
        """Whether nothing was requested but what the model calls hold; an agent's messages may be
        those of earlier runs too.
        """
        held = [self.of_span(place) for place in models]
        return any(each.requests for each in held) or (
            bool(held) and all(each.recorded for each in held)
        )

    def _made(self, place: int, *, spans_expected: bool) -> list[ToolRequest]:
        """The requests of a span that count as calls in a run without tool spans.

        Where each call of the agent would have left a span, only those count whose tool the model's
        provider ran: the others were refused, or wait for an approval.
        """
        spans, table, held = self._spans, self._spans.table(place), self.of_span(place)
        if not held.requests:
            return []
        agent = place if spans.kinds[place] is Kind.AGENT else spans.enclosing_agent[place]
        requests = [each for each in held.requests if table.is_request(each.name)]
        if spans_expected and agent >= 0 and spans.records_tools(agent):
            # The results in an agent's own messages are those of its program.
            return [each for each in requests if each.call_id in held.executed and place != agent]
        return requests


def _merged(found: SpanMessages, inner: list[SpanMessages]) -> SpanMessages:
    """Combine the messages of a model span with those of the spans below it that describe the same
    model call.
    """
    if not inner:
        return found
    merged = SpanMessages(
        requests=found.requests or [request for each in inner for request in each.requests],
        recorded=all(each.recorded for each in inner) and not found.broken,
        broken=found.broken,
    )
    merged.put_off(
        lambda: found.history()[0] or [request for each in inner for request in each.history()[0]]
    )
    merged.put_off(
        lambda: found.history()[1] or [result for each in inner for result in each.history()[1]]
    )
    return merged


def _forget_uneven(messages: History, requests: list[tuple[str, str]]) -> None:
    """Results without ids belong to requests (name, id) by their order, which holds only if none of
    them is missing.
    """
    if not messages.without_id:
        return
    requested = Counter(name for name, call_id in requests if call_id not in messages.results)
    for name in [
        name for name, results in messages.without_id.items() if len(results) != requested[name]
    ]:
        del messages.without_id[name]


def _read_span(
    spans: ClassifiedTrace, place: int, table: ReadTable, histories: Histories
) -> SpanMessages:
    found, steps = SpanMessages(positional_ids=table.convention.positional_ids), spans.steps
    steps.take(_SPAN_STEPS)
    attributes = _attributes(spans, place, table.messages_wanted[Side.OUTPUT])
    for row, value in _rows(table, Side.OUTPUT, attributes, steps):
        found.add(
            row.side, _read_output(row, value, attributes, table, steps), conclusive=row.conclusive
        )
    found.put_off(partial(_read_history, spans, place, table, histories))
    for event in chain(spans.readers[place].events(), spans.logs(place)):
        steps.take(_EVENT_STEPS)
        for side, mentions in histories.of_event(event):
            found.add(side, mentions, conclusive=table.convention.conclusive_events)
    return found


def _read_history(
    spans: ClassifiedTrace, place: int, table: ReadTable, histories: Histories
) -> list[ToolRequest | ToolResult]:
    """Read the messages from before the span. They are decoded only here, so histories that are not
    needed take no memory.
    """
    found: list[ToolRequest | ToolResult] = []
    attributes = _attributes(spans, place, table.messages_wanted[Side.HISTORY])
    for row, value in _rows(table, Side.HISTORY, attributes, spans.steps):
        conversation = (spans.enclosing_agent[place], row.key)
        if row.key.endswith("."):
            found += histories.of_family(conversation, value)
        else:
            found += (
                histories.of_text(conversation, value)
                if isinstance(value, str)
                else read_messages(value)
            )
    return found


def _attributes(spans: ClassifiedTrace, place: int, wanted: Wanted) -> dict[str, Any]:
    """The attributes of a span, and those of its log records that it has not itself; of equal keys
    the first one counts.
    """
    attributes = spans.readers[place].attributes(wanted)
    for event in spans.logs(place):
        attributes = {
            **{key: value for key, value in event.attributes.items() if key not in attributes},
            **attributes,
        }
    return attributes


def _rows(
    table: ReadTable, side: Side, attributes: dict[str, Any], steps: Steps
) -> Iterator[tuple[MessageRow, Any]]:
    """The rows of a side, each with its value, or with its family by what follows the prefix, if
    that is recorded.
    """
    is_family = not table.messages_wanted[side].keys.issuperset(attributes)
    for row in table.convention.messages if attributes else ():
        if row.side is not side:
            continue
        if not row.key.endswith("."):
            value = table.recorded(attributes, row.key)
            if value is not None and not (isinstance(value, str) and value.strip(SPACES) == "null"):
                yield row, value
        elif is_family:
            steps.take(_PART_STEPS * len(attributes))
            family = {
                key[len(row.key) :]: value
                for key, value in attributes.items()
                if key.startswith(row.key)
            }
            if any(_shows_content(row.key, part) for part in family):
                yield row, family


def _shows_content(prefix: str, part: str) -> bool:
    """Whether a part of flattened messages is there only where their content is captured."""
    return (
        part.rpartition(".")[2] not in ("role", "finish_reason")
        or "tool_call" in part
        or "tool_call" in prefix
    )


def _read_output(
    row: MessageRow, value: Any, attributes: dict[str, Any], table: ReadTable, steps: Steps
) -> Sequence[ToolRequest | ToolResult]:
    if row.key.endswith("."):
        if not may_mention_in(value):
            return ()
    elif isinstance(value, str) and not may_mention(value):
        steps.take(len(value) // SEARCHED)
        return ()
    messages = _decoded(row, value, steps)
    first_new = table.value(attributes, Field.FIRST_NEW_MESSAGE)
    if isinstance(messages, list) and isinstance(first_new, int) and first_new > 0:
        messages = messages[first_new:]  # some record the messages of earlier runs before their own
    return read_messages(messages, plain=not isinstance(messages, str))


def _decoded(row: MessageRow, value: Any, steps: Steps) -> Any:
    if row.key.endswith("."):
        steps.take(_PART_STEPS * len(value))
        return nested(value)
    steps.take(steps_of(value))
    return decode(value, literals=False)


def _recovered(
    request: ToolRequest, call_id: str, messages: History, needs: frozenset[str]
) -> ToolCall:
    result = messages.results.get(call_id) if call_id else None
    if result is None and messages.without_id.get(request.name):
        result = messages.without_id[request.name].pop(0)
    arguments = request.arguments if "arguments" in needs else UNRECORDED
    if arguments is not UNRECORDED and not named(arguments):
        arguments = {} if arguments in (None, "") else Unnamed(__value__=arguments)
    recorded = UNRECORDED if result is None else result.result
    failed = result is not None and result.failed
    shown = recorded if "results" in needs else UNRECORDED
    error = ToolError("_OTHER") if failed else None
    return _call(
        _NO_CALL,
        request.name,
        arguments,
        shown,
        error,
        request.call_id,
        recorded is UNRECORDED and not failed,
    )
