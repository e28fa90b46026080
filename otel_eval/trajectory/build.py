"""All of a closed trace's runs as trajectories.

Knows the order in which the other parts of this room are used, and how a finished call is put together.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any, Final

from otel_eval.model import UNRECORDED, Completeness, Kind, ToolCall, Trajectory, Unnamed
from otel_eval.native import maker
from otel_eval.ports import ClosedTrace
from otel_eval.trajectory.calls import Draft, drafts, named
from otel_eval.trajectory.conversation import Conversation
from otel_eval.trajectory.facts import Facts, visits
from otel_eval.trajectory.missing import Evidence
from otel_eval.trajectory.plain import plain_run
from otel_eval.trajectory.plan import Plan
from otel_eval.trajectory.run import Run
from otel_eval.trajectory.runs import Candidate, Origin, find_runs
from otel_eval.trajectory.same_call import merge_beside, merge_within
from otel_eval.trajectory.survey import MAX_ENCLOSING, Survey, survey

__all__ = ["build", "build_slowly"]

_new_call: Final = maker(ToolCall)
_new_trajectory: Final = maker(Trajectory)
_MOMENT: Final = attrgetter("start", "end", "span_id")


def build(trace: ClosedTrace, plan: Plan) -> tuple[Run, ...]:
    """The runs of a trace, outermost and nested ones, in order of start and span id.

    The order in which frames stand in the trace makes no difference, and no frame can make it raise.
    """
    plain = plain_run(trace, plan)
    return build_slowly(trace, plan) if plain is None else (plain,)


def build_slowly(trace: ClosedTrace, plan: Plan) -> tuple[Run, ...]:
    """The same without a shortcut for plain traces."""
    read = survey(trace, plan)
    found = drafts(read)
    read.link()
    if not (read.agents or read.models or read.tools):
        return ()
    candidates = find_runs(read)
    calls = merge_within(read, found)
    conversation = Conversation(read)
    if plan.wants_content_of_calls:
        conversation.fill(calls)
    work = _Work(read, calls, [draft.place for draft in calls], conversation, Facts(read), Evidence(read, conversation))
    candidates.sort(key=lambda run: (read.views[run.first].start_ns, run.span_id))
    return tuple(work.run(candidate) for candidate in candidates)


@dataclass(slots=True)
class _Work:
    """What the runs of one trace share while they are built."""

    read: Survey
    calls: list[Draft]
    places: list[int]
    conversation: Conversation
    facts: Facts
    evidence: Evidence

    def run(self, run: Candidate) -> Run:
        read = self.read
        ranges = ((run.first, run.last), *run.others)
        members = [span_id for first, last in ranges for span_id in read.forest.ids[first:last]]
        return Run(self._trajectory(run), members, run.span_id, b"" if run.outermost else self._enclosing_run(run.first))

    def _enclosing_run(self, place: int) -> bytes:
        """The id of the outermost agent span around one."""
        above = self.read.agent_above
        while above[place] >= 0:
            place = above[place]
        return self.read.forest.ids[place]

    def _trajectory(self, run: Candidate) -> Trajectory:
        read, facts, first = self.read, self.facts, run.first
        agents, models = _between(read.agents, run), self._models(run)
        calls, calls_unknown = self._calls(run, agents, models)
        view = None if run.fragment else read.views[first]
        asked, answered = facts.exchange(run, models)
        tokens = facts.tokens(run, models)
        return _new_trajectory(
            calls,
            read.trace.trace_id.hex(),
            run.span_id.hex(),
            facts.agent_of_run(run, agents),
            view.name if view else "",
            read.envelopes[first].service,
            view.start_ns if view else None,
            view.end_ns if view else None,
            len(models),
            tokens.input,
            tokens.output,
            asked,
            answered,
            visits(read, run) if "spans" in read.plan.needs else (),
            facts.labels(run),
            facts.conversation(run, agents or models),
            _completeness(read, run),
            run.incomplete,
            calls_unknown,
            run.outermost,
            *read.envelopes[first].deployment,
        )

    def _models(self, run: Candidate) -> list[int]:
        """The run's model calls, without spans directly below another one: a framework's and its client's are one call."""
        above, kinds, first = self.read.above, self.read.kinds, run.first
        return [place for place in _between(self.read.models, run) if (up := above[place]) < first or kinds[up] is not Kind.MODEL]

    def _calls(self, run: Candidate, agents: Sequence[int], models: list[int]) -> tuple[tuple[ToolCall, ...], str]:
        first, last = bisect_left(self.places, run.first), bisect_left(self.places, run.last)
        mine = merge_beside(self.read, self.calls[first:last])
        if mine:
            return self._finished(run, mine), self.evidence.of_nameless(mine) or self.evidence.of_spans(run)
        return self._told(run, sorted(agents, key=self.read.moment), sorted(models, key=self.read.moment))

    def _told(self, run: Candidate, agents: list[int], models: list[int]) -> tuple[tuple[ToolCall, ...], str]:
        told = self.conversation.recover(models, agents)
        paths = {place: self._agent_path(place, run) for place, _ in told}
        calls = tuple(replace(call, agent_path=paths[place]) for place, call in told)
        return calls, self.evidence.of_messages(run, models, agents, told)

    def _finished(self, run: Candidate, mine: list[Draft]) -> tuple[ToolCall, ...]:
        around = self._enclosing(mine)
        paths: dict[int, tuple[str, ...]] = {}
        finished = []
        for draft in sorted(mine, key=_MOMENT):
            owner = self.read.agent_above[draft.place]
            if owner not in paths:
                paths[owner] = self._agent_path(draft.place, run)
            finished.append(_call(draft, around.get(draft.place, ()), paths[owner]))
        return tuple(finished)

    def _enclosing(self, mine: list[Draft]) -> dict[int, tuple[str, ...]]:
        """Place of each call → ids of the calls around it, the nearest `MAX_ENCLOSING` of them."""
        around: dict[int, tuple[str, ...]] = {}
        size = self.read.forest.size
        if all(size[draft.place] == 1 for draft in mine):
            return around
        stack: list[tuple[int, tuple[str, ...]]] = []
        for draft in mine:
            while stack and stack[-1][0] <= draft.place:
                stack.pop()
            around[draft.place] = stack[-1][1] if stack else ()
            own = (*around[draft.place], draft.span_id.hex())[-MAX_ENCLOSING:]
            stack.append((self.read.end(draft.place), own))
        return around

    def _agent_path(self, place: int, run: Candidate) -> tuple[str, ...]:
        """Names of the agents from the run down to the span, the nearest `MAX_ENCLOSING` of them."""
        path: list[str] = []
        agent = place if self.read.kinds[place] is Kind.AGENT else self.read.agent_above[place]
        while agent >= run.first and len(path) < MAX_ENCLOSING:
            name = self.facts.agent(agent)
            # An agent's span within one of the same name describes the same agent.
            path.extend([name] if name and path[-1:] != [name] else [])
            agent = self.read.agent_above[agent]
        return tuple(reversed(path))


def _completeness(read: Survey, run: Candidate) -> Completeness:
    """Why the run was evaluated: by where its tree comes from, unless a limit or the end of the process closed the trace."""
    reason = read.trace.reason
    if reason not in (Completeness.ORPHANED, Completeness.DETACHED) or run.origin is Origin.ROOT:
        return reason
    if run.origin is Origin.REMOTE or run.fragment or not read.agents:
        return Completeness.ORPHANED
    return Completeness.DETACHED


def _between(places: list[int], run: Candidate) -> list[int]:
    return places[bisect_left(places, run.first) : bisect_left(places, run.last)]


def _call(draft: Draft, enclosing: tuple[str, ...], path: tuple[str, ...]) -> ToolCall:
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
