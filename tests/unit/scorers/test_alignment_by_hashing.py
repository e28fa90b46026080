"""Calls whose words are equal are aligned without weighing pairs: the values are those of all
pairs.
"""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from otel_eval import create_scorer
from otel_eval.model import Skipped
from otel_eval.scorers import alignment
from otel_eval.scorers.alignment import Alignment, arguments, expected
from otel_eval.testing import call, trajectory

NAMES = st.sampled_from("abc")
ARGUMENTS = st.dictionaries(
    st.sampled_from("xy"), st.integers(0, 1) | st.lists(st.integers(0, 1), max_size=1), max_size=2
)
CALLS = st.lists(st.tuples(NAMES, ARGUMENTS), max_size=7)
TIMES = st.lists(st.integers(1, 9), min_size=14, max_size=14)
SPECS = [
    {"type": "execution_order", "match": match, "concurrency": concurrency}
    for match in ("exact", "in_order", "any_order")
    for concurrency in ("respect", "ignore")
] + [
    {
        "type": "trajectory_match",
        "match": match,
        "arguments": arguments,
        "measure": measure,
        "extra": extra,
    }
    for match, measure, extra in (
        ("exact", "recall", "allow"),
        ("in_order", "f1", "allow"),
        ("any_order", "precision", "forbid"),
    )
    for arguments in ("exact", "subset", "overlap", ["x"])
]


def run_of(made, times):
    """Calls with times, some of which overlap."""
    timed = zip(made, sorted(times[:7]), times[7:], strict=False)
    return trajectory(
        *(
            call(name, arguments=own, start_ns=start, end_ns=start + length, span_id=f"{at:x}")
            for at, ((name, own), start, length) in enumerate(timed)
        )
    )


@settings(max_examples=4 * settings.default.max_examples)
@given(
    spec=st.sampled_from(SPECS),
    wanted=CALLS,
    made=CALLS,
    times=TIMES,
    alike=st.integers(0, 2),
    nested=st.booleans(),
)
def test_the_weight_is_that_of_all_pairs(spec, wanted, made, times, alike, nested):
    """Whether words decide or pairs are weighed one by one, as for values that cannot be hashed."""
    made = wanted if alike == 0 else list(reversed(wanted)) if alike == 1 else made
    by_names = spec["type"] == "execution_order"
    listed = [name if by_names else {"name": name, "arguments": own} for name, own in wanted]
    if nested and len(listed) > 2:
        listed = [listed[0], listed[1:]]
    run = run_of(made, times)
    outcome = create_scorer({**spec, "expected": listed})(run)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(expected, "_comparable", unhashable)
        patch.setattr(arguments, "hashable", unhashable)
        patch.setattr(arguments, "arguments_word", unhashable)
        patch.setattr(Alignment, "_all_equal", lambda self: False)
        pairwise = create_scorer({**spec, "expected": listed})(run)
    assert outcome.value == pytest.approx(pairwise.value)
    assert outcome.passed == pairwise.passed
    assert len(outcome.details["matched"]) == len(pairwise.details["matched"])


def allow_few_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fifty at most are compared with one another."""
    monkeypatch.setattr(alignment, "_MOST_PAIRS", dict.fromkeys(alignment._MOST_PAIRS, 50))
    monkeypatch.setattr(arguments, "_MOST_WEIGHED", 50)
    monkeypatch.setattr(arguments, "_MOST_COMPARED", 50)


def unhashable(*_):
    """As for a set."""
    raise TypeError


@pytest.mark.parametrize("match", ["in_order", "any_order"])
def test_equal_calls_are_scored_however_many_there_are(match, monkeypatch):
    """Where weighing all others as well would be too much; the explanation says the same."""
    made = [("a", {"x": at, "y": 0}) for at in range(20)]
    expected = [{"name": name, "arguments": own} for name, own in made]
    scorer = create_scorer(
        {"type": "tool_correctness", "match": match, "compare": ["arguments"], "expected": expected}
    )
    runs = [
        trajectory(*(call(name, arguments=own) for name, own in calls))
        for calls in (made, [*made, ("b", {})])
    ]
    before = [scorer(run) for run in runs]
    explained = [(outcome.explanation, outcome.details) for outcome in before]
    allow_few_pairs(monkeypatch)
    other = trajectory(*(call("a", arguments={"x": at, "y": 1}) for at in range(20)))
    assert scorer(other) == Skipped(
        "too many calls to be weighed: 20 expected, 20 made", reason="too_large"
    )
    assert [(scorer(run).value, scorer(run).explanation, scorer(run).details) for run in runs] == [
        (1.0, *each) for each in explained
    ]


@pytest.mark.parametrize("match", ["exact", "in_order", "any_order"])
@pytest.mark.parametrize("mode", ["exact", "overlap"])
def test_equal_calls_decide_wherever_they_are_expected(match, mode, monkeypatch):
    """Inline or by a reference, where weighing all others would be too much."""
    allow_few_pairs(monkeypatch)
    calls = [{"name": "a", "arguments": {"x": at}} for at in range(60)]
    general = {"type": "trajectory_match", "match": match, "arguments": mode}
    run = trajectory(
        *(call("a", arguments={"x": at}) for at in range(60)), attributes={"wanted": calls}
    )
    inline, of_run = (
        create_scorer({**general, **where})
        for where in ({"expected": calls}, {"reference": "wanted"})
    )
    for scorer in (inline, of_run):
        assert (scorer(run).value, scorer(run).explanation) == (
            1.0,
            "60 of 60 expected calls matched",
        )


@pytest.mark.parametrize(("match", "pairs"), [("in_order", 1), ("any_order", 60)])
def test_equal_calls_in_another_order_are_said_to_match_where_any_will_do(
    match, pairs, monkeypatch
):
    """Where weighing all others would be too much as well."""
    allow_few_pairs(monkeypatch)
    calls = [{"name": "a", "arguments": {"x": at}} for at in range(60)]
    scorer = create_scorer(
        {"type": "trajectory_match", "match": match, "arguments": "exact", "expected": calls}
    )
    outcome = scorer(trajectory(*(call("a", arguments={"x": at}) for at in reversed(range(60)))))
    assert outcome.value == pairs / 60
    assert outcome.explanation.startswith(f"{pairs} of 60 expected calls matched")


@pytest.mark.parametrize(
    ("second", "value"),
    [
        ({"name": "b"}, 1.0),
        ({"name": "b", "arguments": {}}, 0.5),
        ({"name": "b", "result": 2}, 0.5),
    ],
)
def test_a_call_that_names_less_than_another_agrees_with_more(second, value):
    """One names its arguments, one nothing, or a result."""
    expected = [{"name": "a", "arguments": {"x": 1}}, second]
    scorer = create_scorer(
        {
            "type": "trajectory_match",
            "match": "any_order",
            "arguments": "exact",
            "expected": expected,
        }
    )
    assert (
        scorer(
            trajectory(call("b", arguments={"y": 2}, result=3), call("a", arguments={"x": 1}))
        ).value
        == value
    )
