"""Scorers that are not built in cannot change what other scorers of the run read."""

from __future__ import annotations

from dataclasses import FrozenInstanceError
from typing import Any

import pytest

from otel_eval.app.guarded_scorer import guard_scorer
from otel_eval.counters import Counters
from otel_eval.engine import Engine
from otel_eval.evaluations import ScorerSet
from otel_eval.interfaces import ClosedTrace
from otel_eval.model import Completeness, Scored, Trajectory
from otel_eval.scorers import create_scorer, scorer
from otel_eval.scorers.build import FunctionScorer
from otel_eval.scorers.parameters import Selection
from tests.support.made_spans import closed, span
from tests.support.waiting import LIMIT_S

ARGS = {
    "type": "tool_call_args",
    "expected": [{"name": "search", "arguments": {"q": {"city": "Rome"}}}],
}


def run() -> ClosedTrace:
    """One agent run with one call that recorded arguments and a result."""
    operation = "gen_ai.operation.name"
    return closed(
        span("1", "", "invoke_agent", attributes={operation: "invoke_agent"}),
        span(
            "2",
            "1",
            "execute_tool search",
            attributes={
                operation: "execute_tool",
                "gen_ai.tool.name": "search",
                "gen_ai.tool.call.arguments": '{"q": {"city": "Rome"}}',
                "gen_ai.tool.call.result": '["sunny"]',
            },
        ),
        reason=Completeness.COMPLETE,
    )


def clears(trajectory: Trajectory) -> float:
    """Changes in place everything that can be changed."""
    for call in trajectory.calls:
        call.arguments["q"].clear()
        call.arguments.clear()
        call.result.clear()
    return 1.0


class Clearing:
    """A user's scorer object that clears what it reads."""

    name = type = "clearing"
    version = "1"
    needs = frozenset({"arguments", "results"})

    def __call__(self, trajectory: Trajectory) -> Scored:
        return Scored(clears(trajectory), True)


def function_scorer() -> FunctionScorer:
    """A function that clears what it reads."""
    return FunctionScorer(
        type="clears", function=clears, arguments={}, needs=frozenset({"arguments", "results"})
    )


def limited_scorer() -> Any:
    """A `Clearing` with a time limit, as in a process and in `otel-eval serve`."""
    return guard_scorer(Clearing(), LIMIT_S, Counters())


@scorer("test.clears", needs=["arguments", "results"])
def registered(trajectory: Trajectory) -> float:
    """A registered scorer that clears what it reads."""
    return clears(trajectory)


def tree_scorer() -> Any:
    """A decision tree whose node calls a user's scorer."""
    leads_on = {"verdict": True, "then": {"scorer": {"type": "test.clears"}}}
    node = {
        "type": "binary",
        "cel": "calls.size() == 1",
        "children": [leads_on, {"verdict": False, "score": 0}],
    }
    return create_scorer({"type": "dag", "root": "one", "nodes": {"one": node}})


@pytest.mark.parametrize("make", [Clearing, function_scorer, limited_scorer, tree_scorer])
def test_a_scorer_that_clears_its_arguments_affects_no_later_scorer(make: Any) -> None:
    """A second scorer of a user is not affected either."""
    scorers = (make(), create_scorer(ARGS), make(), create_scorer(ARGS))
    (report,) = Engine([ScorerSet(name="e", scorers=scorers)]).evaluate(run())
    assert [result.outcome.value for result in report.results] == [1.0, 1.0, 1.0, 1.0]


class Renaming(Clearing):
    """A user's scorer object that assigns to fields of what it reads."""

    def __call__(self, trajectory: Trajectory) -> Scored:
        refused = 0
        for record, field in ((trajectory, "agent"), (trajectory.calls[0], "name")):
            try:
                setattr(record, field, "changed")
            except FrozenInstanceError:
                refused += 1
        return Scored(refused / 2, passed=True)


def selecting_scorer() -> FunctionScorer:
    """A function that assigns to fields of a run of which some calls were left out."""
    return FunctionScorer(
        type="renames",
        function=Renaming(),
        arguments={},
        needs=frozenset({"arguments"}),
        tools=Selection(include=("search",)),
    )


@pytest.mark.parametrize("make", [Renaming, selecting_scorer])
def test_a_scorer_of_a_user_cannot_assign_to_fields(make: Any) -> None:
    """Neither of the run nor of its calls."""
    (report,) = Engine([ScorerSet(name="e", scorers=(make(),))]).evaluate(run())
    assert report.results[0].outcome.value == 1.0
    assert report.trajectory.calls[0].name == "search"


@pytest.mark.parametrize(
    "limit", [lambda each: each, lambda each: guard_scorer(each, LIMIT_S, Counters())]
)
def test_a_users_scorer_that_decides_by_itself_has_no_threshold(limit: Any) -> None:
    """The threshold of a result is the one that decided whether it passed."""

    class Lenient(Clearing):
        applied_threshold = 1.0

        def __call__(self, trajectory: Trajectory) -> Scored:
            return Scored(0.25, passed=True)

    (report,) = Engine([ScorerSet(name="e", scorers=(limit(Lenient()),))]).evaluate(run())
    assert report.results[0].threshold is None
