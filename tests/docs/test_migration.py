"""The page on migration: its configurations can be built, and its statements about this project are
true.
"""

from __future__ import annotations

import re

import pytest
import yaml

from otel_eval.errors import ConfigError
from otel_eval.model import UNRECORDED, Skipped
from otel_eval.scorers import create_scorer
from otel_eval.testing import call, trajectory
from tests.support.doc_pages import page

PAGE = page("migration")
BLOCKS = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
PHRASES = [
    phrase
    for phrase in re.findall(
        r"`((?:match|arguments|measure|missing|extra|strict)[^`]*: [^`]+)`", PAGE
    )
    if "[" not in phrase
]
MATCH = {"type": "trajectory_match", "match": "any_order", "missing": "forbid"}
ONE, TWO = {"name": "a", "arguments": {"x": 1}}, {"name": "a", "arguments": {"x": 1, "y": 1}}


def value(specification, *calls):
    """The value for these calls."""
    return create_scorer(specification)(trajectory(*calls)).value


def made(*own):
    """Calls of one tool with these arguments."""
    return [call("a", arguments=each) for each in own]


@pytest.mark.parametrize("block", BLOCKS)
def test_every_configuration_on_the_page_can_be_built(block):
    """As YAML."""
    assert create_scorer(yaml.safe_load(block))


@pytest.mark.parametrize("phrase", PHRASES)
def test_every_setting_named_on_the_page_exists(phrase):
    """As a part of a trajectory match."""
    assert create_scorer(
        {"type": "trajectory_match", "expected": ["a"], **yaml.safe_load(f"{{{phrase}}}")}
    )


@pytest.mark.parametrize(
    ("specification", "calls", "expected"),
    [
        ({"type": "execution_order", "expected": ["a", "a"]}, made({}, {}), 1),
        ({"type": "execution_order", "expected": []}, [], 1),
        ({**MATCH, "expected": []}, made({}), 0),
        (
            {"type": "tool_correctness", "compare": ["arguments"], "expected": [ONE, ONE]},
            made({"x": 1}, {"x": 1}),
            1,
        ),
        (
            {"type": "tool_correctness", "expected": ["a"], "measure": "precision"},
            made({}, {}),
            0.5,
        ),
        ({"type": "tool_call_count", "criteria": {"a": "<= 3"}}, [], 1),
        ({"type": "tool_call_order", "expected": ["天気"]}, [call("検索")], 0),
        ({"type": "tool_call_args", "expected": [ONE, TWO]}, made({"x": 1, "y": 1}, {"x": 1}), 1),
        (
            {"type": "tool_call_args", "arguments": "exact", "expected": [ONE]},
            made({"x": 1, "y": 1}),
            0,
        ),
        ({"type": "tool_call_args", "expected": [ONE]}, made({"x": 1.0}), 1),
        ({"type": "tool_call_args", "expected": [ONE]}, made({"x": "1"}), 0),
        (
            {
                "type": "tool_call_output",
                "strict": True,
                "expected": [{"name": "a", "result": "1"}, {"name": "a", "result": "2"}],
            },
            [call("a", result="2"), call("a", result="1")],
            1,
        ),
        (
            {
                "type": "trajectory_match",
                "match": "any_order",
                "measure": "precision",
                "expected": ["a"],
            },
            made({}, {}),
            0.5,
        ),
        (
            {"type": "trajectory_match", "match": "any_order", "measure": "f1", "expected": []},
            [],
            1,
        ),
        ({"type": "forbidden_tools", "patterns": ["*"]}, made({}), 0),
        (
            {
                "type": "tool_correctness",
                "match": "exact",
                "compare": ["arguments"],
                "expected": ["a"],
            },
            made({"x": 1}),
            1,
        ),
        (
            {"type": "tool_call_output", "expected": [{"name": "a", "result": "1.0"}]},
            [call("a", result="1")],
            1,
        ),
        (
            {**MATCH, "arguments": ["x"], "expected": [{"name": "a", "arguments": {}}]},
            made({"x": None}),
            0,
        ),
        (
            {**MATCH, "arguments": ["x.y"], "expected": [{"name": "a", "arguments": {"x.y": 1}}]},
            made({"x.y": 2}),
            0,
        ),
    ],
)
def test_what_the_page_says_of_us_is_so(specification, calls, expected):
    """Each row whose left side can be shown with a few calls."""
    assert value(specification, *calls) == expected


def test_steps_that_are_no_objects_are_invalid_and_unrecorded_ones_are_skipped():
    """Of orbiter's rows."""
    structure = create_scorer({"type": "trajectory_structure", "steps": "trajectory"})
    run = trajectory(output={"trajectory": [{"step": 1, "action": "x"}, "garbage"]})
    assert structure(run).value == 0.5
    assert isinstance(structure(trajectory(output=UNRECORDED)), Skipped)
    assert isinstance(create_scorer({"type": "time_cost"})(trajectory()), Skipped)


@pytest.mark.parametrize(
    "specification",
    [
        {"type": "tool_correctness", "expected": ["a"], "threshold": 2},
        {"type": "time_cost", "max_ms": 0},
        {"type": "tool_call_count", "criteria": {"a": ["~", 1]}},
        {"type": "tool_call_count", "criteria": {"a": ["=", -1]}},
        {"type": "tool_call_count", "criteria": {"a": ["=", "1"]}},
        {"type": "tool_call_count", "criteria": {}},
        {"type": "step_efficiency", "max_calls": 0},
    ],
)
def test_what_the_page_says_is_refused_is_refused(specification):
    """When built."""
    with pytest.raises(ConfigError):
        create_scorer(specification)
