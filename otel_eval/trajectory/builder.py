"""Build the trajectories of all runs of a closed trace."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from otel_eval.interfaces import ClosedTrace
from otel_eval.model import (
    HOSTED_TOOLS,
    Completeness,
    Kind,
    SpanRef,
    ToolCall,
    Trajectory,
)
from otel_eval.records import blank
from otel_eval.span_trees import in_order_of_time, within
from otel_eval.trajectory.classify import MAX_ENCLOSING, ClassifiedTrace, Plan, classified
from otel_eval.trajectory.deduplicate import merge_beside, merge_spans
from otel_eval.trajectory.limits import RunLimits, TooLarge, limits_of
from otel_eval.trajectory.messages import TraceMessages
from otel_eval.trajectory.recovery import Moment, Recovered, UnspannedCalls, of_range
from otel_eval.trajectory.run_attributes import NO_EXCHANGE, NO_TOKENS, RunAttributes
from otel_eval.trajectory.runs import Candidate, Origin, Run, find_runs
from otel_eval.trajectory.tool_calls import (
    MOMENT,
    ToolCallBuilder,
    call_builders,
    in_an_object,
)
from otel_eval.trajectory.unknown_calls import UnknownCalls

_NOT_READ: Final = "they are not read: no evaluation is for runs inside others"


def build(
    trace: ClosedTrace,
    plan: Plan,
    *,
    inner: bool = True,
    lone_calls: bool = False,
) -> tuple[Run, ...]:
    """Build the runs of a trace, outermost and nested ones, in order of start and span id.

    The order in which frames stand in the trace makes no difference, and no frame can make it
    raise. Runs that exceed a limit come without calls and content, and with the reason in
    `Trajectory.too_large`.

    Args:
        trace: what is read.
        plan: what of it is read.
        inner: whether calls, content, conversation and response of runs inside others are read,
            too; the ids of the latter two also of runs that were evaluated before.
        lone_calls: whether tool calls that belong to no agent run are built, too, each by itself;
            see `Trajectory.is_tool_call`.
    """
    spans = classified(trace, plan)
    calls = call_builders(spans)
    if not (spans.agents or spans.models or spans.tools):
        return ()
    candidates = find_runs(spans)
    candidates.sort(key=lambda run: (spans.starts[run.first], run.span_id))
    work = _Work(spans, limits_of(spans, candidates), calls, inner=inner)
    runs = map(work.run, candidates)
    return tuple([run for run in runs if lone_calls or not run.trajectory.is_tool_call])


class _Work:
    """Builds the runs of one trace, and holds what they share."""

    def __init__(
        self,
        spans: ClassifiedTrace,
        limits: RunLimits,
        builders: dict[int, ToolCallBuilder],
        *,
        inner: bool,
    ) -> None:
        self.spans: Final = spans
        self.limits: Final = limits
        self.inner: Final = inner
        self.agents, self.model_calls = spans.agents, spans.model_calls
        if limits.is_any_refused:  # then it is not read in order to understand others, either
            spans.agents, spans.models, spans.model_calls, spans.tools = map(
                limits.readable, (spans.agents, spans.models, spans.model_calls, spans.tools)
            )
            builders = {index: builders[index] for index in spans.tools}
        messages = TraceMessages(spans)
        calls, doubtful = merge_spans(spans, builders, messages, limits)
        self.recovery: Final = UnspannedCalls(spans, messages, limits)
        self.recovery.find(calls)
        if spans.plan.wants_content_of_calls:
            messages.fill(calls, limits)
        self.calls: Final = calls
        self.run_attributes: Final = RunAttributes(spans)
        self.unknown_calls: Final = UnknownCalls(spans, messages, self.recovery, doubtful)

    def run(self, run: Candidate) -> Run:
        """The run of a candidate."""
        spans = self.spans
        members = spans.tree.ids[run.first : run.last]
        for first, last in run.other_ranges:
            members += spans.tree.ids[first:last]
        former = not run.outermost and spans.kinds[run.first] is not Kind.AGENT
        enclosing = b"" if run.outermost else self._enclosing_run(run.first)
        return Run(self._trajectory(run), members, run.span_id, enclosing, former)

    def _enclosing_run(self, index: int) -> bytes:
        """The id of the outermost agent span that encloses a span; b"" if there is none."""
        enclosing_agent, first = self.spans.enclosing_agent, index
        while enclosing_agent[index] >= 0:
            index = enclosing_agent[index]
        return b"" if index == first else self.spans.tree.ids[index]

    def _trajectory(self, run: Candidate) -> Trajectory:
        spans, attributes, first = self.spans, self.run_attributes, run.first
        agents = within(self.agents, first, run.last)
        models = within(self.model_calls, first, run.last)
        too_large = self.limits.reason(first)
        is_wanted = run.outermost or self.inner
        is_read = is_wanted and not too_large
        # what is not wanted is reported only to withdraw an earlier report
        is_reported = is_wanted or spans.trace.history.last(run.span_id) is not None
        calls: tuple[ToolCall, ...] = ()
        calls_unknown, waiting = too_large or _NOT_READ, ""
        if is_read:
            is_whole = len(models) == len(spans.model_calls)
            models = spans.model_calls_in_order if is_whole else spans.in_order(models)
            try:
                calls, calls_unknown, waiting = self._calls(run, agents, models)
            except TooLarge as error:
                is_read, calls_unknown, too_large = False, str(error), str(error)
        tokens = attributes.tokens(run, models) if is_read else NO_TOKENS
        run_input, run_output = attributes.exchange(run, models) if is_read else NO_EXCHANGE
        run_span = None if run.fragment else spans.readers[first]
        scope = spans.resource_scopes[first]
        trajectory = blank(Trajectory)
        Trajectory.__init__(
            trajectory,
            calls=calls,
            trace_id=spans.trace.trace_id.hex(),
            span_id=run.span_id.hex(),
            agent=attributes.agent_of_run(run, agents),
            name=run_span.name if run_span else "",
            service=scope.service,
            start_ns=run_span.start_ns if run_span else None,
            end_ns=run_span.end_ns if run_span else None,
            model_calls=len(models),
            input_tokens=tokens.input,
            output_tokens=tokens.output,
            input=run_input,
            output=run_output,
            spans=self._span_refs(run) if is_read else (),
            attributes=attributes.labels(run),
            conversation_id=attributes.conversation_id(run, agents or models)
            if is_reported and not too_large
            else "",
            completeness=_completeness(spans, run),
            incomplete=run.incomplete,
            calls_unknown=calls_unknown,
            outermost=run.outermost,
            service_version=scope.deployment.version,
            environment=scope.deployment.environment,
            too_large=too_large,
            resource=scope.resource,
            response_id=attributes.response_id(first) if is_reported and run_span else "",
            last_end_ns=_last_end(spans, run) if run.fragment else None,
            unseen_tools=HOSTED_TOOLS
            if is_read and self.unknown_calls.lacks_hosted(run)
            else frozenset(),
            waiting=waiting,
            is_tool_call=not run.fragment and spans.kinds[first] is Kind.TOOL,
        )
        return trajectory

    def _span_refs(self, run: Candidate) -> tuple[SpanRef, ...]:
        """Every span of the run in order of time, if a scorer needs them."""
        if "spans" not in self.spans.plan.needs:
            return ()
        indexes = sorted(range(run.first, run.last), key=self.spans.moment)
        return tuple(map(self.spans.span_ref, indexes))

    def _calls(
        self, run: Candidate, agents: Sequence[int], models: list[int]
    ) -> tuple[tuple[ToolCall, ...], str, str]:
        """The calls of a run, why they are unknown, and what the run waits for.

        Raises:
            TooLarge: it exceeds a limit.
        """
        spanned = merge_beside(self.spans, of_range(self.calls, run.first, run.last))
        pause = self.unknown_calls.pauses.of_run(run, agents, models, spanned)
        recovered = of_range(self.recovery.calls, run.first, run.last)
        unknown = self.unknown_calls
        if spanned:
            reason = (
                unknown.of_nameless(spanned)
                or unknown.of_spans(run)
                or unknown.of_doubtful(run)
                or unknown.of_raised(models, spanned, len(recovered))
                or unknown.of_end(run, models, spanned)
            )
        else:
            reason = ("" if recovered else unknown.of_end(run, models, ())) or unknown.of_messages(
                run, models, agents, recovered
            )
        # A request that waits is an open one, too.
        reason = reason or unknown.of_dropped(run) or ("" if pause else unknown.of_open(run))
        return self._finished(run, spanned, recovered), reason, pause

    def _finished(
        self, run: Candidate, spanned: list[ToolCallBuilder], recovered: Sequence[Recovered]
    ) -> tuple[ToolCall, ...]:
        enclosing = self._enclosing(spanned)
        enclosing_agent, kinds, agent_kind = (
            self.spans.enclosing_agent,
            self.spans.kinds,
            Kind.AGENT,
        )
        paths: dict[int, tuple[str, ...]] = {-1: ()}
        starts = [call.start for call in spanned]
        ordered: list[ToolCallBuilder | Recovered] = [
            *in_order_of_time(spanned, starts, MOMENT),
            *recovered,
        ]
        if recovered:
            ordered.sort(key=_moment)
        calls = []
        for call in ordered:
            index = call.index
            agent = index if kinds[index] is agent_kind else enclosing_agent[index]
            if agent not in paths:
                paths[agent] = self.run_attributes.agent_path(agent, run.first)
            calls.append(
                _call(call, enclosing.get(index, ()), paths[agent])
                if isinstance(call, ToolCallBuilder)
                else _call_of_request(call, paths[agent])
            )
        return tuple(calls)

    def _enclosing(self, spanned: list[ToolCallBuilder]) -> dict[int, tuple[str, ...]]:
        """Index of each call → ids of the calls that enclose it, the nearest `MAX_ENCLOSING` of
        them.
        """
        enclosing: dict[int, tuple[str, ...]] = {}
        if not self.spans.has_spans_below_calls:
            return enclosing
        stack: list[tuple[int, tuple[str, ...]]] = []
        for call in spanned:
            while stack and stack[-1][0] <= call.index:
                stack.pop()
            enclosing[call.index] = stack[-1][1] if stack else ()
            chain = (*enclosing[call.index], call.span_id.hex())[-MAX_ENCLOSING:]
            stack.append((self.spans.end(call.index), chain))
        return enclosing


def _moment(call: ToolCallBuilder | Recovered) -> Moment:
    return call.moment if isinstance(call, Recovered) else MOMENT(call)


def _completeness(spans: ClassifiedTrace, run: Candidate) -> Completeness:
    """Why the run was evaluated: by where its tree comes from, unless a limit or the end of the
    process closed the trace.
    """
    reason = spans.trace.reason
    if (
        reason not in (Completeness.REMOTE_PARENT, Completeness.DETACHED)
        or run.origin is Origin.ROOT
    ):
        return reason
    if run.origin is Origin.REMOTE or run.fragment or not spans.agents:
        return Completeness.REMOTE_PARENT
    return Completeness.DETACHED


def _last_end(spans: ClassifiedTrace, run: Candidate) -> int:
    """The latest end of the fragments' spans."""
    return max(
        spans.readers[index].end_ns for first, last in run.ranges for index in range(first, last)
    )


def _call(call: ToolCallBuilder, enclosing: tuple[str, ...], path: tuple[str, ...]) -> ToolCall:
    tool_call = blank(ToolCall)
    ToolCall.__init__(
        tool_call,
        name=call.name,
        arguments=in_an_object(call.arguments),
        result=call.result,
        error=call.error,
        call_id=call.call_id,
        span_id=call.span_id.hex(),
        start_ns=call.start,
        end_ns=call.end,
        enclosing=enclosing,
        agent_path=path,
        failure_unknown=call.error is None and call.unsure,
        message=call.message,
        refusal=call.refusal,
    )
    return tool_call


def _call_of_request(call: Recovered, path: tuple[str, ...]) -> ToolCall:
    return ToolCall(
        name=call.name,
        arguments=call.arguments,
        result=call.result,
        error=call.error,
        call_id=call.call_id,
        agent_path=path,
        failure_unknown=call.failure_unknown,
        message=call.message,
        refusal=call.refusal,
    )
