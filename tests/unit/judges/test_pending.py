"""Pending results of the engine: data with the ids that the results will have."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from otel_eval.engine import Engine, sampling_hash
from otel_eval.evaluations import ScorerSet, result_id
from otel_eval.model import Outcome, Scored, Trajectory
from otel_eval.pipeline import Pipeline
from otel_eval.scorers import create_scorer
from otel_eval.scorers.build import FunctionScorer
from tests.support.listening import Listener
from tests.support.made_spans import closed, span

AGENT = {"gen_ai.operation.name": "invoke_agent"}
TOOL = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "search"}
AT_ONCE = create_scorer({"type": "tool_errors"})


class Awaited:
    """A scorer that must not be called where no result is awaited."""

    type, version, needs, asynchronous = "awaited", "3", frozenset({"content"}), True

    def __init__(self, name: str = "awaited", sample: float = 1.0) -> None:
        self.name, self.sample = name, sample

    def __call__(self, trajectory: Trajectory) -> Outcome:
        raise AssertionError("called")

    async def evaluate(self, trajectory: Trajectory) -> Outcome:
        return Scored(len(trajectory.calls) / 2, True)


def reports_of(*scorers: Any, sample: float = 1.0) -> Any:
    trace = closed(
        span("rrrrrrrr", attributes=AGENT), span("tttttttt", "rrrrrrrr", attributes=TOOL)
    )
    return Engine([ScorerSet(name="e", scorers=scorers, sample=sample)]).evaluate(trace)


def test_a_report_has_finished_results_and_lists_pending_ones():
    """Finished and pending results both keep the order of the configuration."""
    (report,) = reports_of(Awaited(), AT_ONCE, Awaited("other"))
    assert [result.scorer for result in report.results] == ["tool_errors"]
    assert [
        (each.scorer, each.type, each.version, each.revision)
        for each in (late.template for late in report.pending)
    ] == [
        ("awaited", "awaited", "3", 0),
        ("other", "awaited", "3", 0),
    ]
    assert not report.late


def test_a_pending_result_becomes_the_one_that_was_announced():
    """Its id is that of a synchronous result."""
    (report,) = reports_of(Awaited())
    (pending,) = report.pending
    result = pending.result(asyncio.run(pending.evaluate(report.trajectory)))
    run = report.trajectory
    assert (result.outcome, result.evaluation, result.version) == (Scored(0.5, True), "e", "3")
    assert (
        result.result_id
        == pending.result_id
        == result_id(run.trace_id, run.span_id, "e", "awaited", result.policy, 0)
    )


def test_nothing_is_pending_without_asynchronous_scorers():
    """An engine with asynchronous scorers reports that it has some."""
    assert reports_of(AT_ONCE)[0].pending == ()
    assert not Engine([ScorerSet(name="e", scorers=(AT_ONCE,))]).waits
    engine = Engine([ScorerSet(name="e", scorers=(AT_ONCE, Awaited()))])
    assert engine.waits
    with pytest.raises(ValueError, match="pass later"):
        Pipeline(engine, Listener())


@pytest.mark.parametrize("nearly", [-1e-9, 1e-9])
def test_a_scorers_share_is_drawn_as_an_evaluations_is(nearly: float):
    """Sampling depends on the trace id alone; an empty report is not created."""
    share = sampling_hash(b"t" * 16) + nearly
    asked = nearly > 0
    assert [len(report.pending) for report in reports_of(Awaited(sample=share))] == (
        [1] if asked else []
    )
    assert [len(report.pending) for report in reports_of(AT_ONCE, Awaited(sample=share))] == [
        int(asked)
    ]


def test_a_coroutine_function_is_awaited():
    """An object with an asynchronous `__call__` is awaited, too; a plain function is not."""

    async def later(trajectory: Trajectory) -> float:
        return 1.0

    class Instance:
        async def __call__(self, trajectory: Trajectory) -> float:
            return 1.0

    def at_once(trajectory: Trajectory) -> float:
        return 1.0

    functions = {"later": later, "instance": Instance(), "at once": at_once}
    (report,) = reports_of(
        *[FunctionScorer(name=n, type="f", function=f, arguments={}) for n, f in functions.items()]
    )
    assert [each.scorer for each in report.results] == ["at once"]
    assert [each.template.scorer for each in report.pending] == ["later", "instance"]
