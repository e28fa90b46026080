"""Laws: the order of frames changes nothing, and no links, however odd, hang or break the
reading.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_eval.interfaces import ClosedTrace
from otel_eval.model import Kind
from otel_eval.trajectory.builder import build
from otel_eval.trajectory.classify import ALL_NEEDS, Plan
from otel_eval.trajectory.explanation import explain_trace
from tests.support.counted_work import is_in_proportion
from tests.support.made_spans import FakeSpan, closed, span
from tests.support.recorded_traces import TRUTH, traces

PLAN = Plan(needs=ALL_NEEDS)
OP = "gen_ai.operation.name"
NAMES = [f"s{n}" for n in range(9)]
KINDS: list[dict[str, Any]] = [
    {OP: "invoke_agent"},
    {
        OP: "chat",
        "gen_ai.output.messages": (
            '[{"parts": [{"type": "tool_call", "name": "x", "arguments": {"n": 1}}]}]'
        ),
    },
    {OP: "execute_tool", "gen_ai.tool.name": "x", "gen_ai.tool.call.arguments": '{"n": 1}'},
    {OP: "execute_tool", "gen_ai.tool.name": "x"},
    {OP: "evaluation"},
    {},
]


@st.composite
def any_trace(draw: st.DrawFn) -> list[FakeSpan]:
    """Up to nine spans whose parents are each other, themselves, none or lost."""
    spans = []
    for name in NAMES[: draw(st.integers(1, len(NAMES)))]:
        start = draw(st.integers(0, 20))
        spans.append(
            span(
                name,
                draw(st.sampled_from([*NAMES, "", "lost"])),
                "x",
                start_ns=start,
                end_ns=start + draw(st.integers(-1, 10)),
                attributes=draw(st.sampled_from(KINDS)),
                remote=draw(st.sampled_from([None, True, False])),
                kind=draw(st.sampled_from([1, 2])),
                scope=draw(st.sampled_from(["one", "two"])),
                status=draw(st.sampled_from([0, 2])),
            )
        )
    return spans


@given(any_trace(), st.randoms(use_true_random=False))
def test_the_order_of_frames_changes_nothing(spans: list[FakeSpan], random: Any):
    """Arrival order never decides."""
    shuffled = list(spans)
    random.shuffle(shuffled)
    assert build(closed(*spans), PLAN) == build(closed(*shuffled), PLAN)


@given(any_trace())
def test_every_run_is_there_once_and_every_call_is_a_tool_spans(spans: list[FakeSpan]):
    """No call is invented, no run is doubled."""
    runs = build(closed(*spans), PLAN)
    own = [run.span_id for run in runs]
    assert len(own) == len(set(own))
    tools = {s.span_id.encode().hex() for s in spans if s.given.get(OP) == "execute_tool"}
    for run in runs:
        ids = [call.span_id for call in run.trajectory.calls if call.span_id]
        assert len(ids) == len(set(ids))
        assert set(ids) <= tools


@given(any_trace())
def test_an_explanation_names_the_runs_and_calls_that_are_built(spans: list[FakeSpan]):
    """Whatever the links look like; a span that is no call of a run has a reason."""
    trace = closed(*spans)
    explained, runs = explain_trace(trace, PLAN), build(trace, PLAN)
    assert {*explained.runs} == {run.trajectory.span_id for run in runs}
    calls = {
        call.span_id for run in runs if run.trajectory.outermost for call in run.trajectory.calls
    } - {""}
    assert {
        each.span_id for each in explained.spans if each.kind is Kind.TOOL and each.ignored is None
    } == calls
    assert sorted(each.span_id for each in explained.spans) == sorted(
        span_id.hex() for span_id in trace.frames
    )


@pytest.mark.parametrize("reverse", [True, False])
def test_recordings_read_the_same_backwards(reverse: bool):
    """Real traces, in order of arrival and against it."""
    for truth in TRUTH:
        for trace in traces(truth["file"]):
            other = dict(sorted(trace.frames.items(), reverse=reverse))
            assert build(trace, PLAN) == build(replace(trace, frames=other), PLAN)


def chain(attributes: dict[str, Any], length: int, **fields: Any) -> ClosedTrace:
    spans = [
        span(
            f"{n:05}",
            f"{n - 1:05}" if n else "",
            "x",
            start_ns=n,
            end_ns=2 * length - n,
            attributes=attributes,
            **fields,
        )
        for n in range(length)
    ]
    return closed(*spans)


@pytest.mark.parametrize(
    "attributes", KINDS[:4] + KINDS[5:], ids=["agents", "models", "tools", "bare tools", "others"]
)
def test_a_deep_chain_of_spans_costs_neither_the_stack_nor_the_square_of_its_depth(
    attributes: dict[str, Any],
):
    """Also beyond the depth to which Python calls functions."""
    plan = Plan(needs=frozenset({"arguments"}))
    build(chain(attributes, 3_000), plan)
    short, long = chain(attributes, 100), chain(attributes, 800)
    assert is_in_proportion(lambda: build(short, plan), lambda: build(long, plan), most=20.0)


def test_ten_thousand_nested_tools_of_different_names_are_calls():
    """Each within the one before; the list of what encloses a call is bounded."""
    spans = [
        span(
            f"{n:05}",
            f"{n - 1:05}" if n else "",
            attributes={OP: "execute_tool", "gen_ai.tool.name": f"t{n}"},
            start_ns=n,
            end_ns=n,
        )
        for n in range(10_000)
    ]
    (run,) = build(closed(*spans), Plan(), lone_calls=True)
    assert len(run.trajectory.calls) == 10_000
    assert max(len(call.enclosing) for call in run.trajectory.calls) == 64


@pytest.mark.parametrize("attributes", KINDS[:3])
def test_spans_that_are_their_own_ancestors_end_somewhere(attributes: dict[str, Any]):
    """A self-parent, a circle of two, and a tail hanging from it."""
    spans = [
        span("a", "a", attributes=attributes),
        span("b", "c", attributes=attributes),
        span("c", "b", attributes=attributes),
        span("d", "c", attributes=attributes),
    ]
    runs = build(closed(*spans), PLAN)
    assert {member for run in runs for member in run.members} == {b"a", b"b", b"c", b"d"}


def test_many_runs_under_as_many_missing_parents_are_not_compared_pair_by_pair():
    """Whether an orphan cuts a run."""

    def orphans(count: int) -> ClosedTrace:
        return closed(
            *(
                span(
                    f"a{n}",
                    f"lost{n}",
                    start_ns=0,
                    end_ns=9,
                    attributes={OP: "invoke_agent"},
                    remote=False,
                )
                for n in range(count)
            )
        )

    few, many = orphans(50), orphans(400)
    assert {run.trajectory.incomplete != "" for run in build(many, Plan())} == {True}
    assert is_in_proportion(lambda: build(few, Plan()), lambda: build(many, Plan()), most=20.0)
