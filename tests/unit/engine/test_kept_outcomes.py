"""Runs with the same outline share the outcomes of scorers that read no more of them."""

from __future__ import annotations

import random
import tracemalloc

import pytest

from otel_eval.engine import Engine
from otel_eval.evaluations import ScorerSet
from otel_eval.exporters.result_rows import encoded, lines_of, rows_of
from otel_eval.model import (
    REFUSED,
    Failed,
    Outcome,
    Scored,
    ToolCall,
    ToolError,
    Trajectory,
    with_remedy,
)
from otel_eval.scorers import create_scorer, scorer
from otel_eval.scorers.counts import ToolErrors
from otel_eval.scorers.kept_outcomes import KeptOutcomes, outline_of
from otel_eval.testing import call, trajectory

NAMES = ["search", "open", "refund"]
SPECIFICATIONS = [
    {"type": "tool_call_count", "criteria": {"search": "<= 1", "*": [">= 1", "<= 3"]}},
    {"type": "tool_errors"},
    {"type": "error_recovery", "within": 1},
    {"type": "forbidden_tools", "patterns": ["re*"]},
    {"type": "required_tools", "patterns": ["open", "re*"]},
    {"type": "tool_call_order", "expected": ["search", "open"]},
    {"type": "tool_call_order", "expected": NAMES, "strict": True},
    {"type": "execution_order", "expected": [NAMES], "match": "in_order"},
    {"type": "trajectory_match", "expected": ["open", ["search", "refund"]], "match": "exact"},
]


def run_of(rng: random.Random) -> Trajectory:
    """A short run in which calls may fail, be refused, be parallel, or be known in part only."""
    calls, at = list[ToolCall](), 1
    for _ in range(rng.randrange(4)):
        at += rng.randrange(3)
        calls.append(
            ToolCall(
                name=rng.choice(NAMES),
                arguments={"at": at},
                error=rng.choice([None, None, ToolError("404", f"at {at}"), ToolError(REFUSED)]),
                failure_unknown=rng.random() < 0.1,
                refusal=rng.choice([False, False, False, True, None]),
                message=rng.choice(["", "", "m1"]),
                span_id=f"{at:016x}",
                start_ns=at,
                end_ns=at + rng.randrange(3),
            )
        )
    return trajectory(
        *calls,
        trace_id=f"{rng.getrandbits(128):032x}",
        span_id=f"{rng.getrandbits(64):016x}",
        incomplete=rng.choice([""] * 9 + ["a span is missing"]),
        calls_unknown=rng.choice([""] * 9 + ["no tool spans"]),
        unseen_tools=rng.choice([frozenset()] * 9 + [frozenset({"refund"})]),
    )


def outcomes_of(engine: Engine, run: Trajectory):
    """The outcomes of the engine's scorers for one run."""
    (report,) = engine.score(engine.build_run(run)).reports
    return [result.outcome for result in report.results]


def engine_of(*specifications) -> Engine:
    """An engine with one evaluation of these scorers."""
    scorers = [
        create_scorer({**specification, "name": f"{at}"})
        for at, specification in enumerate(specifications)
    ]
    return Engine([ScorerSet(name="e", scorers=tuple(scorers))])


def test_a_run_has_the_outcomes_that_its_scorers_give_it():
    """Whatever runs were evaluated before."""
    rng, engine = random.Random(7), engine_of(*SPECIFICATIONS)
    scorers = engine.evaluations[0].scorers
    assert all(scorer.reads_outline_only for scorer in scorers)
    for _ in range(1500):
        run = run_of(rng)
        assert outcomes_of(engine, run) == [with_remedy(scorer(run)) for scorer in scorers]


def test_runs_with_the_same_outline_share_an_outcome():
    """Other ids, times and arguments make no difference."""
    engine = engine_of(*SPECIFICATIONS)
    first, second = (
        trajectory(
            call("search", arguments={"at": at}, start_ns=at, end_ns=at + 1),
            call("open", start_ns=at + 1, end_ns=at + 2),
            trace_id=f"{at:032x}",
            span_id=f"{at:016x}",
        )
        for at in (5, 70)
    )
    for one, other in zip(outcomes_of(engine, first), outcomes_of(engine, second), strict=True):
        assert one is other


@pytest.mark.parametrize(
    "specification",
    [
        {"type": "tool_call_order", "reference": "expected"},
        {"type": "tool_call_order", "expected": ["a"], "include_content": True},
        {"type": "execution_order", "expected": ["a"], "of": "spans"},
        {"type": "trajectory_match", "expected": [{"name": "a", "arguments": {"id": 1}}]},
        {"type": "tool_call_output", "expected": [{"name": "a", "result": 1}]},
        {"type": "tool_errors", "tools": {"include": ["a"]}},
        {"type": "required_tools", "patterns": ["a"], "failed_calls": "exclude"},
        {"type": "time_cost"},
        {"type": "step_efficiency", "max_tokens": 1},
    ],
)
def test_scorers_that_read_more_than_the_outline_share_nothing(specification):
    """Such as arguments, times, tokens, an attribute, or some of the calls."""
    assert not create_scorer(specification).reads_outline_only


def test_only_outcomes_that_runs_share_keep_their_json():
    """A user's scorer may return the same object for each run, and change it."""
    user_outcome = Scored(1.0, True, details={"runs": 0})

    @scorer("counts_runs")
    def counts_runs(run: Trajectory) -> Outcome:
        user_outcome.details["runs"] += 1  # type: ignore[index]
        return user_outcome

    engine = engine_of({"type": "counts_runs"}, {"type": "tool_errors"})
    run = trajectory(call("a"), trace_id="ab" * 16, span_id="cd" * 8)
    for runs in (1, 2):
        (report,) = engine.score(engine.build_run(run)).reports
        assert lines_of(report) == encoded(rows_of(report))
        assert f'"runs": {runs}' in lines_of(report).decode()
        assert [bool(result.outcome.encoded) for result in report.results] == [False, True]


class Slow(ToolErrors):
    """Counts the calls that took no time, which another scorer of its base does not read."""

    def find(self, trajectory: Trajectory) -> Outcome:
        """Look at times, too."""
        return Scored(float(any(call.start_ns == call.end_ns for call in trajectory.calls)), True)


def test_a_scorer_derived_from_a_built_in_one_shares_nothing():
    """It may read more than its base."""
    engine = Engine([ScorerSet(name="e", scorers=(Slow(name="slow"),))])
    runs = [trajectory(call("a", start_ns=5, end_ns=5 + took), span_id="cd" * 8) for took in (0, 1)]
    assert [outcomes_of(engine, run)[0].value for run in runs] == [1.0, 0.0]


def test_kept_outcomes_are_bounded_in_bytes():
    """Whatever runs are evaluated."""
    engine = engine_of(SPECIFICATIONS[0], SPECIFICATIONS[5])

    def evaluate(runs: int, calls: int, length: int) -> None:
        for number in range(runs):
            names = [f"{number}-{at}".ljust(length, "x") for at in range(calls)]
            outcomes_of(engine, trajectory(*map(call, names), trace_id="ab" * 16, span_id="cd" * 8))

    evaluate(3, 2, 8)
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for calls, length, runs in ((3, 8, 300), (90, 8, 100), (3, 2000, 50), (90, 20_000, 5)):
            evaluate(runs, calls, length)
            assert tracemalloc.get_traced_memory()[0] - before < 3 * 2**20
    finally:
        tracemalloc.stop()


def test_failures_are_not_kept():
    """They may depend on the moment: on the depth of the stack, or on memory."""
    outcomes, outline = KeptOutcomes(), outline_of(trajectory(call("a")))
    assert outline is not None
    outcomes.add(outline, Failed("RecursionError"))
    assert outcomes.get(outline) is None
    outcomes.add(outline, Scored(1.0, True))
    assert outcomes.get(outline) == Scored(1.0, True)
