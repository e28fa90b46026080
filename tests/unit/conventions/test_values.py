"""Recorded values become plain JSON values, whatever they look like."""

from __future__ import annotations

import json
import warnings
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_eval.conventions.values import MAX_DEPTH, decode

JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**9), 10**9) | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=10,
)


@pytest.mark.parametrize(
    ("recorded", "value"),
    [
        ('{"city": "Paris"}', {"city": "Paris"}),
        ('"{\\"city\\": \\"Paris\\"}"', {"city": "Paris"}),
        ('"Paris"', "Paris"),
        ("Paris", "Paris"),
        ("{'city': 'Paris', 'days': (1, 2)}", {"city": "Paris", "days": [1, 2]}),
        ("{'when': None, 1: True}", {"when": None, "1": True}),
        ("('a', 'b')", ["a", "b"]),
        ("[1, 2", "[1, 2"),
        ("{'path': 'C:\\q'}", "{'path': 'C:\\q'}"),
        ("{1, 2}", "{1, 2}"),
        ('{"x": NaN, "y": -Infinity, "z": 1e999}', {"x": "NaN", "y": "-Infinity", "z": "1e999"}),
        ({"x": float("nan"), "t": (1, 2)}, {"x": "nan", "t": [1, 2]}),
        ("", ""),
        ("9" * 5000, "9" * 5000),
        (3, 3),
        (None, None),
        ("\"{'a': 1}\"", {"a": 1}),
        # in the same order in every process
        ("{'tags': {'c', 'a', 'b'}}", {"tags": ["a", "b", "c"]}),
        # a number that has no decimal digits in Python
        ("[0x" + "f" * 5000 + "]", ["0x" + "f" * 5000]),
    ],
)
def test_a_recorded_value_is_read_as_what_it_stands_for(recorded: Any, value: Any):
    """JSON, JSON in JSON, Python literals of containers; everything else stays as it is."""
    assert decode(recorded) == value


@pytest.mark.parametrize("text", ["[5in, 3in]", "(10.in x 12.in)", "{0x1for: 1}", "['\\q']"])
def test_text_that_is_no_literal_gives_no_warning(text: str):
    """Python's parser warns on stderr about what looks like a mistake in code."""
    with warnings.catch_warnings(record=True) as given_warnings:
        warnings.simplefilter("always")
        assert decode(text) == text
    assert given_warnings == []


def test_words_in_strings_of_a_literal_are_no_mistake():
    """Neither between quotes of either kind, nor after a quote that is escaped."""
    assert decode("{'size': '5in', \"it's\": '\\'3in'}") == {"size": "5in", "it's": "'3in"}


@pytest.mark.parametrize("opening", ["[", '{"a":', "("])
@pytest.mark.parametrize("depth", [MAX_DEPTH + 1, 100_000])
def test_hostile_nesting_stays_text(opening: str, depth: int):
    """No depth of brackets overflows anything."""
    assert decode(opening * depth) == opening * depth


def test_nesting_up_to_the_limit_is_read():
    """The limit is beyond what tools take."""
    text = "[" * MAX_DEPTH + "]" * MAX_DEPTH
    assert isinstance(decode(text), list)


@given(JSON_VALUES)
def test_json_text_of_a_container_gives_the_container_back(value: Any):
    """Reading undoes writing, once or twice encoded."""
    held = {"v": value}
    assert decode(json.dumps(held)) == held
    assert decode(json.dumps(json.dumps(held))) == held


@given(st.text(max_size=60) | st.binary(max_size=20))
def test_decoding_never_raises(value: Any):
    """Text that is nothing stays text."""
    json.dumps(decode(value), allow_nan=False)
