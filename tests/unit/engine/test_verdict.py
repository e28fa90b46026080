"""The verdict of a run under an evaluation, at once and while results are awaited."""

from __future__ import annotations

import asyncio
from itertools import permutations

import pytest

from otel_eval.engine import Engine
from otel_eval.evaluations import ScorerSet
from otel_eval.exporters.attributes import event_attributes
from otel_eval.exporters.result_rows import rows_of
from otel_eval.judges import AsyncEvaluator
from otel_eval.model import Failed, Result, Scored, Skipped, Verdict, verdict_of
from otel_eval.scorers import create_scorer, scorer
from tests.support.listening import LateReports
from tests.support.made_spans import closed, span

AGENT = span("a", attributes={"gen_ai.operation.name": "invoke_agent"}, start_ns=10)
TOOL = span(
    "t",
    "a",
    attributes={"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "tool"},
    start_ns=20,
)
PASSED, BAD = Scored(1.0, True), Scored(0.0, False)


def result(outcome, severity="error"):
    """A result with this outcome."""
    named = dict.fromkeys(("evaluation", "scorer", "type", "version", "result_id"), "x")
    return Result(outcome=outcome, revision=0, severity=severity, **named)


@pytest.mark.parametrize(
    ("outcomes", "verdict"),
    [
        ([PASSED, PASSED], "pass"),
        ([PASSED, BAD], "not_passed"),
        ([Skipped("", "calls_unknown"), BAD], "not_passed"),
        ([PASSED, Skipped("", "calls_unknown")], "not_evaluated"),
        ([PASSED, Skipped("", "waiting")], "not_evaluated"),
        ([PASSED, Failed("timeout")], "not_evaluated"),
        ([PASSED, Skipped("", "not_applicable"), Skipped("", "no_reference")], "pass"),
        ([PASSED, Skipped("", "recorded")], "pass"),
    ],
)
def test_the_verdict_is_the_worst_of_the_outcomes_that_apply(outcomes, verdict):
    """In any order."""
    for order in permutations(outcomes):
        assert verdict_of(map(result, order)) == verdict


@pytest.mark.parametrize("outcome", [BAD, Failed("timeout"), Skipped("", "incomplete")])
def test_results_with_the_severity_warn_do_not_count(outcome):
    """Whatever their outcome."""
    assert verdict_of([result(PASSED), result(outcome, "warn")]) is Verdict.PASS


@pytest.mark.parametrize("outcome", [PASSED, BAD, Skipped(""), Failed("x")])
def test_an_outcome_has_no_truth_value(outcome):
    """`assert scorer(run)` would pass for a fail and for a skip."""
    with pytest.raises(TypeError, match=r"outcome\.passed"):
        bool(outcome)
    assert outcome.passed is (outcome is PASSED)
    assert isinstance(outcome.explanation, str)


@scorer("test.verdict_judge")
async def later(trajectory, outcome):
    """A scorer whose result comes later."""
    await asyncio.sleep(0)
    return {"pass": PASSED, "fail": BAD, "skip": Skipped("no", "not_recorded")}[outcome]


def reports_of(*outcomes, forbidden="other", severity="error"):
    """The reports on a run with a call of `tool`: at once, then one for each awaited outcome."""
    at_once = create_scorer({"type": "forbidden_tools", "patterns": [forbidden]})
    awaited = [
        create_scorer(
            {
                "type": "test.verdict_judge",
                "name": str(number),
                "outcome": outcome,
                "severity": severity,
            }
        )
        for number, outcome in enumerate(outcomes)
    ]
    engine = Engine([ScorerSet(name="e", scorers=(at_once, *awaited))])
    reports = engine.evaluate(closed(AGENT, TOOL))
    evaluator = AsyncEvaluator(LateReports(reports))
    try:
        for report in [*reports]:
            evaluator.put(report)
        assert evaluator.wait(60.0)
    finally:
        evaluator.stop(10.0)
    return reports


@pytest.mark.parametrize(
    ("outcomes", "verdict"),
    [
        (["pass", "pass"], "pass"),
        (["pass", "fail"], "not_passed"),
        (["pass", "skip"], "not_evaluated"),
    ],
)
def test_a_verdict_is_given_once_no_result_can_change_it(outcomes, verdict):
    """All that are given for a revision are the same; the last result has one."""
    reports = reports_of(*outcomes)
    given = [report.verdict for report in reports]
    assert given[0] is None
    assert given[-1] == verdict
    assert {*given} <= {None, verdict}


def test_a_score_that_does_not_pass_decides_before_awaited_results():
    """Nothing can turn it into a pass."""
    assert [report.verdict for report in reports_of("pass", forbidden="*")] == ["not_passed"] * 2


def test_a_late_result_with_the_severity_warn_does_not_count():
    """It is exported with the verdict of the others."""
    assert reports_of("fail", severity="warn")[-1].verdict == "pass"


def test_rows_and_events_carry_verdict_policy_and_severity():
    """Under the names of the other fields."""
    at_once, last = reports_of("fail", severity="warn")
    (first_row,), (last_row,) = rows_of(at_once), rows_of(last)
    assert (first_row["verdict"], last_row["verdict"]) == (None, "pass")
    assert (last_row["severity"], last_row["passed"]) == ("warn", False)
    assert "otel_eval.verdict" not in event_attributes(at_once, at_once.results[0])
    attributes = event_attributes(last, last.results[0])
    assert {key: attributes[f"otel_eval.{key}"] for key in ("verdict", "severity", "policy")} == {
        key: last_row[key] for key in ("verdict", "severity", "policy")
    }
    assert len(last_row["policy"]) == 16
    assert last_row["result_id"] != first_row["result_id"]
