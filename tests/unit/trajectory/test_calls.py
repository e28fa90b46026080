"""One real call is one call, whatever number of spans describe it, and every attempt stays one."""

from __future__ import annotations

from typing import Any

import pytest

from otel_eval.interfaces import SpanEvent
from otel_eval.model import UNRECORDED, ToolCall, ToolError, Trajectory
from otel_eval.trajectory.builder import build
from otel_eval.trajectory.classify import ALL_NEEDS, Plan
from tests.support.made_spans import FakeSpan, closed, span

PLAN = Plan(needs=ALL_NEEDS)
RUN = span(
    "run",
    "",
    "invoke_agent a",
    start_ns=0,
    end_ns=100,
    attributes={"gen_ai.operation.name": "invoke_agent"},
)


def tool(
    span_id: str,
    parent: str,
    name: str,
    start: int,
    end: int,
    arguments: str | None = None,
    **fields: Any,
) -> FakeSpan:
    attributes = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": name,
        **fields.pop("attributes", {}),
    }
    if arguments is not None:
        attributes["gen_ai.tool.call.arguments"] = arguments
    return span(
        span_id,
        parent,
        f"execute_tool {name}",
        start_ns=start,
        end_ns=end,
        attributes=attributes,
        **fields,
    )


def trajectory(*spans: FakeSpan, plan: Plan = PLAN) -> Trajectory:
    return next(
        run.trajectory for run in build(closed(RUN, *spans), plan) if run.trajectory.outermost
    )


def calls(*spans: FakeSpan) -> tuple[ToolCall, ...]:
    return trajectory(*spans).calls


def test_agent_client_and_server_spans_are_one_call():
    """The outermost stays, with the arguments it recorded and the error that only the server
    saw.
    """
    (call,) = calls(
        tool("a", "run", "search", 1, 9, '{"q": 1}'),
        tool("b", "a", "search", 2, 8, scope="client"),
        tool(
            "c",
            "b",
            "search",
            3,
            7,
            scope="server",
            status=2,
            attributes={"error.type": "tool_error"},
        ),
    )
    assert (call.span_id, call.arguments) == (b"a".hex(), {"q": 1})
    assert call.error is not None
    assert call.error.type == "tool_error"


def test_an_outer_span_inherits_what_only_the_inner_one_recorded():
    """Arguments, result and id."""
    inner = {"gen_ai.tool.call.result": '"ok"', "gen_ai.tool.call.id": "c1"}
    (call,) = calls(
        tool("a", "run", "search", 1, 9),
        tool("b", "a", "search", 2, 8, '{"q": 1}', attributes=inner),
    )
    assert (call.arguments, call.result, call.call_id) == ({"q": 1}, "ok", "c1")


def test_another_tools_span_with_the_same_id_is_another_call():
    """Models count their calls anew in each run, and an inner one may leave no agent span."""
    one = {"gen_ai.tool.call.id": "call_1"}
    made = calls(
        tool("a", "run", "ask", 1, 9, attributes=one), tool("b", "a", "book", 2, 8, attributes=one)
    )
    assert [call.name for call in made] == ["ask", "book"]


def test_a_tool_that_calls_itself_makes_two_calls():
    """Recorded arguments differ."""
    made = calls(
        tool("a", "run", "walk", 1, 9, '{"depth": 1}'), tool("b", "a", "walk", 2, 8, '{"depth": 2}')
    )
    assert [call.arguments for call in made] == [{"depth": 1}, {"depth": 2}]
    assert made[1].enclosing == (made[0].span_id,)


def test_recursion_below_a_client_span_is_kept():
    """The client's span is the outer call's, the recursive one is not."""
    made = calls(
        tool("a", "run", "walk", 1, 9, '{"depth": 1}'),
        tool("b", "a", "walk", 2, 8),
        tool("c", "b", "walk", 3, 7, '{"depth": 2}'),
    )
    assert [call.arguments for call in made] == [{"depth": 1}, {"depth": 2}]


def test_recursion_is_seen_even_where_no_arguments_are_needed():
    """The number of calls may not depend on what scorers read."""
    lean = trajectory(
        tool("a", "run", "walk", 1, 9, '{"depth": 1}'),
        tool("b", "a", "walk", 2, 8, '{"depth": 2}'),
        plan=Plan(),
    )
    assert [call.arguments for call in lean.calls] == [UNRECORDED, UNRECORDED]


def test_attempts_within_a_wrapper_are_the_calls():
    """They inherit the wrapper's arguments, and only the failed one failed."""
    made = calls(
        tool("a", "run", "search", 1, 20, '{"q": 1}', attributes={"gen_ai.tool.call.id": "c1"}),
        tool("b", "a", "search", 2, 5, status=2),
        tool("c", "a", "search", 6, 9),
    )
    assert [(call.span_id, call.arguments, call.call_id) for call in made] == [
        (b"b".hex(), {"q": 1}, "c1"),
        (b"c".hex(), {"q": 1}, "c1"),
    ]
    assert [call.error is not None for call in made] == [True, False]


def test_attempts_deep_within_a_wrapper_are_found():
    """A wrapper in a wrapper wraps as well."""
    made = calls(
        tool("a", "run", "search", 1, 20),
        tool("b", "a", "search", 2, 19),
        tool("c", "b", "search", 3, 5),
        tool("d", "b", "search", 6, 9),
    )
    assert [call.span_id for call in made] == [b"c".hex(), b"d".hex()]


def test_a_client_and_a_server_side_by_side_are_one_attempt():
    """They overlap, so they tell of one call."""
    made = calls(
        tool("a", "run", "search", 1, 20),
        tool("b", "a", "search", 2, 10),
        tool("c", "a", "search", 3, 9, status=2),
    )
    assert len(made) == 1
    assert made[0].error is not None


@pytest.mark.parametrize("same_id", [True, False])
def test_retries_side_by_side_are_calls_each(same_id: bool):
    """Even with the same call id, and even if they overlap."""
    made = calls(
        tool("a", "run", "search", 1, 5, "{}", attributes={"gen_ai.tool.call.id": "c1"}),
        tool(
            "b",
            "run",
            "search",
            2,
            9,
            "{}",
            attributes={"gen_ai.tool.call.id": "c1" if same_id else "c2"},
        ),
    )
    assert len(made) == 2


@pytest.mark.parametrize(
    ("outer", "inner", "number"),
    [
        (('{"q": 1}', "c1"), ('{"q": 1}', "c1"), 1),
        (('{"q": 1}', "c1"), ('{"q": 1}', "c2"), 2),
        (('{"q": 1}', ""), ('{"q": 2}', "c1"), 2),
        (('{"q": 1}', ""), (None, ""), 1),
        (('{"q": 1}', "c1"), ('{"q": 2}', "c1"), 1),
    ],
)
def test_two_instrumentations_of_one_call_are_one(outer: Any, inner: Any, number: int):
    """Equal ids decide; else arguments may not contradict each other."""
    made = calls(
        tool(
            "a",
            "run",
            "search",
            1,
            9,
            outer[0],
            attributes={"gen_ai.tool.call.id": outer[1]},
            scope="one",
        ),
        tool(
            "b",
            "run",
            "search",
            2,
            8,
            inner[0],
            attributes={"gen_ai.tool.call.id": inner[1]},
            scope="two",
        ),
    )
    assert len(made) == number


CLAUDE = "openinference.instrumentation.claude_agent_sdk"


def claude_tool(span_id: str, parent: str, name: str, start: int, end: int) -> FakeSpan:
    attributes = {"openinference.span.kind": "TOOL", "tool.name": name, "input.value": '{"q": 1}'}
    return span(
        span_id, parent, name, start_ns=start, end_ns=end, attributes=attributes, scope=CLAUDE
    )


@pytest.mark.parametrize("parent", ["run", "a"])
def test_a_tool_and_the_mcp_server_that_runs_it_are_one_call(parent: str):
    """Claude writes the server's name before the tool's; the server's span lies beside the call's
    or below it.
    """
    (call,) = calls(
        claude_tool("a", "run", "mcp__trip__search", 1, 9),
        tool(
            "b",
            parent,
            "search",
            2,
            8,
            scope="mcp-python-sdk",
            status=2,
            attributes={"mcp.method.name": "tools/call"},
        ),
    )
    assert (call.name, call.arguments, call.error is not None) == (
        "mcp__trip__search",
        {"q": 1},
        True,
    )


@pytest.mark.parametrize("parent", ["run", "a"])
@pytest.mark.parametrize("other", ["mcp__fly__search", "find", "mcp__search"])
def test_tools_of_different_mcp_servers_are_different_calls(parent: str, other: str):
    """The name alone makes no call of two servers one."""
    inner = tool(
        "b",
        parent,
        other,
        2,
        8,
        scope="mcp-python-sdk",
        attributes={"mcp.method.name": "tools/call"},
    )
    assert len(calls(claude_tool("a", "run", "mcp__trip__search", 1, 9), inner)) == 2


@pytest.mark.parametrize(
    ("outer", "inner", "number"),
    [
        ("trip_search", {"mcp.method.name": "tools/call"}, 1),
        ("trip-search", {"mcp.method.name": "tools/call"}, 1),
        ("research", {"mcp.method.name": "tools/call"}, 2),
        ("search_trip", {"mcp.method.name": "tools/call"}, 2),
        ("trip_search", {}, 2),
    ],
)
def test_a_prefix_before_the_name_of_an_mcp_servers_tool_makes_no_second_call(
    outer: str, inner: dict[str, str], number: int
):
    """Frameworks put one before the tools of a server; a tool that only ends in the same letters is
    another one.
    """
    made = calls(
        tool("a", "run", outer, 1, 9, '{"q": 1}'),
        tool("b", "a", "search", 2, 8, scope="mcp-python-sdk", status=2, attributes=inner),
        tool("c", "b", "search", 3, 7, scope="server", attributes=inner),
    )
    assert [call.name for call in made] == [outer, "search"][:number]
    assert made[0].error is not None or number == 2


def test_calls_of_two_instrumentations_that_only_touch_are_two():
    """Neither interval contains the other."""
    made = calls(
        tool("a", "run", "search", 1, 6, '{"q": 1}', scope="one"),
        tool("b", "run", "search", 5, 9, '{"q": 1}', scope="two"),
    )
    assert len(made) == 2


def test_two_instrumentations_see_two_parallel_calls():
    """Each span of the one is matched with one of the other."""
    made = calls(
        tool("a", "run", "search", 1, 9, '{"q": 1}', scope="one"),
        tool("b", "run", "search", 1, 9, '{"q": 2}', scope="one"),
        tool("c", "run", "search", 2, 8, '{"q": 2}', scope="two"),
        tool("d", "run", "search", 2, 8, '{"q": 1}', scope="two"),
    )
    assert sorted(str(call.arguments) for call in made) == ["{'q': 1}", "{'q': 2}"]


def test_a_sub_agent_that_uses_the_same_tool_makes_a_call_of_its_own():
    """An agent span between them makes them two."""
    agent = span(
        "sub",
        "a",
        "invoke_agent b",
        start_ns=2,
        end_ns=8,
        attributes={"gen_ai.operation.name": "invoke_agent"},
    )
    runs = build(
        closed(RUN, tool("a", "run", "ask", 1, 9), agent, tool("b", "sub", "ask", 3, 7)), PLAN
    )
    outer, inner = (run.trajectory for run in runs)
    assert [call.agent_path for call in outer.calls] == [("a",), ("a", "b")]
    assert outer.calls[1].enclosing == (b"a".hex(),)
    assert [(call.agent_path, call.enclosing) for call in inner.calls] == [(("b",), ())]
    assert (outer.outermost, inner.outermost) == (True, False)


@pytest.mark.parametrize(
    "artefact",
    [
        tool("a", "run", "(merged tools)", 1, 2, scope="gcp.vertex.agent"),
        span("a", "run", "x", attributes={"tool.name": "x", "tool.synthesized": True}),
        span(
            "a",
            "run",
            "chat m",
            attributes={"gen_ai.operation.name": "chat", "gen_ai.tool.name": "x"},
        ),
        tool(
            "a",
            "run",
            "final_result",
            1,
            2,
            scope="pydantic-ai",
            attributes={"logfire.msg": "running output function: f"},
        ),
    ],
)
def test_artefacts_are_no_calls(artefact: FakeSpan):
    """Sums of parallel answers, made-up spans, model calls that name a tool, functions that make
    the output.
    """
    assert calls(artefact) == ()


@pytest.mark.parametrize(
    ("fields", "error_type"),
    [
        ({"status": 2}, "_OTHER"),
        ({"attributes": {"error.type": "ValueError"}}, "ValueError"),
        (
            {"status": 2, "events": [SpanEvent("exception", {"exception.type": "KeyError"})]},
            "KeyError",
        ),
        (
            {"attributes": {"gen_ai.tool.status": "error"}, "scope": "strands.telemetry.tracer"},
            "_OTHER",
        ),
        ({"attributes": {"gen_ai.tool.call.result": '{"content": [], "isError": true}'}}, "_OTHER"),
        ({"events": [SpanEvent("exception", {"exception.type": "KeyError"})]}, None),
        ({"attributes": {"gen_ai.tool.call.result": '{"status": "error"}'}}, None),
        ({"attributes": {"error.type": ""}}, None),
    ],
)
@pytest.mark.parametrize("plan", [PLAN, Plan()])
def test_a_failure_is_recognised(fields: dict[str, Any], error_type: str | None, plan: Plan):
    """By status, type, mark or envelope; a caught exception and a tool's own words are none."""
    (call,) = trajectory(tool("a", "run", "x", 1, 2, **fields), plan=plan).calls
    assert (call.error.type if call.error else None) == error_type


@pytest.mark.parametrize(
    ("recorded", "arguments"),
    [
        ('{"a": 1}', {"a": 1}),
        ("Paris", {"__value__": "Paris"}),
        ("[1, 2]", {"__value__": [1, 2]}),
        ("", {}),
        ("null", {}),
        (None, UNRECORDED),
        ("__REDACTED__", UNRECORDED),
    ],
)
def test_arguments_are_an_object_or_a_bare_value_or_not_recorded(
    recorded: str | None, arguments: Any
):
    """What is not recorded is not empty, and what is empty is."""
    (call,) = calls(tool("a", "run", "x", 1, 2, recorded))
    assert call.arguments == arguments


def test_strands_arguments_are_in_events():
    """Its attributes hold none by default."""
    events = [
        SpanEvent("gen_ai.tool.message", {"content": '{"q": 1}', "id": "c1"}),
        SpanEvent("gen_ai.choice", {"message": '[{"json": {"n": 2}}]'}),
    ]
    (call,) = calls(tool("a", "run", "x", 1, 2, scope="strands.telemetry.tracer", events=events))
    assert (call.arguments, call.result, call.call_id) == ({"q": 1}, {"n": 2}, "c1")


def test_events_behind_the_last_wanted_one_are_not_decoded(monkeypatch: pytest.MonkeyPatch):
    """They are decoded one by one, and whatever else the span records is not looked for in them."""
    decoded = []
    message, choice = {"content": "{}", "id": "c1"}, {"message": "2"}
    given = [
        SpanEvent("gen_ai.tool.message", message),
        SpanEvent("gen_ai.choice", choice),
        *[SpanEvent("log", {})] * 1000,
    ]
    monkeypatch.setattr(
        FakeSpan,
        "events",
        lambda self: (decoded.append(each) or each for each in self.given_events),
    )
    (call,) = calls(tool("a", "run", "x", 1, 2, scope="strands.telemetry.tracer", events=given))
    assert (call.arguments, call.result, call.call_id) == ({}, 2, "c1")
    assert len(decoded) == 2


def test_calls_stand_in_order_of_start_end_and_id():
    """Whatever the order of the spans was."""
    made = calls(
        tool("d", "run", "x", 5, 9),
        tool("c", "run", "x", 5, 8),
        tool("b", "run", "x", 5, 8),
        tool("a", "run", "x", 6, 7),
    )
    assert [bytes.fromhex(call.span_id).decode() for call in made] == ["b", "c", "d", "a"]


@pytest.mark.parametrize(
    "told",
    ["no such date", "ValueError('no such date')Traceback (most recent call last):\n  File ..."],
)
def test_a_stack_in_the_status_is_not_the_message(told: str):
    """What the exception said is."""
    failed = SpanEvent(
        "exception", {"exception.type": "ValueError", "exception.message": "no such date"}
    )
    (call,) = calls(tool("a", "run", "book", 1, 9, status=2, message=told, events=[failed]))
    assert call.error == ToolError("ValueError", "no such date")
