"""Which conditions of an evaluation a run does not meet: none exactly where the evaluation is
asked.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_eval.engine import Engine
from otel_eval.evaluations import FailedCondition, RunFilter, ScorerSet
from otel_eval.model import UNRECORDED, Trajectory
from otel_eval.scorers import create_scorer
from tests.support.made_spans import closed, span

SCORER = create_scorer({"type": "tool_errors"})
PATTERNS = st.sampled_from(["*", "a", "a*", "b", "?"])
VALUES = st.sampled_from(["a", "b", True, 1, 1.0, "true"])


def runs_of(engine: Engine, attributes: dict[str, Any]) -> list[tuple[Trajectory, list[str]]]:
    """The runs of a trace with one agent inside another, with the evaluations that match each."""
    agent = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "a", **attributes}
    inner = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "b"}
    trace = closed(
        span("a", attributes=agent, service="a"), span("b", "a", attributes=inner, service="a")
    )
    matches = engine.build(trace).matches
    return [(run, [evaluation.name for evaluation in matching]) for run, matching in matches]


MATCHES = st.builds(
    RunFilter,
    service=PATTERNS,
    agent=PATTERNS,
    span=PATTERNS,
    runs=st.sampled_from(["outermost", "all"]),
    attributes=st.dictionaries(st.sampled_from(["x", "y"]), VALUES),
)


@given(
    evaluations=st.lists(
        st.tuples(MATCHES, st.sampled_from([0.0001, 0.5, 1.0])), min_size=1, max_size=3
    ),
    attributes=st.dictionaries(st.sampled_from(["x", "y"]), VALUES),
)
def test_no_condition_fails_exactly_where_an_evaluation_matches(
    evaluations: list[tuple[RunFilter, float]], attributes: dict[str, Any]
) -> None:
    """Whatever the conditions and the share of traces."""
    made = [
        ScorerSet(name=str(n), scorers=(SCORER,), match=m, sample=s)
        for n, (m, s) in enumerate(evaluations)
    ]
    engine = Engine(made)
    for run, matching in runs_of(engine, attributes):
        conditions = engine.failed_conditions(run)
        assert [evaluation.name for evaluation, failed in conditions if not failed] == matching
        assert [evaluation.name for evaluation, _ in conditions] == [each.name for each in made]


@pytest.mark.parametrize(
    ("match", "failed"),
    [
        (RunFilter(service="shop"), FailedCondition("match.service", "shop", "a")),
        (RunFilter(agent="A"), FailedCondition("match.agent", "A", "a")),
        (RunFilter(span="x*"), FailedCondition("match.span", "x*", "a")),
        (RunFilter(attributes={"x": "b*"}), FailedCondition("match.attributes.x", "b*", "a")),
        (RunFilter(attributes={"y": 1}), FailedCondition("match.attributes.y", 1, UNRECORDED)),
    ],
)
def test_a_failed_condition_tells_what_is_wanted_and_what_the_run_has(
    match: RunFilter, failed: FailedCondition
) -> None:
    """By the key of the configuration."""
    engine = Engine([ScorerSet(name="one", scorers=(SCORER,), match=match)])
    (run, _), _ = runs_of(engine, {"x": "a"})
    assert engine.failed_conditions(run)[0][1] == (failed,)


def test_all_failed_conditions_are_reported_and_a_nested_run_is_named() -> None:
    """One does not have to repair one after the other."""
    engine = Engine(
        [ScorerSet(name="one", scorers=(SCORER,), match=RunFilter(agent="A", span="B"))]
    )
    _, (run, _) = runs_of(engine, {})
    assert [each.condition for each in engine.failed_conditions(run)[0][1]] == [
        "match.runs",
        "match.agent",
        "match.span",
    ]
