"""Many instrumentations drove the same task; each recording gives back what happened."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from otel_eval.model import UNRECORDED, Scored, ToolCall, Trajectory
from otel_eval.scorers import create_scorer
from otel_eval.trajectory.builder import build
from otel_eval.trajectory.classify import ALL_NEEDS, Plan
from tests.support.recorded_traces import FILES, TRUTH, traces

PLAN = Plan(needs=ALL_NEEDS)


def outermost(file: str, plan: Plan = PLAN) -> list[Trajectory]:
    runs = [run for trace in traces(file) for run in build(trace, plan)]
    return [run.trajectory for run in runs if run.trajectory.outermost]


def seen(call: ToolCall) -> dict[str, Any]:
    arguments = None if call.arguments is UNRECORDED else call.arguments
    return {"name": call.name, "arguments": arguments, "error": call.error is not None}


@pytest.mark.parametrize(
    "truth", [t for t in TRUTH if t["calls"] is not None], ids=lambda t: t["file"]
)
def test_the_calls_are_what_happened(truth: dict[str, Any]):
    """Names, arguments, errors and order; calls that overlapped may stand in either order, and a
    failure that is unknown is not compared.
    """
    (run,) = outermost(truth["file"])
    got = [seen(call) for call in run.calls]
    want = truth["calls"]
    for call, actual, expected in zip(run.calls, got, want, strict=True):
        if expected["arguments"] == "ANY":
            actual["arguments"] = "ANY"
        if call.failure_unknown and not call.span_id:
            actual["error"] = expected["error"]
    for one, other in truth["overlapping"]:
        assert run.calls[one].start_ns < run.calls[other].end_ns
        assert run.calls[other].start_ns < run.calls[one].end_ns
    if [0, 1] in truth["overlapping"]:
        got[:2], want = sorted(got[:2], key=str), [*sorted(want[:2], key=str), *want[2:]]
    assert got == want
    assert (run.incomplete, run.calls_unknown) == ("", "")


@pytest.mark.parametrize("truth", [t for t in TRUTH if "agents" in t], ids=lambda t: t["file"])
def test_whose_the_calls_are_and_what_was_asked_and_answered(truth: dict[str, Any]):
    """Agents within agents each make their own calls; `null` is what was not recorded, `ANY` what
    is not compared.
    """
    (run,) = outermost(truth["file"])
    assert run.agent == truth["agent"]
    made_by = [call.agent_path[-1] if call.agent_path else "" for call in run.calls]
    assert sorted(zip(made_by, (call.name for call in run.calls), strict=True)) == sorted(
        zip(truth["agents"], (call["name"] for call in truth["calls"]), strict=True)
    )
    for got, want in ((run.input, truth["input"]), (run.output, truth["output"])):
        assert want == "ANY" or got == (UNRECORDED if want is None else want)


@pytest.mark.parametrize("truth", [t for t in TRUTH if t["calls"] is None], ids=lambda t: t["file"])
def test_the_calls_of_a_run_that_recorded_none_are_unknown(truth: dict[str, Any]):
    """It is never a run without calls; nor are those that it shows known to be all, or to have been
    made.
    """
    for plan in (PLAN, Plan()):
        (run,) = outermost(truth["file"], plan)
        assert [call.name for call in run.calls] == truth.get("shown", [])
        assert run.calls_unknown or run.waiting


@pytest.mark.parametrize("file", FILES)
def test_a_run_waits_if_and_only_if_it_ended_in_a_pause(file: str):
    """The reason names the tools, whether or not scorers read content."""
    truth = next((each for each in TRUTH if each["file"] == file), {})
    for plan in (PLAN, Plan()):
        for run in outermost(file, plan):
            named = [tool for tool in truth.get("waiting", []) if f'"{tool}"' in run.waiting]
            assert (bool(run.waiting), named) == ("waiting" in truth, truth.get("waiting", []))


def test_an_agent_that_a_tool_called_has_its_calls():
    """OpenLLMetry records them beside the agent's own span, which alone shows nothing."""
    (trace,) = [
        each for each in traces("langgraph_agent_in_tool_openllmetry.json") if build(each, PLAN)
    ]
    inner = [run.trajectory for run in build(trace, PLAN) if run.trajectory.agent == "helper"]
    assert [([call.name for call in run.calls], bool(run.calls_unknown)) for run in inner] == [
        ([], True),
        (["remove"], False),
    ]


@pytest.mark.parametrize("file", [t["file"] for t in TRUTH])
def test_what_is_not_needed_is_not_read_and_changes_nothing(file: str):
    """The lean reading sees the same calls, times and errors."""
    lean = outermost(file, Plan())
    full = outermost(file)
    for thin, thick in zip(lean, full, strict=True):
        assert [(c.name, c.span_id, c.start_ns, c.error) for c in thin.calls] == [
            (c.name, c.span_id, c.start_ns, c.error) for c in thick.calls
        ]
        assert {(c.arguments, c.result) for c in thin.calls} <= {(UNRECORDED, UNRECORDED)}
        assert (thin.agent, thin.calls_unknown, thin.waiting, thin.model_calls) == (
            thick.agent,
            thick.calls_unknown,
            thick.waiting,
            thick.model_calls,
        )


REFUSED = {
    "strands": "strands_refused.json",
    "pydantic-ai": "pydantic_ai_refused_requests.json",
    "LangGraph": "langgraph_refused_openinference.json",
    "Vercel AI SDK": "vercel_ai_sdk_v6_refused.json",
    "smolagents": "smolagents_refused_openinference.json",
    "LlamaIndex": "llama_index_refused_openinference.json",
}
POLICY = [
    {"type": "tool_errors"},
    {"type": "forbidden_tools", "patterns": ["no_such_*"]},
    {"type": "required_tools", "patterns": ["get_weather"]},
    {"type": "tool_call_count", "criteria": {"get_weather": "== 2", "no_such_tool": "== 1"}},
    {"type": "tool_call_order", "expected": ["get_weather", "no_such_tool", "get_weather"]},
    {"type": "tool_call_count", "criteria": {"get_weather": "== 1"}, "failed_calls": "exclude"},
]


def test_calls_that_were_refused_give_one_verdict_in_every_framework():
    """The model asks for a tool that does not exist, and then for one with invalid arguments; only
    some frameworks write spans for these.
    """
    scorers = [create_scorer(spec) for spec in POLICY]
    for file in REFUSED.values():
        (run,) = outermost(file)
        outcomes = [scorer(run) for scorer in scorers]
        assert all(isinstance(each, Scored) for each in outcomes), file
        assert [round(each.value, 2) for each in outcomes] == [0.33, 0, 1, 1, 1, 1], file


def test_a_refused_call_never_satisfies_a_requirement_and_is_named_as_refused():
    for file in REFUSED.values():
        (run,) = outermost(file)
        needed = create_scorer({"type": "required_tools", "patterns": ["no_such_tool"]})(run)
        assert (needed.value, "refused: no_such_tool" in needed.explanation) == (0, True)


def test_the_span_of_a_refused_call_keeps_its_error_type_and_satisfies_no_requirement():
    """By the framework's mark (pydantic-ai), its answer (LangGraph) or the error (Strands)."""
    scorer = create_scorer({"type": "required_tools", "patterns": ["get_weather"]})
    for framework in ("strands", "pydantic-ai", "LangGraph"):
        for plan in (PLAN, Plan()):
            (run,) = outermost(REFUSED[framework], plan)
            invalid = run.calls[2]
            assert (invalid.error.type != "refused", invalid.refused) == (True, True)
            assert scorer(replace(run, calls=run.calls[1:])).value == 0


def test_a_trace_of_a_model_call_alone_does_not_show_what_was_called():
    """Gemini CLI without a terminal: a trace for each model call and each batch of tool calls."""
    (run,) = outermost("gemini_cli_headless.json")
    assert run.calls_unknown


def test_results_and_ids_come_out_of_their_envelopes():
    """LangChain messages in four spellings, Strands blocks, Vercel's quoted text."""
    for file in (
        "langchain_openinference",
        "langchain_openllmetry",
        "mlflow_langchain",
        "strands_default",
        "vercel_ai_sdk_v6",
        "adot_langchain",
        "adot_openinference_langchain",
        "bedrock_agentcore_strands",
        "loongsuite_langchain",
    ):
        (run,) = outermost(f"{file}.json")
        by_id = {call.call_id: call.result for call in run.calls}
        assert by_id["call_1"] == {"city": "Paris", "temp_c": 21}
        assert by_id["call_4"] == "confirmed Paris 2026-12-01"


def test_what_a_handoff_answered_is_no_call_of_the_agent_that_handed_over():
    """The run within the workflow that consists of the handoff alone."""
    trajectories = [
        run.trajectory
        for trace in traces("openai_agents_js_handoff_openinference.json")
        for run in build(trace, PLAN)
    ]
    assert [(run.agent, run.calls, run.calls_unknown) for run in trajectories] == [
        ("triage", (), ""),
        ("triage", (), ""),
        ("booker", (), ""),
    ]


def test_a_runs_own_facts_are_read():
    """Agent, conversation, tokens, question and answer."""
    (run,) = outermost("pydantic_ai_v5.json")
    assert (run.agent, run.model_calls, run.input_tokens, run.output_tokens) == (
        "travel_agent",
        4,
        305,
        84,
    )
    assert run.input == "Book me a flight to the warmer of Paris and Oslo"
    assert run.output == "Booked Paris on 2026-12-01; it is 21C there."
    assert len(run.spans) == 9


def test_a_workflow_around_one_agent_bears_its_name():
    """Its calls say who made them; the inner run is there too."""
    for file in ("openai_agents_openinference.json", "openai_agents_otelv2.json"):
        trajectories = [run.trajectory for trace in traces(file) for run in build(trace, PLAN)]
        assert [(t.agent, t.outermost, len(t.calls)) for t in trajectories] == [
            ("travel_agent", True, 4),
            ("travel_agent", False, 4),
        ]
        assert trajectories[0].calls[0].agent_path == ("travel_agent",)


def test_the_id_of_a_task_is_no_conversation():
    """CrewAI writes it where a conversation's id would be."""
    (run,) = outermost("crewai_own.json")
    assert (run.conversation_id, run.model_calls, run.input_tokens) == ("", 4, 200)
    assert "null" not in str(run.input)


def test_a_failure_that_no_span_records_is_unknown():
    """pydantic-ai 0.2 ends the span of a call that asked for a retry like any other, and records no
    result.
    """
    (early,) = outermost("pydantic_ai_0_2.json")
    assert [call.failure_unknown for call in early.calls] == [True] * 4
    (later,) = outermost("pydantic_ai_1_0.json")
    assert [call.failure_unknown for call in later.calls] == [False] * 4


def test_a_result_that_may_be_the_text_of_an_exception_shows_no_failure():
    """Spring AI ends the span of a call that raised like any other; with content its result is the
    exception's message.

    In ADK for JavaScript it looks like that of a call whose tool goes on after it.
    """
    for plan in (PLAN, Plan()):
        (run,) = outermost("spring_ai.json", plan)
        assert [call.failure_unknown for call in run.calls] == [True] * 4
    (run,) = outermost("google_adk_js.json")
    assert [call.failure_unknown for call in run.calls] == [False, False, True, False]
    for file in ("splunk_openai_agents", "loongsuite_langchain", "codex"):
        assert all(call.failure_unknown for run in outermost(f"{file}.json") for call in run.calls)
    (run,) = outermost("azure_langchain_hidden.json")
    assert [call.failure_unknown for call in run.calls] == [True, True, False, True]
    (run,) = outermost("spring_ai.json")
    assert [call.result for call in run.calls][2:] == [
        "invalid date 2026-13-40",
        "confirmed Paris 2026-12-01",
    ]


def test_what_logfire_masks_is_not_recorded():
    """Neither the arguments that hold a password, nor a result, wherever they stand."""
    (run,) = outermost("logfire_scrubbed.json")
    assert [(call.arguments, call.result) for call in run.calls] == [
        (UNRECORDED, UNRECORDED),
        ({"user": "ann"}, "opened for ann"),
    ]


def test_results_are_taken_out_of_what_the_instrumentation_wraps_them_in():
    """A message of LangChain within an object of one key; the id of the call is in the message,
    too.
    """
    (run,) = outermost("langgraph_js_openinference.json")
    paris, oslo, failed, booked = run.calls
    assert (paris.result, oslo.result, booked.result) == (
        "18 degrees in Paris",
        "18 degrees in Oslo",
        {"booked": "Paris", "seat": 12},
    )
    assert (paris.call_id, oslo.call_id, booked.call_id) == ("c1", "c2", "c4")
    assert failed.result is UNRECORDED
    (run,) = outermost("openai_agents_js_mcp_openinference.json")
    assert [call.result for call in run.calls] == [
        {"city": "Paris", "temp_c": 21},
        {"city": "Oslo", "temp_c": 21},
        "noted",
    ]


def test_the_span_around_the_model_calls_of_a_run_is_none():
    """TanStack AI marks the run as a model call, with the sum of their tokens."""
    (run,) = outermost("tanstack_ai.json")
    assert (run.model_calls, run.input_tokens, run.output_tokens) == (5, 250, 50)
