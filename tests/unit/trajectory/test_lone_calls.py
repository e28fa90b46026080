"""A tool call of an agent that is elsewhere is no run; it can be evaluated by itself."""

from __future__ import annotations

import pytest

from otel_eval.engine import Engine
from otel_eval.evaluations import RunFilter, ScorerSet
from otel_eval.interfaces import ClosedTrace
from otel_eval.model import Trajectory
from otel_eval.scorers import create_scorer
from otel_eval.trajectory.builder import build
from otel_eval.trajectory.classify import Plan
from tests.support.made_spans import FakeSpan, closed, span

OP, TOOL_NAME = "gen_ai.operation.name", "gen_ai.tool.name"
SERVER = 2  # OTLP span kind
FORBIDDEN = create_scorer({"type": "forbidden_tools", "patterns": ["rm"]})


def tool(span_id: str, parent: str, name: str, start: int = 5, **fields: object) -> FakeSpan:
    attributes = {OP: "execute_tool", TOOL_NAME: name}
    return span(
        span_id, parent, f"execute_tool {name}", start_ns=start, attributes=attributes, **fields
    )


def served(span_id: str, parent: str, name: str, start: int = 5, **fields: object) -> FakeSpan:
    attributes = {"mcp.method.name": "tools/call", OP: "execute_tool", TOOL_NAME: name}
    return span(
        span_id,
        parent,
        f"tools/call {name}",
        start_ns=start,
        attributes=attributes,
        kind=SERVER,
        **fields,
    )


def agent(span_id: str, parent: str) -> FakeSpan:
    return span(
        span_id,
        parent,
        "invoke_agent a",
        start_ns=4,
        attributes={OP: "invoke_agent", "gen_ai.agent.name": "a"},
    )


def chat(span_id: str, parent: str) -> FakeSpan:
    return span(span_id, parent, "chat m", start_ns=4, attributes={OP: "chat"})


def calls(run: Trajectory) -> list[str]:
    return [call.name for call in run.calls]


def found(*spans: FakeSpan) -> tuple[list[list[str]], list[list[str]]]:
    """The calls of the agent runs, and of the calls by themselves."""
    runs = [run.trajectory for run in build(closed(*spans), Plan(), lone_calls=True)]
    return (
        [calls(run) for run in runs if not run.is_tool_call],
        [calls(run) for run in runs if run.is_tool_call],
    )


@pytest.mark.parametrize(
    ("spans", "runs", "alone"),
    [
        ([tool("t", "", "look")], [], [["look"]]),
        ([tool("t", "gone", "look", remote=True)], [], [["look"]]),
        ([tool("t", "", "ask"), chat("m", "t")], [], [["ask"]]),
        ([tool("t", "", "ask"), agent("a", "t"), tool("u", "a", "rm")], [["rm"]], [["ask", "rm"]]),
        (
            [
                span("h", "gone", "POST /mcp", remote=True, kind=SERVER),
                served("s", "h", "look"),
                served("t", "h", "rm", 7),
            ],
            [],
            [["look"], ["rm"]],
        ),
        # Without the mark of a server the request may be an agent's.
        ([span("h", "", "POST /ask"), tool("t", "h", "look")], [["look"]], []),
        ([span("h", "", "POST /ask"), served("s", "h", "look"), chat("m", "h")], [["look"]], []),
        (
            [span("h", "", "POST /ask"), served("s", "h", "look"), tool("t", "h", "rm", 7)],
            [["look", "rm"]],
            [],
        ),
    ],
)
def test_a_tool_span_that_is_a_local_root_and_an_mcp_servers_are_no_runs(
    spans: list[FakeSpan], runs: list[list[str]], alone: list[list[str]]
):
    """Each is a call by itself; agents below it stay runs."""
    assert found(*spans) == (runs, alone)
    assert [calls(run.trajectory) for run in build(closed(*spans), Plan())] == runs


def results(trace: ClosedTrace, *runs: str) -> list[tuple[str, list[str]]]:
    """The evaluation and the outcomes of each report, or why there is no run."""
    evaluations = [
        ScorerSet(name=each, scorers=(FORBIDDEN,), match=RunFilter(runs=each))  # type: ignore[arg-type]
        for each in runs
    ]
    return [
        (
            report.no_run.why if report.no_run else report.evaluation,
            [
                getattr(result.outcome, "explanation", "") or getattr(result.outcome, "text", "")
                for result in report.results
            ],
        )
        for report in Engine(evaluations, no_run=True).evaluate(trace)
    ]


def test_such_a_call_has_no_score_but_a_row_that_says_why():
    """Unless an evaluation is for calls by themselves."""
    trace = closed(tool("t", "", "rm"))
    why = "the tool calls of the trace belong to no agent run"
    assert results(trace, "outermost", "all") == [(why, [])]
    ((evaluation, texts),) = results(closed(tool("t", "", "rm")), "outermost", "all", "tools")
    assert evaluation == "tools"
    assert "rm" in texts[0]
    assert results(closed(agent("a", ""), tool("t", "a", "rm")), "tools") == [
        ("no run of the trace was evaluated", [])
    ]


def test_results_of_a_call_are_withdrawn_when_its_agent_arrives():
    """Only those of the evaluation that had them."""
    first = closed(served("s", "t", "rm", remote=True))
    assert len(results(first, "outermost", "tools")) == 1
    whole = closed(agent("a", ""), tool("t", "a", "rm"), served("s", "t", "rm"))
    later = ClosedTrace(
        whole.trace_id,
        whole.frames,
        whole.reason,
        changed=frozenset(whole.frames) - frozenset(first.frames),
        history=first.history,
    )
    outermost, tools = sorted(results(later, "outermost", "tools"))
    assert outermost[0] == "outermost"
    assert tools[0] == "tools"
    assert tools[1][0].startswith("part of run ")
