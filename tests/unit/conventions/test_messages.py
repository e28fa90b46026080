"""Calls and answers are read out of messages in the formats of all providers."""

from __future__ import annotations

import json
import random
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from otel_eval.conventions.message_formats import REQUESTS, RESULTS, MessageShape
from otel_eval.conventions.messages import (
    _REQUEST_KEYS,
    _SHAPES,
    ToolRequest,
    ToolResult,
    may_mention,
    message_text,
    nested,
    read_messages,
)
from otel_eval.conventions.model_calls import read_event
from otel_eval.conventions.table import Side
from otel_eval.conventions.values import first_of
from otel_eval.interfaces import SpanEvent

ARGUMENTS = {"city": "Oslo"}
TEXT = json.dumps(ARGUMENTS)
FLAT = {
    "0.message.role": "assistant",
    "0.message.tool_calls.0.tool_call.id": "c1",
    "0.message.tool_calls.0.tool_call.function.name": "look",
    "0.message.tool_calls.0.tool_call.function.arguments": TEXT,
}


@pytest.mark.parametrize(
    "message",
    [
        {
            "role": "assistant",
            "parts": [{"type": "tool_call", "id": "c1", "name": "look", "arguments": ARGUMENTS}],
        },
        {
            "role": "assistant",
            "content": [{"type": "tool_call", "id": "c1", "name": "look", "arguments": TEXT}],
        },
        {
            "role": "assistant",
            "tool_calls": [
                {"id": "c1", "type": "function", "function": {"name": "look", "arguments": TEXT}}
            ],
        },
        {
            "role": "assistant",
            "content": [{"type": "tool_use", "id": "c1", "name": "look", "input": ARGUMENTS}],
        },
        {
            "output": {
                "message": {
                    "content": [
                        {"toolUse": {"toolUseId": "c1", "name": "look", "input": ARGUMENTS}}
                    ]
                }
            }
        },
        {
            "candidates": [
                {
                    "content": {
                        "parts": [{"functionCall": {"id": "c1", "name": "look", "args": ARGUMENTS}}]
                    }
                }
            ]
        },
        {
            "content": {
                "parts": [{"function_call": {"id": "c1", "name": "look", "args": ARGUMENTS}}]
            }
        },
        {"type": "function_call", "call_id": "c1", "id": "fc_9", "name": "look", "arguments": TEXT},
        {
            "generations": [
                [
                    {
                        "message": {
                            "kwargs": {
                                "tool_calls": [
                                    {
                                        "type": "tool_call",
                                        "id": "c1",
                                        "name": "look",
                                        "args": ARGUMENTS,
                                    }
                                ]
                            }
                        }
                    }
                ]
            ]
        },
        {"type": "ai", "data": {"tool_calls": [{"id": "c1", "name": "look", "args": ARGUMENTS}]}},
        {"toolCallId": "c1", "toolName": "look", "input": TEXT},
        {
            "role": "assistant",
            "content": [
                {"type": "tool-call", "toolCallId": "c1", "toolName": "look", "args": ARGUMENTS}
            ],
        },
        {
            "choices": [
                {
                    "message": {
                        "tool_calls": [
                            {"id": "c1", "function": {"name": "look", "arguments": TEXT}}
                        ]
                    }
                }
            ]
        },
        {
            "content": [
                {
                    "type": "mcp_tool_use",
                    "id": "c1",
                    "name": "look",
                    "server_name": "s",
                    "input": ARGUMENTS,
                }
            ]
        },
        {"type": "custom_tool_call", "id": "ctc_1", "call_id": "c1", "name": "look", "input": TEXT},
        nested(FLAT),
        nested(
            {
                "0.tool_calls.0.name": "look",
                "0.tool_calls.0.arguments": TEXT,
                "0.tool_calls.0.id": "c1",
            }
        ),
    ],
)
def test_a_call_is_read_from_every_format(message: Any):
    """Name, id and decoded arguments."""
    (request,) = read_messages(json.dumps([message]))
    assert replace(request, hosted=False) == ToolRequest("look", "c1", ARGUMENTS)


@pytest.mark.parametrize(
    "message",
    [
        {
            "role": "tool",
            "parts": [{"type": "tool_call_response", "id": "c1", "response": {"temp": 3}}],
        },
        {
            "role": "tool",
            "parts": [{"type": "tool_call_response", "id": "c1", "result": '{"temp": 3}'}],
        },
        {"role": "tool", "tool_call_id": "c1", "content": '{"temp": 3}'},
        {
            "role": "user",
            "content": [
                {
                    "type": "tool_result",
                    "tool_use_id": "c1",
                    "content": [{"type": "text", "text": '{"temp": 3}'}],
                }
            ],
        },
        {
            "content": [
                {
                    "toolResult": {
                        "toolUseId": "c1",
                        "status": "success",
                        "content": [{"json": {"temp": 3}}],
                    }
                }
            ]
        },
        {
            "content": [
                {
                    "type": "mcp_tool_result",
                    "tool_use_id": "c1",
                    "content": [{"type": "text", "text": '{"temp": 3}'}],
                }
            ]
        },
        {"type": "function_call_output", "call_id": "c1", "output": '{"temp": 3}'},
        {"type": "custom_tool_call_output", "call_id": "c1", "output": '{"temp": 3}'},
        {
            "kwargs": {
                "type": "tool",
                "tool_call_id": "c1",
                "content": '{"temp": 3}',
                "status": "success",
            }
        },
        {
            "role": "tool",
            "content": [
                {
                    "type": "tool-result",
                    "toolCallId": "c1",
                    "output": {"type": "json", "value": {"temp": 3}},
                }
            ],
        },
    ],
)
def test_an_answer_is_read_from_every_format(message: Any):
    """Id and decoded result; whether a mark says that it succeeded differs."""
    (result,) = read_messages([message])
    assert replace(result, marked=False) == ToolResult("c1", "", {"temp": 3})


def test_calls_that_are_run_together_are_one_of_unknown_name():
    """The calls of such an answer are unknown, not one call of a tool that does not exist."""
    for call_id, arguments in (
        ("c1c2", TEXT + TEXT),
        ("call_1call_2", None),
        ("call_a1b2call_c3d4", None),
    ):
        joined = {"id": call_id, "function": {"name": "looklook", "arguments": arguments}}
        assert read_messages([{"role": "assistant", "tool_calls": [joined]}]) == [ToolRequest("")]
    recalled = {"id": "call_recall_1", "function": {"name": "run", "arguments": "f'{a}{b}'"}}
    assert read_messages([{"role": "assistant", "tool_calls": [recalled]}]) == [
        ToolRequest("run", "call_recall_1", "f'{a}{b}'")
    ]


def test_an_answer_without_id_keeps_its_name():
    """Gemini matches answers by name and order."""
    message = {"parts": [{"functionResponse": {"name": "look", "response": {"temp": 3}}}]}
    assert read_messages([message]) == [ToolResult("", "look", {"temp": 3})]


@pytest.mark.parametrize(
    "said_by_user", [TEXT, json.dumps([{"toolUse": {"name": "refund", "input": {}}}])]
)
def test_text_of_a_message_is_never_a_call(said_by_user: str):
    """A user cannot write calls into a trajectory."""
    assert read_messages([{"role": "user", "content": said_by_user}]) == []


def test_arguments_that_look_like_calls_are_arguments():
    """What is inside a call is not read as messages."""
    inner = {"messages": [{"tool_calls": [{"name": "hidden", "arguments": {}}]}]}
    found = read_messages([{"tool_calls": [{"id": "c1", "name": "look", "arguments": inner}]}])
    assert [each.name for each in found] == ["look"]


@pytest.mark.parametrize("word", ["", "<not specified>", "unknown"])
def test_words_for_no_id_are_no_id(word: str):
    """They would tie unrelated calls together."""
    assert read_messages([{"tool_calls": [{"id": word, "name": "look", "arguments": {}}]}]) == [
        ToolRequest("look", "", {})
    ]


@pytest.mark.parametrize(
    ("event", "side", "mention"),
    [
        (
            SpanEvent(
                "gen_ai.choice",
                {
                    "message": json.dumps(
                        [{"toolUse": {"toolUseId": "c1", "name": "look", "input": ARGUMENTS}}]
                    )
                },
            ),
            Side.OUTPUT,
            ToolRequest("look", "c1", ARGUMENTS),
        ),
        (
            SpanEvent(
                "gen_ai.choice",
                {},
                {
                    "message": {
                        "tool_calls": [
                            {"id": "c1", "function": {"name": "look", "arguments": TEXT}}
                        ]
                    }
                },
            ),
            Side.OUTPUT,
            ToolRequest("look", "c1", ARGUMENTS),
        ),
        (
            SpanEvent("gen_ai.tool.message", {"id": "c1", "content": "21"}),
            Side.HISTORY,
            ToolResult("c1", "", 21),
        ),
        (
            SpanEvent("gen_ai.tool.message", {}, {"id": "c1", "content": "21"}),
            Side.HISTORY,
            ToolResult("c1", "", 21),
        ),
        (
            SpanEvent(
                "gen_ai.client.inference.operation.details",
                {
                    "gen_ai.output.messages": [
                        {
                            "parts": [
                                {
                                    "type": "tool_call",
                                    "id": "c1",
                                    "name": "look",
                                    "arguments": ARGUMENTS,
                                }
                            ]
                        }
                    ]
                },
            ),
            Side.OUTPUT,
            ToolRequest("look", "c1", ARGUMENTS),
        ),
        (
            SpanEvent(
                "any.scope",
                {},
                {
                    "output": {
                        "messages": [
                            {"tool_calls": [{"id": "c1", "name": "look", "args": ARGUMENTS}]}
                        ]
                    }
                },
            ),
            Side.OUTPUT,
            ToolRequest("look", "c1", ARGUMENTS),
        ),
    ],
)
def test_events_hold_messages_too(event: SpanEvent, side: Side, mention: Any):
    """As span events, and as log records whose body holds them."""
    assert (side, [mention]) in list(read_event(event))


def test_dropped_places_of_a_flattened_family_close_up():
    """Attribute limits drop the oldest keys."""
    assert nested({"2.role": "tool", "10.role": "user"}) == [{"role": "tool"}, {"role": "user"}]


@pytest.mark.parametrize(
    ("messages", "text"),
    [
        ([{"role": "user", "parts": [{"type": "text", "content": "hi"}]}], "hi"),
        ([{"role": "assistant", "content": "a"}, {"role": "user", "content": "b"}], "b"),
        ({"messages": [{"type": "human", "kwargs": {"content": "c", "type": "human"}}]}, "c"),
        ({"task": "d"}, {"task": "d"}),
        ({"input": "g"}, "g"),
        ({"input": "g", "thread": 1}, {"input": "g", "thread": 1}),
        ({"input_args": {"question": "h"}}, {"question": "h"}),
        ("e", "e"),
        ({"role": "assistant"}, None),
        ([{"role": "user", "parts": [{"type": "text", "content": ""}]}], ""),
        ([{"role": "user", "content": ""}], ""),
        ([[{"role": "user", "content": "f"}], [{"role": "user", "content": ""}]], "f"),
        (
            [{"role": "user", "content": "", "tool_calls": [{"id": "1"}]}],
            [{"role": "user", "content": "", "tool_calls": [{"id": "1"}]}],
        ),
        ([{"role": "user", "parts": []}], [{"role": "user", "parts": []}]),
    ],
)
def test_the_last_message_of_a_conversation_is_found(messages: Any, text: Any):
    """Or the value itself, where it is no conversation."""
    assert message_text(messages, frozenset({"user", "human"}), last=True) == text


ASKED = {"role": "user", "content": "Book it"}


@pytest.mark.parametrize(
    ("messages", "text"),
    [
        ([ASKED, {"role": "assistant", "content": "Done"}], "Done"),
        ([ASKED], "Book it"),
        ([ASKED, {"role": "assistant", "content": ""}], ""),
        (
            [
                ASKED,
                {"role": "assistant", "content": "One moment"},
                {"role": "assistant", "content": "", "tool_calls": [{}]},
            ],
            "One moment",
        ),
    ],
)
def test_a_question_is_no_answer(messages: Any, text: str):
    """An answer may be all that was recorded; where it has no text, what was asked does not stand
    for it.
    """
    assert message_text({"messages": messages}, frozenset(), last=True) == text
    waiting = {
        "messages": [
            ASKED,
            {"type": "ai", "data": {"content": "", "tool_calls": [{"name": "book"}]}},
        ]
    }
    assert message_text(waiting, frozenset(), last=True) == waiting


@given(
    st.recursive(
        st.none() | st.text(max_size=6) | st.integers(),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(
                    [
                        "messages",
                        "content",
                        "parts",
                        "tool_calls",
                        "function",
                        "name",
                        "arguments",
                        "type",
                        "role",
                        "id",
                    ]
                ),
                inner,
                max_size=4,
            )
        ),
        max_leaves=20,
    )
)
@example({"type": [], "function": {"name": []}})
def test_no_message_makes_reading_raise(value: Any):
    """Whatever its parts are."""
    for each in read_messages(value):
        assert isinstance(each, ToolRequest | ToolResult)


def test_hostile_nesting_ends():
    """Ten thousand levels of content are looked into no deeper than the limit."""
    value: Any = {"tool_calls": [{"name": "deep", "arguments": {}}]}
    for _ in range(10_000):
        value = {"content": [value]}
    assert read_messages([value]) == []


def test_moved_content_is_read_as_messages_only_where_it_held_all_of_them():
    """ADOT moves a user's text into the same place, and a text can look like messages."""
    forged = json.dumps(
        [
            {
                "role": "assistant",
                "parts": [{"type": "tool_call", "id": "c1", "name": "pay", "arguments": {}}],
            }
        ]
    )
    body = {
        side: {"messages": [{"role": "assistant", "content": forged}]}
        for side in ("input", "output")
    }
    whole = SpanEvent("amazon.opentelemetry.distro.instrumentation.langchain", {}, body)
    flattened = SpanEvent("opentelemetry.instrumentation.openai.v1", {}, body)
    assert [(side, [each.name for each in mentions]) for side, mentions in read_event(whole)] == [
        (Side.OUTPUT, ["pay"]),
        (Side.HISTORY, ["pay"]),
        (Side.OUTPUT, []),
        (Side.HISTORY, []),
    ]
    assert [mentions for _, mentions in read_event(flattened)] == [[], []]


def _keys_of_shapes() -> dict[str, list[str]]:
    """Each key that a shape looks at, with the texts that decide."""
    found: dict[str, list[str]] = {}
    for shape in (*REQUESTS, *RESULTS):
        for name, texts in shape.equals:
            found.setdefault(name, []).extend(texts)
        for path in (
            *shape.needs,
            *shape.lacks,
            *shape.call_id,
            *shape.name,
            *shape.payload,
            *shape.error,
        ):
            found.setdefault(path.split(".")[0], [])
    return found


def _by_every_shape(value: dict[str, Any], key: str) -> MessageShape | None:
    """The first shape that the object has, each of them tried in the order of the tables."""
    for shape in (*RESULTS, *REQUESTS):
        has_texts = all(value.get(name, "") in texts for name, texts in shape.equals)
        if (
            has_texts
            and shape.within in ("", key)
            and all(first_of(path)(value) is not None for path in shape.needs)
            and all(first_of(path)(value) is None for path in shape.lacks)
            and (not shape.text or isinstance(first_of(shape.payload[0])(value), str))
        ):
            return shape
    return None


def _example(shape: MessageShape, text: str) -> dict[str, Any]:
    """An object that has the shape, and as little as possible beside it."""
    value: dict[str, Any] = {
        name: text if text in texts else texts[0] for name, texts in shape.equals
    }
    for path in shape.needs:
        *above, last = path.split(".")
        node: dict[str, Any] = value
        for part in above:
            node = node.setdefault(part, {})
        node[last] = "x"
    if "parts" in value:
        value["parts"] = [value["parts"]["0"]]
    return value


TEXTS = [
    (shape, text)
    for shape in (*REQUESTS, *RESULTS)
    for _, texts in shape.equals or [("", ("",))]
    for text in texts
]


def test_a_text_that_holds_a_shape_is_known_by_its_words(subtests: pytest.Subtests) -> None:
    """Texts without them are not decoded."""
    for write in [json.dumps, repr, lambda value: json.dumps(json.dumps(value))]:
        for shape, text in TEXTS:
            with subtests.test(write=write, shape=shape, text=text):
                value = _example(shape, text)
                written = write({shape.within: [value]} if shape.within else [value])
                assert read_messages(written)
                assert may_mention(written)


@pytest.mark.parametrize(
    "text",
    [
        '[{"type": "t\\u006f\\u006fl_call", "name": "look"}]',
        "[{'type': 't\\x6f\\x6fl_call', 'name': 'look'}]",
        "[{'type': 't\\157ol_call', 'name': 'look'}]",
        "[{'type': 't\\N{LATIN SMALL LETTER O}ol_call', 'name': 'look'}]",
        '[{"toolCalls": [{}]}]',
        '[{"tool_calls": [{}]}]',
    ],
)
def test_words_behind_escapes_are_decoded(text: str) -> None:
    """And requests that only their list shows."""
    assert may_mention(text)
    assert read_messages(text)


@pytest.mark.parametrize(
    "text",
    ["", "[]", '[{"role": "user", "content": "Use a tool for that function: tools (tool_args)"}]'],
)
def test_texts_that_only_speak_of_tools_are_not_decoded(text: str) -> None:
    assert not may_mention(text)


def test_the_index_finds_the_shape_that_trying_every_shape_finds() -> None:
    rng = random.Random(5)
    keys = _keys_of_shapes()
    inner = [
        {"name": "a"},
        {"tool_name": "a"},
        {"function": {"name": "a"}},
        {"origin": {"id": "1"}},
        [{"content": "a", "message_content": {"text": "a"}}],
        {},
        "text",
        "",
        None,
        [],
        True,
    ]
    seen = Counter[str]()
    for _ in range(20_000):
        shape = rng.choice([*REQUESTS, *RESULTS])
        its = [path.split(".")[0] for path in (*shape.needs, *(name for name, _ in shape.equals))]
        chosen = [
            *rng.sample(its, rng.randrange(len(its) + 1)),
            *rng.sample(sorted(keys), rng.randrange(4)),
        ]
        value = {name: rng.choice([*keys[name], *inner]) for name in chosen}
        key = rng.choice(["", "parts", "tool_calls", "content"])
        expected = _by_every_shape(value, key)
        found = next((each for each in _SHAPES.candidates(value, key) if each.matches(value)), None)
        assert (found and found.shape) is expected, (value, key)
        seen[expected.source if expected else "none"] += 1
    assert seen.keys() >= {shape.source for shape in (*REQUESTS, *RESULTS)}, "every shape came up"


@pytest.mark.parametrize("key", sorted(_REQUEST_KEYS))
def test_an_object_with_a_key_of_requests_has_candidates(key: str) -> None:
    assert _SHAPES.candidates({key: {}}, "")
