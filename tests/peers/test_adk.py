"""The trajectory metric of google-adk and we agree, except where docs/how-to/migration.md says
otherwise.
"""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

import pytest
from hypothesis import assume, given

pytest.importorskip("google.adk", reason="google-adk is not installed; run make peers")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from google.adk.evaluation.eval_case import IntermediateData, Invocation
    from google.adk.evaluation.eval_metrics import EvalMetric, ToolTrajectoryCriterion
    from google.adk.evaluation.trajectory_evaluator import TrajectoryEvaluator
    from google.genai import types

sys.path.insert(0, str(Path(__file__).parent))
from runs import CALLS, NAMES, OFTEN, expected, ours

pytestmark = pytest.mark.filterwarnings("default")
OURS = {"type": "trajectory_match", "arguments": "exact", "missing": "forbid", "strict": True}


def theirs(match, made, wanted, *, ignore_args=False):
    """One invocation."""

    def invocation(calls):
        uses = [types.FunctionCall(name=name, args=own) for name, own in calls]
        return Invocation(
            user_content=types.Content(), intermediate_data=IntermediateData(tool_uses=uses)
        )

    kind = ToolTrajectoryCriterion.MatchType[match.upper()]
    criterion = ToolTrajectoryCriterion(threshold=0.5, match_type=kind, ignore_args=ignore_args)
    metric = EvalMetric(metric_name="tool_trajectory_avg_score", threshold=0.5, criterion=criterion)
    return (
        TrajectoryEvaluator(eval_metric=metric)
        .evaluate_invocations([invocation(made)], [invocation(wanted)])
        .overall_score
    )


@pytest.mark.parametrize("match", ["exact", "in_order", "any_order"])
@OFTEN
@given(CALLS, CALLS)
def test_each_match_type_is_a_match_of_ours(match, made, wanted):
    assume(wanted or not made)
    assert ours(made, **OURS, match=match, expected=expected(wanted)) == theirs(match, made, wanted)


@pytest.mark.parametrize("match", ["exact", "in_order", "any_order"])
@OFTEN
@given(NAMES, NAMES)
def test_ignored_arguments_are_left_out_of_the_expectation(match, made, wanted):
    assume(wanted or not made)
    peer = theirs(
        match,
        [(name, {"n": 1}) for name in made],
        [(name, {}) for name in wanted],
        ignore_args=True,
    )
    assert ours(made, **OURS, match=match, expected=wanted) == peer


@pytest.mark.parametrize("match", ["in_order", "any_order"])
def test_nothing_expected_fits_anything_there_and_nothing_here(match):
    made = [("search", {})]
    assert (theirs(match, made, []), ours(made, **OURS, match=match, expected=[])) == (1, 0)


@pytest.mark.parametrize("match", ["exact", "in_order", "any_order"])
def test_an_expected_call_without_arguments_accepts_only_one_without_there_and_any_here(match):
    made = [("search", {"x": 1})]
    assert (
        theirs(match, made, [("search", None)]),
        ours(made, **OURS, match=match, expected=["search"]),
    ) == (0, 1)
