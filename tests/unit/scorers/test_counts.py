"""What scorers that count or measure say beside the value: which patterns, which calls, which budgets, what took time."""

from __future__ import annotations

import pytest

from otel_eval.model import Scored
from otel_eval.scorers import create_scorer
from otel_eval.testing import call, trajectory

RUN = trajectory(*map(call, ["delete_user", "search", "delete_file"]), model_calls=4)


def test_of_three_forbidden_patterns_the_one_that_calls_match_is_told():
    """With the calls that do."""
    outcome = create_scorer({"type": "forbidden_tools", "patterns": ["pay", "delete_*", "drop"]})(RUN)
    details = {"broken": ["delete_*"], "calls": [0, 2]}
    assert outcome == Scored(2 / 3, True, "called: delete_user (0), delete_file (2)", details)


def test_where_no_forbidden_tool_was_called_that_is_told():
    """And no position."""
    outcome = create_scorer({"type": "forbidden_tools", "patterns": ["pay"]})(RUN)
    assert outcome == Scored(1.0, True, "no forbidden tool was called", {"broken": [], "calls": []})


def test_of_three_required_patterns_those_that_no_call_matches_are_told():
    """In the order they were written."""
    outcome = create_scorer({"type": "required_tools", "patterns": ["pay", "delete_*", "drop"]})(RUN)
    assert outcome == Scored(1 / 3, False, "never called: pay, drop", {"missing": ["pay", "drop"]})


def test_where_every_required_tool_was_called_that_is_told():
    """And nothing is missing."""
    outcome = create_scorer({"type": "required_tools", "patterns": ["search"]})(RUN)
    assert outcome == Scored(1.0, True, "every required tool was called", {"missing": []})


@pytest.mark.parametrize(
    ("calls", "model_calls", "value", "told"),
    [
        (2, 1, 2 / 3 / 4, "3 calls, budget 2; 4 model calls, budget 1"),
        (3, 2, 2 / 4, "4 model calls, budget 2"),
        (3, 4, 1.0, "within every budget"),
    ],
)
def test_budgets_that_were_exceeded_are_told(calls, model_calls, value, told):
    """With what was used; all of a budget may be."""
    outcome = create_scorer({"type": "step_efficiency", "max_calls": calls, "max_model_calls": model_calls})(RUN)
    assert (outcome.value, outcome.explanation) == (pytest.approx(value), told)
    budgets = {"calls": {"used": 3, "budget": calls}, "model calls": {"used": 4, "budget": model_calls}}
    assert outcome.details == budgets


@pytest.mark.parametrize(
    ("of", "named"), [("run", "the run"), ("tools", "tools"), ("critical_path", "the critical path"), ("open", "open")]
)
def test_what_took_time_is_told(of, named):
    """A tool by its name."""
    timed = trajectory(call("open", start_ns=1_000_000, end_ns=5_000_000), start_ns=1_000_000, end_ns=5_000_000)
    outcome = create_scorer({"type": "time_cost", "max_ms": 10, "of": of})(timed)
    details = {"elapsed_ms": 4.0, "max_ms": 10.0, "of": of}
    assert outcome == Scored(0.6, True, f"{named} took 4 ms of 10 ms", details)
