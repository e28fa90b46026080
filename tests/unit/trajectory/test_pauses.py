"""Calls that wait for a person, calls of earlier turns, and calls that were cut short are not
scored as calls that were made.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from otel_eval.interfaces import SpanEvent
from otel_eval.model import UNRECORDED, Skipped, ToolCall, Trajectory
from otel_eval.scorers import create_scorer
from otel_eval.trajectory.builder import build
from otel_eval.trajectory.classify import ALL_NEEDS, Plan
from tests.support.made_spans import FakeSpan, closed, span

OP = "gen_ai.operation.name"
KIND = "openinference.span.kind"
LANGCHAIN = "opentelemetry.instrumentation.genai.langchain"
OPENAI_AGENTS = "openinference.instrumentation.openai_agents"
OPENAI_CLIENT = "opentelemetry.instrumentation.openai_v2"
ANTHROPIC = "opentelemetry.instrumentation.anthropic_v2"
MASTRA = "@mastra/otel-exporter"
ADK = "gcp.vertex.agent"


def runs(*spans: FakeSpan, needs: frozenset[str] = ALL_NEEDS) -> list[Trajectory]:
    return [each.trajectory for each in build(closed(*spans), Plan(needs=needs))]


def both(*spans: FakeSpan) -> Trajectory:
    """The outermost run, which is the same whether or not scorers read content."""
    full, lean = runs(*spans), runs(*spans, needs=frozenset())
    assert [
        (each.calls_unknown, each.waiting, [call.name for call in each.calls]) for each in full
    ] == [(each.calls_unknown, each.waiting, [call.name for call in each.calls]) for each in lean]
    return full[0]


def names(run: Trajectory) -> list[str]:
    return [call.name for call in run.calls]


def agent(scope: str, status: int = 0, **attributes: Any) -> FakeSpan:
    given = {OP: "invoke_agent", "gen_ai.agent.name": "a", **attributes}
    return span(
        "run",
        "",
        "invoke_agent a",
        start_ns=0,
        end_ns=100,
        scope=scope,
        status=status,
        attributes=given,
    )


def chat(span_id: str, start: int, scope: str, *parts: dict[str, Any]) -> FakeSpan:
    messages = json.dumps(
        [{"role": "assistant", "parts": list(parts) or [{"type": "text", "content": "done"}]}]
    )
    given = {OP: "chat", "gen_ai.output.messages": messages}
    return span(
        span_id, "run", "chat m", start_ns=start, end_ns=start + 2, scope=scope, attributes=given
    )


def tool(span_id: str, start: int, scope: str, name: str = "look", **fields: Any) -> FakeSpan:
    given = {OP: "execute_tool", "gen_ai.tool.name": name, **fields.pop("attributes", {})}
    return span(
        span_id,
        "run",
        f"execute_tool {name}",
        start_ns=start,
        end_ns=start + 2,
        scope=scope,
        attributes=given,
        **fields,
    )


def request(name: str, call_id: str = "c1") -> dict[str, Any]:
    return {"type": "tool_call", "id": call_id, "name": name, "arguments": {}}


def raised(exception: str, message: str = "") -> list[SpanEvent]:
    return [SpanEvent("exception", {"exception.type": exception, "exception.message": message})]


@pytest.mark.parametrize(
    "fields",
    [
        {"status": 2, "attributes": {"error.type": "langgraph.errors.GraphInterrupt"}},
        {"status": 2, "attributes": {"error.type": "GraphInterrupt"}},
        {"status": 2, "events": raised("Exception", "GraphInterrupt((Interrupt(value='sure?'),))")},
        {"status": 2, "events": raised("pydantic_ai.exceptions.ApprovalRequired")},
        {"status": 1, "events": raised("langgraph.errors.GraphInterrupt")},
    ],
)
def test_a_tool_that_waits_for_a_person_made_no_call(fields: dict[str, Any]):
    """OpenInference ends its span as if it had succeeded, the others as if it had failed."""
    waits = tool("a", 5, LANGCHAIN, "ask", **fields)
    run = both(agent(LANGCHAIN), chat("m", 1, LANGCHAIN), waits)
    assert (names(run), run.calls_unknown) == ([], "")
    assert run.waiting == 'the run waits for a person to answer about "ask"'


@pytest.mark.parametrize(
    "exception", ["ValueError", "my.GraphInterrupted", "Rejected: GraphInterrupt"]
)
def test_any_other_exception_is_a_failed_call(exception: str):
    """Also one whose name only contains that of an interrupt."""
    run = both(
        agent(LANGCHAIN), tool("a", 5, LANGCHAIN, status=2, attributes={"error.type": exception})
    )
    assert [(call.name, call.error is not None) for call in run.calls] == [("look", True)]


def test_a_deferred_call_of_pydantic_ai_is_none():
    """In the formats that record no exception, an attribute shows it. Only one that needs an
    approval waits for a person; the other is left to the program.
    """
    for deferral, waits in (("CallDeferred", False), ("ApprovalRequired", True)):
        given = {"pydantic_ai.tool.deferral.name": deferral}
        run = both(agent("pydantic-ai"), tool("a", 5, "pydantic-ai", attributes=given))
        assert (names(run), bool(run.waiting)) == ([], waits)


def test_the_same_through_openinference():
    """Its processor writes on the spans of the framework."""
    deferred = {
        KIND: "TOOL",
        "tool.name": "look",
        "pydantic_ai.tool.deferral.name": "ApprovalRequired",
    }
    given = {KIND: "AGENT", "agent.name": "a"}
    root = span("run", "", "a", start_ns=0, end_ns=99, scope="pydantic-ai", attributes=given)
    assert (
        names(
            both(
                root,
                span(
                    "t",
                    "run",
                    "look",
                    start_ns=5,
                    end_ns=9,
                    scope="pydantic-ai",
                    attributes=deferred,
                ),
            )
        )
        == []
    )
    strands = "strands.telemetry.tracer"
    spans = [
        span("run", "", "a", start_ns=0, end_ns=99, scope=strands, attributes=given),
        span("m", "run", "chat", start_ns=1, end_ns=3, scope=strands, attributes={KIND: "LLM"}),
        span(
            "t",
            "run",
            "look",
            start_ns=5,
            end_ns=9,
            scope=strands,
            attributes={KIND: "TOOL", "tool.name": "look"},
        ),
    ]
    assert both(*spans).waiting


def test_a_refused_call_whose_answer_is_in_the_agents_messages_was_not_made():
    """The results in the messages of a model call are those of tools that the model's provider
    ran.
    """
    answer = {
        "role": "user",
        "parts": [{"type": "tool_call_response", "id": "c1", "name": "look", "result": "denied"}],
    }
    asked = {"role": "assistant", "parts": [request("look")]}
    run = both(
        agent("pydantic-ai", **{"pydantic_ai.all_messages": json.dumps([asked, answer])}),
        chat("m", 9, "pydantic-ai"),
    )
    assert (names(run), run.calls_unknown) == ([], "")


@pytest.mark.parametrize(
    ("answer", "offered", "score"),
    [
        ("Error: look is not a valid tool, try one of [x].", ["look"], 0),
        ("Error invoking tool 'look' with kwargs {} with error:\n a: Field required", ["look"], 0),
        ("boom", ["look"], 1),
        ("boom", ["search"], 0),
        ("", ["look"], None),
    ],
)
def test_a_failed_call_is_refused_by_the_form_of_its_answer_or_if_its_tool_was_not_offered(
    answer: str, offered: list[str], score: float | None
):
    """Its span keeps the error that it recorded; without the answer it is unknown."""
    asked = chat("m", 2, LANGCHAIN, request("look"))
    asked.given["gen_ai.tool.definitions"] = json.dumps([{"name": each} for each in offered])
    last = chat("n", 20, LANGCHAIN)
    part = {"type": "tool_call_response", "id": "c1", "response": answer}
    if answer:
        last.given["gen_ai.input.messages"] = json.dumps([{"role": "tool", "parts": [part]}])
    failed = tool(
        "t", 6, LANGCHAIN, status=2, attributes={"error.type": "E", "gen_ai.tool.call.id": "c1"}
    )
    run = both(agent(LANGCHAIN), asked, failed, last)
    assert [call.error and call.error.type for call in run.calls] == ["E"]
    outcome = create_scorer({"type": "required_tools", "patterns": ["look"]})(run)
    if isinstance(outcome, Skipped):
        assert (score, outcome.reason) == (None, "not_recorded")
    else:
        assert outcome.value == score
    both_called = replace(run, calls=(*run.calls, ToolCall(name="look")))
    assert create_scorer({"type": "required_tools", "patterns": ["look"]})(both_called).passed


@pytest.mark.parametrize(
    ("scope", "part", "offered", "is_known"),
    [
        (OPENAI_CLIENT, {"type": "computer_call", "call_id": "c1"}, {}, True),
        (OPENAI_CLIENT, {"type": "custom_tool_call", "call_id": "c1", "name": "look"}, {}, False),
        (ANTHROPIC, "computer", {"type": "computer_20250124", "name": "computer"}, True),
        (ANTHROPIC, "computer", {"type": "custom", "name": "computer"}, False),
        ("pydantic-ai", "look", {"kind": "external", "name": "look"}, True),
        ("pydantic-ai", "look", {"kind": "function", "name": "look"}, False),
    ],
)
def test_a_request_that_is_left_to_the_program_around_the_agent_is_no_call(
    scope: str, part: str | dict[str, str], offered: dict[str, str], is_known: bool
):
    """The run ends in it; that of a model call by itself is not known to end there."""
    asked = chat("m", 2, scope, request(part) if isinstance(part, str) else part)
    if scope == "pydantic-ai":
        asked.given["model_request_parameters"] = json.dumps({"function_tools": [offered]})
    elif offered:
        asked.given["gen_ai.tool.definitions"] = json.dumps([offered])
    run = both(agent(scope), asked)
    assert (names(run), not run.calls_unknown) == ([], is_known)
    # What an agent asked for before it went on was not left to anyone.
    went_on = both(agent(scope), asked, chat("n", 20, scope))
    assert went_on.calls_unknown or len(went_on.calls) == 1
    asked.parent = ""
    assert both(asked).calls_unknown


def test_a_call_that_only_the_next_history_shows_fills_the_gap_after_a_hidden_answer():
    """The model call says that it ended in order to call tools."""
    asked, last = chat("m", 2, LANGCHAIN), chat("n", 20, LANGCHAIN)
    del asked.given["gen_ai.output.messages"]
    asked.given["gen_ai.response.finish_reasons"] = ["tool_calls"]
    others = [
        chat("o", 30, LANGCHAIN, request("search", "c2")),
        tool("t", 35, LANGCHAIN, "search", attributes={"gen_ai.tool.call.id": "c2"}),
        chat("p", 40, LANGCHAIN),
    ]
    assert both(agent(LANGCHAIN), asked, last, *others).calls_unknown
    answer = {"type": "tool_call_response", "id": "c1", "response": "1"}
    last.given["gen_ai.input.messages"] = json.dumps(
        [
            {"role": "assistant", "parts": [request("look")]},
            {"role": "tool", "parts": [answer]},
        ]
    )
    run = both(agent(LANGCHAIN), asked, last, *others)
    assert (names(run), run.calls_unknown) == (["look", "search"], "")


@pytest.mark.parametrize(
    "answer",
    [
        'Tool "look" not found. Available tools: a. Call tools by their exact name only — never'
        " add prefixes, namespaces, or colons.",
        'Tool "look" received invalid arguments — the provided JSON could not be parsed.',
        {
            "error": True,
            "message": "Tool input validation failed for look. Please fix the"
            " following errors and try again:\n- a: Required",
        },
        "Tool call was not approved by the user",
    ],
)
def test_mastra_refuses_a_call_in_these_words(answer: Any):
    """@mastra/core 1.71: they stand in the next messages."""
    asked, last = chat("m", 2, MASTRA, request("look")), chat("n", 20, MASTRA)
    part = {"type": "tool_call_response", "id": "c1", "response": answer}
    last.given["gen_ai.input.messages"] = json.dumps([{"role": "tool", "parts": [part]}])
    for each in (asked, last):
        each.given["mastra.span.type"] = "model_inference"
    (call,) = both(agent(MASTRA, **{"mastra.span.type": "agent_run"}), asked, last).calls
    assert (call.name, call.refused) == ("look", True)


def test_the_calls_of_earlier_turns_are_no_calls_of_this_one():
    """An agent's span may hold the whole conversation, as LangSmith, MLflow and Langfuse record
    that of a graph with memory.
    """
    asked = {"type": "ai", "content": "", "tool_calls": [{"name": "look", "args": {}, "id": "c1"}]}
    state = json.dumps(
        {
            "messages": [
                asked,
                {"type": "tool", "content": "x", "tool_call_id": "c1", "name": "look"},
            ]
        }
    )
    answer = json.dumps(
        {"generations": [[{"text": "done", "message": {"type": "ai", "content": "done"}}]]}
    )
    given = {"langsmith.span.kind": "agent", "gen_ai.completion": state}
    model = {"langsmith.span.kind": "llm", "gen_ai.completion": answer}
    root = span("run", "", "a", start_ns=0, end_ns=100, scope="langsmith", attributes=given)
    run = both(
        root,
        span("m", "run", "ChatOpenAI", start_ns=5, end_ns=9, scope="langsmith", attributes=model),
    )
    assert (names(run), run.calls_unknown) == ([], "")
    # Where the model's answer is hidden, the agent's messages are all there is.
    hidden = span(
        "m",
        "run",
        "ChatOpenAI",
        start_ns=5,
        end_ns=9,
        scope="langsmith",
        attributes={"langsmith.span.kind": "llm"},
    )
    assert both(root, hidden).calls_unknown


def oi(span_id: str, kind: str, start: int, name: str = "", **attributes: Any) -> FakeSpan:
    parent = "" if span_id == "run" else "run"
    end = 100 if span_id == "run" else start + 2
    given = {KIND: kind, **attributes}
    return span(
        span_id,
        parent,
        name or span_id,
        start_ns=start,
        end_ns=end,
        scope=OPENAI_AGENTS,
        attributes=given,
    )


RESULT = {"output.value": "sunny"}


def test_a_last_call_without_a_result_may_wait_for_an_approval():
    """OpenAI Agents gives it the span of a tool that returned nothing; a model call after it shows
    that it returned.
    """
    first, second = oi("m", "LLM", 1), oi("n", "LLM", 9)
    seen, silent = oi("a", "TOOL", 5, "look", **RESULT), oi("b", "TOOL", 12, "buy")
    assert both(oi("run", "AGENT", 0), first, oi("c", "TOOL", 5, "buy"), second).waiting == ""
    assert (
        both(oi("run", "AGENT", 0), first, seen, second, silent).waiting
        == 'the run ended in a call of "buy" without a result: it may wait for an approval'
    )
    assert both(oi("run", "AGENT", 0), first, seen).waiting == ""
    failed = span(
        "run", "", "run", end_ns=100, scope=OPENAI_AGENTS, status=2, attributes={KIND: "AGENT"}
    )
    run = both(failed, first, seen, second, silent)
    assert (run.waiting, "may have been cancelled" in run.calls_unknown) == ("", True)


def test_without_model_spans_only_results_of_other_calls_show_that_one_is_missing():
    """Else content is not captured, and every run would be one of these."""
    scope = "opentelemetry.instrumentation.genai.openai_agents"
    known = tool("a", 5, scope, attributes={"gen_ai.tool.call.result": "sunny"})
    assert both(agent(scope), known, tool("b", 8, scope)).waiting
    assert both(agent(scope), tool("b", 2, scope), known).waiting == ""
    assert both(agent(scope), tool("a", 5, scope), tool("b", 8, scope)).waiting == ""


def test_an_event_may_hold_the_result_of_the_last_call():
    """Strands writes it there."""
    scope = "strands.telemetry.tracer"
    done = [SpanEvent("gen_ai.choice", {"message": '[{"text": "sunny"}]', "id": "c1"})]
    assert (
        both(
            agent(scope), chat("m", 1, scope, request("look")), tool("a", 5, scope, events=done)
        ).waiting
        == ""
    )
    assert both(agent(scope), chat("m", 1, scope, request("look")), tool("a", 5, scope)).waiting


def test_a_run_that_failed_before_its_last_calls_left_spans():
    """A call that is cancelled may lose its span."""
    asked = chat("m", 1, LANGCHAIN, request("look", "c1"), request("buy", "c2"))
    one, two = tool("a", 5, LANGCHAIN), tool("b", 5, LANGCHAIN, "buy")
    assert "failed after a model call" in both(agent(LANGCHAIN, 2), asked, one).calls_unknown
    assert "failed after a model call" in both(agent(LANGCHAIN, 2), asked).calls_unknown
    assert both(agent(LANGCHAIN, 2), asked, one, two).calls_unknown == ""
    run = both(agent(LANGCHAIN), asked, one)
    assert run.waiting == (
        'the run ended in a request for "buy" without an answer: it may wait for an approval'
    )
    assert both(agent(LANGCHAIN), asked, one, two).waiting == ""
    assert both(agent(LANGCHAIN, 2), chat("m", 1, LANGCHAIN)).calls_unknown == ""


def test_a_run_that_starts_with_its_model_call_does_not_answer_its_requests():
    """Clocks of milliseconds give both spans one start."""
    run_span = agent(LANGCHAIN)
    asked = chat("m", run_span.start_ns, LANGCHAIN, request("buy"))
    assert both(run_span, asked).waiting == (
        'the run ended in a request for "buy" without an answer: it may wait for an approval'
    )


def test_a_pause_is_over_when_the_agent_calls_a_model_again():
    """A run around both parts went on; the part that ended in the pause did not."""
    paused = {"final_result": '{"calls":[],"approvals":[{"tool_name":"buy","args":"{}"}]}'}

    def part(span_id: str, start: int, **attributes: str) -> FakeSpan:
        return span(
            span_id,
            "run",
            "invoke_agent a",
            start_ns=start,
            end_ns=start + 10,
            scope="pydantic-ai",
            attributes={OP: "invoke_agent", **attributes},
        )

    def model(span_id: str, parent: str, start: int, *parts: dict[str, Any]) -> FakeSpan:
        made = chat(span_id, start, "pydantic-ai", *parts)
        made.parent = parent
        return made

    first = [part("a", 1, **paused), model("m", "a", 2, request("buy"))]
    outer, inner = runs(agent("pydantic-ai"), *first)
    assert outer.waiting == inner.waiting == 'the run waits for a person to answer about "buy"'
    outer, inner, resumed = runs(agent("pydantic-ai"), *first, part("b", 20), model("n", "b", 21))
    assert (outer.waiting, bool(inner.waiting), resumed.waiting) == ("", True, "")


@pytest.mark.parametrize(
    ("scope", "attributes"),
    [
        ("pydantic-ai", {"final_result": '{"calls":[],"approvals":[{"tool_name":"buy"}]}'}),
        (
            "agent_framework",
            {
                "gen_ai.output.messages": '[{"role": "assistant", "parts": [{"type": '
                '"function_approval_request", "function_call": {"name": "buy"}}]}]'
            },
        ),
        (
            "@mastra/otel-exporter",
            {
                "mastra.span.type": "agent_run",
                "mastra.agent_run.output": '{"status":"suspended","toolName":"buy"}',
            },
        ),
        (
            "langsmith",
            {
                "langsmith.span.kind": "agent",
                "gen_ai.completion": '{"messages": [], "__interrupt__": [{"value": "sure?"}]}',
            },
        ),
    ],
)
def test_an_agents_output_shows_that_it_waits(scope: str, attributes: dict[str, str]):
    """Whether or not a tool was reached."""
    assert both(agent(scope, **attributes)).waiting == "the run waits for a person"


@pytest.mark.parametrize(
    ("scope", "attributes"),
    [
        ("pydantic-ai", {"final_result": '{"calls":[],"approvals":[]}'}),
        ("pydantic-ai", {"final_result": '{"approvals":[{"tool_name":"buy"}]}'}),
        ("agent_framework", {"gen_ai.output.messages": '"{\\"type\\": \\"function_approval_"'}),
        ("langsmith", {"gen_ai.completion": '{"text": "\\"__interrupt__\\": 1"}'}),
    ],
)
def test_what_a_model_writes_does_not_pause_a_run(scope: str, attributes: dict[str, str]):
    """Its text is quoted within the output, and its own objects have other keys."""
    given = {"langsmith.span.kind": "agent", **attributes}
    assert both(agent(scope, **given)).waiting == ""


@pytest.mark.parametrize(
    ("resumed", "tool_start", "is_unknown"), [(True, 1, False), (True, 9, False), (False, 1, True)]
)
def test_a_call_that_waited_answers_the_model_call_that_is_written_after_it(
    resumed: bool, tool_start: int, is_unknown: bool
):
    """Mastra writes the span of the model call that asked before the pause when the run goes on."""

    def step(span_id: str, start: int, reason: str) -> FakeSpan:
        given = {
            "mastra.span.type": "model_inference",
            "gen_ai.response.finish_reasons": [reason],
            "mastra.metadata.resumed": resumed,
        }
        return span(
            span_id,
            "run",
            "chat m",
            start_ns=start,
            end_ns=start + 2,
            scope=MASTRA,
            attributes=given,
        )

    run = span(
        "run",
        "",
        "a",
        start_ns=0,
        end_ns=100,
        attributes={"mastra.span.type": "agent_run"},
        scope=MASTRA,
    )
    call = span(
        "t",
        "run",
        "execute_tool look",
        start_ns=tool_start,
        end_ns=tool_start + 2,
        scope=MASTRA,
        attributes={"mastra.span.type": "tool_call", "gen_ai.tool.name": "look"},
    )
    asked, last = step("m", 5, "tool-calls"), step("n", 20, "stop")
    assert bool(both(run, call, asked, last).calls_unknown) == is_unknown
    assert both(run, asked, last).calls_unknown


def test_a_request_that_the_provider_did_not_execute_is_no_call():
    """The AI SDK writes a span for it, too."""
    asked = {"gen_ai.tool.type": "extension"}
    done = {**asked, "gen_ai.tool.call.result": "1"}
    run = both(agent("gen_ai"), tool("a", 5, "gen_ai", attributes=asked), chat("m", 9, "gen_ai"))
    assert (names(run), bool(run.calls_unknown)) == ([], True)
    run = both(agent("gen_ai"), tool("a", 5, "gen_ai", attributes=done), chat("m", 9, "gen_ai"))
    assert (names(run), run.calls_unknown) == (["look"], "")


def test_a_tool_of_openai_agents_that_timed_out_failed():
    """Its result is the only sign."""
    late = {"output.value": "Tool 'look' timed out after 0.3 seconds."}
    (call,) = both(
        oi("run", "AGENT", 0), oi("a", "TOOL", 5, "look", **late), oi("m", "LLM", 9)
    ).calls
    assert call.error is not None


def test_early_releases_name_agents_of_openai_agents_by_their_spans_only():
    """The workflow around them has no name."""
    spans = [
        oi("run", "AGENT", 0, "Agent workflow"),
        oi("b", "AGENT", 1, "booker", **{"llm.system": "openai"}),
    ]
    assert [each.agent for each in runs(*spans)] == ["booker", "booker"]


def adk_call(**attributes: Any) -> FakeSpan:
    return tool("a", 5, ADK, attributes={"gcp.vertex.agent.event_id": "e", **attributes})


def test_a_call_of_adk_that_waits_for_a_confirmation_was_not_made():
    """Its result says so; without content, the result is missing."""
    waits = json.dumps({"error": "This tool call requires confirmation, please approve or reject."})
    assert (
        names(both(agent(ADK), chat("m", 1, ADK), adk_call(**{"gen_ai.tool.call.result": waits})))
        == []
    )
    assert both(agent(ADK), chat("m", 1, ADK), adk_call()).waiting
    assert both(agent(ADK), adk_call(), chat("m", 9, ADK)).waiting == ""


def test_a_call_of_adk_that_was_refused_is_a_failed_call():
    """It has a span, and without content it looks like any other that failed."""
    refused = {
        "gen_ai.tool.call.result": json.dumps({"error": "This tool call is rejected."}),
        "error.type": "TOOL_ERROR",
    }
    (call,) = both(agent(ADK), adk_call(**refused), chat("m", 9, ADK)).calls
    assert call.error is not None


def test_a_call_of_adk_that_was_cancelled_may_have_failed():
    """Its span lacks what is written when the tool returns."""
    (call,) = both(agent(ADK), tool("a", 5, ADK), chat("m", 9, ADK)).calls
    assert call.failure_unknown


def test_messages_of_several_model_calls_on_one_span_give_no_arguments():
    """OpenInference over ADK 2 writes the arguments of one call beside the name of another."""
    scope, mixed = (
        "openinference.instrumentation.google_adk",
        "llm.output_messages.0.message.tool_calls.0.tool_call.function.",
    )
    root = span(
        "run", "", "invocation", start_ns=0, end_ns=99, scope=scope, attributes={KIND: "AGENT"}
    )
    given = {KIND: "LLM", f"{mixed}name": "buy", f"{mixed}arguments": '{"city": "Paris"}'}
    model = span("m", "run", "call_llm", start_ns=1, end_ns=50, scope=scope, attributes=given)
    bought = {KIND: "TOOL", "tool.name": "buy", "output.value": "{}"}
    (call,) = both(
        root,
        model,
        span("a", "m", "execute_tool buy", start_ns=5, end_ns=9, scope=scope, attributes=bought),
    ).calls
    assert call.arguments is UNRECORDED


def test_hidden_inputs_of_langsmith_are_not_recorded():
    """It writes an empty object, as for a call without arguments."""
    root = span(
        "run",
        "",
        "a",
        start_ns=0,
        end_ns=99,
        scope="langsmith",
        attributes={"langsmith.span.kind": "agent"},
    )
    given = {
        "langsmith.span.kind": "tool",
        "gen_ai.tool.name": "look",
        "gen_ai.prompt": "{}",
        "gen_ai.completion": "{}",
    }
    (call,) = both(
        root, span("t", "run", "look", start_ns=5, end_ns=9, scope="langsmith", attributes=given)
    ).calls
    assert call.arguments is UNRECORDED


def test_a_graph_of_langfuse_is_an_agent_whatever_its_name_is():
    """Its steps share its metadata and add their own."""
    kind, meta = "langfuse.observation.type", "langfuse.observation.metadata."
    graph = {kind: "chain", f"{meta}ls_integration": '"langgraph"'}
    step = {**graph, f"{meta}langgraph_node": '"tools"'}
    spans = [
        span("run", "", "sup", start_ns=0, end_ns=99, scope="langfuse-sdk", attributes=graph),
        span("step", "run", "tools", start_ns=1, end_ns=50, scope="langfuse-sdk", attributes=step),
        span(
            "t",
            "step",
            "look",
            start_ns=5,
            end_ns=9,
            scope="langfuse-sdk",
            attributes={**step, kind: "tool"},
        ),
    ]
    assert [(each.agent, names(each)) for each in runs(*spans)] == [("sup", ["look"])]


def test_an_interrupted_tool_of_langfuse_made_no_call():
    """Its message is the only sign."""
    given = {
        "langfuse.observation.type": "tool",
        "langfuse.observation.status_message": "(Interrupt(value='sure?'),)",
    }
    root = span(
        "run",
        "",
        "a",
        start_ns=0,
        end_ns=99,
        scope="langfuse-sdk",
        attributes={"langfuse.observation.type": "agent"},
    )
    assert (
        names(
            both(
                root,
                span(
                    "t", "run", "look", start_ns=5, end_ns=9, scope="langfuse-sdk", attributes=given
                ),
            )
        )
        == []
    )


def test_the_client_of_mcps_python_sdk_does_not_show_that_a_tool_failed():
    """Only the server's span does, in a service that may send none."""
    scope, given = "mcp-python-sdk", {"mcp.method.name": "tools/call"}
    sent = span(
        "c", "run", "MCP send tools/call look", start_ns=5, end_ns=9, scope=scope, attributes=given
    )
    (call,) = both(agent("my.agent"), sent).calls
    assert (call.name, call.failure_unknown) == ("look", True)
    late = span(
        "c",
        "run",
        sent.name,
        start_ns=5,
        end_ns=9,
        scope=scope,
        status=2,
        attributes={**given, "error.type": "-32001"},
    )
    assert [each.error is not None for each in both(agent("my.agent"), late).calls] == [True]
    for error in ({}, {"error.type": "tool_error"}):
        answer = {**given, OP: "execute_tool", "gen_ai.tool.name": "look", **error}
        served = span(
            "s", "c", "tools/call look", start_ns=6, end_ns=8, scope=scope, attributes=answer
        )
        (call,) = both(agent("my.agent"), sent, served).calls
        assert (call.error is not None, call.failure_unknown) == (bool(error), False)


@pytest.mark.parametrize(
    "text",
    [
        "Error: tool 'look' not found in any workbench",
        "Error: Unterminated string starting at: line 1 column 10 (char 9)",
    ],
)
def test_a_call_that_autogen_could_not_make_failed(text: str):
    """OpenInference records nothing but the text that the model got."""
    scope = "openinference.instrumentation.autogen_agentchat"
    root = span("run", "", "a.run", start_ns=0, end_ns=99, scope=scope, attributes={KIND: "AGENT"})
    given = {KIND: "TOOL", "tool.name": "look", "output.value": text}
    (call,) = both(
        root, span("t", "run", "a.look", start_ns=5, end_ns=9, scope=scope, attributes=given)
    ).calls
    assert call.error is not None


def test_a_tool_that_crewai_does_not_have_failed():
    """Its result says so, and without it the call may have failed."""
    scope = "openinference.instrumentation.crewai._event_listener"
    root = span(
        "run", "", "crew.kickoff", start_ns=0, end_ns=99, scope=scope, attributes={KIND: "CHAIN"}
    )
    for result, failed, unknown in (
        ("Tool not found", True, False),
        ("sunny", False, False),
        ("__REDACTED__", False, True),
    ):
        given = {KIND: "TOOL", "tool.name": "look", "output.value": result}
        (call,) = both(
            root, span("t", "run", "look.run", start_ns=5, end_ns=9, scope=scope, attributes=given)
        ).calls
        assert (call.error is not None, call.failure_unknown) == (failed, unknown)
