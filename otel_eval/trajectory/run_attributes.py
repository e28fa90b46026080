"""Read the attributes of runs: agent, input and output, tokens, labels, and the agents that enclose
each call.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Any, Final

from otel_eval.conventions import Field, Side
from otel_eval.conventions.fields import NO_TABLE, ReadTable
from otel_eval.conventions.messages import message_text, read_messages
from otel_eval.conventions.model_calls import text_in_events
from otel_eval.conventions.values import decode
from otel_eval.model import UNRECORDED, Kind
from otel_eval.records import record
from otel_eval.span_trees import within
from otel_eval.trajectory.classify import MAX_ENCLOSING, ClassifiedTrace
from otel_eval.trajectory.runs import Candidate

_INPUT_WORDS: Final = ("input", "input_tokens", "prompt_tokens")
_OUTPUT_WORDS: Final = ("output", "output_tokens", "completion_tokens")
_USER: Final = frozenset({"user", "human"})


@record
class TokenCounts:
    """Tokens of a model call, or of all of a run; None: not recorded, or not of each of them."""

    input: int | None = None
    output: int | None = None


NO_TOKENS: Final = TokenCounts()
NO_EXCHANGE: Final = UNRECORDED, UNRECORDED
"""The input and the output of a run of which none is recorded."""

_AgentPath = tuple[list[int], tuple[str, ...]]
"""The indexes of agents, the nearest first and each negated so that they ascend, and their names,
the nearest last.
"""


class RunAttributes:
    """Reads the attributes of runs; what several runs share is read once."""

    def __init__(self, spans: ClassifiedTrace) -> None:
        self._spans = spans
        self._agents: dict[int, dict[str, Any]] = {}
        self._names: dict[int, str] = {}
        self._agent_paths: dict[int, _AgentPath] = {}

    def attributes(self, index: int) -> dict[str, Any]:
        """The attributes of an agent span that its table asks for."""
        attributes = self._agents.get(index)
        if attributes is None:
            keys = self._spans.tables[index].keys_wanted(*self._spans.plan.agent_fields)
            attributes = self._agents[index] = self._spans.readers[index].attributes(keys)
        return attributes

    def agent(self, index: int) -> str:
        """The agent's name, or ""."""
        agent_name = self._names.get(index)
        if agent_name is None:
            name = self._spans.readers[index].name
            agent_name = self._names[index] = self._spans.tables[index].agent_name(
                self.attributes(index), name
            )
        return agent_name

    def agent_path(self, agent: int, first: int) -> tuple[str, ...]:
        """Names of an agent and of those that enclose it, from `first` down, of the nearest
        `MAX_ENCLOSING`. One without a name is left out, and one within another of the same name is
        the same agent.
        """
        if agent == first:  # as in most runs
            return (self.agent(agent),) if self.agent(agent) else ()
        if agent not in self._agent_paths:
            self._agent_paths[agent] = self._find_path(agent)
        indexes, names = self._agent_paths[agent]
        return names[len(names) - bisect_right(indexes, -first) :]

    def _find_path(self, agent: int) -> _AgentPath:
        agents: list[int] = []
        for _ in range(MAX_ENCLOSING):
            if agent < 0:
                break
            if self.agent(agent) and not (agents and self.agent(agent) == self.agent(agents[-1])):
                agents.append(agent)
            agent = self._spans.enclosing_agent[agent]
        return [-index for index in agents], tuple(map(self.agent, reversed(agents)))

    def agent_of_run(self, run: Candidate, agents: list[int]) -> str:
        """The run's agent: its own name, else that of the first agent directly within it (a
        workflow, a graph, or agents that hand over to one another).
        """
        if run.fragment:
            return ""
        kind = self._spans.kinds[run.first]
        name = (
            self.agent(run.first)
            if kind is Kind.AGENT
            else self._of_other(self._spans.tables[run.first], run.first)
        )
        if name or kind is Kind.TOOL:
            return name
        inner = (
            self.agent(index)
            for index in self._spans.in_order(agents)
            if self._is_of_workflow(run, index)
        )
        return next(filter(None, inner), "")

    def _is_of_workflow(self, run: Candidate, index: int) -> bool:
        """Whether the agent is directly within the run; one that a tool call started is another
        agent than the run's own.
        """
        ancestor = self._spans.ancestor[index]
        by_tool = ancestor > run.first and self._spans.kinds[ancestor] is Kind.TOOL
        return not by_tool and self._spans.enclosing_agent[index] in (run.first, -1)

    def _of_other(self, table: ReadTable, index: int) -> str:
        """The agent's name on a span of another kind; "" for a tool whose convention uses one
        attribute for both names.
        """
        attributes = self.attributes(index)
        name = table.text(attributes, Field.AGENT_NAME)
        is_tool = self._spans.kinds[index] is Kind.TOOL
        return (
            ""
            if is_tool and name == table.tool_name(attributes, self._spans.readers[index].name)
            else name
        )

    def conversation_id(self, run: Candidate, indexes: list[int]) -> str:
        """The id of the run's conversation: from its own span, else from the earliest of the others
        that records one.
        """
        own_id = "" if run.fragment else self._conversation_id_at(run.first)
        if own_id or (indexes == [run.first] and not run.fragment):
            return own_id
        further_ids = map(self._conversation_id_at, self._spans.in_order(indexes))
        return next(filter(None, further_ids), "")

    def _conversation_id_at(self, index: int) -> str:
        return self._spans.tables[index].text(self.attributes(index), Field.CONVERSATION)

    def response_id(self, index: int) -> str:
        """The id of the response that a span records, or ""."""
        return self._spans.tables[index].text(self.attributes(index), Field.RESPONSE_ID)

    def tokens(self, run: Candidate, models: Sequence[int]) -> TokenCounts:
        """Sums over model calls; where none of these has any, what the run's own span records.

        A sum to which a model call did not contribute is unknown. Nothing is read if no scorer
        needs it.
        """
        if "tokens" not in self._spans.plan.needs:
            return NO_TOKENS
        counts = [self._tokens(index) for index in models]
        if any(count != NO_TOKENS for count in counts):
            return _sum(counts)
        return (
            NO_TOKENS
            if run.fragment
            else _tokens(self._spans.tables[run.first], self.attributes(run.first))
        )

    def _tokens(self, index: int) -> TokenCounts:
        """The tokens of a model call; if its span records none, those of the model spans directly
        below it.
        """
        counts = self._tokens_of_span(index)
        return (
            counts
            if counts != NO_TOKENS
            else _sum([self._tokens_of_span(inner) for inner in self._spans.nested_models(index)])
        )

    def _tokens_of_span(self, index: int) -> TokenCounts:
        table = self._spans.tables[index]
        return _tokens(table, self._spans.readers[index].attributes(table.tokens_wanted))

    def labels(self, run: Candidate) -> dict[str, Any]:
        """The attributes that the configuration names: from the span, else the resource, else the
        scope.
        """
        keys = self._spans.plan.attributes_wanted
        if not keys.keys or run.fragment:
            return {}
        return {
            **self._spans.resource_scopes[run.first].shared(keys),
            **self._spans.readers[run.first].attributes(keys),
        }

    def exchange(self, run: Candidate, models: Sequence[int]) -> tuple[Any, Any]:
        """The input and the output of the run; taken from its first and last model call where it
        does not record them. `models` are in order of time.
        """
        if run.fragment or "content" not in self._spans.plan.needs:
            return NO_EXCHANGE
        own_fields = self._own_content(run.first)
        first = [run.first, *([] if Field.INPUT in own_fields else models[:1])]
        run_input = next(
            (
                value
                for index in first
                if (value := self._content_text(index, Field.INPUT)) is not None
            ),
            UNRECORDED,
        )
        run_output = self._content_text(run.first, Field.OUTPUT)
        if run_output is None and models and Field.OUTPUT not in own_fields:
            run_output = self._content_text(models[-1], Field.OUTPUT)
            # The run ended before its model answered if the last message only requests calls.
            if not isinstance(run_output, str) and read_messages(run_output):
                run_output = None
        return run_input, UNRECORDED if run_output is None else run_output

    def _own_content(self, index: int) -> tuple[Field, ...]:
        """Which of input and output an agent span records whenever content is captured, or lost
        with other attributes: no model call can replace them.
        """
        if self._spans.readers[index].dropped_attributes:
            return (Field.INPUT, Field.OUTPUT)
        return (
            self._spans.tables[index].convention.own_content
            if self._spans.kinds[index] in (Kind.AGENT, Kind.OTHER)
            else ()
        )

    def _content_text(self, index: int, content: Field) -> Any:
        """The text of a span's input (the user's) or output, in its attributes or else its events;
        None if neither has one.
        """
        table = self._table_for_content(index)
        if table is NO_TABLE:
            return None
        attributes = self._spans.readers[index].attributes(table.keys_wanted(content))
        value = table.value(attributes, content)
        if value is None or value == "[]":
            return text_in_events(self._spans.events(index), content)
        last = content is Field.OUTPUT
        return message_text(
            decode(value),
            frozenset() if last else _USER,
            last=last or not _whole(table, attributes),
        )

    def _table_for_content(self, index: int) -> ReadTable:
        """The span's table; for a root that no table recognises, the table of the first model or
        tool span below it.
        """
        table = self._spans.tables[index]
        if table is not NO_TABLE:
            return table
        inside = [
            inner
            for indexes in (self._spans.models, self._spans.tools)
            for inner in within(indexes, index, self._spans.end(index))
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


def _sum(counts_of_spans: list[TokenCounts]) -> TokenCounts:
    return TokenCounts(
        _total([counts.input for counts in counts_of_spans]),
        _total([counts.output for counts in counts_of_spans]),
    )


def _total(numbers: list[int | None]) -> int | None:
    """The sum; None if one of the numbers is unknown, or there are none."""
    recorded = [number for number in numbers if number is not None]
    return sum(recorded) if recorded and len(recorded) == len(numbers) else None


def _count(value: Any, words: tuple[str, ...]) -> int | None:
    """A number of tokens, on its own or by one of the words in an object that holds all of a call's
    numbers.
    """
    count = decode(value, literals=False)
    if isinstance(count, dict):
        count = next((count[word] for word in words if word in count), None)
    is_count = (
        isinstance(count, int | float)
        and not isinstance(count, bool)
        and count >= 0
        and count == count // 1
    )
    return int(count) if is_count else None
