"""The trajectory evaluators of pydantic_evals and we agree, except where docs/how-to/migration.md
says otherwise.
"""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

import pytest
from hypothesis import given

pytest.importorskip("pydantic_evals", reason="pydantic_evals is not installed; run make peers")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from pydantic_evals.evaluators import EvaluatorContext, ToolCorrectness, TrajectoryMatch
    from pydantic_evals.otel.span_tree import SpanTree

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import SpanContext

sys.path.insert(0, str(Path(__file__).parent))
from runs import NAMES, OFTEN, ours

pytestmark = pytest.mark.filterwarnings("default")


def theirs(evaluator, made):
    """Spans one after another."""
    spans = [
        ReadableSpan(
            name=f"execute_tool {name}",
            context=SpanContext(trace_id=1, span_id=at, is_remote=False),
            attributes={"gen_ai.tool.name": name},
            start_time=at * 1_000_000,
            end_time=at * 1_000_000 + 1000,
        )
        for at, name in enumerate(made, start=1)
    ]
    tree = SpanTree()
    tree.add_readable_spans(spans)
    context = EvaluatorContext(
        name="x",
        inputs=None,
        metadata=None,
        expected_output=None,
        output=None,
        duration=1.0,
        _span_tree=tree,
        attributes={},
        metrics={},
    )
    return float(evaluator.evaluate(context).value)


@pytest.mark.parametrize("match", ["exact", "in_order", "any_order"])
@OFTEN
@given(NAMES, NAMES)
def test_each_order_is_a_match_of_ours_measured_by_f1(match, made, wanted):
    value = ours(made, type="trajectory_match", match=match, measure="f1", expected=wanted)
    assert value == pytest.approx(
        theirs(TrajectoryMatch(expected_trajectory=wanted, order=match), made)
    )


@OFTEN
@given(NAMES, NAMES)
def test_tool_correctness_forbids_missing_and_extra_calls(made, wanted):
    ruled = {
        "type": "trajectory_match",
        "match": "any_order",
        "missing": "forbid",
        "extra": "forbid",
    }
    assert ours(made, **ruled, expected=wanted) == theirs(
        ToolCorrectness(expected_tools=wanted), made
    )


def test_nothing_expected_but_extra_allowed_fits_anything_there_and_nothing_here():
    ruled = {"type": "trajectory_match", "match": "any_order", "missing": "forbid"}
    assert theirs(ToolCorrectness(expected_tools=[], allow_extra=True), ["search"]) == 1
    assert ours(["search"], **ruled, expected=[]) == 0
