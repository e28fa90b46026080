"""What is read of histories that repeat one another is what is read of each by itself."""

from __future__ import annotations

import json
from operator import itemgetter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_eval.conventions import Field, Side
from otel_eval.conventions.messages import nested, read_messages
from otel_eval.conventions.model_calls import Histories, read_event, text_in_events
from otel_eval.interfaces import SpanEvent

NAMES = st.sampled_from(["search", "open", "[", "}}", "#", ""])
CALLS = st.builds(
    lambda name, number: {"type": "tool_call", "name": name, "id": f"c{number}"},
    NAMES,
    st.integers(0, 3),
)
ANSWERS = st.builds(
    lambda number, said: {"role": "tool", "tool_call_id": f"c{number}", "content": said},
    st.integers(0, 3),
    NAMES,
)
MESSAGES = (
    st.builds(lambda *parts: {"role": "assistant", "parts": [*parts]}, CALLS, CALLS)
    | ANSWERS
    | NAMES
    | st.integers()
)
WRITERS = st.sampled_from(
    [
        json.dumps,
        repr,
        lambda messages: json.dumps(messages, indent=1) + "\n",
        lambda messages: json.dumps(messages)[:-1],
        lambda messages: json.dumps(messages) + "]",
        lambda messages: json.dumps(messages)[:-1] + ",]",
        lambda messages: json.dumps(messages)[:-1] + ",]]",
        lambda messages: repr(messages)[:-1] + "] # ]",
        lambda messages: json.dumps(json.dumps(messages)),
        lambda messages: "[" * 62 + json.dumps(messages) + "]" * 62,
    ]
)


@given(st.lists(st.tuples(st.lists(MESSAGES, max_size=4), WRITERS, st.booleans()), max_size=6))
def test_texts_that_go_on_like_earlier_ones_are_read_like_others(
    given: list[tuple[list[Any], Any, bool]],
) -> None:
    """In JSON or as Python writes them, cut off, with spaces, in another text, nested deeply."""
    histories, messages = Histories(), []
    for more, write, anew in given:
        messages = more if anew else messages + more
        text = write(messages)
        assert [*histories.of_text("one", text)] == read_messages(text)


@given(
    st.lists(
        st.dictionaries(
            st.sampled_from(["0.role", "0.name", "1.role", "x", "1"]), NAMES | st.integers()
        )
    )
)
def test_flattened_messages_are_read_like_others(given: list[dict[str, Any]]) -> None:
    """Also where their parts are no numbers."""
    histories = Histories()
    for attributes in given:
        calls = {f"{key}.tool_calls.0.name": value for key, value in attributes.items()}
        assert [*histories.of_family("one", calls)] == read_messages(nested(calls))


def flattened(messages: list[Any]) -> dict[str, Any]:
    """The parts of messages, as OpenInference and OpenLLMetry record them."""
    found: dict[str, Any] = {}
    for place, message in enumerate(
        each if isinstance(each, dict) else {"content": each} for each in messages
    ):
        for key, value in message.items():
            parts = enumerate(value) if isinstance(value, list) else ()
            found |= {
                f"{place}.{key}.{at}.{name}": part[name] for at, part in parts for name in part
            }
            found |= {} if isinstance(value, list) else {f"{place}.{key}": value}
    return found


ORDERS = st.sampled_from(
    [list, lambda parts: reversed([*parts]), lambda parts: sorted(parts, key=itemgetter(0))]
)


@given(st.lists(st.tuples(st.lists(MESSAGES, max_size=4), ORDERS, st.booleans()), max_size=6))
def test_flattened_histories_that_go_on_like_earlier_ones_are_read_like_others(
    given: list[tuple[list[Any], Any, bool]],
) -> None:
    """Whatever the order of their parts."""
    histories, messages = Histories(), []
    for more, order, anew in given:
        messages = more if anew else messages + more
        family = dict(order(flattened(messages).items()))
        assert [*histories.of_family("one", family)] == read_messages(nested(family))


EVENTS = st.sampled_from(
    ["gen_ai.choice", "gen_ai.assistant.message", "gen_ai.tool.message", "other"]
)


@given(
    st.lists(
        st.builds(
            SpanEvent,
            EVENTS,
            st.dictionaries(
                st.sampled_from(["content", "id", "tool_calls"]),
                st.sampled_from(["", "1", '[{"name": "a"}]', 1, True]),
            ),
        )
    )
)
def test_events_are_read_like_others(given: list[SpanEvent]) -> None:
    """Each kind of them."""
    histories = Histories()
    for event in given:
        assert [*histories.of_event(event)] == [*read_event(event)]


@pytest.mark.parametrize("message", [{}, {"role": "assistant"}, None])
def test_an_answer_whose_content_was_not_captured_is_none(message: Any) -> None:
    """What is left of its message is not taken for the answer."""
    event = SpanEvent(
        "gen_ai.choice", {}, {"index": 0, "finish_reason": "stop", "message": message}
    )
    assert text_in_events([event], Field.OUTPUT) is None
    said = SpanEvent("gen_ai.choice", {}, {"message": {"role": "assistant", "content": ""}})
    assert text_in_events([said], Field.OUTPUT) == ""


@pytest.mark.parametrize("name", ["gen_ai.assistant.message", "gen_ai.choice"])
def test_a_call_repeated_in_the_history_is_one_call_and_in_answers_two(name: str) -> None:
    """A model that asks for the same call twice asks for two."""
    histories, event = Histories(), SpanEvent(name, {"tool_calls": '[{"name": "a"}]'})
    one, other = histories.of_event(event), histories.of_event(event)
    assert (one is other) == (one[0][0] is not Side.OUTPUT)
