"""Small traces as frameworks write them: whose run it was, which calls it made, and each of them
once.

Two look-ups at the same time, the second of which fails; spelt as the sources named in the tables
spell it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from otel_eval.interfaces import SpanEvent
from otel_eval.model import UNRECORDED, Trajectory
from otel_eval.trajectory.builder import build
from otel_eval.trajectory.classify import ALL_NEEDS, Plan
from tests.support.made_spans import FakeSpan, closed, span

OP = "gen_ai.operation.name"
OI = "openinference.span.kind"
PARIS, OSLO = {"city": "Paris"}, {"city": "Oslo"}
SUN = {"temp": 21}


def trace(scope: str, *rows: tuple[str, str, str, dict[str, Any]], **more: Any) -> list[FakeSpan]:
    """Spans from (id, parent, name, attributes); `b…` overlaps `a…`; a status of 2 stands under
    "status".
    """
    times = {"a": (10, 30), "b": (12, 32), "r": (0, 100), "m": (1, 9), "n": (40, 50)}
    spans = []
    for span_id, parent, name, attributes in rows:
        start, end = times[span_id[0]]
        inner = len(span_id) - 1
        given = {key: value for key, value in attributes.items() if key != "status"}
        spans.append(
            span(
                span_id,
                parent,
                name,
                start_ns=start + inner,
                end_ns=end - inner,
                scope=scope,
                attributes=given,
                status=attributes.get("status", 0),
                events=more.get(span_id, ()),
            )
        )
    return spans


CLAUDE_CODE = trace(
    "com.anthropic.claude_code.tracing",
    ("r", "", "claude_code.interaction", {"span.type": "interaction", "session.id": "s"}),
    ("m", "r", "claude_code.llm_request", {"input_tokens": 3, "output_tokens": 4}),
    (
        "a",
        "r",
        "claude_code.tool",
        {"tool_name": "weather", "tool_use_id": "1", "gen_ai.tool.call.id": "1"},
    ),
    ("aa", "a", "claude_code.tool.blocked_on_user", {"decision": "accept"}),
    (
        "ab",
        "a",
        "claude_code.tool.execution",
        {"tool_use_id": "1", "gen_ai.tool.call.id": "1", "success": True},
    ),
    (
        "b",
        "r",
        "claude_code.tool",
        {"tool_name": "weather", "tool_use_id": "2", "gen_ai.tool.call.id": "2"},
    ),
    (
        "bb",
        "b",
        "claude_code.tool.execution",
        {"tool_use_id": "2", "gen_ai.tool.call.id": "2", "success": False},
    ),
    a=[SpanEvent("tool.output", {"output": '{"temp": 21}'})],
)


def gemini(call_id: str, arguments: Any, status: str) -> dict[str, Any]:
    request = {
        "callId": call_id,
        "name": "weather",
        "args": arguments,
        "isClientInitiated": False,
        "prompt_id": "p",
    }
    parts = [{"functionResponse": {"id": call_id, "name": "weather", "response": SUN}}]
    done = {
        "status": status,
        "request": request,
        "response": {"callId": call_id, "responseParts": parts},
    }
    return {
        OP: "tool_call",
        "gen_ai.tool.name": "weather",
        "gen_ai.tool.call_id": call_id,
        "gen_ai.input.messages": json.dumps(request),
        "gen_ai.output.messages": json.dumps(done),
    }


GEMINI_CLI = trace(
    "gemini-cli",
    ("r", "", "agent_call", {OP: "agent_call", "gen_ai.agent.name": "travel"}),
    ("m", "r", "llm_call", {OP: "llm_call", "gen_ai.request.model": "gemini"}),
    ("a", "r", "tool_call", gemini("1", PARIS, "success")),
    ("b", "r", "tool_call", gemini("2", OSLO, "error")),
)
HAYSTACK = trace(
    "app",
    (
        "r",
        "",
        "haystack.agent.run",
        {"haystack.agent.max_steps": 5, "haystack.agent.name": "travel"},
    ),
    ("m", "r", "haystack.agent.step.llm", {"haystack.agent.step.llm.output": '{"replies": []}'}),
    (
        "a",
        "r",
        "haystack.agent.step.tool",
        {
            "haystack.tool.name": "weather",
            "haystack.agent.step.tool.input": json.dumps(PARIS),
            "haystack.agent.step.tool.output": json.dumps(SUN),
        },
    ),
    (
        "ab",
        "a",
        "haystack.agent.hook",
        {
            "haystack.tool.name": "weather",
            "haystack.tool.call.id": "1",
            "haystack.agent.hook.human_in_the_loop.strategy.type": "Blocking",
        },
    ),
    (
        "b",
        "r",
        "haystack.agent.step.tool",
        {
            "haystack.tool.name": "weather",
            "haystack.agent.step.tool.input": json.dumps(OSLO),
            "status": 2,
        },
    ),
)


def livekit(number: str, arguments: Any, **more: Any) -> dict[str, Any]:
    return {
        "lk.function_tool.id": number,
        "lk.function_tool.name": "weather",
        "gen_ai.tool.name": "weather",
        OP: "execute_tool",
        "lk.pii.function_tool.arguments": json.dumps(arguments),
    } | more


LIVEKIT = trace(
    "livekit-agents",
    ("r", "", "agent_session", {"lk.agent_name": "travel"}),
    ("m", "r", "llm_request", {OP: "chat"}),
    (
        "a",
        "r",
        "function_tool",
        livekit("1", PARIS) | {"lk.pii.function_tool.output": json.dumps(SUN)},
    ),
    ("b", "r", "function_tool", livekit("2", OSLO) | {"lk.function_tool.is_error": True}),
)


def genkit(kind: str, name: str, **more: Any) -> dict[str, Any]:
    return {"genkit:type": "action", "genkit:metadata:subtype": kind, "genkit:name": name} | {
        f"genkit:{key}": value if isinstance(value, str) else json.dumps(value)
        for key, value in more.items()
    }


ASKED = [
    {"toolRequest": {"name": "weather", "ref": str(n), "input": each}}
    for n, each in enumerate((PARIS, OSLO), 1)
]
GENKIT = trace(
    "genkit-tracer",
    ("r", "", "travel", genkit("flow", "travel")),
    (
        "m",
        "r",
        "gemini",
        genkit("model", "gemini", output={"message": {"role": "model", "content": ASKED}}),
    ),
    ("a", "r", "weather", genkit("tool.v2", "weather", input=PARIS, output=SUN, state="success")),
    ("b", "r", "weather", genkit("tool", "weather", input=OSLO, state="error")),
)


def adk(number: str, arguments: Any) -> dict[str, Any]:
    return {
        OI: "TOOL",
        OP: "execute_tool",
        "tool.name": "weather",
        "tool.parameters": json.dumps(arguments),
        "input.value": json.dumps(arguments),
        "gen_ai.tool.call.id": number,
    }


ADK = trace(
    "gcp.vertex.agent",
    ("r", "", "agent_run [travel]", {OI: "AGENT"}),
    ("m", "r", "call_llm", {OI: "LLM"}),
    (
        "a",
        "r",
        "execute_tool weather",
        adk("1", PARIS)
        | {"output.value": json.dumps({"id": "1", "name": "weather", "response": SUN})},
    ),
    ("b", "r", "execute_tool weather", adk("2", OSLO) | {"status": 2}),
    (
        "bb",
        "r",
        "execute_tool (merged)",
        {OP: "execute_tool", "gen_ai.tool.name": "(merged tools)"},
    ),
)


def pydantic_ai(number: str, arguments: Any, **more: Any) -> dict[str, Any]:
    return {
        OI: "TOOL",
        OP: "execute_tool",
        "gen_ai.tool.name": "weather",
        "gen_ai.tool.call.id": number,
        "gen_ai.tool.call.arguments": json.dumps(arguments),
    } | more


OPENINFERENCE_OVER_GEN_AI = trace(
    "pydantic-ai",
    ("r", "", "agent run", {OI: "AGENT", OP: "invoke_agent", "gen_ai.agent.name": "travel"}),
    (
        "a",
        "r",
        "running tool",
        pydantic_ai("1", PARIS) | {"gen_ai.tool.call.result": json.dumps(SUN)},
    ),
    ("b", "r", "running tool", pydantic_ai("2", OSLO) | {"status": 2}),
)


def tool(prefix: dict[str, str], number: str, arguments: Any, **more: Any) -> dict[str, Any]:
    """A GenAI tool span whose content has other names."""
    held = {"gen_ai.tool.name": "weather", "gen_ai.tool.call.id": number, OP: "execute_tool"}
    return (
        held
        | {prefix["arguments"]: json.dumps(arguments)}
        | {
            prefix.get(key, key): json.dumps(value) if key == "result" else value
            for key, value in more.items()
        }
    )


def gen_ai(scope: str, arguments: str, result: str, **marks: str) -> list[FakeSpan]:
    names = {"arguments": arguments, "result": result}
    return trace(
        scope,
        (
            "r",
            "",
            "invoke_agent travel",
            {OP: "invoke_agent", "gen_ai.agent.name": "travel"} | marks,
        ),
        ("m", "r", "chat model", {OP: "chat"}),
        ("a", "r", "execute_tool weather", tool(names, "1", PARIS, result=SUN)),
        ("b", "r", "execute_tool weather", tool(names, "2", OSLO, status=2)),
    )


def aliyun(kind: str, **more: Any) -> dict[str, Any]:
    return {"gen_ai.span.kind": kind, **more}


LOONGSUITE = trace(
    "dify",
    ("r", "", "travel", aliyun("AGENT")),
    ("m", "r", "model", aliyun("LLM")),
    (
        "a",
        "r",
        "weather",
        aliyun(
            "TOOL",
            **{
                "tool.name": "weather",
                "input.value": json.dumps(PARIS),
                "output.value": json.dumps(SUN),
            },
        ),
    ),
    (
        "b",
        "r",
        "weather",
        aliyun(
            "TOOL", **{"tool.name": "weather", "tool.parameters": json.dumps(OSLO), "status": 2}
        ),
    ),
)
MASTRA = gen_ai(
    "@mastra/otel-exporter",
    "gen_ai.tool.call.arguments",
    "gen_ai.tool.call.result",
    **{"mastra.span.type": "agent_run"},
)
SENTRY = gen_ai("sentry", "gen_ai.tool.input", "gen_ai.tool.output")
KOOG = gen_ai("ai.koog", "input.value", "output.value")
AZURE = trace(
    "azure.ai.inference",
    ("r", "", "invoke_agent travel", {OP: "invoke_agent", "gen_ai.agent.name": "travel"}),
    ("m", "r", "chat model", {OP: "chat"}),
    ("ma", "r", "chat model", {OP: "chat"}),
    m=[
        SpanEvent(
            "gen_ai.choice",
            {
                "gen_ai.event.content": json.dumps(
                    {
                        "message": {
                            "tool_calls": [
                                {
                                    "id": str(n),
                                    "type": "function",
                                    "function": {"name": "weather", "arguments": json.dumps(each)},
                                }
                                for n, each in enumerate((PARIS, OSLO), 1)
                            ]
                        }
                    }
                )
            },
        )
    ],
    ma=[
        SpanEvent(
            "gen_ai.tool.message",
            {"gen_ai.event.content": json.dumps({"tool_call_id": "1", "content": json.dumps(SUN)})},
        ),
        SpanEvent(
            "gen_ai.choice", {"gen_ai.event.content": json.dumps({"message": {"content": "done"}})}
        ),
    ],
)
HAYSTACK_2 = trace(
    "app",
    (
        "r",
        "",
        "haystack.agent.run",
        {"haystack.agent.max_steps": 5, "haystack.agent.name": "travel"},
    ),
    (
        "m",
        "r",
        "haystack.component.run",
        {
            "haystack.component.type": "OpenAIChatGenerator",
            "haystack.component.output": json.dumps(
                {
                    "replies": [
                        {
                            "role": "assistant",
                            "content": [
                                {
                                    "tool_call": {
                                        "tool_name": "weather",
                                        "arguments": PARIS,
                                        "id": "1",
                                    }
                                },
                                {
                                    "tool_call": {
                                        "tool_name": "weather",
                                        "arguments": OSLO,
                                        "id": "2",
                                    }
                                },
                            ],
                        }
                    ]
                }
            ),
        },
    ),
    (
        "ma",
        "r",
        "haystack.component.run",
        {
            "haystack.component.type": "OpenAIChatGenerator",
            "haystack.component.output": '{"replies": []}',
            "haystack.component.input": json.dumps(
                {
                    "messages": [
                        {
                            "role": "tool",
                            "content": [
                                {
                                    "tool_call_result": {
                                        "result": json.dumps(SUN),
                                        "origin": {"tool_name": "weather", "id": "1"},
                                        "error": False,
                                    }
                                },
                                {
                                    "tool_call_result": {
                                        "result": "no",
                                        "origin": {"tool_name": "weather", "id": "2"},
                                        "error": True,
                                    }
                                },
                            ],
                        }
                    ]
                }
            ),
        },
    ),
)

AG2 = trace(
    "opentelemetry.instrumentation.ag2",
    (
        "r",
        "",
        "conversation user",
        {OP: "conversation", "ag2.span.type": "conversation", "gen_ai.agent.name": "travel"},
    ),
    (
        "ra",
        "r",
        "invoke_agent helper",
        {OP: "invoke_agent", "ag2.span.type": "agent", "gen_ai.agent.name": "helper"},
    ),
    ("m", "ra", "chat model", {OP: "chat", "ag2.span.type": "llm"}),
    (
        "rb",
        "r",
        "invoke_agent user",
        {OP: "invoke_agent", "ag2.span.type": "agent", "gen_ai.agent.name": "user"},
    ),
    (
        "a",
        "rb",
        "execute_tool weather",
        {"ag2.span.type": "tool"}
        | tool(
            {"arguments": "gen_ai.tool.call.arguments", "result": "gen_ai.tool.call.result"},
            "1",
            PARIS,
            result=SUN,
        ),
    ),
    (
        "b",
        "rb",
        "execute_tool weather",
        {"ag2.span.type": "tool"}
        | tool({"arguments": "gen_ai.tool.call.arguments"}, "2", OSLO, status=2),
    ),
)
WEAVE = [
    span(
        each.span_id,
        each.parent,
        each.name,
        start_ns=each.start_ns,
        end_ns=each.end_ns,
        status=each.status_code,
        attributes={key.replace("gen_ai.", "weave."): value for key, value in each.given.items()},
    )
    for each in MASTRA
]
LANGFUSE = [
    span(
        each.span_id,
        each.parent,
        each.name,
        start_ns=each.start_ns,
        end_ns=each.end_ns,
        status=each.status_code,
        attributes=each.given | {"langfuse.observation.type": kind},
    )
    for each, kind in zip(MASTRA, ("agent", "generation", "tool", "tool"), strict=True)
]
AGENTOPS = trace(
    "agentops",
    ("r", "", "travel.agent", {"agentops.span.kind": "agent", "agent.name": "travel"}),
    (
        "a",
        "r",
        "weather.tool",
        {
            "agentops.span.kind": "tool",
            "operation.name": "weather",
            "agentops.tool.input": json.dumps({"args": [], "kwargs": PARIS}),
            "agentops.tool.output": json.dumps(SUN),
        },
    ),
    (
        "b",
        "r",
        "lookup.tool",
        {
            "agentops.span.kind": "tool",
            "tool.name": "weather",
            "agentops.tool.input": json.dumps(OSLO),
            "status": 2,
        },
    ),
)


def traceloop_mcp(arguments: Any, result: Any, **more: Any) -> dict[str, Any]:
    return {
        "traceloop.span.kind": "tool",
        "traceloop.entity.name": "weather",
        "traceloop.entity.input": json.dumps({"tool_name": "weather", "arguments": arguments}),
        "traceloop.entity.output": json.dumps({"result": json.dumps(result), **more}),
    }


TRACELOOP_MCP = trace(
    "opentelemetry.instrumentation.mcp.instrumentation",
    ("r", "", "travel", {"traceloop.span.kind": "workflow", "traceloop.entity.name": "travel"}),
    ("a", "r", "weather.tool", traceloop_mcp(PARIS, SUN)),
    (
        "b",
        "r",
        "weather.tool",
        {**traceloop_mcp(OSLO, SUN, is_error=True), "error.type": "tool_error", "status": 2},
    ),
)


def agentscope_java(call_id: str, arguments: Any, result: str) -> dict[str, Any]:
    return {
        OP: "execute_tool",
        "agentscope.function.name": "Toolkit.callTool",
        "gen_ai.tool.name": "weather",
        "gen_ai.tool.call.id": call_id,
        "gen_ai.tool.call.arguments": json.dumps(arguments),
        "gen_ai.tool.call.result": json.dumps([{"text": result}], separators=(",", ":")),
    }


AGENTSCOPE_JAVA = trace(
    "agentscope-java",
    ("r", "", "invoke_agent travel", {OP: "invoke_agent", "gen_ai.agent.name": "travel"}),
    ("a", "r", "execute_tool weather", agentscope_java("1", PARIS, json.dumps(SUN))),
    (
        "b",
        "r",
        "execute_tool weather",
        agentscope_java("2", OSLO, "Error: Tool execution failed: no"),
    ),
)


def langwatch(kind: str, given: Any, result: Any = None) -> dict[str, Any]:
    output = (
        {}
        if result is None
        else {"langwatch.output": json.dumps({"type": "json", "value": result})}
    )
    return {
        "langwatch.span.type": kind,
        "langwatch.input": json.dumps({"type": "json", "value": given}),
        **output,
    }


LANGWATCH = trace(
    "my-app",  # the program names the tracer
    ("r", "", "travel", langwatch("agent", "hello", "done")),
    ("a", "r", "weather", langwatch("tool", PARIS, SUN)),
    ("b", "r", "weather", {**langwatch("tool", OSLO), "status": 2}),
)
EFFECT = trace(
    "travel-app",
    ("r", "", "invoke_agent travel", {OP: "invoke_agent", "gen_ai.agent.name": "travel"}),
    ("m", "r", "LanguageModel.generateText", {OP: "chat", "gen_ai.request.model": "m"}),
    ("a", "r", "Toolkit.handle", {"tool": "weather", "parameters": json.dumps(PARIS, indent=2)}),
    (
        "b",
        "r",
        "Toolkit.handle",
        {"tool": "weather", "parameters": json.dumps(OSLO, indent=2), "status": 2},
    ),
)
WHOLE = [("weather", PARIS, SUN, False), ("weather", OSLO, UNRECORDED, True)]


def _action(city: dict[str, str], **result: Any) -> dict[str, Any]:
    """A span of an action of browser-use under Laminar."""
    whole = {"is_done": False, "success": None, "error": None, "extracted_content": None, **result}
    return {
        "lmnr.span.type": "TOOL",
        "lmnr.span.input": json.dumps({"action": "weather", "params": city}, separators=(",", ":")),
        "lmnr.span.output": json.dumps(whole, separators=(",", ":")),
    }


BROWSER_USE = trace(
    "lmnr.tracer",
    ("r", "", "agent.run", {"lmnr.span.type": "DEFAULT"}),
    ("a", "r", "weather", _action(PARIS, extracted_content=json.dumps(SUN))),
    ("b", "r", "weather", _action(OSLO, error="no")),
)

CASES: dict[str, tuple[Sequence[FakeSpan], str, list[tuple[str, Any, Any, bool]]]] = {
    "Claude Code": (
        CLAUDE_CODE,
        "",
        [("weather", UNRECORDED, SUN, False), ("weather", UNRECORDED, UNRECORDED, True)],
    ),
    "Gemini CLI": (
        GEMINI_CLI,
        "travel",
        [("weather", PARIS, SUN, False), ("weather", OSLO, SUN, True)],
    ),
    "Haystack 3": (HAYSTACK, "travel", WHOLE),
    "Haystack 2, messages only": (HAYSTACK_2, "travel", [WHOLE[0], ("weather", OSLO, "no", True)]),
    "LiveKit": (LIVEKIT, "travel", WHOLE),
    "Genkit": (GENKIT, "travel", WHOLE),
    "Google ADK with OpenInference": (ADK, "travel", WHOLE),
    "OpenInference over GenAI": (OPENINFERENCE_OVER_GEN_AI, "travel", WHOLE),
    "LoongSuite and Dify": (LOONGSUITE, "travel", WHOLE),
    "AG2": (AG2, "travel", WHOLE),
    "Weave": (WEAVE, "travel", WHOLE),
    "Langfuse over GenAI": (LANGFUSE, "travel", WHOLE),
    "AgentOps": (AGENTOPS, "travel", WHOLE),
    "browser-use with Laminar": (BROWSER_USE, "", [WHOLE[0], ("weather", OSLO, "no", True)]),
    "Mastra": (MASTRA, "travel", WHOLE),
    "Sentry": (SENTRY, "travel", WHOLE),
    "Koog": (KOOG, "travel", WHOLE),
    "OpenLLMetry, MCP": (TRACELOOP_MCP, "travel", [WHOLE[0], ("weather", OSLO, SUN, True)]),
    "AgentScope for Java": (
        AGENTSCOPE_JAVA,
        "travel",
        [WHOLE[0], ("weather", OSLO, "Error: Tool execution failed: no", True)],
    ),
    "LangWatch for JavaScript": (LANGWATCH, "travel", WHOLE),
    "Effect": (
        EFFECT,
        "travel",
        [("weather", PARIS, UNRECORDED, False), ("weather", OSLO, UNRECORDED, True)],
    ),
    "Azure, events with packed content": (
        AZURE,
        "travel",
        [WHOLE[0], ("weather", OSLO, UNRECORDED, False)],
    ),
}


def outermost(spans: Sequence[FakeSpan], plan: Plan) -> Trajectory:
    (run,) = [each.trajectory for each in build(closed(*spans), plan) if each.trajectory.outermost]
    return run


@pytest.mark.parametrize("case", CASES)
def test_the_calls_are_what_happened(case: str):
    """Name, arguments, result and failure of each; nothing twice, nothing invented."""
    spans, agent, want = CASES[case]
    run = outermost(spans, Plan(needs=ALL_NEEDS))
    assert run.agent == agent
    assert [
        (call.name, call.arguments, call.result, call.error is not None) for call in run.calls
    ] == want
    assert len({call.call_id for call in run.calls}) == (2 if run.calls[0].call_id else 1)


@pytest.mark.parametrize(
    "case", [each for each in CASES if "only" not in each and "packed" not in each]
)
def test_the_lean_reading_sees_the_same(case: str):
    """Names, order, failures and which overlapped, without reading content."""
    spans, _, want = CASES[case]
    run = outermost(spans, Plan())
    assert [(call.name, call.error is not None) for call in run.calls] == [
        (each[0], each[3]) for each in want
    ]
    first, second = run.calls
    assert first.end_ns is not None
    assert second.start_ns is not None
    assert second.start_ns < first.end_ns


def test_a_tool_whose_span_names_its_class_leaves_the_calls_unknown():
    """MLflow names the spans of smolagents' tools so, `SimpleTool` for each function."""
    tool = {"mlflow.spanType": '"TOOL"', "mlflow.spanInputs": '{"kwargs": {"city": "Paris"}}'}
    spans = trace(
        "mlflow.tracing.provider",
        ("r", "", "ToolCallingAgent.run", {"mlflow.spanType": '"AGENT"'}),
        ("a", "r", "SimpleTool.__call__", tool),
    )
    run = outermost(spans, Plan())
    assert run.calls == ()
    assert run.calls_unknown


@pytest.mark.parametrize("scope", ["mirascope.llm", "opentelemetry.instrumentation.genai.dspy"])
def test_an_answer_that_may_have_asked_for_tools_leaves_the_calls_unknown(scope: str):
    """Mirascope and OpenTelemetry's DSPy record `stop` for each: without content nothing shows that
    it asked for none.
    """
    model = {OP: "chat", "gen_ai.response.finish_reasons": ["stop"]}
    assert outermost(
        trace(scope, ("r", "", "travel", {}), ("m", "r", "chat gpt-4o", model)), Plan()
    ).calls_unknown


def test_calls_are_unknown_where_only_the_last_of_parallel_ones_is_recorded():
    """OpenLIT records those of OpenAI's Responses API so."""
    answered = json.dumps([{"role": "assistant", "parts": [{"type": "text", "content": "18"}]}])
    model = {
        OP: "chat",
        "gen_ai.output.messages": json.dumps(
            [
                {
                    "role": "assistant",
                    "parts": [
                        {"type": "tool_call", "id": "fc_2", "name": "weather", "arguments": OSLO}
                    ],
                }
            ]
        ),
    }
    for more, unknown in (
        ({"openai.api.type": "responses"}, True),
        ({"openai.api.type": "chat_completions"}, False),
    ):
        spans = trace(
            "openlit.instrumentation.openai",
            ("r", "", "travel", {}),
            ("m", "r", "chat gpt-4o", {**model, **more}),
            ("n", "r", "chat gpt-4o", {**model, **more, "gen_ai.output.messages": answered}),
        )
        assert bool(outermost(spans, Plan()).calls_unknown) is unknown


def input_of(parts: list[dict[str, Any]]) -> str:
    return json.dumps([{"role": "user", "parts": parts}])


def look_up(*call_ids: str) -> dict[str, Any]:
    parts = [
        {"type": "tool_call", "id": each, "name": "weather", "arguments": OSLO} for each in call_ids
    ]
    return {
        OP: "chat",
        "gen_ai.output.messages": json.dumps([{"role": "assistant", "parts": parts}]),
    }


def test_calls_are_unknown_where_one_that_raised_may_have_left_no_span():
    """Decorators of Traceloop's SDK for JavaScript never end its span."""
    tool = {"traceloop.span.kind": "tool", "traceloop.entity.name": "weather"}
    hidden = {OP: "chat", "gen_ai.response.finish_reasons": ["tool_calls"]}
    for model, unknown in ((look_up("1"), False), (look_up("1", "2"), True), (hidden, True)):
        spans = trace(
            "@traceloop/node-server-sdk",
            ("r", "", "travel.agent", {"traceloop.span.kind": "agent"}),
            ("m", "r", "chat gpt-4o", model),
            ("a", "r", "weather.tool", tool),
        )
        for plan in (Plan(), Plan(needs=ALL_NEEDS)):
            assert bool(outermost(spans, plan).calls_unknown) is unknown


def test_the_outcome_of_a_call_is_unknown_where_messages_leave_failures_out():
    """OpenLLMetry's messages of Anthropic's client lack `is_error`; without a mark it is unknown
    everywhere.
    """
    response = {"type": "tool_call_response", "id": "1", "response": "no such date"}
    for scope, mark, unknown in (
        ("@traceloop/instrumentation-anthropic", {"is_error": False}, True),
        ("@traceloop/instrumentation-openai", {"is_error": False}, False),
        ("@traceloop/instrumentation-openai", {}, True),
    ):
        parts = [response | mark]
        spans = trace(
            scope,
            ("r", "", "travel", {}),
            ("m", "r", "chat m", look_up("1")),
            ("a", "r", "chat m", look_up() | {"gen_ai.input.messages": input_of(parts)}),
        )
        (call,) = outermost(spans, Plan(needs=ALL_NEEDS)).calls
        assert (call.result, call.error, call.failure_unknown) == ("no such date", None, unknown)


def test_a_status_that_may_be_another_spans_shows_no_failure():
    """OpenInference's processors for the Vercel AI SDK write it on all spans that end after a
    failure.
    """
    tool = {OI: "TOOL", OP: "execute_tool", "gen_ai.tool.name": "weather"}
    raised = [SpanEvent("exception", {"exception.type": "Error", "exception.message": "no"})]
    done = {"output.value": json.dumps(SUN)}
    for more, events, want in (
        ({"status": 2}, raised, (True, False)),
        ({"status": 2}, [], (False, True)),
        ({"status": 2, **done}, [], (False, False)),
        ({}, [], (False, False)),
    ):
        spans = trace(
            "gen_ai",
            ("r", "", "invoke_agent", {OI: "AGENT"}),
            ("a", "r", "execute_tool", {**tool, **more}),
            a=events,
        )
        for plan in (Plan(), Plan(needs=ALL_NEEDS)):
            (call,) = outermost(spans, plan).calls
            assert (call.error is not None, call.failure_unknown) == want


def test_a_span_without_the_name_of_its_tool_leaves_the_calls_unknown():
    """Datadog's tracer names the span of a call of the Vercel AI SDK after the operation or after
    the function that called it.
    """
    for name in ("ai.toolCall", "travel"):
        spans = trace(
            "dd-trace-js",
            ("r", "", "travel", {"operation.name": "ai.generateText", OP: "workflow"}),
            (
                "m",
                "r",
                "travel",
                {
                    "operation.name": "ai.generateText.doGenerate",
                    OP: "llm",
                    "gen_ai.request.model": "m",
                },
            ),
            ("a", "r", name, {"operation.name": "ai.toolCall", OP: "tool"}),
        )
        run = outermost(spans, Plan())
        assert (run.calls, run.model_calls) == ((), 1)
        assert run.calls_unknown
