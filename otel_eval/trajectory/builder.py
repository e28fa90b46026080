"""All of a closed trace's runs as trajectories."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, Final

from otel_eval.interfaces import ClosedTrace, Steps, TooLarge, constructor, copier
from otel_eval.model import UNRECORDED, Completeness, SpanRef, ToolCall, Trajectory, Unnamed
from otel_eval.trajectory.classify import MAX_ENCLOSING, ClassifiedTrace, Plan, classified
from otel_eval.trajectory.deduplicate import merge_beside, merge_within
from otel_eval.trajectory.messages import TraceMessages
from otel_eval.trajectory.run_attributes import AgentPaths, RunAttributes, TokenCounts, span_refs
from otel_eval.trajectory.runs import Candidate, Origin, Run, find_runs
from otel_eval.trajectory.tool_calls import ToolCallBuilder, call_builders, named
from otel_eval.trajectory.unknown_calls import UnknownCalls

_new_call: Final = constructor(ToolCall)
_on_path: Final = copier(ToolCall, "agent_path")
_new_trajectory: Final = constructor(Trajectory)
_RUN_STEPS: Final = 100
_SPAN_STEPS: Final = 3
_CALL_STEPS: Final = 20
_NOT_READ: Final = "they are not read: no evaluation is for runs inside others"
_MOMENT: Final = attrgetter("start", "end", "span_id")


def build(trace: ClosedTrace, plan: Plan, steps: Steps | None = None, *, inner: bool = True) -> tuple[Run, ...]:
    """The runs of a trace, outermost and nested ones, in order of start and span id.

    The order in which frames stand in the trace makes no difference, and no frame can make it raise. Runs that take more
    steps than there are come without calls and content, and with the reason in `Trajectory.too_large`.

    Args:
        trace: what is read.
        plan: what of it is read.
        steps: those that the evaluation of the trace may take; the usual number if left out.
        inner: whether calls and content of runs inside others are read, too.
    """
    read = classified(trace, plan, Steps() if steps is None else steps)
    found = call_builders(read)
    read.link()
    if not (read.agents or read.models or read.tools):
        return ()
    candidates = find_runs(read)
    candidates.sort(key=lambda run: (read.views[run.first].start_ns, run.span_id))
    work = _Work(read, inner=inner)
    with suppress(TooLarge):  # the runs find out for themselves that no step is left
        work.find_calls(found)
    return tuple(work.run(candidate) for candidate in candidates)


@dataclass(slots=True)
class _Contents:
    """What is read of a run beyond its own span, if that does not take too many steps."""

    calls: tuple[ToolCall, ...] = ()
    calls_unknown: str = ""
    tokens: TokenCounts = field(default_factory=TokenCounts)
    input: Any = UNRECORDED
    output: Any = UNRECORDED
    spans: tuple[SpanRef, ...] = ()
    conversation: str = ""
    too_large: str = ""


class _Work:
    """What the runs of one trace share while they are built."""

    def __init__(self, read: ClassifiedTrace, *, inner: bool) -> None:
        self.read: Final = read
        self.inner: Final = inner
        self.calls: list[ToolCallBuilder] = []
        self.places: list[int] = []
        self.conversation: Final = TraceMessages(read)
        self.facts: Final = RunAttributes(read)
        self.paths: Final = AgentPaths(read, self.facts.agent)
        self.evidence: Final = UnknownCalls(read, self.conversation)

    def find_calls(self, found: dict[int, ToolCallBuilder]) -> None:
        """The calls of all runs.

        Raises:
            TooLarge: it takes too many steps.
        """
        calls = merge_within(self.read, found)
        if self.read.plan.wants_content_of_calls:
            self.conversation.fill(calls)
        self.calls, self.places = calls, [draft.place for draft in calls]

    def run(self, run: Candidate) -> Run:
        """The run of a candidate."""
        read = self.read
        members = read.tree.ids[run.first : run.last]
        for first, last in run.others:
            members += read.tree.ids[first:last]
        return Run(self._trajectory(run), members, run.span_id, b"" if run.outermost else self._enclosing_run(run.first))

    def _enclosing_run(self, place: int) -> bytes:
        """The id of the outermost agent span around one."""
        above = self.read.agent_above
        while above[place] >= 0:
            place = above[place]
        return self.read.tree.ids[place]

    def _trajectory(self, run: Candidate) -> Trajectory:
        read, facts, first = self.read, self.facts, run.first
        agents, models = _between(read.agents, run), _between(read.model_calls, run)
        try:
            read.steps.take(_RUN_STEPS + _SPAN_STEPS * (run.last - first))
            held = self._contents(run, agents, models)
        except TooLarge as error:
            held = _Contents(calls_unknown=str(error), too_large=str(error))
        view = None if run.fragment else read.views[first]
        return _new_trajectory(
            held.calls,
            read.trace.trace_id.hex(),
            run.span_id.hex(),
            facts.agent_of_run(run, agents),
            view.name if view else "",
            read.resource_scopes[first].service,
            view.start_ns if view else None,
            view.end_ns if view else None,
            len(models),
            held.tokens.input,
            held.tokens.output,
            held.input,
            held.output,
            held.spans,
            facts.labels(run),
            held.conversation,
            _completeness(read, run),
            run.incomplete,
            held.calls_unknown,
            run.outermost,
            *read.resource_scopes[first].deployment,
            held.too_large,
            read.resource_scopes[first].resource,
            "" if run.fragment else facts.response_id(first),
            _last_end(read, run) if run.fragment else None,
        )

    def _contents(self, run: Candidate, agents: list[int], models: list[int]) -> _Contents:
        if not (run.outermost or self.inner):
            return _Contents(calls_unknown=_NOT_READ, conversation=self.facts.conversation(run, agents or models))
        calls, calls_unknown = self._calls(run, agents, models)
        given, made = self.facts.exchange(run, models)
        return _Contents(
            calls=calls,
            calls_unknown=calls_unknown,
            tokens=self.facts.tokens(run, models),
            input=given,
            output=made,
            spans=span_refs(self.read, run) if "spans" in self.read.plan.needs else (),
            conversation=self.facts.conversation(run, agents or models),
        )

    def _calls(self, run: Candidate, agents: Sequence[int], models: list[int]) -> tuple[tuple[ToolCall, ...], str]:
        first, last = bisect_left(self.places, run.first), bisect_left(self.places, run.last)
        self.read.steps.take(_CALL_STEPS * (last - first))
        mine = merge_beside(self.read, self.calls[first:last])
        if mine:
            evidence = self.evidence
            return self._finished(run, mine), evidence.of_nameless(mine) or evidence.of_spans(run) or evidence.of_end(
                run, models, mine
            )
        return self._recovered(run, sorted(agents, key=self.read.moment), sorted(models, key=self.read.moment))

    def _recovered(self, run: Candidate, agents: list[int], models: list[int]) -> tuple[tuple[ToolCall, ...], str]:
        recovered = self.conversation.recover(models, agents)
        calls = tuple([_on_path(call, self.paths.of(place, run.first)) for place, call in recovered])
        lost = "" if calls else self.evidence.of_end(run, models, ())
        return calls, lost or self.evidence.of_messages(run, models, agents, recovered)

    def _finished(self, run: Candidate, mine: list[ToolCallBuilder]) -> tuple[ToolCall, ...]:
        around, agent_above = self._enclosing(mine), self.read.agent_above
        paths: dict[int, tuple[str, ...]] = {-1: ()}
        calls = []
        for draft in sorted(mine, key=_MOMENT):
            agent = agent_above[draft.place]
            if agent not in paths:
                paths[agent] = self.paths.of(agent, run.first)
            calls.append(_call(draft, around.get(draft.place, ()), paths[agent]))
        return tuple(calls)

    def _enclosing(self, mine: list[ToolCallBuilder]) -> dict[int, tuple[str, ...]]:
        """Place of each call → ids of the calls around it, the nearest `MAX_ENCLOSING` of them."""
        around: dict[int, tuple[str, ...]] = {}
        size = self.read.tree.size
        if max([size[draft.place] for draft in mine]) == 1:
            return around
        self.read.steps.take(_CALL_STEPS * len(mine))
        stack: list[tuple[int, tuple[str, ...]]] = []
        for draft in mine:
            while stack and stack[-1][0] <= draft.place:
                stack.pop()
            around[draft.place] = stack[-1][1] if stack else ()
            own = (*around[draft.place], draft.span_id.hex())[-MAX_ENCLOSING:]
            stack.append((self.read.end(draft.place), own))
        return around


def _completeness(read: ClassifiedTrace, run: Candidate) -> Completeness:
    """Why the run was evaluated: by where its tree comes from, unless a limit or the end of the process closed the trace."""
    reason = read.trace.reason
    if reason not in (Completeness.REMOTE_PARENT, Completeness.DETACHED) or run.origin is Origin.ROOT:
        return reason
    if run.origin is Origin.REMOTE or run.fragment or not read.agents:
        return Completeness.REMOTE_PARENT
    return Completeness.DETACHED


def _last_end(read: ClassifiedTrace, run: Candidate) -> int:
    """The latest end of the fragments' spans."""
    return max(read.views[place].end_ns for first, last in ((run.first, run.last), *run.others) for place in range(first, last))


def _between(places: list[int], run: Candidate) -> list[int]:
    return places[bisect_left(places, run.first) : bisect_left(places, run.last)]


def _call(draft: ToolCallBuilder, enclosing: tuple[str, ...], path: tuple[str, ...]) -> ToolCall:
    arguments: Any = draft.arguments
    if arguments is not UNRECORDED and not named(arguments):
        arguments = Unnamed(__value__=arguments)
    span_id = draft.span_id.hex()
    # name, arguments, result, error, call_id, span_id, start_ns, end_ns, enclosing, agent_path, failure_unknown
    return _new_call(
        draft.name,
        arguments,
        draft.result,
        draft.error,
        draft.call_id,
        span_id,
        draft.start,
        draft.end,
        enclosing,
        path,
        draft.error is None and draft.unsure,
    )
