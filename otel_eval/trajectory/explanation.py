"""Explain the runs of a trace: how each span was classified, which spans were left out, and which
of them are runs.

It calls the functions by which `build` decides, in the same order.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping
from contextlib import suppress
from enum import StrEnum
from operator import attrgetter
from typing import Final

from otel_eval.conventions.fields import NO_TABLE
from otel_eval.conventions.reader import Recognition
from otel_eval.interfaces import ClosedTrace, Wanted
from otel_eval.model import Kind
from otel_eval.records import record
from otel_eval.trajectory.classify import ClassifiedTrace, Plan, classified, classified_with
from otel_eval.trajectory.deduplicate import merge_beside, merge_spans
from otel_eval.trajectory.limits import RunLimits, TooLarge, limits_of
from otel_eval.trajectory.messages import TraceMessages
from otel_eval.trajectory.runs import Candidate, find_runs, roots_of
from otel_eval.trajectory.tool_calls import ToolCallBuilder, call_builders

_INDEX: Final = attrgetter("index")
_EVERY_ATTRIBUTE: Final = Wanted(frozenset(), ("",))


class Ignored(StrEnum):
    """Why a span is neither an agent, a model call nor a tool call of its own."""

    OWN = "telemetry of otel-eval itself"
    EVALUATION = "a span of an evaluation"
    BELOW_EVALUATION = "below a span of an evaluation"
    NO_RULE = "no rule of a convention holds"
    OTHER = "neither agent, model nor tool by its convention"
    NOT_A_CALL = "a tool span that is no call by its convention"
    SAME_CALL = "describes the same call as another span"
    SAME_MODEL_CALL = "describes the same model call as the span above it"
    OUTSIDE = "outside of every agent run"


class RunOrigin(StrEnum):
    """Why a span is an agent run."""

    AGENT = "an agent span"
    LOCAL_ROOT = "the local root of its process, in a trace without an agent span"
    MISSING = "model or tool spans whose own run never arrived"
    TOOL_CALL = "a tool call that belongs to no agent run"


@record
class SpanExplanation:
    """One span as it was understood.

    Attributes:
        span_id, parent_id: hex ids; the parent's is "" for a root.
        depth: the number of its ancestors in the trace.
        name, scope, service: as recorded.
        kind: what the span is; `OTHER` for one that was left out.
        recognition: the convention and the rule that decided.
        ignored: why it was left out, or None.
        keys: the keys of its attributes where no rule holds.
    """

    span_id: str
    parent_id: str
    depth: int
    name: str
    scope: str
    service: str
    kind: Kind
    recognition: Recognition
    ignored: Ignored | None
    keys: tuple[str, ...] = ()


@record
class RootExplanation:
    """The root of a tree of spans: the id of its parent, "" if it has none, and where that parent
    is.
    """

    span_id: str
    parent_id: str
    origin: str


@record
class TraceExplanation:
    """What was understood of a trace.

    Attributes:
        spans: every span, parents before children.
        roots: the root of each tree of the spans that were not left out as evaluations.
        runs: the id of each run's own span, and why it is a run.
        looked_for: by scope, the attributes that rules look at.
    """

    trace_id: str
    spans: tuple[SpanExplanation, ...]
    roots: tuple[RootExplanation, ...]
    runs: Mapping[str, RunOrigin]
    looked_for: Mapping[str, frozenset[str]]


def explain_trace(trace: ClosedTrace, plan: Plan, *, lone_calls: bool = False) -> TraceExplanation:
    """Explain how each span of the trace was classified, and which are runs, with `lone_calls` also
    the tool calls that belong to none. Linear in the number of spans.
    """
    whole, evaluations = classified_with(trace, trace.frames, plan)
    spans = classified(trace, plan)
    builders = call_builders(spans)
    candidates = find_runs(spans)
    limits = limits_of(spans, candidates)
    runs = [
        run for run in candidates if lone_calls or _origin(spans, run) is not RunOrigin.TOOL_CALL
    ]
    ignored = dict(
        (
            *_without_meaning(spans, builders),
            *_outside(spans, runs),
            *_repeated(spans, builders, runs, limits),
        )
    )
    kinds = dict(zip(spans.tree.ids, spans.kinds, strict=True))
    return TraceExplanation(
        trace_id=trace.trace_id.hex(),
        spans=tuple(_spans(whole, evaluations, kinds, ignored)),
        roots=tuple(
            RootExplanation(spans.hex_id(root), missing.hex(), origin)
            for root, missing, origin in roots_of(spans)
        ),
        runs={run.span_id.hex(): _origin(spans, run) for run in runs},
        looked_for={
            scope: plan.reader.of_scope(scope).wanted.keys
            for scope in {shared.scope_name for shared in whole.resource_scopes}
        },
    )


def _origin(spans: ClassifiedTrace, run: Candidate) -> RunOrigin:
    if run.fragment:
        return RunOrigin.MISSING
    recorded = {Kind.AGENT: RunOrigin.AGENT, Kind.TOOL: RunOrigin.TOOL_CALL}
    return recorded.get(spans.kinds[run.first], RunOrigin.LOCAL_ROOT)


def _without_meaning(
    spans: ClassifiedTrace, builders: dict[int, ToolCallBuilder]
) -> Iterator[tuple[bytes, Ignored]]:
    """The spans that are neither agents nor model or tool calls of their own, by id."""
    ids, ancestor = spans.tree.ids, spans.ancestor
    for index, classification in enumerate(spans.classifications):
        if classification.table is NO_TABLE:
            yield ids[index], Ignored.NO_RULE
        elif classification.kind is Kind.OTHER:
            yield ids[index], Ignored.OTHER
        elif classification.kind is Kind.TOOL and index not in builders:
            yield ids[index], Ignored.NOT_A_CALL
        elif (
            classification.kind is Kind.MODEL
            and ancestor[index] >= 0
            and spans.kinds[ancestor[index]] is Kind.MODEL
        ):
            yield ids[index], Ignored.SAME_MODEL_CALL


def _outside(spans: ClassifiedTrace, runs: list[Candidate]) -> Iterator[tuple[bytes, Ignored]]:
    """The model and tool spans that no run holds."""
    ranges = sorted((run.first, run.last) for run in runs if run.outermost)
    for index in (*spans.models, *spans.tools):
        at = bisect_right(ranges, (index, len(spans.readers))) - 1
        if at < 0 or index >= ranges[at][1]:
            yield spans.tree.ids[index], Ignored.OUTSIDE


def _repeated(
    spans: ClassifiedTrace,
    builders: dict[int, ToolCallBuilder],
    runs: list[Candidate],
    limits: RunLimits,
) -> Iterator[tuple[bytes, Ignored]]:
    """The tool spans that describe a call of another span; none in runs that are too large. Merges
    the builders, so they are of no further use.
    """
    readable = {index: builders[index] for index in limits.readable(list(builders))}
    calls, _ = merge_spans(spans, readable, TraceMessages(spans), limits)
    separate = {call.index for call in calls}
    for run in runs:
        if run.outermost:
            first, last = (bisect_left(calls, index, key=_INDEX) for index in (run.first, run.last))
            of_run = calls[first:last]
            with suppress(TooLarge):
                merged = merge_beside(spans, of_run)
                separate -= {call.index for call in of_run} - {call.index for call in merged}
    yield from ((spans.tree.ids[index], Ignored.SAME_CALL) for index in readable.keys() - separate)


def _spans(
    whole: ClassifiedTrace,
    evaluations: set[bytes],
    kinds: Mapping[bytes, Kind],
    ignored: Mapping[bytes, Ignored],
) -> Iterator[SpanExplanation]:
    for index, depth in _in_order(whole):
        span_id, span, resource_scope = (
            whole.tree.ids[index],
            whole.readers[index],
            whole.resource_scopes[index],
        )
        scope = whole.plan.reader.of_scope(resource_scope.scope_name)
        reason = ignored.get(span_id)
        if span_id not in kinds:
            reason = (
                (Ignored.OWN if scope.dropped else Ignored.EVALUATION)
                if span_id in evaluations
                else Ignored.BELOW_EVALUATION
            )
        yield SpanExplanation(
            span_id=span_id.hex(),
            parent_id=whole.trace.frames[span_id][0].hex(),
            depth=depth,
            name=span.name,
            scope=resource_scope.scope_name,
            service=resource_scope.service,
            kind=kinds.get(span_id, Kind.OTHER),
            recognition=scope.explain(span),
            ignored=reason,
            keys=tuple(sorted(span.attributes(_EVERY_ATTRIBUTE)))
            if reason is Ignored.NO_RULE
            else (),
        )


def _in_order(spans: ClassifiedTrace) -> Iterator[tuple[int, int]]:
    """The index of each span with its depth, parents before children and siblings in order of
    time.
    """
    below: dict[int, list[int]] = {}
    for index in sorted(range(len(spans.readers)), key=spans.moment, reverse=True):
        below.setdefault(spans.tree.parent[index], []).append(index)
    stack = [(index, 0) for index in below.get(-1, ())]
    while stack:
        index, depth = stack.pop()
        yield index, depth
        stack += [(child, depth + 1) for child in below.get(index, ())]
