"""The tool-call evaluators of UiPath and we agree, except where docs/how-to/migration.md says
otherwise.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import warnings
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

os.environ.setdefault("UIPATH_TELEMETRY_ENABLED", "false")
pytest.importorskip("uipath", reason="uipath is not installed; run make peers")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from uipath.eval import evaluators
    from uipath.eval.models.models import WorkloadExecution

from opentelemetry.sdk.trace import ReadableSpan

from otel_eval.errors import ConfigError

sys.path.insert(0, str(Path(__file__).parent))
from runs import CALLS, NAMES, OFTEN, expected, ours

pytestmark = pytest.mark.filterwarnings("default")
CRITERIA = st.dictionaries(
    st.sampled_from(["search", "open", "close"]),
    st.tuples(st.sampled_from(["=", "==", "<", "<=", ">", ">=", "!="]), st.integers(0, 3)),
    min_size=1,
)


def theirs(kind, made, criteria, **config):
    """Spans in the order given, without ids."""
    evaluator = getattr(evaluators, kind).model_validate(
        {"id": "x", "evaluatorConfig": {"name": "x", **config}}
    )
    spans = [
        ReadableSpan(
            name=name,
            attributes={"tool.name": name, "input.value": json.dumps(own)},
            start_time=0,
            end_time=0,
        )
        for name, own in ((each, {}) if isinstance(each, str) else each for each in made)
    ]
    run = WorkloadExecution(agent_input={}, workload_output={}, workload_trace=spans)
    return asyncio.run(
        evaluator.validate_and_evaluate_criteria(
            workload_execution=run, evaluation_criteria=criteria
        )
    ).score


@pytest.mark.parametrize("strict", [False, True])
@OFTEN
@given(NAMES, NAMES)
def test_order_is_the_share_of_the_longest_common_subsequence(strict, made, wanted):
    peer = theirs("ToolCallOrderEvaluator", made, {"tool_calls_order": wanted}, strict=strict)
    assert ours(made, type="tool_call_order", expected=wanted, strict=strict) == pytest.approx(peer)


@pytest.mark.parametrize("strict", [False, True])
@OFTEN
@given(NAMES, CRITERIA)
def test_counts_hold_or_not(strict, made, criteria):
    assume(made)
    peer = theirs("ToolCallCountEvaluator", made, {"tool_calls_count": criteria}, strict=strict)
    assert ours(made, type="tool_call_count", criteria=criteria, strict=strict) == pytest.approx(
        peer
    )


def first_fit_is_best(made, wanted):
    """Whether taking the first call that fits, one by one, finds as many as there can be."""
    left, found = list(made), 0
    for name, own in wanted:
        fits = [each for each in left if each[0] == name and own.items() <= each[1].items()]
        if fits:
            left.remove(fits[0])
            found += 1
    return found == round(
        ours(made, type="tool_call_args", expected=expected(wanted)) * len(wanted)
    )


@pytest.mark.parametrize("strict", [False, True])
@OFTEN
@given(CALLS, CALLS)
def test_arguments_that_are_expected_must_be_there(strict, made, wanted):
    assume(first_fit_is_best(made, wanted))
    criteria = {"tool_calls": [{"name": name, "args": own} for name, own in wanted]}
    peer = theirs("ToolCallArgsEvaluator", made, criteria, strict=strict)
    assert ours(
        made, type="tool_call_args", expected=expected(wanted), strict=strict
    ) == pytest.approx(peer)


def test_no_call_breaks_every_criterion_there_and_only_those_it_breaks_here():
    criteria = {"search": ("<=", 3)}
    assert theirs("ToolCallCountEvaluator", [], {"tool_calls_count": criteria}) == 0
    assert ours([], type="tool_call_count", criteria=criteria) == 1


def test_the_first_call_that_fits_is_taken_there_and_the_best_one_here():
    made, wanted = (
        [("search", {"x": 1, "y": 1}), ("search", {"x": 1})],
        [("search", {"x": 1}), ("search", {"x": 1, "y": 1})],
    )
    criteria = {"tool_calls": [{"name": name, "args": own} for name, own in wanted]}
    assert theirs("ToolCallArgsEvaluator", made, criteria) == 0.5
    assert ours(made, type="tool_call_args", expected=expected(wanted)) == 1


def test_names_are_cleaned_there_and_compared_as_they_are_here():
    assert theirs("ToolCallOrderEvaluator", ["検索"], {"tool_calls_order": ["天気"]}) == 1
    assert ours(["検索"], type="tool_call_order", expected=["天気"]) == 0
    assert theirs("ToolCallOrderEvaluator", ["a.b"], {"tool_calls_order": ["ab"]}) == 1
    assert ours(["a.b"], type="tool_call_order", expected=["ab"]) == 0


def test_a_criterion_is_cleaned_there_and_taken_as_it_is_here():
    criteria = {"Web Search": ("=", 1)}
    assert theirs("ToolCallCountEvaluator", ["Web_Search"], {"tool_calls_count": criteria}) == 1
    assert ours(["Web_Search"], type="tool_call_count", criteria=criteria) == 0


@pytest.mark.parametrize("count", [-1, "1", 1.0, True])
def test_odd_counts_are_taken_there_and_refused_here(count):
    assert (
        theirs(
            "ToolCallCountEvaluator", ["search"], {"tool_calls_count": {"search": (">=", count)}}
        )
        == 1
    )
    with pytest.raises(ConfigError):
        ours(["search"], type="tool_call_count", criteria={"search": (">=", count)})


def test_no_criteria_are_a_result_there_and_refused_here():
    assert [
        theirs("ToolCallCountEvaluator", made, {"tool_calls_count": {}})
        for made in ([], ["search"])
    ] == [1, 0]
    with pytest.raises(ConfigError):
        ours([], type="tool_call_count", criteria={})
