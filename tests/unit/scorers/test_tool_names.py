"""Names of tools in policies that no run calls."""

from __future__ import annotations

from typing import Any

import pytest

from otel_eval.scorers import create_scorer
from otel_eval.scorers.tool_names import ENOUGH_RUNS, ToolNameCheck, ToolNames
from otel_eval.testing import call, trajectory

RUN = trajectory(call("search"), call("refund"))


def check(*specs: dict[str, Any], live: bool = False) -> ToolNameCheck:
    """A check of one evaluation with these scorers."""
    return ToolNameCheck({"support": [create_scorer(spec) for spec in specs]}, live=live)


def stored(*specs: dict[str, Any], run: Any = RUN) -> list[str]:
    """The warnings after a replay of one run."""
    made = check(*specs)
    assert made.observe(run, ["support"]) == []
    return made.finish()


COUNTS = {"type": "tool_call_count", "criteria": {"serach": "<= 3"}}


def test_a_misspelt_name_is_reported_with_the_name_that_was_meant():
    """It is reported once."""
    made = check(COUNTS)
    made.observe(RUN, ["support"])
    assert made.finish() == [
        "`serach` was never called; did you mean `search`? (evaluation support, 1 run)"
    ]
    assert made.finish() == []


@pytest.mark.parametrize(
    "spec",
    [
        {"type": "required_tools", "patterns": ["pay"]},
        {"type": "tool_call_order", "expected": ["search", "pay"]},
        {"type": "tool_call_args", "expected": [{"name": "pay", "arguments": {}}]},
        {"type": "tool_call_count", "criteria": {"pay": "== 1"}},
        {"type": "tool_call_count", "criteria": {"pay": "> 0"}},
        {"type": "tool_call_count", "criteria": {"pay": "!= 0"}},
    ],
)
def test_a_required_tool_that_never_occurs_in_a_replay_is_reported(spec: dict[str, Any]):
    """The warning lists the called tools."""
    (warning,) = stored(spec)
    assert (
        warning == "`pay` was never called; called were refund, search (evaluation support, 1 run)"
    )


@pytest.mark.parametrize(
    "spec",
    [
        {"type": "forbidden_tools", "patterns": ["serach"]},
        {"type": "tool_call_count", "criteria": {"serach": "== 0"}},
        {"type": "tool_call_count", "criteria": {"serach": "< 1"}},
        {"type": "tool_call_count", "criteria": {"pay": "<= 3"}},
        {"type": "precedence", "rules": ["verify before pay"]},
        {"type": "required_tools", "patterns": ["sea*"]},
        {"type": "tool_errors"},
    ],
)
def test_other_names_are_not_reported(spec: dict[str, Any]):
    """Names of forbidden tools, and optional names that resemble no called tool, are not
    reported.
    """
    assert stored(spec) == []


@pytest.mark.parametrize(
    "spec",
    [
        {"type": "precedence", "rules": ["serach before refund"]},
        {"type": "trajectory_pattern", "pattern": ["serach", "refund"]},
        {"type": "time_cost", "of": "serach"},
        {"type": "tool_errors", "tools": {"include": ["serach"]}},
    ],
)
def test_every_parameter_that_names_tools_is_looked_at(spec: dict[str, Any]):
    """A called tool with a similar name is suggested."""
    (warning,) = stored(spec)
    assert warning.startswith("`serach` was never called; did you mean `search`?")


def test_names_from_traces_stay_on_the_line():
    """They cannot control the terminal or forge a log line."""
    (warning,) = stored(
        {"type": "required_tools", "patterns": ["pay"]}, run=trajectory(call("a\x1b[31m\nb\u202e"))
    )
    assert (
        warning
        == r"`pay` was never called; called were a\x1b[31m\nb\u202e (evaluation support, 1 run)"
    )


def test_long_names_from_traces_are_cut():
    """They are kept until the process ends, and stand in a log line."""
    (warning,) = stored(
        {"type": "required_tools", "patterns": ["pay"]}, run=trajectory(call("x" * 10_000))
    )
    assert len(warning) < 500


def test_a_name_that_another_policy_mentions_is_not_meant():
    """Then both tools exist."""
    assert stored(COUNTS, {"type": "forbidden_tools", "patterns": ["search"]}) == []


def test_runs_whose_calls_are_unknown_tell_nothing():
    """They show neither that a tool was called nor that it was not."""
    assert (
        stored(
            {"type": "required_tools", "patterns": ["pay"]},
            run=trajectory(calls_unknown="no tool spans"),
        )
        == []
    )
    assert (
        stored({"type": "required_tools", "patterns": ["pay"]}, run=trajectory(incomplete="cut"))
        == []
    )


def test_live_a_misspelt_name_is_reported_at_once_and_a_missing_tool_after_enough_runs():
    """Each is reported once."""
    made = check(COUNTS, {"type": "required_tools", "patterns": ["pay"]}, live=True)
    found = [warning for _ in range(ENOUGH_RUNS + 5) for warning in made.observe(RUN, ["support"])]
    assert [each.partition(" (")[0] for each in found] == [
        "`serach` was never called; did you mean `search`?",
        "`pay` was never called; called were refund, search",
    ]
    assert made.finish() == []


def test_live_input_that_ends_early_reports_only_what_resembles_another_name():
    """A tool that three runs did not need may be needed by the next."""
    made = check(COUNTS, {"type": "required_tools", "patterns": ["pay"]}, live=True)
    assert made.observe(trajectory(call("refund")), ["support"]) == []
    assert made.observe(RUN, ["support"]) == []
    assert [each.partition(" (")[0] for each in made.finish()] == [
        "`serach` was never called; did you mean `search`?"
    ]


def test_names_of_a_scorer_that_is_not_built_in_are_looked_at_where_it_has_them():
    """They are in its attribute `tool_names`."""

    class Own:
        tool_names = ToolNames(required=("pay",))

    made = ToolNameCheck({"e": [Own()]}, live=False)
    made.observe(RUN, ["e"])
    assert len(made.finish()) == 1
