"""No pattern of a configuration takes long on any data."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from otel_eval.evaluations import Matcher, RunFilter
from otel_eval.globs import glob, glob_matcher
from otel_eval.model import Scored
from otel_eval.scorers import create_scorer
from otel_eval.testing import call, trajectory
from tests.support.waiting import LIMIT_S

STARS = "a*" * 30 + "b"
NAME = "a" * 20_000
ENOUGH_S = LIMIT_S  # hours, for an expression that tries every way


def in_time(work: Callable[[], Any]) -> Any:
    """What the work comes to, which must not take long."""
    begun = time.monotonic()
    found = work()
    assert time.monotonic() - begun < ENOUGH_S
    return found


def test_a_convention_with_many_stars() -> None:
    """Names of spans are what a client likes."""
    assert in_time(lambda: glob(STARS).fullmatch(NAME)) is None
    assert glob("agent * of *").fullmatch("agent a of b of c").groups() == ("a", "b of c")  # type: ignore[union-attr]


def test_a_list_of_tools_with_many_stars() -> None:
    """Names of tools too."""
    assert in_time(lambda: glob_matcher(STARS, STARS + "c")(NAME)) is None


@pytest.mark.parametrize("match", [RunFilter(agent=STARS), RunFilter(attributes={"x": STARS})])
def test_a_condition_with_many_stars(match: RunFilter) -> None:
    """Names of agents, values of attributes."""
    run = trajectory(call("search"), agent=NAME, attributes={"x": NAME})
    assert in_time(lambda: Matcher(match)(run, 0.0)) is False


def test_a_pattern_of_calls_with_many_repeats() -> None:
    """Repeats in repeats over many calls that nearly fit."""
    repeat: Any = "a"
    for _ in range(20):
        repeat = {"repeat": repeat}
    scorer = create_scorer({"type": "trajectory_pattern", "pattern": [repeat, "b"]})
    outcome: Any = in_time(lambda: scorer(trajectory(*[call("a") for _ in range(2_000)])))
    assert outcome.value < 1


def test_an_expression_that_matches() -> None:
    """CEL's `matches` is RE2's: nested repeats cost what plain ones do."""
    scorer = create_scorer({"type": "expression", "expression": "run.agent.matches('(a+)+b')"})
    assert isinstance(in_time(lambda: scorer(trajectory(call("a"), agent=NAME))), Scored)
