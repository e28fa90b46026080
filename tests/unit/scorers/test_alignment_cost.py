"""Aligning calls takes CPU in proportion to their number, or is refused soon: whatever is expected
and made of it.
"""

from __future__ import annotations

from typing import Any

import pytest

from otel_eval import create_scorer
from otel_eval.model import Outcome, Scored, Skipped, ToolCall, Trajectory
from otel_eval.testing import call, trajectory
from tests.support.counted_work import is_in_proportion

TIMES = 8
MOST = 20.0  # where a linear cost gives 8 and a quadratic one 64
SMALL = 100
MODES: list[Any] = ["exact", "subset", "superset", "overlap", ["q"]]


def distinct(at: int) -> tuple[str, dict[str, Any]]:
    """One tool, arguments of its own."""
    return "t", {"q": at, "limit": 3}


def few(at: int) -> tuple[str, dict[str, Any]]:
    """One tool, few arguments."""
    return "t", {"q": at * 7 % 5, "limit": at * 3 % 4}


def growing(at: int) -> tuple[str, dict[str, Any]]:
    """One tool, arguments that contain one another."""
    return "t", {str(key): 1 for key in range(at % 40)}


def run(count: int, shape: Any, parallel: int) -> Trajectory:
    """So many calls, some of them at once, in another order than they are expected."""
    calls: list[ToolCall] = []
    for at in range(count):
        name, arguments = shape((at * 613 + 1) % count)
        start = 10 * (at // parallel) + 1
        calls.append(
            call(name, arguments=arguments, start_ns=start, end_ns=start + 5, span_id=f"{at:x}")
        )
    return trajectory(*calls)


def expected(count: int, shape: Any, group: int) -> list[Any]:
    """As many expected calls, some of them in any order."""
    calls = [dict(zip(("name", "arguments"), shape(at), strict=True)) for at in range(count)]
    return [calls[at : at + group] if group > 1 else calls[at] for at in range(0, count, group)]


def is_linear(
    small: tuple[Any, Trajectory], great: tuple[Any, Trajectory], *kinds: type[Outcome]
) -> bool:
    """Whether scoring the great run costs what it should, and both have an outcome of one of the
    kinds.
    """
    found: list[Outcome] = []
    linear = is_in_proportion(
        lambda: found.append(small[0](small[1])),
        lambda: found.append(great[0](great[1])),
        MOST,
    )
    for outcome in found:
        assert isinstance(outcome, kinds)
        assert not isinstance(outcome, Skipped) or outcome.reason == "too_large"
    return linear


ORDERS = [
    ("any_order", 1, 1),
    ("in_order", 1, 1),
    ("in_order", 3, 1),
    ("in_order", 1, 3),
    ("in_order", 3, 4),
]


@pytest.mark.parametrize(("match", "group", "parallel"), ORDERS)
@pytest.mark.parametrize("shape", [distinct, few, growing])
@pytest.mark.parametrize("mode", ["exact", "subset", "overlap"])
def test_eight_times_as_many_calls_cost_less_than_twenty_times_as_much(
    match: str, mode: str, shape: Any, group: int, parallel: int
) -> None:
    """Of expected and actual calls."""
    work = []
    for count in (SMALL, TIMES * SMALL):
        spec = {
            "type": "trajectory_match",
            "match": match,
            "arguments": mode,
            "expected": expected(count, shape, group),
        }
        work.append((create_scorer(spec), run(count, shape, parallel)))
    assert is_linear(*work, Scored, Skipped)


@pytest.mark.parametrize(("wanted", "made"), [(3, 3_000), (400, 5)])
@pytest.mark.parametrize("mode", MODES, ids=str)
def test_calls_on_one_side_alone_are_scored_however_many_there_are(
    mode: Any, wanted: int, made: int
) -> None:
    """In any order and in order, in time in proportion to their number."""
    for match in ("in_order", "any_order"):
        spec = {
            "type": "trajectory_match",
            "match": match,
            "arguments": mode,
            "expected": expected(wanted, distinct, 1),
        }
        scorer = create_scorer(spec)
        assert is_linear(
            *((scorer, run(count, distinct, 1)) for count in (made // TIMES or 1, made)), Scored
        )
