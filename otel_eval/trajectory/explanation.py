"""Explains why a trace has the runs it has: the kind of every span, which spans were left out, and which of them are runs.

It calls the same functions as `build`, in the same order.
"""

from __future__ import annotations

import sys
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from operator import attrgetter
from typing import Final

from otel_eval.conventions.fields import NO_TABLE
from otel_eval.conventions.reader import Recognition
from otel_eval.interfaces import ClosedTrace, Steps, Wanted
from otel_eval.model import Kind
from otel_eval.trajectory.classify import ClassifiedTrace, Plan, classified, classified_with
from otel_eval.trajectory.deduplicate import merge_beside, merge_within
from otel_eval.trajectory.runs import Candidate, find_runs, tops_of
from otel_eval.trajectory.tool_calls import ToolCallBuilder, call_builders

_PLACE: Final = attrgetter("place")
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


@dataclass(frozen=True, slots=True)
class SpanExplanation:
    """One span as it was understood.

    Attributes:
        span_id, parent_id: hex ids; the parent's is "" for a root.
        depth: spans above it in the trace.
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


@dataclass(frozen=True, slots=True)
class TopExplanation:
    """The top span of a tree: the id of its parent, "" if it has none, and where that parent is."""

    span_id: str
    parent_id: str
    origin: str


@dataclass(frozen=True, slots=True)
class TraceExplanation:
    """What was understood of a trace.

    Attributes:
        spans: every span, parents before children.
        tops: the top of each tree of the spans that were not left out as evaluations.
        runs: the id of each run's own span, and why it is a run.
        looked_for: by scope, the attributes that rules look at.
    """

    trace_id: str
    spans: tuple[SpanExplanation, ...]
    tops: tuple[TopExplanation, ...]
    runs: Mapping[str, RunOrigin]
    looked_for: Mapping[str, frozenset[str]]


def explain_trace(trace: ClosedTrace, plan: Plan) -> TraceExplanation:
    """What every span of the trace was read as, and which are runs. Linear in the number of spans."""
    steps = Steps(sys.maxsize)  # unlimited: it is made on request, and nothing is scored
    whole, evaluations = classified_with(trace, trace.frames, plan, steps)
    read = classified(trace, plan, steps)
    found = call_builders(read)
    read.link()
    runs = find_runs(read)
    ignored = dict((*_without_meaning(read, found), *_outside(read, runs), *_repeated(read, found, runs)))
    kinds = dict(zip(read.tree.ids, read.kinds, strict=True))
    return TraceExplanation(
        trace_id=trace.trace_id.hex(),
        spans=tuple(_spans(whole, evaluations, kinds, ignored)),
        tops=tuple(TopExplanation(read.hex_id(top), missing.hex(), origin) for top, missing, origin in tops_of(read)),
        runs={run.span_id.hex(): _origin(read, run) for run in runs},
        looked_for={
            scope: plan.reader.of_scope(scope).wanted.keys for scope in {each.scope_name for each in whole.resource_scopes}
        },
    )


def _origin(read: ClassifiedTrace, run: Candidate) -> RunOrigin:
    if run.fragment:
        return RunOrigin.MISSING
    return RunOrigin.AGENT if read.kinds[run.first] is Kind.AGENT else RunOrigin.LOCAL_ROOT


def _without_meaning(read: ClassifiedTrace, found: dict[int, ToolCallBuilder]) -> Iterator[tuple[bytes, Ignored]]:
    """The spans that are neither agents nor model or tool calls of their own, by id."""
    ids, above = read.tree.ids, read.above
    for place, reading in enumerate(read.readings):
        if reading.table is NO_TABLE:
            yield ids[place], Ignored.NO_RULE
        elif reading.kind is Kind.OTHER:
            yield ids[place], Ignored.OTHER
        elif reading.kind is Kind.TOOL and place not in found:
            yield ids[place], Ignored.NOT_A_CALL
        elif reading.kind is Kind.MODEL and above[place] >= 0 and read.kinds[above[place]] is Kind.MODEL:
            yield ids[place], Ignored.SAME_MODEL_CALL


def _outside(read: ClassifiedTrace, runs: list[Candidate]) -> Iterator[tuple[bytes, Ignored]]:
    """The model and tool spans that no run holds."""
    ranges = sorted((run.first, run.last) for run in runs if run.outermost)
    for place in (*read.models, *read.tools):
        at = bisect_right(ranges, (place, len(read.views))) - 1
        if at < 0 or place >= ranges[at][1]:
            yield read.tree.ids[place], Ignored.OUTSIDE


def _repeated(read: ClassifiedTrace, found: dict[int, ToolCallBuilder], runs: list[Candidate]) -> Iterator[tuple[bytes, Ignored]]:
    """The tool spans that describe a call of another span. Merges the drafts, so they are of no further use."""
    places = {*found}
    calls = merge_within(read, found)
    kept = {draft.place for draft in calls}
    for run in runs:
        if run.outermost:
            first, last = (bisect_left(calls, place, key=_PLACE) for place in (run.first, run.last))
            own = calls[first:last]
            kept -= {draft.place for draft in own} - {draft.place for draft in merge_beside(read, own)}
    yield from ((read.tree.ids[place], Ignored.SAME_CALL) for place in places - kept)


def _spans(
    whole: ClassifiedTrace, evaluations: set[bytes], kinds: Mapping[bytes, Kind], ignored: Mapping[bytes, Ignored]
) -> Iterator[SpanExplanation]:
    for place, depth in _in_order(whole):
        span_id, view, resource_scope = whole.tree.ids[place], whole.views[place], whole.resource_scopes[place]
        scope = whole.plan.reader.of_scope(resource_scope.scope_name)
        why = ignored.get(span_id)
        if span_id not in kinds:
            why = (Ignored.OWN if scope.dropped else Ignored.EVALUATION) if span_id in evaluations else Ignored.BELOW_EVALUATION
        yield SpanExplanation(
            span_id=span_id.hex(),
            parent_id=whole.trace.frames[span_id][0].hex(),
            depth=depth,
            name=view.name,
            scope=resource_scope.scope_name,
            service=resource_scope.service,
            kind=kinds.get(span_id, Kind.OTHER),
            recognition=scope.explain(view),
            ignored=why,
            keys=tuple(sorted(view.attributes(_EVERY_ATTRIBUTE))) if why is Ignored.NO_RULE else (),
        )


def _in_order(read: ClassifiedTrace) -> Iterator[tuple[int, int]]:
    """The places of all spans, parents before children and siblings in order of time, each with its depth."""
    below: dict[int, list[int]] = {}
    for place in sorted(range(len(read.views)), key=read.moment, reverse=True):
        below.setdefault(read.tree.parent[place], []).append(place)
    stack = [(place, 0) for place in below.get(-1, ())]
    while stack:
        place, depth = stack.pop()
        yield place, depth
        stack += [(each, depth + 1) for each in below.get(place, ())]
