"""Read the attributes of runs: agent, input and output, tokens, labels, and the agents that enclose
each call.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from otel_eval.conventions import Field, Side
from otel_eval.conventions.fields import NO_TABLE, ReadTable
from otel_eval.conventions.messages import message_text, read_messages
from otel_eval.conventions.model_calls import text_in_events
from otel_eval.conventions.values import decode
from otel_eval.model import UNRECORDED, Kind
from otel_eval.span_trees import within
from otel_eval.trajectory.classify import MAX_ENCLOSING, ClassifiedTrace
from otel_eval.trajectory.runs import Candidate

_INPUT_WORDS: Final = ("input", "input_tokens", "prompt_tokens")
_OUTPUT_WORDS: Final = ("output", "output_tokens", "completion_tokens")
_USER: Final = frozenset({"user", "human"})


@dataclass(slots=True)
class TokenCounts:
    """Tokens of a model call, or of all of a run; None: not recorded, or not of each of them."""

    input: int | None = None
    output: int | None = None


_AgentPath = tuple[list[int], tuple[str, ...]]
"""The places of agents, the nearest first and each negated so that they ascend, and their names,
the nearest last.
"""


class RunAttributes:
    """Reads the attributes of runs; what several runs share is read once."""

    def __init__(self, spans: ClassifiedTrace) -> None:
        self._spans = spans
        self._agents: dict[int, dict[str, Any]] = {}
        self._names: dict[int, str] = {}
        self._conversation_ids: dict[int, str] = {}
        self._agent_paths: dict[int, _AgentPath] = {}

    def attributes(self, place: int) -> dict[str, Any]:
        """The attributes of an agent span that its table asks for."""
        known = self._agents.get(place)
        if known is None:
            wanted = self._spans.tables[place].keys_wanted(*self._spans.plan.agent_fields)
            known = self._agents[place] = self._spans.readers[place].attributes(wanted)
        return known

    def agent(self, place: int) -> str:
        """The agent's name, or ""."""
        known = self._names.get(place)
        if known is None:
            name = self._spans.readers[place].name
            known = self._names[place] = self._spans.tables[place].agent_name(
                self.attributes(place), name
            )
        return known

    def agent_path(self, agent: int, first: int) -> tuple[str, ...]:
        """Names of an agent and of those that enclose it, from `first` down, of the nearest
        `MAX_ENCLOSING`. One without a name is left out, and one within another of the same name is
        the same agent.
        """
        if agent == first:  # as in most runs
            return (self.agent(agent),) if self.agent(agent) else ()
        if agent not in self._agent_paths:
            self._agent_paths[agent] = self._find_path(agent)
        places, names = self._agent_paths[agent]
        return names[len(names) - bisect_right(places, -first) :]

    def _find_path(self, agent: int) -> _AgentPath:
        agents: list[int] = []
        for _ in range(MAX_ENCLOSING):
            if agent < 0:
                break
            if self.agent(agent) and not (agents and self.agent(agent) == self.agent(agents[-1])):
                agents.append(agent)
            agent = self._spans.enclosing_agent[agent]
        return [-place for place in agents], tuple(map(self.agent, reversed(agents)))

    def agent_of_run(self, run: Candidate, agents: Sequence[int]) -> str:
        """The run's agent: its own name, else that of the first agent directly within it (a
        workflow, a graph, or agents that hand over to one another).
        """
        if run.fragment:
            return ""
        kind = self._spans.kinds[run.first]
        own = (
            self.agent(run.first)
            if kind is Kind.AGENT
            else self._of_other(self._spans.tables[run.first], run.first)
        )
        if own or kind is Kind.TOOL:
            return own
        inner = (
            place for place in agents if self._is_of_workflow(run, place) and self.agent(place)
        )
        first = min(inner, key=self._spans.moment, default=None)
        return "" if first is None else self.agent(first)

    def _is_of_workflow(self, run: Candidate, place: int) -> bool:
        """Whether the agent is directly within the run; one that a tool call started is another
        agent than the run's own.
        """
        ancestor = self._spans.ancestor[place]
        by_tool = ancestor > run.first and self._spans.kinds[ancestor] is Kind.TOOL
        return not by_tool and self._spans.enclosing_agent[place] in (run.first, -1)

    def _of_other(self, table: ReadTable, place: int) -> str:
        """The agent's name on a span of another kind; "" for a tool whose convention uses one
        attribute for both names.
        """
        attributes = self.attributes(place)
        name = table.text(attributes, Field.AGENT_NAME)
        is_tool = self._spans.kinds[place] is Kind.TOOL
        return (
            ""
            if is_tool and name == table.tool_name(attributes, self._spans.readers[place].name)
            else name
        )

    def conversation_id(self, run: Candidate, others: Sequence[int]) -> str:
        """The id of the run's conversation: from its own span, else from the earliest of the others
        that records one.
        """
        own = "" if run.fragment else self._conversation_id_at(run.first)
        if own or not others:
            return own
        named = [place for place in others if self._conversation_id_at(place)]
        return self._conversation_id_at(min(named, key=self._spans.moment)) if named else ""

    def _conversation_id_at(self, place: int) -> str:
        known = self._conversation_ids.get(place)
        if known is None:
            known = self._spans.tables[place].text(self.attributes(place), Field.CONVERSATION)
            self._conversation_ids[place] = known
        return known

    def response_id(self, place: int) -> str:
        """The id of the response that a span records, or ""."""
        return self._spans.tables[place].text(self.attributes(place), Field.RESPONSE_ID)

    def tokens(self, run: Candidate, models: Sequence[int]) -> TokenCounts:
        """Sums over model calls; where none of these has any, what the run's own span records.

        A sum to which a model call did not contribute is unknown. Nothing is read if no scorer
        needs it.
        """
        if "tokens" not in self._spans.plan.needs:
            return TokenCounts()
        used = [self._tokens(place) for place in models]
        if any(each != TokenCounts() for each in used):
            return _sum(used)
        return (
            TokenCounts()
            if run.fragment
            else _tokens(self._spans.tables[run.first], self.attributes(run.first))
        )

    def _tokens(self, place: int) -> TokenCounts:
        """The tokens of a model call; if its span records none, those of the model spans directly
        below it.
        """
        own = self._tokens_of_span(place)
        return (
            own
            if own != TokenCounts()
            else _sum([self._tokens_of_span(each) for each in self._spans.nested_models(place)])
        )

    def _tokens_of_span(self, place: int) -> TokenCounts:
        table = self._spans.tables[place]
        return _tokens(table, self._spans.readers[place].attributes(table.tokens_wanted))

    def labels(self, run: Candidate) -> dict[str, Any]:
        """The attributes that the configuration names: from the span, else the resource, else the
        scope.
        """
        wanted = self._spans.plan.attributes_wanted
        if not wanted.keys or run.fragment:
            return {}
        return {
            **self._spans.resource_scopes[run.first].shared(wanted),
            **self._spans.readers[run.first].attributes(wanted),
        }

    def exchange(self, run: Candidate, models: Sequence[int]) -> tuple[Any, Any]:
        """The input and the output of the run; taken from its first and last model call where it
        does not record them. `models` are in order of time.
        """
        if run.fragment or "content" not in self._spans.plan.needs:
            return UNRECORDED, UNRECORDED
        own = self._own_content(run.first)
        first = [run.first, *([] if Field.INPUT in own else models[:1])]
        run_input = next(
            (value for place in first if (value := self._content(place, Field.INPUT)) is not None),
            UNRECORDED,
        )
        run_output = self._content(run.first, Field.OUTPUT)
        if run_output is None and models and Field.OUTPUT not in own:
            run_output = self._content(models[-1], Field.OUTPUT)
            # The run ended before its model answered if the last message only requests calls.
            if not isinstance(run_output, str) and read_messages(run_output):
                run_output = None
        return run_input, UNRECORDED if run_output is None else run_output

    def _own_content(self, place: int) -> tuple[Field, ...]:
        """Which of input and output an agent span records whenever content is captured, or lost
        with other attributes: no model call can replace them.
        """
        if self._spans.readers[place].dropped_attributes:
            return (Field.INPUT, Field.OUTPUT)
        return (
            self._spans.tables[place].convention.own_content
            if self._spans.kinds[place] in (Kind.AGENT, Kind.OTHER)
            else ()
        )

    def _content(self, place: int, wanted: Field) -> Any:
        table = self._table_for_content(place)
        if table is NO_TABLE:
            return None
        attributes = self._spans.readers[place].attributes(table.keys_wanted(wanted))
        value = table.value(attributes, wanted)
        if value is None or value == "[]":
            return text_in_events(self._spans.events(place), wanted)
        last = wanted is Field.OUTPUT
        return message_text(
            decode(value),
            frozenset() if last else _USER,
            last=last or not _whole(table, attributes),
        )

    def _table_for_content(self, place: int) -> ReadTable:
        """The span's table; for a root that no table recognises, the table of the first model or
        tool span below it.
        """
        table = self._spans.tables[place]
        if table is not NO_TABLE:
            return table
        inside = [
            each
            for places in (self._spans.models, self._spans.tools)
            for each in within(places, place, self._spans.end(place))
        ]
        return self._spans.tables[min(inside, key=self._spans.moment)] if inside else table


def _whole(table: ReadTable, attributes: dict[str, Any]) -> bool:
    """Whether the input is recorded as the whole conversation, answers included: then the question
    comes first.
    """
    outputs = {row.key for row in table.convention.messages if row.side is Side.OUTPUT}
    return any(key in outputs for key in attributes)


def _tokens(table: ReadTable, attributes: dict[str, Any]) -> TokenCounts:
    return TokenCounts(
        _count(table.value(attributes, Field.INPUT_TOKENS), _INPUT_WORDS),
        _count(table.value(attributes, Field.OUTPUT_TOKENS), _OUTPUT_WORDS),
    )


def _sum(used: list[TokenCounts]) -> TokenCounts:
    return TokenCounts(
        _total([counts.input for counts in used]), _total([counts.output for counts in used])
    )


def _total(numbers: list[int | None]) -> int | None:
    """The sum; None if one of the numbers is unknown, or there are none."""
    known = [number for number in numbers if number is not None]
    return sum(known) if known and len(known) == len(numbers) else None


def _count(value: Any, words: tuple[str, ...]) -> int | None:
    """A number of tokens, on its own or by one of the words in an object that holds all of a call's
    numbers.
    """
    held = decode(value, literals=False)
    if isinstance(held, dict):
        held = next((held[word] for word in words if word in held), None)
    is_count = (
        isinstance(held, int | float)
        and not isinstance(held, bool)
        and held >= 0
        and held == held // 1
    )
    return int(held) if is_count else None
