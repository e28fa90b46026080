"""Taking arguments and results out of the envelopes that frameworks put around them, and out of no
other object.
"""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from otel_eval.conventions.message_formats import RESULT_WRAPPERS, WRAPPERS
from otel_eval.conventions.values import named_arguments, unwrap

MESSAGE = {"content": '{"temp": 3}', "tool_call_id": "c1", "status": "error"}


@pytest.mark.parametrize(
    ("wrapped", "value"),
    [
        (
            {"args": [], "sanitize_inputs_outputs": True, "kwargs": {"city": "Oslo"}},
            {"city": "Oslo"},
        ),
        ({"args": [], "kwargs": {}}, {}),
        ({"args": ["Oslo"], "kwargs": {}}, "Oslo"),
        ({"args": ["Oslo", 3], "kwargs": {}}, ["Oslo", 3]),
        ({"kwargs": {"city": "Oslo"}}, {"city": "Oslo"}),
        (
            {"input_str": "{'city': 'Oslo'}", "tags": [], "inputs": {"city": "Oslo"}},
            {"city": "Oslo"},
        ),
        ({"input_str": "{'city': 'Oslo'}", "inputs": None}, {"city": "Oslo"}),
        ({"kwargs": {"a": 1}, "limit": 2}, {"kwargs": {"a": 1}, "limit": 2}),
    ],
)
def test_arguments_come_out_of_their_wrapper(wrapped: Any, value: Any):
    """A Python call, a LangChain callback; an argument that is really called kwargs stays."""
    assert (
        unwrap(json.dumps(wrapped), ("python_call", "kwargs", "langchain_tool_start")).value
        == value
    )


@pytest.mark.parametrize(
    ("wrapped", "value", "failed", "call_id"),
    [
        ({"lc": 1, "type": "constructor", "kwargs": MESSAGE}, {"temp": 3}, True, "c1"),
        ({"type": "tool", "data": MESSAGE}, {"temp": 3}, True, "c1"),
        ({"type": "tool", **MESSAGE}, {"temp": 3}, True, "c1"),
        ({"raw_output": 5, "tool_name": "t", "is_error": True}, 5, True, ""),
        ({"content": [{"type": "text", "text": "no"}], "isError": True}, "no", True, ""),
        ({"content": [{"type": "text", "text": "3"}], "isError": False}, 3, False, ""),
        ({"content": [], "isError": False, "structuredContent": {"a": 1}}, {"a": 1}, False, ""),
        ([{"text": "a"}, {"json": {"b": 1}}], ["a", {"b": 1}], False, ""),
        ({"type": "text", "text": "3"}, 3, False, ""),
        (
            {"type": "text", "text": "3", "lang": "en"},
            {"type": "text", "text": "3", "lang": "en"},
            False,
            "",
        ),
        ([{"json": {"b": 1}}], {"b": 1}, False, ""),
        ({"toolUseId": "c2", "status": "error", "content": [{"text": "no"}]}, "no", True, "c2"),
        (
            {"status": "error", "detail": "a tool's own object"},
            {"status": "error", "detail": "a tool's own object"},
            False,
            "",
        ),
        ([{"name": "row"}], [{"name": "row"}], False, ""),
        ([], [], False, ""),
    ],
)
def test_results_come_out_of_their_wrapper(wrapped: Any, value: Any, failed: bool, call_id: str):
    """With the failure and the call id that the wrapper knew; an object of the tool's own never
    marks a failure.
    """
    taken = unwrap(json.dumps(wrapped), RESULT_WRAPPERS)
    assert (taken.value, taken.failed, taken.call_id) == (value, failed, call_id)


@pytest.mark.parametrize(
    ("wrapper", "wrapped", "value"),
    [
        ("mcp_content", {"content": [{"type": "text", "text": '{"temp": 3}'}]}, {"temp": 3}),
        ("mcp_content", {"content": "all", "pages": 3}, {"content": "all", "pages": 3}),
        ("strands_value", {"$value": [1, 2]}, [1, 2]),
        ("strands_value", {"$value": 1, "unit": "EUR"}, {"$value": 1, "unit": "EUR"}),
        ("text_block", {"type": "text", "text": '{"temp": 3}', "annotations": None}, {"temp": 3}),
        (
            "text_block",
            {"type": "text", "text": "Oslo", "length": 4},
            {"type": "text", "text": "Oslo", "length": 4},
        ),
    ],
)
def test_a_wrapper_of_one_framework_comes_off_and_no_other_object_does(
    wrapper: str, wrapped: Any, value: Any
):
    """What Mastra, Strands for TypeScript and OpenAI Agents put around results."""
    assert unwrap(json.dumps(wrapped), (wrapper,)).value == value


def test_wrappers_within_wrappers_come_off_in_bounded_time():
    """A hundred layers are not all opened, and nothing overflows."""
    wrapped: Any = "core"
    for _ in range(100):
        wrapped = {"output": wrapped}
    assert unwrap(wrapped, tuple(WRAPPERS)) is not None


@pytest.mark.parametrize(
    ("call", "parameters", "value"),
    [
        (
            {"args": ["Oslo"], "kwargs": {"date": "d"}},
            '{"dest": {}, "date": {}}',
            {"dest": "Oslo", "date": "d"},
        ),
        (
            {"args": ["Oslo", "d"], "kwargs": {}},
            {"type": "object", "properties": {"dest": {}, "date": {}}},
            {"dest": "Oslo", "date": "d"},
        ),
        ({"args": ["Oslo", "d"], "kwargs": {}}, '{"dest": {}}', ["Oslo", "d"]),
        ({"args": ["Oslo"], "kwargs": {}}, None, "Oslo"),
        ({"args": [], "kwargs": {"date": "d"}}, '{"dest": {}}', {"date": "d"}),
    ],
)
def test_arguments_by_position_get_the_names_of_the_parameters(
    call: Any, parameters: Any, value: Any
):
    """In the order in which the tool declares them; without enough names nothing is guessed."""
    assert named_arguments(unwrap(json.dumps(call), ("python_call",)), parameters) == value


def test_a_command_of_langgraph_answers_with_its_last_message():
    """Its update may hold the whole conversation before."""
    message = {"type": "tool", "content": "done", "tool_call_id": "c1", "status": "success"}
    command = {
        "graph": "__parent__",
        "update": {"messages": [{"type": "human", "content": "hi"}, message]},
        "goto": [],
    }
    taken = unwrap(json.dumps(command), RESULT_WRAPPERS)
    assert (taken.value, taken.call_id, taken.failed) == ("done", "c1", False)


@pytest.mark.parametrize(
    ("text", "value", "failed", "call_id"),
    [
        ("content='no' name='book' tool_call_id='c1' status='error'", "no", True, "c1"),
        ("content='{\"temp\": 3}' name='get' id='7' tool_call_id='c1'", {"temp": 3}, False, "c1"),
        ("content=[{'type': 'text', 'text': '3'}] tool_call_id='c1'", 3, False, "c1"),
        (
            (
                "{'messages': [ToolMessage(content='no', name='book', tool_call_id='c1',"
                " status='error')]}"
            ),
            "no",
            True,
            "c1",
        ),
        ("{'messages': [ToolMessage(content='[3]', id='7', tool_call_id='c1')]}", [3], False, "c1"),
        (
            "content=\"it's ' tool_call_id='c9' status='error'\" tool_call_id='c1'",
            "it's ' tool_call_id='c9' status='error'",
            False,
            "c1",
        ),
        ("content='a' + 'b' tool_call_id='c1'", "content='a' + 'b' tool_call_id='c1'", False, ""),
        ("content is king", "content is king", False, ""),
    ],
)
def test_a_langchain_message_written_as_text_is_opened(
    text: str, value: Any, failed: bool, call_id: str
):
    """Only where the table names the wrapper, and only if the content is a literal."""
    taken = unwrap(text, ("langchain_text",))
    assert (taken.value, taken.failed, taken.call_id) == (value, failed, call_id)
    assert unwrap(text, RESULT_WRAPPERS).value == text


@pytest.mark.slow  # what a regular expression does inside shows in CPU time only
def test_long_texts_that_look_like_messages_are_read_in_linear_time():
    """What a tool answered may be hostile."""
    blocks = (
        "ToolResponse(content=[" + "TextBlock(type='text', text='" * 50_000 + "], metadata=None)"
    )
    endings = "ToolResponse(content=[" + "], state=<ToolResultState.A: 'a'>, " * 50_000
    cut = "ToolResponse(content=[" + "], metadata=" * 50_000
    for text in (
        "content=" + "[] " * 100_000,
        "content='" + " name='" * 50_000 + " tool_call_id='",
        blocks,
        endings,
        cut,
    ):
        begun = time.thread_time()
        unwrap(text, ("langchain_text", "agentscope_text"))
        assert time.thread_time() - begun < 2


BLOCK = (
    "TextBlock(type='text', text={!r}, id='1f', created_at='2026-11-24T06:33:48.43',"
    " finished_at=None)"
)
RESPONSE = (
    "ToolResponse(content=[{}], state=<ToolResultState.{}: '{}'>, metadata={{}}, id='call_3')"
)


@pytest.mark.parametrize(
    ("text", "value", "failed"),
    [
        (RESPONSE.format(BLOCK.format("it's off"), "ERROR", "error"), "it's off", True),
        (RESPONSE.format(BLOCK.format('{"n": 1}'), "SUCCESS", "success"), {"n": 1}, False),
        (
            RESPONSE.format(f"{BLOCK.format('a')}, {BLOCK.format('b')}", "SUCCESS", "success"),
            ["a", "b"],
            False,
        ),
        (
            (
                "ToolResponse(content=[{'type': 'text', 'text': 'ok'}], metadata=None,"
                " stream=False, id='a')"
            ),
            "ok",
            False,
        ),
        (
            "ToolResponse(content=[DataBlock(type='data')], metadata=None, stream=False, id='a')",
            None,
            False,
        ),
    ],
    ids=["failed", "succeeded", "two blocks", "AgentScope 1", "a block of another kind"],
)
def test_a_result_of_agentscope_written_as_text_is_opened(text: str, value: object, failed: bool):
    """Where it cannot be read it stays as it is."""
    taken = unwrap(text, ("agentscope_text", *RESULT_WRAPPERS))
    assert (taken.value, taken.failed) == (text if value is None else value, failed)
