"""Plain lists of spans as one run: `trajectories(spans, one_run=True)`."""

from __future__ import annotations

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import SpanContext

from otel_eval import trajectories

AGENT = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "clerk"}


def tool(name: str, **times: int) -> ReadableSpan:
    """A span without ids."""
    described = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": name}
    return ReadableSpan(f"execute_tool {name}", attributes=described, **times)


def with_ids(span: ReadableSpan, trace_id: int, span_id: int) -> ReadableSpan:
    context = SpanContext(trace_id, span_id, is_remote=False)
    return ReadableSpan(span.name, context=context, attributes=span.attributes)


def test_tool_spans_without_ids_are_one_run_in_the_order_of_the_list() -> None:
    spans = [tool("search"), tool("open"), tool("refund")]
    assert trajectories(spans) == []  # each would be a call of no agent run
    (run,) = trajectories(spans, one_run=True)
    assert [call.name for call in run.calls] == ["search", "open", "refund"]
    assert (run.incomplete, run.calls_unknown) == ("", "")


def test_the_agents_span_in_the_list_is_the_run() -> None:
    spans = [tool("search"), ReadableSpan("invoke_agent clerk", attributes=AGENT), tool("open")]
    (run,) = trajectories(spans, one_run=True)
    assert (run.agent, [call.name for call in run.calls]) == ("clerk", ["search", "open"])


def test_spans_of_several_traces_are_one_run() -> None:
    """Two of them have the same id."""
    spans = [
        with_ids(tool(name), trace, 7 + trace % 2) for name, trace in [("a", 1), ("b", 2), ("c", 3)]
    ]
    (run,) = trajectories(spans, one_run=True)
    assert sorted(call.name for call in run.calls) == ["a", "b", "c"]


def test_the_run_around_tool_spans_lasts_from_the_first_to_the_last() -> None:
    spans = [
        tool("late", start_time=500, end_time=900),
        tool("early", start_time=100, end_time=200),
    ]
    (run,) = trajectories(spans, one_run=True)
    assert (run.start_ns, run.end_ns) == (100, 900)
    assert [call.name for call in run.calls] == ["early", "late"]


@pytest.mark.parametrize("spans", [[], [ReadableSpan("invoke_agent", attributes=AGENT)]])
def test_no_span_is_no_run_and_a_single_agents_span_is_one(spans: list[ReadableSpan]) -> None:
    assert len(trajectories(spans, one_run=True)) == len(spans)
