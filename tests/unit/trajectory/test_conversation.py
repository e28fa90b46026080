"""Trajectories from messages, in every form in which they are kept."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from otel_eval import UNRECORDED, InputError, Scored, Skipped, create_scorer
from otel_eval import trajectory_from_messages as trajectory_of

ARGUMENTS = {"city": "Paris"}
CHAT: list[Any] = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Weather in Paris, and the time?"},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {
                "id": "1",
                "type": "function",
                "function": {"name": "weather", "arguments": json.dumps(ARGUMENTS)},
            },
            {"id": "2", "type": "function", "function": {"name": "clock", "arguments": "{}"}},
        ],
    },
    {"role": "tool", "tool_call_id": "2", "content": "noon"},
    {"role": "tool", "tool_call_id": "1", "content": "sunny"},
    {"role": "assistant", "content": "Sunny, at noon."},
]
RESPONSES: list[Any] = [
    {"role": "user", "content": "Weather in Paris, and the time?"},
    {"type": "reasoning", "id": "rs_1", "summary": []},
    {
        "type": "function_call",
        "id": "fc_1",
        "call_id": "1",
        "name": "weather",
        "arguments": json.dumps(ARGUMENTS),
    },
    {"type": "function_call", "call_id": "2", "name": "clock", "arguments": "{}"},
    {"type": "function_call_output", "call_id": "2", "output": "noon"},
    {"type": "function_call_output", "call_id": "1", "output": "sunny"},
    {
        "type": "message",
        "role": "assistant",
        "content": [{"type": "output_text", "text": "Sunny, at noon."}],
    },
]
ANTHROPIC: list[Any] = [
    {"role": "user", "content": "Weather in Paris, and the time?"},
    {
        "role": "assistant",
        "content": [
            {"type": "text", "text": "Let me look."},
            {"type": "tool_use", "id": "1", "name": "weather", "input": ARGUMENTS},
            {"type": "tool_use", "id": "2", "name": "clock", "input": {}},
        ],
    },
    {
        "role": "user",
        "content": [
            {"type": "tool_result", "tool_use_id": "2", "content": "noon"},
            {
                "type": "tool_result",
                "tool_use_id": "1",
                "content": [{"type": "text", "text": "sunny"}],
            },
        ],
    },
    {"role": "assistant", "content": [{"type": "text", "text": "Sunny, at noon."}]},
]
LANGCHAIN: list[Any] = [
    {"type": "human", "content": "Weather in Paris, and the time?", "additional_kwargs": {}},
    {
        "type": "ai",
        "content": "",
        "additional_kwargs": {"tool_calls": CHAT[2]["tool_calls"]},
        "tool_calls": [
            {"name": "weather", "args": ARGUMENTS, "id": "1", "type": "tool_call"},
            {"name": "clock", "args": {}, "id": "2", "type": "tool_call"},
        ],
    },
    {"type": "tool", "content": "noon", "tool_call_id": "2", "status": "success"},
    {"type": "tool", "content": "sunny", "tool_call_id": "1", "status": "success"},
    {"type": "ai", "content": "Sunny, at noon.", "tool_calls": []},
]
LANGCHAIN_DATA = [{"type": each["type"], "data": each} for each in LANGCHAIN]
LANGCHAIN_DUMPS = [
    {"lc": 1, "type": "constructor", "id": ["langchain"], "kwargs": each} for each in LANGCHAIN
]
FORMS = {
    "chat": CHAT,
    "responses": RESPONSES,
    "anthropic": ANTHROPIC,
    "langchain": LANGCHAIN,
    "langchain data": LANGCHAIN_DATA,
    "langchain dumps": LANGCHAIN_DUMPS,
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_gives_the_same_run(form: str) -> None:
    run = trajectory_of(FORMS[form], agent="clerk")
    assert [(call.name, call.arguments, call.result) for call in run.calls] == [
        ("weather", ARGUMENTS, "sunny"),
        ("clock", {}, "noon"),
    ]
    assert (run.agent, run.input, run.output, run.model_calls) == (
        "clerk",
        "Weather in Paris, and the time?",
        "Sunny, at noon.",
        2,
    )
    assert (run.incomplete, run.calls_unknown, run.start_ns) == ("", "", None)


@pytest.mark.parametrize("form", FORMS)
def test_requests_of_one_message_have_no_order(form: str) -> None:
    run = trajectory_of(FORMS[form])
    for expected in (["weather", "clock"], ["clock", "weather"]):
        outcome = create_scorer({"type": "tool_call_order", "expected": expected})(run)
        assert isinstance(outcome, Skipped) or outcome.passed


@pytest.mark.parametrize("form", FORMS)
def test_a_call_without_an_answer_has_no_result_and_the_run_no_output(form: str) -> None:
    messages = FORMS[form]
    asked = next(at for at in range(1, len(messages)) if trajectory_of(messages[:at]).calls)
    run = trajectory_of(messages[:asked])
    assert run.calls[0].name == "weather"
    assert all(call.result is UNRECORDED and call.failure_unknown for call in run.calls)
    assert run.output is UNRECORDED


def test_no_time_is_invented() -> None:
    outcome = create_scorer({"type": "time_cost", "max_ms": 1})(trajectory_of(CHAT))
    assert isinstance(outcome, Skipped)
    assert outcome.reason == "not_recorded"


def test_ids_that_later_messages_use_again_are_of_other_calls() -> None:
    """Some models number the calls of each answer anew."""

    def turn(result: str) -> list[Any]:
        request = {"id": "1", "type": "function", "function": {"name": "step", "arguments": "{}"}}
        return [
            {"role": "assistant", "tool_calls": [request]},
            {"role": "tool", "tool_call_id": "1", "content": result},
        ]

    run = trajectory_of([*turn("a"), *turn("b")])
    assert [call.result for call in run.calls] == ["a", "b"]


def test_a_failed_call_is_known_where_the_message_shows_it() -> None:
    messages: list[Any] = json.loads(json.dumps(ANTHROPIC))
    messages[2]["content"][0]["is_error"] = True
    errors = [call.error for call in trajectory_of(messages).calls]
    assert [error is not None for error in errors] == [False, True]


def test_objects_of_the_packages_are_messages() -> None:
    from openai.types.chat import ChatCompletionMessage
    from openai.types.responses import ResponseFunctionToolCall

    answer = ChatCompletionMessage.model_validate(CHAT[2])
    item = ResponseFunctionToolCall.model_validate(RESPONSES[2])
    for messages in ([CHAT[1], answer, *CHAT[3:]], {"messages": [RESPONSES[0], item]}):
        assert trajectory_of(messages).calls[0].arguments == ARGUMENTS


def test_the_same_messages_have_the_same_ids() -> None:
    one, same, other = (trajectory_of(each) for each in (CHAT, list(CHAT), ANTHROPIC))
    assert one.trace_id == same.trace_id != other.trace_id
    assert len(one.trace_id) == 32


@pytest.mark.parametrize(
    "value", [[], {}, "text", None, [1], [{"name": "x"}], [{"resourceSpans": []}], {"messages": {}}]
)
def test_what_is_no_list_of_messages_is_refused(value: Any) -> None:
    with pytest.raises(InputError, match=r"^not a list of messages; "):
        trajectory_of(value)


def test_a_call_without_a_name_leaves_the_calls_unknown() -> None:
    nameless = {"role": "assistant", "tool_calls": [{"id": "1", "type": "function"}]}
    outcome = create_scorer({"type": "forbidden_tools", "patterns": ["x"]})(
        trajectory_of([nameless])
    )
    assert isinstance(outcome, Skipped)


def test_ten_thousand_calls_are_read() -> None:
    messages: Sequence[Any] = CHAT[2:5] * 5000
    run = trajectory_of(messages)
    outcome = create_scorer({"type": "tool_call_count", "criteria": {"clock": "== 5000"}})(run)
    assert isinstance(outcome, Scored)
    assert outcome.passed
