"""Recorded values become plain JSON values, whatever they look like."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_eval.conventions.values import MAX_DEPTH, decode

JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**9), 10**9) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
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
    ],
)
def test_a_recorded_value_is_read_as_what_it_stands_for(recorded: Any, value: Any):
    """JSON, JSON in JSON, Python literals of containers; everything else stays as it is."""
    assert decode(recorded) == value


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
def test_nothing_makes_decoding_raise(value: Any):
    """Text that is nothing stays text."""
    json.dumps(decode(value), allow_nan=False)
