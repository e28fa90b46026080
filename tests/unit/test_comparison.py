"""Two sets of results: regressions are found, and noise is not one."""

from __future__ import annotations

import random
from collections.abc import Callable
from fractions import Fraction
from math import comb

import pytest

from otel_eval.comparison import (
    ComparedResult,
    ComparedRun,
    ComparedScorer,
    ResultComparison,
    compare,
    fisher_exact,
    mcnemar_exact,
    parting,
    results_of_rows,
)
from otel_eval.errors import InputError

SCORERS = ("errors", "order", "forbidden", "time")


def results(
    number: int,
    passes: Callable[[int, str], bool],
    *,
    case: Callable[[int], str] = lambda index: "",
    outcome: Callable[[int, str], str] = lambda index, scorer: "scored",
    policy: str = "0" * 16,
    scorers: tuple[str, ...] = SCORERS,
    tools: Callable[[int], tuple[str, ...]] = lambda index: ("search", "refund"),
) -> list[ComparedResult]:
    """The results of `number` runs, by the index of the run and the name of the scorer."""
    found = []
    for index in range(number):
        run = ComparedRun(
            trace_id=f"{index:032x}",
            span_id="1",
            agent="clerk",
            case=case(index),
            calls=tools(index),
        )
        for scorer in scorers:
            scored = outcome(index, scorer) == "scored"
            found.append(
                ComparedResult(
                    scorer=ComparedScorer("clerk", "policy", scorer, policy),
                    run=run,
                    outcome=outcome(index, scorer),
                    passed=scored and passes(index, scorer),
                    value=float(passes(index, scorer)) if scored else None,
                    explanation=f"{scorer} of {index}",
                )
            )
    return found


def findings(comparison: ResultComparison) -> dict[str, str]:
    return {one.scorer.scorer: one.finding for one in comparison.scorers}


def test_three_regressions_in_a_thousand_declared_cases_are_found_and_none_invented():
    """A case that did not pass before is no regression, however many there are."""
    known_failure = range(0, 1000, 10)
    before = results(1000, lambda index, _: index not in known_failure, case=str)
    planted = {11, 502, 903}
    after = results(
        1000,
        lambda index, scorer: (
            index not in known_failure and not (scorer == "order" and index in planted)
        ),
        case=str,
        tools=lambda index: ("search", "notify") if index in planted else ("search", "refund"),
    )
    comparison = compare(before, after, declared=True)
    assert findings(comparison) == dict.fromkeys(SCORERS, "unchanged") | {"order": "regression"}
    (order,) = (one for one in comparison.scorers if one.scorer.scorer == "order")
    assert {int(worse.case) for worse in order.worse} == planted
    assert {worse.parting for worse in order.worse} == {"call 2: refund before, notify after"}
    assert comparison.regressed
    assert not comparison.lost


def test_a_fall_from_95_to_80_percent_is_found_in_undeclared_runs():
    """In at least 38 of 40 trials of 500 runs on each side."""
    rng = random.Random(1)
    found = 0
    for _ in range(40):
        before = results(500, lambda *_: rng.random() < 0.95)
        after = results(500, lambda _, scorer: rng.random() < (0.8 if scorer == "order" else 0.95))
        found += findings(compare(before, after, declared=False))["order"] == "regression"
    assert found >= 38


@pytest.mark.parametrize("inputs", [0, 200], ids=["no digests", "inputs that recur"])
def test_two_halves_of_one_noisy_set_rarely_differ(inputs: int):
    """At most 2 of 40 random halves show any regression."""
    rng = random.Random(2)
    regressed = 0
    for _ in range(40):
        noisy = results(
            600,
            lambda *_: rng.random() < 0.9,
            case=lambda index: str(index % inputs) if inputs else "",
        )
        half = set(rng.sample(range(600), 300))
        sides = [
            [result for result in noisy if (int(result.run.trace_id, 16) in half) is chosen]
            for chosen in (True, False)
        ]
        regressed += compare(sides[0], sides[1], declared=False).regressed
    assert regressed <= 2


def test_several_runs_of_a_declared_case_are_compared_by_their_rate():
    """One failure among twenty is noise; half of all runs is not."""
    cases = {"case": lambda index: f"case {index % 5}"}
    before = results(100, lambda *_: True, **cases)
    noise = results(100, lambda index, _: index != 7, **cases)
    half = results(100, lambda index, _: index % 2 == 0, **cases)
    assert findings(compare(before, noise, declared=True))["order"] == "within noise"
    comparison = compare(before, half, declared=True)
    assert findings(comparison)["order"] == "regression"
    assert {one.way for one in comparison.scorers} == {"pairs"}


def test_a_declared_case_that_is_skipped_or_missing_now_is_a_loss():
    before = results(10, lambda *_: True, case=str)
    skipped = results(
        10,
        lambda *_: True,
        case=str,
        outcome=lambda index, _: "skipped" if index == 3 else "scored",
    )
    comparison = compare(before, skipped, declared=True)
    assert (comparison.regressed, comparison.lost) == (False, True)
    assert findings(comparison)["order"] == "loss"
    missing = compare(before, results(9, lambda *_: True, case=str), declared=True)
    assert (missing.missing_cases, missing.lost) == (["clerk: 9"], True)


def test_runs_that_are_not_scored_any_more_are_a_loss_of_their_own():
    """They do not count as passes or failures."""
    before = results(200, lambda *_: True)
    after = results(
        200, lambda *_: True, outcome=lambda index, _: "skipped" if index % 2 else "scored"
    )
    comparison = compare(before, after, declared=False)
    assert set(findings(comparison).values()) == {"loss"}
    assert (comparison.regressed, comparison.lost) == (False, True)


def test_results_of_another_policy_are_named_and_not_compared():
    before = results(5, lambda *_: True, scorers=("order",), policy="a" * 16)
    after = results(5, lambda *_: False, scorers=("order",), policy="b" * 16)
    comparison = compare(before, after, declared=False)
    assert comparison.scorers == []
    assert comparison.not_compared == [
        f"clerk: policy/order: the policy differs ({'a' * 16}; {'b' * 16})"
    ]


def test_tools_that_appeared_or_vanished_are_counted_by_runs():
    before = results(3, lambda *_: True, tools=lambda _: ("search", "search", "refund"))
    after = results(3, lambda *_: True, tools=lambda index: ("search", "pay")[: 1 + index % 2])
    (agent,) = compare(before, after, declared=False).agents
    assert (agent.appeared, agent.vanished) == ({"pay": 1}, {"refund": 3})


def test_the_call_at_which_trajectories_part_is_counted_from_one():
    assert parting(("a", "b"), ("a", "b")) == ""
    assert parting(("a", "b"), ("a",)) == "call 2: b before, no further call after"
    assert parting((), ("a",)) == "call 1: no further call before, a after"
    assert parting(None, ("a",)) == ""


def test_p_values_are_those_of_the_exact_tests():
    """Against sums of exact fractions over all tables, for all small tables."""
    for row, other in ((4, 4), (7, 3), (6, 9)):
        for first in range(row + 1):
            for second in range(other + 1):
                exact = exact_fisher(first, row - first, second, other - second)
                assert fisher_exact(first, row - first, second, other - second) == pytest.approx(
                    float(exact)
                )
    for worse in range(9):
        for better in range(9):
            both = worse + better
            tail = sum(comb(both, count) for count in range(min(worse, better) + 1))
            assert mcnemar_exact(worse, better) == pytest.approx(min(1.0, 2 * tail / 2**both))


def exact_fisher(passed: int, failed: int, other_passed: int, other_failed: int) -> Fraction:
    row, column = passed + failed, passed + other_passed
    rest = other_passed + other_failed
    weights = {
        count: comb(row, count) * comb(rest, column - count)
        for count in range(max(0, column - rest), min(row, column) + 1)
    }
    observed = weights[passed]
    return Fraction(
        sum(weight for weight in weights.values() if weight <= observed), sum(weights.values())
    )


def test_an_object_that_is_no_result_is_refused():
    with pytest.raises(InputError, match="neither a row of results nor a run"):
        results_of_rows([{"a": 1}])
