"""Runs with many calls of one tool: as exact as small ones, or skipped; never slow."""

from __future__ import annotations

import random
from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_eval.model import Scored, Skipped
from otel_eval.scorers import create_scorer
from otel_eval.scorers.alignment.assignment import WeightedAssignment, assign
from otel_eval.scorers.values import agreement
from otel_eval.testing import call, trajectory

ROWS = st.lists(
    st.dictionaries(st.integers(0, 5), st.sampled_from([0.25, 0.5, 1.0])), min_size=1, max_size=3
)


def arguments(seed, keys, values):
    """Arguments without end."""
    random_ = random.Random(seed)
    while True:
        yield {f"key {at}": random_.randrange(values) for at in range(keys)}


def scored(size, *, keys, values, **parameters):
    """What `size` random calls of one tool get against as many expected ones."""
    wanted, made = (list(islice(arguments(seed, keys, values), size)) for seed in (1, 2))
    expected = [{"name": "find", "arguments": each} for each in wanted]
    scorer = create_scorer(
        {"type": "tool_correctness", "compare": ["arguments"], "expected": expected, **parameters}
    )
    return wanted, made, scorer(trajectory(*(call("find", arguments=each) for each in made)))


@given(ROWS, st.lists(st.integers(0, 2), max_size=7))
def test_rows_that_are_one_object_are_assigned_like_rows_that_are_merely_equal(rows, drawn):
    """Looking at a shared row once is enough."""
    shared = [rows[at % len(rows)] for at in drawn]
    one, other = WeightedAssignment(), WeightedAssignment()
    for row in shared:
        one.add(row)
        other.add(dict(row))
        assert one.total == pytest.approx(other.total)
    assert sum(shared[row][column] for row, column in one.pairs()) == pytest.approx(one.total)


@pytest.mark.parametrize("mode", ["overlap", "subset"])
def test_equal_calls_that_are_compared_once_give_the_same_value(mode):
    """Against every pair compared by itself."""
    wanted, made, outcome = scored(70, keys=3, values=3, arguments=mode)
    agrees = agreement(mode)
    rows = [
        {at: agrees(each, other) for at, other in enumerate(made) if agrees(each, other)}
        for each in wanted
    ]
    assert outcome.value == pytest.approx(sum(rows[row][at] for row, at in assign(rows)) / 70)


def test_arguments_of_any_type_are_compared(subtests: pytest.Subtests) -> None:
    """A set is no JSON and cannot be hashed, but a test may hold one; a model may write no
    object.
    """
    for arguments in [{"of": {1, 2}}, {}, 7, "text", [1]]:
        for kind in ["tool_call_args", "tool_correctness"]:
            with subtests.test(arguments=arguments, kind=kind):
                calls = [call("find", arguments=each) for each in ("other", *[arguments] * 59)]
                expected = [{"name": "find", "arguments": arguments}] * 59 + [
                    {"name": "find", "arguments": "else"}
                ]
                compared = {"compare": ["arguments"]} if kind == "tool_correctness" else {}
                assert (
                    create_scorer({"type": kind, "expected": expected, **compared})(
                        trajectory(*calls)
                    ).value
                    == 59 / 60
                )


@pytest.mark.parametrize("arguments", [[], ["arguments"]])
def test_results_of_many_calls_are_compared_with_or_without_arguments(arguments):
    """Expected calls that differ only in their result are not taken for equal ones."""
    expected = [{"name": "open", "arguments": {}, "result": page} for page in range(60)]
    calls = [call("open", arguments={}, result=page) for page in reversed(range(30, 90))]
    outcome = create_scorer(
        {"type": "tool_correctness", "expected": expected, "compare": ["result", *arguments]}
    )(trajectory(*calls))
    assert outcome.value == 1 / 2
    assert outcome.details["matched"] == [[page, 89 - page, 1.0] for page in range(30, 60)]


@pytest.mark.parametrize(("match", "size"), [("any_order", 3000), ("in_order", 400)])
def test_many_calls_with_arguments_that_partly_agree_are_scored(match, size):
    """Few different arguments, as in a run that goes through pages."""
    assert isinstance(scored(size, keys=3, values=4, match=match)[2], Scored)


@pytest.mark.parametrize("kind", ["tool_call_args", "trajectory_match"])
def test_a_thousand_calls_with_arguments_of_their_own_are_scored(kind):
    """As in a run that goes through a thousand pages."""
    calls = [call("open", arguments={"page": page, "of": "book"}) for page in range(1000)]
    expected = [
        {"name": each.name, "arguments": {"page": each.arguments["page"]}}
        for each in reversed(calls)
    ]
    outcome = create_scorer({"type": kind, "expected": expected})(trajectory(*calls))
    assert outcome.value == (1 if kind == "tool_call_args" else 1 / 1000)


@pytest.mark.parametrize("match", ["any_order", "exact"])
def test_more_calls_than_can_be_weighed_are_skipped(match):
    """A thousand different ones against a thousand: to say nothing is better than to stall."""
    _, _, outcome = scored(1000, keys=12, values=9, match=match)
    assert outcome == Skipped(
        "too many calls to be weighed: 1000 expected, 1000 made", reason="too_large"
    )


@pytest.mark.parametrize(
    ("spec", "size"),
    [
        (
            {"type": "trajectory_pattern", "pattern": ["end", {"any_order": list("abcdefghij")}]},
            200,
        ),
        ({"type": "loop_detection", "max_repeats": 1, "max_cycle": 1_000_000}, 10_000),
    ],
)
def test_a_search_that_would_take_minutes_is_skipped(spec, size):
    """The same scorer gives a small run its score."""
    calls = [call("abc"[at % 3], arguments={}) for at in range(size)]
    outcome = create_scorer(spec)(trajectory(*calls))
    assert isinstance(outcome, Skipped)
    assert outcome.reason == "too_large"
    assert isinstance(create_scorer(spec)(trajectory(*calls[:6])), Scored)


@pytest.mark.parametrize(
    ("rows", "pairs"),
    [
        ([{0: 0.5}, {0: 0.5}], [(0, 0)]),
        ([{0: 0.5, 1: 0.5}, {0: 0.5}, {1: 0.5}], [(0, 1), (1, 0)]),
        ([{0: 0.5}, {0: 0.5, 1: 0.5}], [(0, 0), (1, 1)]),
        ([{0: 0.5, 1: 0.5}, {0: 0.5, 1: 0.5}], [(0, 0), (1, 1)]),
        ([{0: 1.0, 1: 0.5}, {0: 0.5}], [(0, 0)]),
        ([{0: 0.5, 1: 0.5}, {0: 0.5, 2: 0.5}], [(0, 0), (1, 2)]),
        ([{1: 0.5}, {0: 0.5, 1: 1.0}], [(1, 1)]),
        ([{0: 0.5, 1: 1.0}, {0: 0.5, 1: 1.0}], [(0, 1), (1, 0)]),
        ([{0: 0.5}, {0: 0.5}, {0: 1.0, 1: 0.5}], [(0, 0), (2, 1)]),
    ],
)
def test_the_same_one_of_equal_assignments_is_always_reported(rows, pairs):
    """Where rows are alike the earlier ones are paired, each with its first column that is free."""
    assert assign(rows) == pairs
