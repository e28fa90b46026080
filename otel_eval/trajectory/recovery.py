"""Tool requests without a span: those that were answered are calls, the others are open.

A request is paired with a call that left a span by its id, else by the tool's name within the
window of its model call. What is left was a call if a later message answers it, or if the model's
provider ran the tool; a hand-off, a request for the run's output and a repetition from an earlier
turn are none. What is decided here does not depend on what scorers read.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice, pairwise
from operator import attrgetter
from typing import Any, Final, TypeVar

from otel_eval.caching import cached_property
from otel_eval.conventions.fields import ReadTable
from otel_eval.conventions.messages import ToolRequest, ToolResult
from otel_eval.conventions.model_calls import OFFERED_WANTED, OfferedTools, offered_tools
from otel_eval.conventions.tool_spans import result_text
from otel_eval.conventions.values import frozen
from otel_eval.model import REFUSED, UNRECORDED, Kind, ToolError
from otel_eval.records import record
from otel_eval.span_trees import grouped, holds
from otel_eval.trajectory.classify import ClassifiedTrace
from otel_eval.trajectory.limits import RunLimits
from otel_eval.trajectory.messages import TraceMessages
from otel_eval.trajectory.pairing import NO_MESSAGES, SpanMessages, Window, ids_of
from otel_eval.trajectory.tool_calls import (
    MOMENT,
    ToolCallBuilder,
    call_id_of,
    in_an_object,
    mcp_name,
    named,
    recorded_arguments,
)

_MOST_LATER: Final = 16  # later messages in which the answer to a request is looked for
_MOST_AGENTS: Final = 8  # agents around a model call that are asked

Moment = tuple[int, int, bytes]
"""The key by which calls are ordered."""

Key = tuple[str, str]
"""What a request and its answer have in common: an id or a name."""

_NAMELESS: Final[Key] = ("name", "")
_INDEX: Final = attrgetter("index")


@dataclass(slots=True, eq=False)
class Request:
    """A request, and what became of it.

    Attributes:
        index: the span whose output holds it.
        owner: the agent that made it, see `ClassifiedTrace.owner`.
        asked: what the message holds.
        call_id: the id, also where only a later message has it.
        window: when the call can have started.
        position: its number among all requests of its output, from 1.
        number: that among those with the same key.
        calls: the calls with spans that it is paired with; several of several instrumentations.
    """

    index: int
    owner: int
    asked: ToolRequest
    call_id: str
    window: Window
    position: int
    number: int = 1
    calls: list[ToolCallBuilder] = field(default_factory=list)

    @property
    def key(self) -> Key:
        """What an answer has in common with it."""
        return ("id", self.call_id) if self.call_id else ("name", self.asked.name)


@record
class Recovered:
    """A call that left no span; fields that are not listed as in `ToolCall`.

    Attributes:
        index: the span whose output requested it.
        moment: where it stands among the calls of the run.
    """

    index: int
    moment: Moment
    name: str
    arguments: Any
    result: Any
    error: ToolError | None
    call_id: str
    failure_unknown: bool
    message: str
    refusal: bool | None


_Indexed = TypeVar("_Indexed", ToolCallBuilder, Request, Recovered)


def of_range(values: list[_Indexed], first: int, last: int) -> list[_Indexed]:
    """Those of calls or requests, in order of index, whose spans are in a range of indexes."""
    start = bisect_left(values, first, key=_INDEX)
    return values[start : bisect_left(values, last, start, key=_INDEX)]


class UnspannedCalls:
    """The requests of a trace that left no span.

    Attributes:
        calls: the calls among them, in order of index.
        open: those that were not answered, in order of index.
        requesting: indexes of the spans that are known to have requested tools, also where only a
            later message shows it.
    """

    def __init__(self, spans: ClassifiedTrace, messages: TraceMessages, limits: RunLimits) -> None:
        self._spans = spans
        self._messages = messages
        self._limits = limits
        # by index of a span
        self._asked: dict[int, Sequence[ToolRequest]] = {}
        self._own_answers: dict[int, dict[Key, list[ToolResult]]] = {}
        self._answers: dict[int, dict[Key, list[ToolResult]]] = {}
        self._repeated: dict[int, frozenset[tuple[str, str]]] = {}
        self._asked_before: dict[int, dict[str, list[int]]] = {}
        self._offered: dict[int, OfferedTools] = {}
        self._tables_of: dict[int, Sequence[ReadTable]] = {}
        self.calls: list[Recovered] = []
        self.open: list[Request] = []
        self.requesting: set[int] = set()

    def find(self, calls: Sequence[ToolCallBuilder]) -> None:
        """Find them.

        Args:
            calls: those that left spans; each learns which message requested it.
        """
        requests = self._requests()
        if not requests:
            return
        self._limits.limit_requests([request.index for request in requests])
        requests = self._readable(requests)
        self.requesting = {request.index for request in requests}
        surplus = self._without_span(requests, calls)
        if surplus and (
            self._name_ids(requests)
            or any(call_id_of(self._spans, call) != call.attribute_id for call in calls)
        ):
            surplus = self._without_span(requests, calls, ids_of_content=True)
        surplus = [request for request in surplus if self._is_for_a_tool(request)]
        surplus = self._without_handoffs(self._readable(surplus))
        if surplus or any(call.error for call in calls):
            self._sort_out(self._readable(requests), surplus)

    def _readable(self, requests: list[Request]) -> list[Request]:
        """The requests of runs that are not too large."""
        if not self._limits.is_any_refused:
            return requests
        return [request for request in requests if not self._limits.reason(request.index)]

    def _without_span(
        self,
        requests: list[Request],
        calls: Sequence[ToolCallBuilder],
        *,
        ids_of_content: bool = False,
    ) -> list[Request]:
        """Pair the requests with the calls that left spans; returns those that no call is paired
        with, in order.

        Args:
            requests: all requests.
            calls: the calls.
            ids_of_content: whether to read ids that stand only in the content of calls.
        """
        if not calls:
            return requests
        for request in requests:
            request.calls = []
        lookup = _RequestIndex(requests)
        # Each instrumentation describes the same calls, so the spans of each are paired with all
        # requests.
        for group in grouped(calls, attrgetter("scope")).values():
            _ScopePairing(self._spans, group, lookup, self._limits, ids_of_content).pair()
        return [request for request in requests if not request.calls]

    # What was requested

    def _requests(self) -> list[Request]:
        """The requests of the trace, each once, in order of time; those of agents' own messages
        last.
        """
        spans, messages = self._spans, self._messages
        requests: list[Request] = []
        first_indexes: dict[tuple[int, str], int] = {}
        for owner, models in spans.model_calls_of.items():
            outputs = [messages[index] for index in models]
            asked = [output.requests for output in outputs]
            for number, (output, following) in enumerate(pairwise(outputs)):
                if not (output.recorded or output.requests or following is NO_MESSAGES):
                    asked[number] = _first_repeated(output, following)
            self._asked.update(zip(models, asked, strict=True))
            if any(asked):
                windows = messages.windows(models)
                for index, window, asked_in in zip(models, windows, asked, strict=True):
                    requests += self._requests_of(index, owner, window, asked_in, first_indexes)
        # An agent's messages repeat those of the agents inside it, so these are read first.
        requesting = [index for index in spans.model_calls if messages[index].requests]
        silent = [index for index in spans.model_calls if not messages[index].recorded]
        for agent in reversed(spans.agents):
            if not self._are_conclusive(agent, requesting, silent):
                asked_in = self._asked[agent] = messages[agent].requests
                window = spans.starts[agent], None
                requests += self._requests_of(agent, agent, window, asked_in, first_indexes)
        return requests

    def _requests_of(
        self,
        index: int,
        owner: int,
        window: Window,
        asked_in: Sequence[ToolRequest],
        first_indexes: dict[tuple[int, str], int],
    ) -> Iterator[Request]:
        """Yield the requests in a span's output, without those of no tool and repeated ones.

        `first_indexes` has, by root and call id, the first span whose output holds that request;
        the span's own are added.
        """
        table, root = self._spans.tables[index], self._spans.tree.root_of(index)
        is_model = self._spans.kinds[index] is Kind.MODEL
        ids: set[str] = set()
        for position, asked in enumerate(asked_in, 1):
            first = (
                first_indexes.setdefault((root, asked.call_id), index) if asked.call_id else index
            )
            # A model that numbers its calls anew gives one id to requests of several answers.
            if first != index and not (is_model and self._is_other_answer(first, index)):
                continue
            # The same message may stand in an attribute and in an event.
            if asked.call_id in ids:
                continue
            ids.update([asked.call_id] if asked.call_id else [])
            if table.is_request(asked.name):
                yield Request(index, owner, asked, asked.call_id, window, position)

    def _number_of(self, index: int, owner: int) -> int:
        """The number of a span in order of time among the model calls of an agent."""
        models = self._spans.model_calls_of.get(owner, [])
        first = bisect_left(self._spans.model_starts_of.get(owner, []), self._spans.starts[index])
        if models[first : first + 1] == [index]:
            return first
        # others started at the same time
        moment = self._spans.moment
        return bisect_left(models, moment(index), first, key=moment)

    def _is_other_answer(self, one: int, other: int) -> bool:
        """Whether two model calls are certainly two, and not one that two instrumentations
        recorded.
        """
        first, second = self._spans.readers[one], self._spans.readers[other]
        if first.end_ns <= second.start_ns or second.end_ns <= first.start_ns:
            return True
        owners = self._spans.owners[one], self._spans.owners[other]
        return not (owners[0] in self._agents(owners[1]) or owners[1] in self._agents(owners[0]))

    def _agents(self, owner: int) -> list[int]:
        """The owner, and the nearest agents around it."""
        agents = [owner]
        while agents[-1] >= 0 and len(agents) < _MOST_AGENTS:
            agents.append(self._spans.owners[agents[-1]])
        return agents

    def _are_conclusive(self, agent: int, requesting: list[int], silent: list[int]) -> bool:
        """Whether nothing was requested but what the model calls below an agent hold; its own
        messages may be those of earlier runs too.

        Args:
            agent: the agent.
            requesting: indexes of the model calls that hold requests.
            silent: those of the model calls whose output was not recorded.
        """
        end = self._spans.end(agent)
        if holds(requesting, agent, end):
            return True
        return holds(self._spans.model_calls, agent, end) and not holds(silent, agent, end)

    def _name_ids(self, requests: list[Request]) -> bool:
        """Give requests without ids those by which later messages repeat them; whether there are
        any.
        """
        if all(request.call_id for request in requests):
            return False
        root_of = self._spans.tree.root_of
        indexes_of = grouped((*self._spans.model_calls, *self._spans.agents), root_of)
        by_root = grouped(requests, lambda request: root_of(request.index))
        for root, group in by_root.items():
            indexes = self._spans.in_order(indexes_of.get(root, []))
            ids = ids_of(
                [self._messages[index] for index in indexes],
                [(self._messages[request.index], request.asked) for request in group],
            )
            for request, call_id in zip(group, ids, strict=True):
                request.call_id = call_id
        return True

    # What was no request for a tool

    def _is_for_a_tool(self, request: Request) -> bool:
        return request.asked.name not in self._tools_of(request.index).outputs

    def _tools_of(self, index: int) -> OfferedTools:
        tools = self._offered.get(index)
        if tools is None:
            attributes = self._spans.readers[index].attributes(OFFERED_WANTED)
            tools = self._offered[index] = offered_tools(attributes)
        return tools

    def _without_handoffs(self, surplus: list[Request]) -> list[Request]:
        """The requests without those that a hand-off in their window answers."""
        spans = self._spans
        starts: dict[int, list[int]] = {}
        if surplus and len(spans.tools) + len(spans.agents) + len(spans.models) < len(spans.kinds):
            for index, classification in enumerate(spans.classifications):
                if classification.handoff:
                    starts.setdefault(spans.owners[index], []).append(spans.starts[index])
        if not starts:
            return surplus
        for owner in starts:
            starts[owner].sort()
        unanswered: list[Request] = []
        # What has no answer is more likely to be the hand-off, and so is what is named after one.
        for request in sorted(surplus, key=_is_named_as_call):
            first, last = request.window
            handoffs = starts.get(request.owner, [])
            at = bisect_left(handoffs, first)
            if at < len(handoffs) and (last is None or handoffs[at] <= last):
                del handoffs[at]
            else:
                unanswered.append(request)
        return sorted(unanswered, key=_INDEX)

    # What was answered

    def _sort_out(self, requests: list[Request], surplus: list[Request]) -> None:
        """Sort requests without a span into `calls`, with their place among the others, and `open`,
        which nothing answered; tell calls with spans which message asked for them, and whether they
        were refused.
        """
        answers, followed = self._answered(requests, surplus)
        spans, index, moment = self._spans, -1, (0, 0, b"")
        # What a later history repeats may stem from several messages.
        batches = {
            request.index for request in surplus if self._messages[request.index].requests
        } - set(spans.agents)
        for number, request in enumerate(requests):
            if request.index != index:
                index, moment = request.index, spans.moment(request.index)
            message = spans.hex_id(index) if index in batches else ""
            if request.calls:
                moment = max(moment, MOMENT(min(request.calls, key=attrgetter("start"))))
                for call in request.calls:
                    call.message = message
                self._find_refusals(request)
            if id(request) not in answers:
                continue
            answer = answers[id(request)]
            if answer is None and not self._is_answered(request, went_on=index in followed):
                self.open += [] if self._is_for_client(request) else [request]
            elif answer is None or not self._is_output(request, answer):
                at = (*moment[:2], moment[2] + number.to_bytes(4))
                self.calls.append(self._recovered(request, answer, message, at))
        self.calls.sort(key=_INDEX)
        self.open.sort(key=_INDEX)

    def _answered(
        self, requests: list[Request], surplus: list[Request]
    ) -> tuple[dict[int, ToolResult | None], set[int]]:
        """The answers to the surplus requests by their identities, and the indexes of model calls
        after which the agent went on.
        """
        numbers: dict[tuple[int, Key], int] = {}
        for request in requests:
            key = request.index, request.key
            request.number = numbers[key] = numbers.get(key, 0) + 1
        answers = {id(request): self._answer_beside(request) for request in surplus}
        followed = {request.index for request in surplus if request.window[1]}
        for request in surplus:
            if answers[id(request)] is None:
                answers[id(request)] = answer = self._later_answer(request)
                followed.update([request.index] if answer else [])
        return answers, followed

    def _is_answered(self, request: Request, *, went_on: bool) -> bool:
        """Whether a request whose answer was not recorded had one for certain: the provider ran the
        tool; or the agent went on, and its calls leave no spans, or there is no such tool.
        """
        spans, agent = self._spans, request.owner
        if request.asked.hosted:
            return True
        has_span = spans.records_tools(request.index) or (agent >= 0 and spans.records_tools(agent))
        return went_on and (not has_span or self._is_refusal(request, None))

    def _is_for_client(self, request: Request) -> bool:
        """Whether an unanswered request left the call to the program around the agent, with which
        the agent ended; a model call by itself is not known to have ended so.
        """
        spans, index = self._spans, request.index
        is_alone = spans.kinds[index] is Kind.MODEL and spans.tree.root_of(index) == index
        if is_alone or request.window[1] is not None:
            return False
        name = request.asked.name
        offered_type = self._tools_of(index).types.get(name, "")
        return any(table.is_client_tool(name, offered_type) for table in self._tables(request))

    def _answer_beside(self, request: Request) -> ToolResult | None:
        """The result of a request in the same output, or None."""
        answers = self._answers_beside(request.index).get(request.key, ())
        return answers[request.number - 1] if len(answers) >= request.number else None

    def _answers_beside(self, index: int) -> Mapping[Key, list[ToolResult]]:
        """The results in the output of a span, by id and, without ids, by name."""
        if index not in self._own_answers:
            self._own_answers[index] = _by_key(self._messages[index].answers)
        return self._own_answers[index]

    def _later_answer(self, request: Request) -> ToolResult | None:
        """The result of a request in a later message, or None; without content if it is not certain
        which of several it is.
        """
        beside = self._answers_beside(request.index)
        before: dict[Key, list[ToolResult]] = {}
        if self._spans.kinds[request.index] is Kind.MODEL:
            before = self._answers_in(request.index)
        for key, number, least in (
            (request.key, request.number, request.number),
            # Results without ids and names are in the order of the requests if all are there.
            (_NAMELESS, request.position, len(self._asked[request.index])),
        ):
            answered = len(before.get(key, ())) - len(beside.get(key, ()))
            for index in self._later(request):
                results = self._answers_in(index).get(key, ())
                if len(results) >= answered + least:
                    is_certain = key[0] == "id" or answered == self._expected(request, key)
                    answer = results[answered + number - 1]
                    return answer if is_certain else ToolResult(answer.call_id, answer.name)
        return None

    def _expected(self, request: Request, key: Key) -> int:
        """How many results of a key without an id there are before a request if none is missing:
        those from before the run, and one for each earlier request of its agent.
        """
        models = self._spans.model_calls_of.get(request.owner, [])
        at = self._number_of(request.index, request.owner)
        asked = self._asked_by_name(request.owner).get("" if key is _NAMELESS else key[1], ())
        first = self._answers_in(models[0]).get(key, ()) if models else ()
        return len(first) + bisect_left(asked, at)

    def _asked_by_name(self, owner: int) -> Mapping[str, list[int]]:
        """The number of the model call of each request of an agent, by the tool's name and, under
        "", of all of them.
        """
        if owner not in self._asked_before:
            by_name = self._asked_before[owner] = {"": []}
            for number, index in enumerate(self._spans.model_calls_of.get(owner, ())):
                for asked in self._asked[index]:
                    by_name[""].append(number)
                    if asked.name:
                        by_name.setdefault(asked.name, []).append(number)
        return self._asked_before[owner]

    def _later(self, request: Request) -> Iterator[int]:
        """The spans whose messages may hold the answer to a request, the most likely first."""
        spans, models = self._spans, self._spans.model_calls_of.get(request.owner, [])
        if spans.kinds[request.index] is Kind.MODEL:
            at = self._number_of(request.index, request.owner)
            yield from models[at + 1 : at + 1 + _MOST_LATER]
            if at + 1 + _MOST_LATER < len(models):
                yield models[-1]
            if len(spans.model_calls_of) > 1:
                yield from self._later_steps(request)
        yield from (agent for agent in self._agents(request.owner) if agent >= 0)

    def _later_steps(self, request: Request) -> Iterator[int]:
        """Model calls of other agents after the request that repeat it: a framework may record each
        step as an agent.
        """
        spans, root = self._spans, self._spans.tree.root_of(request.index)
        models = spans.model_calls_in_order
        after = bisect_right(models, spans.moment(request.index), key=spans.moment)
        steps = (
            index
            for index in models[after : after + _MOST_LATER]
            if spans.owners[index] != request.owner and spans.tree.root_of(index) == root
        )
        repeated = request.asked.name, request.call_id
        yield from (index for index in steps if repeated in self._repeated_in(index))

    def _repeated_in(self, index: int) -> frozenset[tuple[str, str]]:
        """Names and ids of the requests from before a span that its messages repeat."""
        if index not in self._repeated:
            earlier, _ = self._messages[index].history()
            self._repeated[index] = frozenset(
                (request.name, request.call_id) for request in earlier
            )
        return self._repeated[index]

    def _answers_in(self, index: int) -> dict[Key, list[ToolResult]]:
        """The results in the messages of a span, by id and, without ids, by name."""
        answers = self._answers.get(index)
        if answers is None:
            _, results = self._messages[index].history()
            answers = self._answers[index] = _by_key(results)
        return answers

    def _is_output(self, request: Request, answer: ToolResult) -> bool:
        """Whether the request was the run's output, by the form of its answer."""
        if answer.meaning == "output":
            return True
        tables = [table for table in self._tables(request) if table.convention.output_results]
        text = result_text(answer.result) if tables else ""
        return bool(text) and any(table.is_output(text) for table in tables)

    def _is_refusal(self, request: Request, answer: ToolResult | None) -> bool:
        """Whether the framework did not run the tool."""
        if answer is not None:
            if answer.meaning == "refused":
                return True
            tables = [table for table in self._tables(request) if table.convention.refusals]
            text = result_text(answer.result) if tables else ""
            if text and any(table.is_refusal(text) for table in tables):
                return True
        tools, name = self._tools_of(request.index), request.asked.name
        return (
            tools.names is not None
            and not request.asked.hosted
            and name not in tools.names
            and name not in tools.outputs
        )

    def _find_refusals(self, request: Request) -> None:
        """Decide which calls with spans were refused, by the answer to their request."""
        failed = [call for call in request.calls if call.error and not call.refusal]
        if failed:
            answer = self._answer_beside(request) or self._later_answer(request)
            for call in failed:
                call.refusal = self._refusal(request, answer, unknown=call.refusal)

    def _refusal(
        self, request: Request, answer: ToolResult | None, *, unknown: bool | None
    ) -> bool | None:
        """Whether a call that failed or may have failed was refused; `unknown` if no answer shows
        it.
        """
        if self._is_refusal(request, answer):
            return True
        has_text = answer is not None and answer.result is not UNRECORDED and answer.result != ""
        return False if has_text else unknown

    def _tables(self, request: Request) -> Sequence[ReadTable]:
        """The tables of the model call and of the agents around it."""
        tables = self._tables_of.get(request.index)
        if tables is None:
            agents = [agent for agent in self._agents(request.owner) if agent >= 0]
            tables = [self._spans.tables[index] for index in (request.index, *agents)]
            self._tables_of[request.index] = tables
        return tables

    def _recovered(
        self, request: Request, answer: ToolResult | None, message: str, moment: Moment
    ) -> Recovered:
        needs, asked = self._spans.plan.needs, request.asked
        may_show_later = not asked.hosted and any(
            table.convention.refusals for table in self._tables(request)
        )
        refusal = self._refusal(request, answer, unknown=None if may_show_later else False)
        error = None
        if refusal:
            error = ToolError(REFUSED)
        elif asked.failed or (answer is not None and answer.failed):
            error = ToolError("_OTHER")
        unrecorded = self._spans.tables[request.index].convention.failures_unrecorded
        is_known = answer is not None and answer.marked and not unrecorded
        shown = UNRECORDED if answer is None or "results" not in needs else answer.result
        return Recovered(
            index=request.index,
            moment=moment,
            name=asked.name,
            arguments=in_an_object(asked.arguments) if "arguments" in needs else UNRECORDED,
            result=shown,
            error=error,
            call_id=request.call_id,
            failure_unknown=error is None and not is_known,
            message=message,
            refusal=refusal,
        )


def _first_repeated(output: SpanMessages, following: SpanMessages) -> Sequence[ToolRequest]:
    """The requests of a model call whose output was not recorded: those that the next one of its
    agent is the first to repeat.
    """
    after, _ = following.history()
    if not after:
        return ()
    before, _ = output.history()
    counts = Counter(request.identity for request in before)
    requests: list[ToolRequest] = []
    for request in after:
        if counts[request.identity]:
            counts[request.identity] -= 1
        elif request.name:
            requests.append(request)
    return requests


def _key_of(arguments: Any) -> Hashable:
    """Equal for equal arguments by name, None without any; those that differ nearly always differ
    in the hash, which is compared first.
    """
    if not named(arguments):
        return None
    key = frozen(arguments)
    return hash(key), key


def _is_named_as_call(request: Request) -> bool:
    return not request.asked.name.startswith(("transfer", "handoff", "hand_off"))


def _by_key(results: Iterable[ToolResult]) -> dict[Key, list[ToolResult]]:
    return grouped(
        results, lambda result: ("id", result.call_id) if result.call_id else ("name", result.name)
    )


class _RequestIndex:
    """The requests of a trace by what a call may have in common with them.

    Attributes:
        by_id: those with ids.
    """

    def __init__(self, requests: Sequence[Request]) -> None:
        self._requests = requests
        by_id = grouped(requests, attrgetter("call_id"))
        by_id.pop("", None)
        self.by_id: Final[dict[str, list[Request]]] = by_id

    @cached_property
    def order(self) -> dict[int, int]:
        """The number of each request by its identity."""
        return {id(request): number for number, request in enumerate(self._requests)}

    @cached_property
    def by_window(self) -> dict[tuple[int, str], list[Request]]:
        """By the index of their span and the tool's name."""
        return grouped(self._requests, attrgetter("index", "asked.name"))

    @cached_property
    def by_name(self) -> dict[str, list[Request]]:
        """By the tool's name."""
        return grouped(self._requests, attrgetter("asked.name"))

    @cached_property
    def names(self) -> dict[str, list[str]]:
        """What stands at the end of a name, and the name itself → such names."""
        names: dict[str, list[str]] = {}
        for name in self.by_name:
            for ending in {name, *_endings(name)}:
                names.setdefault(ending, []).append(name)
        return names


class _ScopePairing:
    """Pairs requests with the calls of one instrumentation."""

    def __init__(
        self,
        spans: ClassifiedTrace,
        calls: list[ToolCallBuilder],
        lookup: _RequestIndex,
        limits: RunLimits,
        ids_of_content: bool,
    ) -> None:
        self._spans = spans
        self._calls = calls
        self._lookup = lookup
        self._limits = limits
        self._ids = {
            call.index: call_id_of(spans, call) if ids_of_content else call.attribute_id
            for call in calls
        }
        self._free = {call.index for call in calls}
        self._paired: set[int] = set()  # identities of requests
        self._keys: dict[int, Hashable] = {}  # of the arguments of a call, by its index

    def pair(self) -> None:
        """Add to the requests the calls that they are paired with."""
        self._by_id()
        if self._free:
            self._by_window()
            self._by_name()

    def _by_id(self) -> None:
        for call in self._calls:
            requests = self._lookup.by_id.get(self._ids[call.index], ())
            if len(requests) == 1:
                self._take(requests[0], call)

    def _take(self, request: Request, call: ToolCallBuilder) -> None:
        request.calls.append(call)
        self._free.discard(call.index)
        self._paired.add(id(request))

    def _may_be(self, request: Request, call: ToolCallBuilder) -> bool:
        """Whether ids allow the two to be one call: an id that no message holds is of another
        scheme, and shows nothing.
        """
        call_id = self._ids[call.index]
        return not (
            request.call_id and call_id != request.call_id and call_id in self._lookup.by_id
        )

    def _free_by_time(self) -> list[ToolCallBuilder]:
        return sorted((call for call in self._calls if call.index in self._free), key=MOMENT)

    def _left(self, groups: Iterable[list[Request]]) -> list[list[Request]]:
        """What is not paired of each group of requests, in order of the first of them."""
        unpaired = [
            [request for request in group if id(request) not in self._paired]
            for group in groups
            if self._limits.allow_pairs(group[0].index, len(group))
        ]
        return sorted(filter(None, unpaired), key=lambda group: self._lookup.order[id(group[0])])

    def _by_window(self) -> None:
        """Pair what has the same name and lies in the window of the model call."""
        buckets: dict[tuple[int, str], list[ToolCallBuilder]] = {}
        for call in self._free_by_time():
            model = self._model_before(call)
            for name in {call.name, mcp_name(call)} if model >= 0 else ():
                buckets.setdefault((model, name), []).append(call)
        by_window = self._lookup.by_window
        for group in self._left(by_window[key] for key in buckets if key in by_window):
            self._pair_all(group, buckets[group[0].index, group[0].asked.name])

    def _by_name(self) -> None:
        """Pair what is left: a call that started later than its window allows, or that the model
        knows by a longer name.
        """
        by_name: dict[str, list[ToolCallBuilder]] = {}
        for call in self._free_by_time():
            for name in {call.name, mcp_name(call)}:
                by_name.setdefault(name, []).append(call)
        names = {name for called in by_name for name in self._lookup.names.get(called, ())}
        for group in self._left(self._lookup.by_name[name] for name in names):
            requested = group[0].asked.name
            known_as = next(end for end in (requested, *_endings(requested)) if end in by_name)
            if self._limits.allow_pairs(group[0].index, len(group) * len(by_name[known_as])):
                self._pair_later(group, by_name[known_as])

    def _pair_later(self, requests: list[Request], calls: list[ToolCallBuilder]) -> None:
        """Pair each request with the first call that started with or after its model call."""
        for request in requests:
            key = _key_of(request.asked.arguments)
            for call in calls:
                if (
                    call.index in self._free
                    and call.start >= request.window[0]
                    and self._may_be(request, call)
                    and not self._differ(key, call)
                ):
                    self._take(request, call)
                    break

    def _pair_all(self, requests: list[Request], calls: Sequence[ToolCallBuilder]) -> None:
        """Pair requests of one output for one tool."""
        calls = [call for call in calls if call.index in self._free]
        if not self._limits.allow_pairs(requests[0].index, len(requests) * len(calls)):
            return
        if len(requests) > len(calls) > 0:
            requests, calls = self._pair_alike(requests, calls)
        for request in requests:
            call = self._first(request, calls)
            if call is not None:
                calls.remove(call)
                self._take(request, call)

    def _first(self, request: Request, calls: Iterable[ToolCallBuilder]) -> ToolCallBuilder | None:
        """The first of the calls that may be the one requested."""
        return next((call for call in calls if self._may_be(request, call)), None)

    def _pair_alike(
        self, requests: list[Request], calls: list[ToolCallBuilder]
    ) -> tuple[list[Request], list[ToolCallBuilder]]:
        """Pair those with equal arguments first; returns what is left."""
        keys: dict[Any, list[ToolCallBuilder]] = {}
        for call in calls:
            arguments = recorded_arguments(self._spans, call)
            if named(arguments):
                keys.setdefault(frozen(arguments), []).append(call)
        unpaired: list[Request] = []
        for request in requests:
            asked = request.asked.arguments
            alike = keys.get(frozen(asked), []) if named(asked) else []
            same = self._first(request, alike)
            if same is None:
                unpaired.append(request)
            else:
                alike.remove(same)
                self._take(request, same)
        return unpaired, [call for call in calls if call.index in self._free]

    def _differ(self, key: Hashable, call: ToolCallBuilder) -> bool:
        """Whether both recorded arguments by name, and other ones; `key` is that of those that the
        request has, None if it has none.
        """
        if key is None:
            return False
        if call.index not in self._keys:
            self._keys[call.index] = _key_of(recorded_arguments(self._spans, call))
        return self._keys[call.index] not in (None, key)

    def _model_before(self, call: ToolCallBuilder) -> int:
        """The last model call of the call's agent that started before it, -1 if there is none."""
        spans = self._spans
        owner = spans.owners[call.index]
        for _ in range(_MOST_AGENTS):
            models = self._spans.model_calls_of.get(owner)
            if models or owner < 0:
                break
            owner = spans.owners[owner]
        if not models:
            models = self._spans.model_calls_in_order
        at = bisect_right(models, call.start, key=spans.starts.__getitem__)
        return models[at - 1] if at else -1


def _endings(name: str) -> Iterator[str]:
    """What follows each separator in a name: frameworks put a prefix before the tools of an MCP
    server or of a group.
    """
    return (
        name[at + 1 :]
        for at in islice((at for at, sign in enumerate(name) if not sign.isalnum()), 16)
    )
