"""An explanation names what `build` decided: it cannot differ from it, whatever a trace looks
like.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_eval.interfaces import ClosedTrace
from otel_eval.model import Kind
from otel_eval.trajectory.builder import build
from otel_eval.trajectory.classify import Plan
from otel_eval.trajectory.explanation import (
    Ignored,
    RunOrigin,
    SpanExplanation,
    TraceExplanation,
    explain_trace,
)
from tests.support.made_spans import closed, span
from tests.support.recorded_traces import traces

FILES = sorted(
    path.name
    for path in (Path(__file__).parents[2] / "traces").glob("*.json")
    if "resourceSpans" in json.loads(path.read_text())
)
PLAN = Plan()
AGENT = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "helper"}
MODEL = {"gen_ai.operation.name": "chat"}
TOOL = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "search"}


def assert_agrees(trace: ClosedTrace) -> TraceExplanation:
    """The same runs, the same calls and model calls as `build` finds, and a reason for every other
    span.
    """
    explained, runs = explain_trace(trace, PLAN), build(trace, PLAN)
    assert {*explained.runs} == {run.trajectory.span_id for run in runs}
    assert {span.span_id for span in explained.spans} == {span_id.hex() for span_id in trace.frames}
    alone = {each.span_id: each for each in explained.spans if each.ignored is None}
    assert {each.kind for each in alone.values()} <= {Kind.AGENT, Kind.MODEL, Kind.TOOL}
    seen: set[str] = set()
    for each in explained.spans:
        assert each.depth == 0 or each.parent_id in seen
        seen.add(each.span_id)
    for run in [run for run in runs if run.trajectory.outermost]:
        members = {span_id.hex() for span_id in run.members}
        tools = {
            span_id
            for span_id, each in alone.items()
            if each.kind is Kind.TOOL and span_id in members
        }
        assert tools == {call.span_id for call in run.trajectory.calls} - {""}
        models = [
            span_id
            for span_id, each in alone.items()
            if each.kind is Kind.MODEL and span_id in members
        ]
        assert len(models) == run.trajectory.model_calls
    return explained


def test_recorded_traces_are_explained_as_they_are_built(subtests: pytest.Subtests) -> None:
    """Every instrumentation."""
    for file in FILES:
        with subtests.test(file=file):
            for trace in traces(file):
                assert_agrees(trace)


@given(file=st.sampled_from(FILES), drawn=st.data())
def test_traces_that_lack_spans_are_explained_as_they_are_built(
    file: str, drawn: st.DataObject
) -> None:
    """Whichever spans are missing: orphans, fragments, runs without a root."""
    for trace in traces(file):
        kept = drawn.draw(st.sets(st.sampled_from(sorted(trace.frames)), min_size=1))
        assert_agrees(
            ClosedTrace(trace.trace_id, {key: trace.frames[key] for key in kept}, trace.reason)
        )


def one(explained: TraceExplanation, name: str) -> SpanExplanation:
    """The span of a name."""
    (found,) = [each for each in explained.spans if each.name == name]
    return found


def test_every_reason_for_ignoring_a_span_is_named() -> None:
    """Our own telemetry, evaluations and what is below them, unknown spans, artefacts,
    repetitions.
    """
    explained = assert_agrees(
        closed(
            span("root", attributes=AGENT),
            span("eval", "root", attributes={"openinference.span.kind": "EVALUATOR"}),
            span("below", "eval", attributes=MODEL),
            span("own", "root", scope="otel_eval.judge", attributes=MODEL),
            span("http", "root", attributes={"http.method": "GET", "url": "x"}),
            span("near", "root", attributes={"gen_ai.operation.name": "ponder"}),
            span("chain", "root", attributes={"openinference.span.kind": "CHAIN"}),
            span(
                "merged",
                "root",
                scope="gcp.vertex.agent",
                attributes={**TOOL, "gen_ai.tool.name": "(merged tools)"},
            ),
            span("model", "root", attributes=MODEL),
            span("client", "model", attributes=MODEL),
            span("tool", "root", attributes=TOOL),
            span(
                "mcp",
                "tool",
                attributes={"mcp.method.name": "tools/call", "gen_ai.tool.name": "search"},
            ),
        )
    )
    assert {each.name: each.ignored for each in explained.spans} == {
        "root": None,
        "eval": Ignored.EVALUATION,
        "below": Ignored.BELOW_EVALUATION,
        "own": Ignored.OWN,
        "http": Ignored.NO_RULE,
        "near": Ignored.NO_RULE,
        "chain": Ignored.OTHER,
        "merged": Ignored.NOT_A_CALL,
        "model": None,
        "client": Ignored.SAME_MODEL_CALL,
        "tool": None,
        "mcp": Ignored.SAME_CALL,
    }
    assert one(explained, "http").keys == ("http.method", "url")
    assert one(explained, "http").recognition.looked_at == {}
    assert one(explained, "near").recognition.looked_at == {"gen_ai.operation.name": "ponder"}
    assert one(explained, "tool").keys == ()
    mark = one(explained, "eval").recognition.evaluation_mark
    assert (mark and mark.key) == "openinference.span.kind"


def test_calls_outside_of_every_run_are_named() -> None:
    """As those of threads that lost their context, beside a whole run."""
    explained = assert_agrees(
        closed(
            span("root", attributes=AGENT, start_ns=0, end_ns=9),
            span("lost", "gone", remote=False, attributes=TOOL, start_ns=3),
        )
    )
    assert one(explained, "lost").ignored is Ignored.OUTSIDE
    assert one(explained, "lost").kind is Kind.TOOL


def test_the_deciding_rule_is_named() -> None:
    """With its convention; and the attributes that rules look at, by scope."""
    explained = explain_trace(
        closed(span("root", attributes=AGENT), span("x", "root", scope="http")), PLAN
    )
    recognition = one(explained, "root").recognition
    assert recognition.table == "gen_ai"
    assert recognition.rule is not None
    assert (recognition.rule.kind, recognition.rule.key) == (Kind.AGENT, "gen_ai.operation.name")
    assert {*explained.looked_for} == {"test", "http"}
    assert "openinference.span.kind" in explained.looked_for["http"]


def test_spans_of_two_instrumentations_of_one_call_count_once() -> None:
    """Beside each other, not within."""
    times: dict[str, Any] = {"start_ns": 5, "end_ns": 9}
    explained = assert_agrees(
        closed(
            span("root", attributes=AGENT, start_ns=0, end_ns=20),
            span("one", "root", attributes=TOOL, start_ns=4, end_ns=10),
            span("two", "root", scope="other", attributes=TOOL, **times),
        )
    )
    assert Counter(each.ignored for each in explained.spans) == {None: 2, Ignored.SAME_CALL: 1}


@pytest.mark.parametrize(
    ("spans", "origin", "top"),
    [
        (
            [span("root", attributes=AGENT), span("t", "root", attributes=TOOL)],
            RunOrigin.AGENT,
            "no parent",
        ),
        ([span("root"), span("t", "root", attributes=TOOL)], RunOrigin.LOCAL_ROOT, "no parent"),
        (
            [span("root", "gone", remote=True), span("t", "root", attributes=TOOL)],
            RunOrigin.LOCAL_ROOT,
            "another process",
        ),
        (
            [span("t", "gone", remote=False, attributes=TOOL)],
            RunOrigin.MISSING,
            "the same process that did not arrive",
        ),
        ([span("t", "gone", attributes=TOOL)], RunOrigin.MISSING, "without flags"),
    ],
)
def test_why_there_is_a_run(spans: list[Any], origin: RunOrigin, top: str) -> None:
    """An agent span, a local root, or fragments of a run that never arrived."""
    explained = assert_agrees(closed(*spans))
    assert [*explained.runs.values()] == [origin]
    assert top in explained.roots[0].origin
    assert bool(explained.roots[0].parent_id) == ("gone" in {each.parent for each in spans})


def test_siblings_are_in_order_of_time_and_a_deep_chain_is_no_trouble() -> None:
    """The tree reads from top to bottom."""
    chain = [
        span(f"{place:04}", f"{place - 1:04}" if place else "", start_ns=place)
        for place in range(3000)
    ]
    explained = explain_trace(
        closed(*chain, span("late", "0000", start_ns=9000), span("early", "0000", start_ns=0)), PLAN
    )
    assert [each.name for each in explained.spans][:3] == ["0000", "early", "0001"]
    assert explained.spans[-1].name == "late"
    assert max(each.depth for each in explained.spans) == 2999
