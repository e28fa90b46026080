"""Aligning calls is bounded work, or is refused soon: whatever is expected
and made of it.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from otel_eval import create_scorer
from otel_eval.model import Outcome, Scored, Skipped, ToolCall, Trajectory
from otel_eval.testing import call, trajectory
from tests.support.counted_work import is_in_proportion, lines_run

MOST_LINES = 8_000_000  # of Python; two thousand calls, each compared with each other, take more


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


ROWS = [
    # (match, mode, shape, expected calls in a group, calls at once)
    ("any_order", "exact", growing, 1, 1),
    ("any_order", "overlap", few, 1, 1),
    ("in_order", "exact", distinct, 1, 1),
    ("in_order", "subset", few, 1, 1),
    ("in_order", "exact", distinct, 3, 1),
    ("in_order", "exact", growing, 3, 1),
    ("in_order", "overlap", growing, 3, 1),
    ("in_order", "subset", few, 1, 3),
    ("in_order", "exact", distinct, 3, 4),
    ("in_order", "overlap", growing, 3, 4),
]


@pytest.mark.parametrize(("match", "mode", "shape", "group", "parallel"), ROWS)
@pytest.mark.parametrize("count", [150, 2_000])
def test_aligning_calls_is_bounded_work_or_skipped(
    match: str, mode: str, shape: Any, group: int, parallel: int, count: int
) -> None:
    """However many calls are expected and made; two thousand compared with one another would be
    more.
    """
    spec = {
        "type": "trajectory_match",
        "match": match,
        "arguments": mode,
        "expected": expected(count, shape, group),
    }
    scorer, calls, outcomes = create_scorer(spec), run(count, shape, parallel), list[Outcome]()
    assert lines_run(lambda: outcomes.append(scorer(calls))) < MOST_LINES
    (outcome,) = outcomes
    assert isinstance(outcome, Scored | Skipped)
    assert not isinstance(outcome, Skipped) or outcome.reason == "too_large"


@pytest.mark.parametrize("mode", ["exact", "subset", "superset", "overlap", ["q"]], ids=str)
def test_calls_on_one_side_alone_are_scored_however_many_there_are(mode: Any) -> None:
    """In any order and in order, with work in proportion to their number."""
    for match in ("in_order", "any_order"):
        for few_counts, many_counts in (((3, 125), (3, 1_000)), ((125, 5), (1_000, 5))):
            works = []
            for expected_count, call_count in (few_counts, many_counts):
                spec = {
                    "type": "trajectory_match",
                    "match": match,
                    "arguments": mode,
                    "expected": expected(expected_count, distinct, 1),
                }
                scorer, calls = create_scorer(spec), run(call_count, distinct, 1)
                assert isinstance(scorer(calls), Scored)
                works.append(partial(scorer, calls))
            assert is_in_proportion(*works, most=20.0)


@pytest.mark.parametrize(
    ("match", "mode", "group", "scored", "skipped"),
    [
        ("in_order", "subset", 1, 300, 4_100),
        ("in_order", "overlap", 1, 300, 510),
        ("in_order", "subset", 3, 300, 510),
        ("in_order", "overlap", 3, 60, 110),
        ("any_order", "overlap", 1, 300, 510),
    ],
)
def test_a_run_is_skipped_by_the_number_of_pairs_alone(
    match: str, mode: str, group: int, scored: int, skipped: int
) -> None:
    """Expected calls times actual ones: whatever else the calls are, and however they agree."""
    for count, is_scored in ((scored, True), (skipped, False)):
        spec = {
            "type": "trajectory_match",
            "match": match,
            "arguments": mode,
            "expected": expected(count, distinct, group),
        }
        others = [
            call("t", arguments={"q": -at, "limit": 3}, start_ns=10 * at + 1, end_ns=10 * at + 2)
            for at in range(count)
        ]
        outcome = create_scorer(spec)(trajectory(*others))
        assert isinstance(outcome, Scored) is is_scored
        assert is_scored or outcome == Skipped(
            f"too many calls to be weighed: {count} expected, {count} made", reason="too_large"
        )
