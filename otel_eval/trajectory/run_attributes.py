"""A run's own attributes: its agent, its input and output, its tokens, its labels, and the agents around each call."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final

from otel_eval.conventions import Field, Side
from otel_eval.conventions.fields import NO_TABLE, ReadTable
from otel_eval.conventions.messages import message_text, read_messages
from otel_eval.conventions.model_calls import text_in_events
from otel_eval.conventions.values import decode
from otel_eval.interfaces import steps_of
from otel_eval.model import UNRECORDED, Kind, SpanRef
from otel_eval.trajectory.classify import MAX_ENCLOSING, ClassifiedTrace
from otel_eval.trajectory.runs import Candidate

_TOKENS_STEPS: Final = 30
_GIVEN: Final = ("input", "input_tokens", "prompt_tokens")
_MADE: Final = ("output", "output_tokens", "completion_tokens")
_USER: Final = frozenset({"user", "human"})


@dataclass(slots=True)
class TokenCounts:
    """Tokens of a model call, or of all of a run; None: not recorded, or not of each of them."""

    input: int | None = None
    output: int | None = None


class RunAttributes:
    """Reads the agent, conversation, input, output and the like of runs; what several runs share is read once."""

    def __init__(self, read: ClassifiedTrace) -> None:
        self._read = read
        self._agents: dict[int, dict[str, Any]] = {}
        self._names: dict[int, str] = {}
        self._conversations: dict[int, str] = {}

    def attributes(self, place: int) -> dict[str, Any]:
        """The attributes of an agent span that its table asks for."""
        known = self._agents.get(place)
        if known is None:
            wanted = self._read.plan.agent_wanted[self._read.table(place).name]
            known = self._agents[place] = self._read.views[place].attributes(wanted)
        return known

    def agent(self, place: int) -> str:
        """The agent's name, or ""."""
        known = self._names.get(place)
        if known is None:
            name = self._read.views[place].name
            known = self._names[place] = self._read.table(place).agent_name(self.attributes(place), name)
        return known

    def agent_of_run(self, run: Candidate, agents: Sequence[int]) -> str:
        """The run's agent: its own name, else that of the only agent directly within it (a workflow around one agent)."""
        if run.fragment:
            return ""
        is_agent = self._read.kinds[run.first] is Kind.AGENT
        own = self.agent(run.first) if is_agent else self._of_other(self._read.table(run.first), run.first)
        if own:
            return own
        inner = {self.agent(place) for place in agents if self._is_of_workflow(run, place)} - {""}
        return inner.pop() if len(inner) == 1 else ""

    def _is_of_workflow(self, run: Candidate, place: int) -> bool:
        """Whether the agent is directly within the run; one that a tool call started is another agent than the run's own."""
        above = self._read.above[place]
        by_tool = above > run.first and self._read.kinds[above] is Kind.TOOL
        return not by_tool and self._read.agent_above[place] in (run.first, -1)

    def _of_other(self, table: ReadTable, place: int) -> str:
        """The agent that a span of another kind names; where tools and agents are named alike, a tool's name is none."""
        read = self.attributes(place)
        name = table.text(read, Field.AGENT_NAME)
        is_tool = self._read.kinds[place] is Kind.TOOL
        return "" if is_tool and name == table.tool_name(read, self._read.views[place].name) else name

    def conversation(self, run: Candidate, others: Sequence[int]) -> str:
        """The conversation the run belongs to: as its own span records it, else the earliest of the others that does."""
        own = "" if run.fragment else self._conversation_at(run.first)
        if own or not others:
            return own
        named = [place for place in others if self._conversation_at(place)]
        return self._conversation_at(min(named, key=self._read.moment)) if named else ""

    def _conversation_at(self, place: int) -> str:
        known = self._conversations.get(place)
        if known is None:
            known = self._read.table(place).text(self.attributes(place), Field.CONVERSATION)
            self._conversations[place] = known
        return known

    def response_id(self, place: int) -> str:
        """The id of the response that a span records, or ""."""
        return self._read.table(place).text(self.attributes(place), Field.RESPONSE_ID)

    def tokens(self, run: Candidate, models: Sequence[int]) -> TokenCounts:
        """Sums over model calls; where none of these has any, what the run's own span records.

        A sum to which a model call did not contribute is unknown. Nothing is read if no scorer needs it.
        """
        if "tokens" not in self._read.plan.needs:
            return TokenCounts()
        self._read.steps.take(_TOKENS_STEPS * len(models))
        used = [self._tokens(place) for place in models]
        if any(each != TokenCounts() for each in used):
            return _sum(used)
        return TokenCounts() if run.fragment else _tokens(self._read.table(run.first), self.attributes(run.first))

    def _tokens(self, place: int) -> TokenCounts:
        """Those of a model call; where its span has none, those of the model spans directly below it."""
        own = self._tokens_of_span(place)
        return own if own != TokenCounts() else _sum([self._tokens_of_span(each) for each in self._read.nested_models(place)])

    def _tokens_of_span(self, place: int) -> TokenCounts:
        table = self._read.table(place)
        return _tokens(table, self._read.views[place].attributes(table.tokens_wanted))

    def labels(self, run: Candidate) -> dict[str, Any]:
        """The attributes the configuration asked for: the span's, else the resource's, else the scope's."""
        wanted = self._read.plan.attributes_wanted
        if not wanted.keys or run.fragment:
            return {}
        return {**self._read.resource_scopes[run.first].shared(wanted), **self._read.views[run.first].attributes(wanted)}

    def exchange(self, run: Candidate, models: Sequence[int]) -> tuple[Any, Any]:
        """The input and the output of the run; taken from its first and last model call where it does not record them."""
        if run.fragment or "content" not in self._read.plan.needs:
            return UNRECORDED, UNRECORDED
        by_time = sorted(models, key=self._read.moment)
        own = self._own_content(run.first)
        first = [run.first, *([] if Field.INPUT in own else by_time[:1])]
        given = next((value for place in first if (value := self._content(place, Field.INPUT)) is not None), UNRECORDED)
        made = self._content(run.first, Field.OUTPUT)
        if made is None and by_time and Field.OUTPUT not in own:
            made = self._content(by_time[-1], Field.OUTPUT)
            # The run ended before its model answered if the last message only requests calls.
            made = None if not isinstance(made, str) and read_messages(made) else made
        return given, UNRECORDED if made is None else made

    def _own_content(self, place: int) -> tuple[Field, ...]:
        """What the span would have recorded itself: nothing else can stand for it, it would read otherwise."""
        return self._read.table(place).convention.own_content if self._read.kinds[place] is Kind.AGENT else ()

    def _content(self, place: int, wanted: Field) -> Any:
        table = self._table_for_content(place)
        if table is NO_TABLE:
            return None
        read = self._read.views[place].attributes(table.keys_wanted(wanted))
        value = table.value(read, wanted)
        if value is None or value == "[]":
            return text_in_events(chain(self._read.views[place].events(), self._read.logs(place)), wanted)
        self._read.steps.take(steps_of(value))
        last = wanted is Field.OUTPUT
        return message_text(decode(value), frozenset() if last else _USER, last=last or not _whole(table, read))

    def _table_for_content(self, place: int) -> ReadTable:
        """The span's table; a root that no table knows is spelt like the model and tool spans below it."""
        table = self._read.table(place)
        if table is not NO_TABLE:
            return table
        inside = [each for places in (self._read.models, self._read.tools) for each in self._inside(places, place)]
        return self._read.table(min(inside, key=self._read.moment)) if inside else table

    def _inside(self, places: list[int], top: int) -> list[int]:
        """Those of the places that are in the subtree of a span."""
        return places[bisect_left(places, top) : bisect_left(places, self._read.end(top))]


def _whole(table: ReadTable, read: dict[str, Any]) -> bool:
    """Whether the input is recorded as the whole conversation, answers included: then the question comes first."""
    outputs = {row.key for row in table.convention.messages if row.side is Side.OUTPUT}
    return any(key in outputs for key in read)


def _tokens(table: ReadTable, read: dict[str, Any]) -> TokenCounts:
    return TokenCounts(
        _count(table.value(read, Field.INPUT_TOKENS), _GIVEN),
        _count(table.value(read, Field.OUTPUT_TOKENS), _MADE),
    )


def _sum(used: list[TokenCounts]) -> TokenCounts:
    given = [each.input for each in used]
    made = [each.output for each in used]
    return TokenCounts(_total(given), _total(made))


def _total(numbers: list[int | None]) -> int | None:
    """Their sum, unknown if one of them or all are."""
    known = [number for number in numbers if number is not None]
    return sum(known) if known and len(known) == len(numbers) else None


def _count(value: Any, words: tuple[str, ...]) -> int | None:
    """A number of tokens, on its own or by one of the words in an object that holds all of a call's numbers."""
    held = decode(value, literals=False)
    if isinstance(held, dict):
        held = next((held[word] for word in words if word in held), None)
    is_count = isinstance(held, int | float) and not isinstance(held, bool) and held >= 0 and held == held // 1
    return int(held) if is_count else None


def span_refs(read: ClassifiedTrace, run: Candidate) -> tuple[SpanRef, ...]:
    """Every span of the run in order of time, each with the nearest `MAX_ENCLOSING` spans around it, in the run or not."""
    return tuple(read.visit(place) for place in sorted(range(run.first, run.last), key=read.moment))


_Path = tuple[list[int], tuple[str, ...]]
"""The places of agents, the nearest first and each negated so that they ascend, and their names, the nearest last."""


class AgentPaths:
    """Paths of agents; an agent without a name is left out, and one within another of the same name is the same agent."""

    def __init__(self, read: ClassifiedTrace, name: Callable[[int], str]) -> None:
        self._read, self._name = read, name
        self._paths: Final[dict[int, _Path]] = {}

    def of(self, place: int, first: int) -> tuple[str, ...]:
        """Names of the agents around a span that are at `first` or below it; the nearest `MAX_ENCLOSING` are looked at."""
        agent = place if self._read.kinds[place] is Kind.AGENT else self._read.agent_above[place]
        if agent == first:  # as in most runs
            return (self._name(agent),) if self._name(agent) else ()
        if agent not in self._paths:
            self._paths[agent] = self._path(agent)
        places, names = self._paths[agent]
        return names[len(names) - bisect_right(places, -first) :]

    def _path(self, agent: int) -> _Path:
        found: list[int] = []
        for _ in range(MAX_ENCLOSING):
            if agent < 0:
                break
            if self._name(agent) and not (found and self._name(agent) == self._name(found[-1])):
                found.append(agent)
            agent = self._read.agent_above[agent]
        return [-each for each in found], tuple(self._name(each) for each in reversed(found))
