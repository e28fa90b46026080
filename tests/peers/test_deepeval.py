"""The tool correctness of deepeval and we agree, except where docs/how-to/migration.md says
otherwise.
"""

from __future__ import annotations

import os
import sys
import warnings
from pathlib import Path

import pytest
from hypothesis import assume, given

os.environ.update(
    DEEPEVAL_TELEMETRY_OPT_OUT="YES", DEEPEVAL_DISABLE_PROGRESS_BAR="YES", ERROR_REPORTING="NO"
)
pytest.importorskip("deepeval", reason="deepeval is not installed; run make peers")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from deepeval.metrics import ToolCorrectnessMetric
    from deepeval.models import DeepEvalBaseLLM
    from deepeval.test_case import LLMTestCase, ToolCall, ToolCallParams

sys.path.insert(0, str(Path(__file__).parent))
from runs import CALLS, OFTEN, expected, ours

pytestmark = pytest.mark.filterwarnings("default")


class Nobody(DeepEvalBaseLLM):
    """The metric cannot be built without a model, and never asks it here."""

    def __init__(self):
        pass

    def load_model(self):
        return self

    def generate(self, prompt):
        raise AssertionError("asked")

    async def a_generate(self, prompt):
        raise AssertionError("asked")

    def get_model_name(self):
        return "nobody"


def theirs(made, wanted, *, arguments=True, **options):
    """The deterministic score."""
    called, should = (
        [ToolCall(name=name, input_parameters=own) for name, own in calls]
        for calls in (made, wanted)
    )
    compared = [ToolCallParams.INPUT_PARAMETERS] if arguments else []
    metric = ToolCorrectnessMetric(
        model=Nobody(), evaluation_params=compared, async_mode=False, **options
    )
    case = LLMTestCase(input="x", actual_output="x", tools_called=called, expected_tools=should)
    return metric.measure(case, _show_indicator=False)


def all_different(calls):
    """No call twice."""
    return all(each not in calls[:at] for at, each in enumerate(calls))


@pytest.mark.parametrize("arguments", [False, True])
@OFTEN
@given(CALLS, CALLS)
def test_ordering_is_a_weighted_alignment_in_order(arguments, made, wanted):
    compare = ["arguments"] if arguments else []
    value = ours(
        made, type="tool_correctness", match="in_order", compare=compare, expected=expected(wanted)
    )
    assert value == pytest.approx(
        theirs(made, wanted, arguments=arguments, should_consider_ordering=True)
    )


@pytest.mark.parametrize("arguments", [False, True])
@OFTEN
@given(CALLS, CALLS)
def test_exact_match_is_an_exact_match(arguments, made, wanted):
    compare = ["arguments"] if arguments else []
    value = ours(
        made,
        type="tool_correctness",
        match="exact",
        arguments="exact",
        compare=compare,
        expected=expected(wanted),
    )
    assert value == theirs(made, wanted, arguments=arguments, should_exact_match=True)


@OFTEN
@given(CALLS, CALLS)
def test_names_in_any_order_are_the_same_where_no_call_is_made_twice(made, wanted):
    assume(all_different(made))
    value = ours(made, type="tool_correctness", expected=expected(wanted))
    assert value == pytest.approx(theirs(made, wanted, arguments=False))


@OFTEN
@given(CALLS, CALLS)
def test_arguments_in_any_order_never_score_less_here(made, wanted):
    value = ours(made, type="tool_correctness", compare=["arguments"], expected=expected(wanted))
    assert value >= theirs(made, wanted) - 1e-9


def test_two_identical_calls_count_once_there_and_twice_here():
    calls = [("search", {}), ("search", {})]
    assert theirs(calls, calls) == 0.5
    assert (
        ours(calls, type="tool_correctness", compare=["arguments"], expected=expected(calls)) == 1
    )


def test_each_expected_call_takes_what_is_best_for_it_there_and_for_all_here():
    wanted = [("search", {"x": 1}), ("search", {"x": 1, "y": 1})]
    made = [("search", {"x": 1, "y": 1}), ("search", {"x": 1, "y": 2})]
    value = ours(made, type="tool_correctness", compare=["arguments"], expected=expected(wanted))
    assert (theirs(made, wanted), value) == (0.5, 0.75)


def test_an_expected_call_without_arguments_accepts_only_one_without_there_and_any_here():
    made = [("search", {"x": 1})]
    assert theirs(made, [("search", None)], should_exact_match=True) == 0
    with pytest.raises(AttributeError):
        theirs(made, [("search", None)])
    for match in ("exact", "any_order"):
        assert (
            ours(
                made,
                type="tool_correctness",
                match=match,
                compare=["arguments"],
                expected=["search"],
            )
            == 1
        )
