"""Calls that are known to be missing make the calls of a run unknown; only evidence makes a run one
without calls.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from otel_eval.config.conventions import convention_from_mapping
from otel_eval.conventions import TABLES
from otel_eval.interfaces import SpanEvent
from otel_eval.model import Trajectory
from otel_eval.trajectory.builder import build
from otel_eval.trajectory.classify import ALL_NEEDS, Plan
from tests.support.made_spans import FakeSpan, closed, span

OP = "gen_ai.operation.name"
CLIENT = "opentelemetry.instrumentation.openai_v2"


def run(*spans: FakeSpan, **plan: Any) -> Trajectory:
    return build(closed(*spans), Plan(**{"needs": ALL_NEEDS, **plan}))[0].trajectory


def agent(scope: str = "my.agent", **fields: Any) -> FakeSpan:
    return span(
        "run",
        "",
        "invoke_agent a",
        start_ns=0,
        end_ns=100,
        attributes={OP: "invoke_agent"},
        scope=scope,
        **fields,
    )


def chat(
    span_id: str,
    start: int,
    finish: Any = None,
    *,
    parent: str = "run",
    scope: str = CLIENT,
    **more: Any,
) -> FakeSpan:
    given = {
        OP: "chat",
        **({} if finish is None else {"gen_ai.response.finish_reasons": finish}),
        **more,
    }
    return span(
        span_id, parent, "chat m", start_ns=start, end_ns=start + 2, attributes=given, scope=scope
    )


def tool(span_id: str, start: int, *, parent: str = "run", scope: str = "my.tools") -> FakeSpan:
    given = {OP: "execute_tool", "gen_ai.tool.name": "look"}
    return span(
        span_id,
        parent,
        "execute_tool look",
        start_ns=start,
        end_ns=start + 1,
        attributes=given,
        scope=scope,
    )


def output(*parts: dict[str, Any], finish: str = "") -> dict[str, str]:
    return {
        "gen_ai.output.messages": json.dumps(
            [{"role": "assistant", "parts": list(parts), "finish_reason": finish}]
        )
    }


LOOK = {"type": "tool_call", "id": "c1", "name": "look", "arguments": {}}


@pytest.mark.parametrize(
    "finish",
    [
        ["tool_calls"],
        "tool_calls",
        '["tool_calls"]',
        ["tool_use"],
        "tool-calls",
        "FinishReason.TOOL_CALLS",
        ["TOOL_CALLS"],
        "tool_call",
        "function_call",
        ["stop", "tool_calls"],
    ],
)
def test_a_model_call_that_asked_for_tools_of_which_there_is_no_trace(finish: Any):
    """As model clients record it where content is not captured."""
    told = run(agent(), chat("m", 1, finish), chat("n", 5, ["stop"])).calls_unknown
    assert CLIENT in told
    assert f"conventions: {{records_tool_spans: [{CLIENT}]}}" in told


@pytest.mark.parametrize(
    "scope",
    ["my-app", "com.openai", "@opentelemetry/instrumentation-openai", "langchain4j", "litellm", ""],
)
def test_scopes_without_a_table_of_their_own_are_no_exception(scope: str):
    """OpenAI's Java SDK, LiteLLM, langchain4j, or an unknown scope."""
    assert run(chat("m", 1, ["tool_calls"], parent="", scope=scope)).calls_unknown
    assert not run(chat("m", 1, ["stop"], parent="", scope=scope)).calls_unknown
    assert run(chat("m", 1, parent="", scope=scope)).calls_unknown


def test_a_tool_span_answers_the_model_call_before_it_only():
    """One of two tools was instrumented."""
    spans = [
        agent(),
        chat("m", 1, ["tool_calls"]),
        tool("a", 4),
        chat("n", 6, ["tool_calls"]),
        chat("o", 10, ["stop"]),
    ]
    assert run(*spans).calls_unknown
    assert not run(*spans, tool("b", 9)).calls_unknown
    assert not run(*spans, tool("b", 7)).calls_unknown  # while the output is still streamed


def test_an_agent_or_a_handoff_answers_too():
    """A model that hands over ended in order to call a tool."""
    inner = span(
        "sub", "run", "invoke_agent b", start_ns=4, end_ns=6, attributes={OP: "invoke_agent"}
    )
    handoff = span("h", "run", "handoff", start_ns=4, end_ns=5, attributes={OP: "handoff"})
    for answer in (inner, handoff):
        assert not run(
            agent(), chat("m", 1, ["tool_calls"]), answer, chat("n", 8, ["stop"])
        ).calls_unknown


def test_tools_of_another_agent_are_no_answer():
    """Each agent's model calls are answered below that agent."""
    inner = span(
        "sub",
        "run",
        "invoke_agent b",
        start_ns=1,
        end_ns=9,
        attributes={OP: "invoke_agent"},
        scope="my.agent",
    )
    spans = [agent(), inner, chat("m", 2, ["tool_calls"], parent="sub"), tool("a", 5)]
    outer, nested = (each.trajectory for each in build(closed(*spans), Plan()))
    assert outer.calls_unknown
    assert nested.calls_unknown


@pytest.mark.parametrize("finish", [["tool_calls"], ["stop"], None])
def test_an_instrumentation_that_records_tool_spans_settles_it(finish: Any):
    """By its table, or because the configuration declares it; unless the model asked for tools."""
    assert not run(
        agent(), chat("m", 1, finish, scope="openinference.instrumentation.agno"), tool("a", 50)
    ).incomplete
    strands = (
        agent("strands.telemetry.tracer"),
        chat("m", 1, finish, scope="strands.telemetry.tracer"),
    )
    declared = run(agent(), chat("m", 1, finish), records_tool_spans=("other", "opentelemetry.*"))
    for made in (run(*strands), declared):
        assert bool(made.calls_unknown) == (finish == ["tool_calls"])


def test_a_recorded_request_is_a_call():
    """Without a tool span the messages make it, so nothing is missing."""
    made = run(
        agent(),
        chat("m", 1, ["tool_calls"], **output(LOOK)),
        chat("n", 5, ["stop"], **output({"type": "text"})),
    )
    assert (made.calls_unknown, [call.name for call in made.calls]) == ("", ["look"])


def test_calls_from_messages_need_the_output_of_every_model_call():
    """What was not recorded may have asked for another call."""
    asked = chat("m", 1, ["tool_calls"], **output(LOOK))
    assert "output" in run(agent(), asked, chat("n", 5)).calls_unknown
    assert "output" in run(agent(), asked, chat("n", 5, ["stop"])).calls_unknown


def test_a_request_without_a_name_is_no_recorded_output():
    """One attribute of many was dropped."""
    flat = {
        "gen_ai.completion.0.tool_calls.0.name": "look",
        "gen_ai.completion.0.tool_calls.1.id": "c2",
    }
    made = run(agent(), chat("m", 1, **flat), chat("n", 5, **output({"type": "text"})))
    assert made.calls_unknown


def test_a_role_alone_is_no_recorded_output():
    """Traceloop's instrumentations for JavaScript write it where content is not captured."""
    bare = {
        "gen_ai.completion.0.role": "assistant",
        "gen_ai.completion.0.finish_reason": "tool_calls",
    }
    assert run(
        agent(), chat("m", 1, scope="@traceloop/instrumentation-openai", **bare)
    ).calls_unknown
    bare["gen_ai.completion.0.finish_reason"] = "stop"
    assert not run(
        agent(), chat("m", 1, scope="@traceloop/instrumentation-openai", **bare)
    ).calls_unknown
    del bare["gen_ai.completion.0.finish_reason"]
    assert run(
        agent(), chat("m", 1, scope="@traceloop/instrumentation-openai", **bare)
    ).calls_unknown


def test_finish_reasons_are_read_from_messages_and_events():
    """Where no attribute has them."""
    assert run(agent(), chat("m", 1, **output({"type": "text"}, finish="tool_call"))).calls_unknown
    event = SpanEvent("gen_ai.choice", {"finish_reason": "tool_calls", "index": 0})
    given = {OP: "chat"}
    spoken = span(
        "m", "run", "chat m", start_ns=1, end_ns=2, attributes=given, events=[event], scope=CLIENT
    )
    assert run(agent(), spoken).calls_unknown


@pytest.mark.parametrize(
    "given",
    [
        {"gen_ai.system": "gcp.gemini"},
        {"gen_ai.request.model": "gemini-3-pro"},
        {"gen_ai.system": "ollama"},
    ],
)
def test_a_finish_reason_that_is_the_same_with_and_without_calls_proves_nothing(
    given: dict[str, str],
):
    """Gemini's STOP, Ollama's stop."""
    assert run(agent(), chat("m", 1, ["STOP"], **given)).calls_unknown
    assert not run(agent(), chat("m", 1, ["STOP"])).calls_unknown


@pytest.mark.parametrize("finish", ["", "unknown", "N/A", "completed", [], [""]])
def test_words_that_are_no_reason_prove_nothing(finish: Any):
    """The Responses API's states among them."""
    assert run(agent(), chat("m", 1, finish)).calls_unknown


def test_a_framework_and_its_client_tell_of_one_model_call():
    """What only the inner one recorded counts for both."""
    outer = chat("m", 1, scope="my.agent")
    assert run(agent(), outer, chat("n", 1, ["tool_calls"], parent="m")).calls_unknown
    inner, later = chat("n", 1, parent="m", **output(LOOK)), chat("o", 9)
    assert [call.name for call in run(agent(), outer, inner, later).calls] == ["look"]


def test_output_tools_of_a_table_are_no_missing_calls():
    """They are asked for like tools, and nothing runs."""
    table = convention_from_mapping(
        {
            "name": "mine",
            "scopes": ["mine"],
            "rules": [{"kind": "model", "key": "ask"}],
            "not_requests": ["final_*"],
            "messages": [{"key": "said"}],
            "fields": {"finish_reasons": "why"},
            "tool_finish_reasons": ["Werkzeug*"],
        }
    )
    asked = {
        "ask": "m",
        "why": "werkzeuge",
        "said": json.dumps([{"parts": [{**LOOK, "name": "final_answer"}]}]),
    }
    answered = span("m", "", "ask", attributes=asked, scope="mine")
    silent = span("m", "", "ask", attributes={"ask": "m", "why": "werkzeuge"}, scope="mine")
    tables = (table, *TABLES)
    assert run(answered, tables=tables).calls_unknown == ""
    assert run(silent, tables=tables).calls_unknown


def test_repetitions_cannot_be_told_where_only_some_requests_have_ids():
    """Two spans beside each other may tell of one model call."""
    nameless = {key: value for key, value in LOOK.items() if key != "id"}
    assert run(
        agent(), chat("m", 1, **output(LOOK)), chat("n", 1, **output(nameless))
    ).calls_unknown


def test_scopes_that_yaml_would_misread_are_quoted():
    """The line can be copied."""
    assert (
        'records_tool_spans: ["@x/y: z"]'
        in run(chat("m", 1, ["tool_calls"], parent="", scope="@x/y: z")).calls_unknown
    )


def test_spans_without_times_are_answered_by_any_call():
    """Some exports hold none."""
    given = {
        "m": {OP: "chat", "gen_ai.response.finish_reasons": ["tool_calls"]},
        "n": {OP: "chat", "gen_ai.response.finish_reasons": ["stop"]},
        "t": {OP: "execute_tool", "gen_ai.tool.name": "look"},
    }
    still = [
        agent(),
        *(span(each, "run", attributes=attributes) for each, attributes in given.items()),
    ]
    assert not run(*still).calls_unknown


SHAPES = {
    "OpenAI Java": (
        "io.opentelemetry.openai-java-1.1",
        {"gen_ai.system": "openai", "gen_ai.response.finish_reasons": ["tool_calls"]},
    ),
    "AWS SDK for Java": (
        "io.opentelemetry.aws-sdk-2.2",
        {"gen_ai.system": "aws.bedrock", "gen_ai.response.finish_reasons": ["tool_use"]},
    ),
    "botocore": (
        "opentelemetry.instrumentation.botocore.bedrock-runtime",
        {"gen_ai.system": "aws.bedrock", "gen_ai.response.finish_reasons": ["tool_use"]},
    ),
    "OpenAI for .NET": (
        "OpenAI.ChatClient",
        {"gen_ai.provider.name": "openai", "gen_ai.response.finish_reasons": '["tool_calls"]'},
    ),
    "an enumeration of .NET": ("My.ChatClient", {"gen_ai.response.finish_reason": "ToolCalls"}),
    "reasons joined by commas": (
        "Agent365Sdk",
        {"gen_ai.response.finish_reasons": "stop,tool_calls"},
    ),
    "langchain4j": (
        "dev.langchain4j",
        {"gen_ai.provider.name": "openai", "gen_ai.response.finish_reasons": ["TOOL_EXECUTION"]},
    ),
    "LiteLLM": (
        "litellm",
        {"gen_ai.system": "openai", "gen_ai.completion.0.finish_reason": "tool_calls"},
    ),
    "OpenInference": (
        "my.client",
        {"openinference.span.kind": "LLM", "llm.finish_reason": "tool_calls"},
    ),
}


@pytest.mark.parametrize("client", SHAPES)
def test_model_clients_without_content_record_the_reason_and_no_call(client: str):
    """The run of an application whose own root span no table knows."""
    scope, attributes = SHAPES[client]
    root = span("root", "", "POST /plan", start_ns=0, end_ns=100, kind=2, scope="my.web.framework")
    finished = {**attributes, **{key: "stop" for key in attributes if "finish" in key}}
    asking = span(
        "m",
        "root",
        "chat m",
        start_ns=1,
        end_ns=2,
        attributes={OP: "chat", **attributes},
        scope=scope,
    )
    answering = span(
        "n",
        "root",
        "chat m",
        start_ns=5,
        end_ns=6,
        attributes={OP: "chat", **finished},
        scope=scope,
    )
    assert scope in run(root, asking, answering).calls_unknown
    assert run(root, answering).calls_unknown == ""
    assert run(root, asking, tool("t", 3, parent="root"), answering).calls_unknown == ""


def test_the_last_finish_reason_of_a_loop_in_one_span_does_not_exclude_calls():
    """Microsoft.Extensions.AI may trace the client around the loop of tools: one span, `stop`."""
    agent_span = span("a", "", "invoke_agent a", start_ns=0, end_ns=9, scope="my.agents")
    attributes = {OP: "chat", "gen_ai.response.finish_reasons": ["stop"]}
    scope = "Experimental.Microsoft.Extensions.AI"
    model = span("m", "a", "chat", start_ns=1, end_ns=8, attributes=attributes, scope=scope)
    assert scope in run(agent_span, model).calls_unknown
    assert run(agent_span, tool("t", 3, parent="a"), model).calls_unknown == ""


def test_a_run_of_smolagents_without_the_tool_that_answers_has_lost_its_tool_spans():
    """Each run ends in a span of `final_answer`; from threads without context it is elsewhere."""
    scope, kind = "openinference.instrumentation.smolagents", "openinference.span.kind"

    def part(id_: str, name: str, is_a: str, parent: str = "run", **more: Any):
        attributes = {kind: is_a, **more.pop("attributes", {})}
        return span(id_, parent, name, scope=scope, attributes=attributes, **more)

    agent_span = part("run", "CodeAgent.run", "AGENT", parent="", start_ns=0, end_ns=9)
    model = part("m", "OpenAIModel.generate", "LLM", start_ns=1, end_ns=2)
    answer = part(
        "t",
        "FinalAnswerTool",
        "TOOL",
        start_ns=3,
        end_ns=4,
        attributes={"tool.name": "final_answer"},
    )
    failed = part("run", "CodeAgent.run", "AGENT", parent="", start_ns=0, end_ns=9, status=2)
    assert "answer" in run(agent_span, model).calls_unknown
    assert run(agent_span, model, answer).calls_unknown == ""
    assert run(failed, model).calls_unknown == ""


@pytest.mark.parametrize(
    ("event", "known"),
    [("start_pay_execution", True), ("finish_pay_execution", True), ("other", False)],
)
def test_a_tool_whose_name_is_lost_makes_the_calls_unknown(event: str, known: bool):
    """Letta names a tool in the events of its span only."""
    scope = "letta.otel.tracing"
    made = run(
        span("run", "", "LettaAgentV3.step", start_ns=0, end_ns=9, scope=scope),
        span(
            "t",
            "run",
            "LettaAgentV3._execute_tool",
            start_ns=1,
            end_ns=2,
            scope=scope,
            events=[SpanEvent(event, {})],
        ),
    )
    assert (made.calls_unknown == "", made.calls[0].name == "pay") == (known, known)
