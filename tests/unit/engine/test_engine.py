"""The engine: a closed trace and what was reported of it before give the same reports wherever it
runs.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from otel_eval.engine import Engine
from otel_eval.evaluations import RunFilter, ScorerSet, result_id
from otel_eval.interfaces import ClosedTrace, EvaluationHistory
from otel_eval.model import (
    Completeness,
    Failed,
    NoRun,
    Report,
    Result,
    Scored,
    Skipped,
    Stamp,
    Trajectory,
)
from otel_eval.scorers import create_scorer
from tests.support.made_spans import FakeSpan, closed, frames, span

OP = "gen_ai.operation.name"
COUNT = create_scorer({"type": "tool_call_count", "criteria": {"search": "<= 1"}})


class Scorer:
    """A scorer of a user: does what a test says."""

    type = version = "mine"
    needs: frozenset[str] = frozenset()

    def __init__(self, work: Any, name: str = "mine") -> None:
        self.work, self.name, self.seen = work, name, list[Trajectory]()

    def __call__(self, run: Trajectory) -> Any:
        self.seen.append(run)
        return self.work(run)


def agent(span_id: str, parent: str = "", **attributes: Any) -> FakeSpan:
    return span(
        span_id,
        parent,
        attributes={OP: "invoke_agent", "gen_ai.agent.name": f"agent-{span_id}", **attributes},
        start_ns=10,
    )


def tool(span_id: str, parent: str, name: str = "search") -> FakeSpan:
    return span(
        span_id, parent, attributes={OP: "execute_tool", "gen_ai.tool.name": name}, start_ns=20
    )


def engine_of(*scorers: Any, **options: Any) -> Engine:
    """An engine with one evaluation named `e`."""
    evaluation = ScorerSet(name="e", scorers=scorers or (COUNT,), **options.pop("evaluation", {}))
    return Engine([evaluation], **options)


def results_of(reports: list[Report]) -> list[Result]:
    return [result for report in reports for result in report.results]


def with_spans(trace: ClosedTrace, *more: FakeSpan) -> ClosedTrace:
    """The same trace after spans arrived late: its reports so far are known, and which spans are
    new.
    """
    added = frames(more)
    return replace(trace, frames={**trace.frames, **added}, changed=frozenset(added))


def test_each_run_is_reported_with_the_results_of_its_scorers():
    """In the order of the configuration, with ids that depend on the run, the evaluation, the
    scorer and the revision alone.
    """
    errors = create_scorer({"type": "tool_errors"})
    (report,) = engine_of(COUNT, errors).evaluate(
        closed(agent("a"), tool("t", "a"), tool("u", "a"))
    )
    assert (report.evaluation, report.revision, report.trajectory.agent) == ("e", 0, "agent-a")
    assert [(each.scorer, each.outcome.value) for each in report.results] == [
        ("tool_call_count", 0.0),
        ("tool_errors", 1.0),
    ]
    trace_id, span_id = report.trajectory.trace_id, report.trajectory.span_id
    assert [each.result_id for each in report.results] == [
        result_id(trace_id, span_id, "e", each.scorer, each.policy, 0) for each in report.results
    ]


def test_the_same_trace_gives_equal_reports_in_another_engine():
    """No clock and no randomness."""
    first, second = (
        engine_of().evaluate(closed(agent("a"), tool("t", "a")), Stamp("me", 1)) for _ in range(2)
    )
    assert first == second


def test_an_unchanged_run_is_not_reported_again():
    """A changed one is, under the next revision."""
    engine, trace = engine_of(), closed(agent("a"), tool("t", "a"), agent("b"), tool("u", "b"))
    assert len(engine.evaluate(trace)) == 2
    late = with_spans(trace, tool("v", "a"))
    (again,) = engine.evaluate(late)
    assert (again.trajectory.agent, again.revision, len(again.trajectory.calls)) == (
        "agent-a",
        1,
        2,
    )
    assert engine.evaluate(replace(late, changed=frozenset())) == []


def test_a_run_that_turns_out_to_be_part_of_another_is_withdrawn():
    """Its results are skipped under the next revision, and the run around it is reported."""
    engine, trace = engine_of(), closed(agent("b", "a"), tool("t", "b"))
    (alone,) = engine.evaluate(trace)
    assert alone.trajectory.agent == "agent-b"
    reports = {
        report.trajectory.agent: report for report in engine.evaluate(with_spans(trace, agent("a")))
    }
    assert reports["agent-a"].revision == 0
    withdrawn = reports["agent-b"]
    assert (withdrawn.revision, [each.outcome for each in withdrawn.results]) == (
        1,
        [Skipped(f"part of run {b'a'.hex()}")],
    )


def test_a_scorer_that_fails_costs_its_own_result():
    """Whatever it raises or returns; the other results are there, and no content of the exception
    is in the type.
    """

    def leave(_: Trajectory) -> Any:
        raise SystemExit(3)

    scorers = (
        Scorer(lambda run: 1 / 0, "raises"),
        Scorer(leave, "leaves"),
        Scorer(lambda run: "good", "wrong"),
        COUNT,
    )
    results = {
        each.scorer: each.outcome
        for each in results_of(engine_of(*scorers).evaluate(closed(agent("a"), tool("t", "a"))))
    }
    assert isinstance(results["tool_call_count"], Scored)
    failed = {
        name: outcome.error_type for name, outcome in results.items() if isinstance(outcome, Failed)
    }
    assert failed.keys() == {"raises", "leaves", "wrong"}
    assert (failed["raises"], failed["leaves"]) == ("ZeroDivisionError", "SystemExit")


def test_a_users_scorer_cannot_change_the_run_of_others():
    """It gets a copy of the values."""

    def spoil(run: Trajectory) -> Any:
        run.attributes.clear()
        return Scored(1.0, passed=True)

    mine, other = (
        Scorer(spoil),
        Scorer(lambda run: Scored(float(len(run.attributes)), passed=True), "other"),
    )
    engine = engine_of(mine, other, evaluation={"match": RunFilter(attributes={"tenant": "a"})})
    results = results_of(engine.evaluate(closed(agent("a", tenant="a"), tool("t", "a"))))
    assert [each.outcome for each in results] == [
        Scored(1.0, passed=True),
        Scored(1.0, passed=True),
    ]


def test_conditions_decide_which_runs_are_scored():
    """Runs inside others only where an evaluation asks for all."""
    spans = (agent("a"), agent("b", "a"), tool("t", "b"))
    for runs, agents in (("outermost", ["agent-a"]), ("all", ["agent-a", "agent-b"])):
        reports = engine_of(evaluation={"match": RunFilter(runs=runs)}).evaluate(closed(*spans))
        assert sorted(report.trajectory.agent for report in reports) == agents
    assert (
        engine_of(evaluation={"match": RunFilter(agent="other-*")}).evaluate(closed(*spans)) == []
    )


def test_the_sample_is_decided_by_the_trace_id_alone():
    """About the share that is asked for, and the same traces for every engine."""

    def chosen() -> set[int]:
        engine = engine_of(evaluation={"sample": 0.25})
        traces = {
            n: replace(closed(agent("a"), tool("t", "a")), trace_id=n.to_bytes(16, "big"))
            for n in range(400)
        }
        return {n for n, trace in traces.items() if engine.evaluate(trace)}

    first = chosen()
    assert 60 < len(first) < 140
    assert chosen() == first


def test_runs_older_than_the_evaluator_are_joined():
    """Unless something worse is known of the trace."""
    stamp = Stamp("me", 100, since_ns=15)
    (report,) = engine_of().evaluate(closed(agent("a"), tool("t", "a")), stamp)
    assert report.trajectory.completeness is Completeness.JOINED
    (report,) = engine_of().evaluate(
        closed(agent("a"), tool("t", "a"), reason=Completeness.SHUTDOWN), stamp
    )
    assert report.trajectory.completeness is Completeness.SHUTDOWN
    (report,) = engine_of().evaluate(closed(agent("a"), tool("t", "a")), replace(stamp, since_ns=5))
    assert report.trajectory.completeness is Completeness.COMPLETE


def test_a_trace_without_a_run_is_reported_only_where_that_is_asked():
    """With the reason and a revision of its own; a run that is found later takes its place."""
    plain = closed(span("x"))
    assert engine_of().evaluate(plain) == []
    engine, trace = engine_of(no_run=True), closed(span("x"))
    (report,) = engine.evaluate(trace)
    assert isinstance(report.no_run, NoRun)
    assert (report.results, report.no_run.why) == ((), "no agent run was found in the trace")
    (again,) = engine.evaluate(with_spans(trace, span("y", "x")))
    assert (again.revision, again.no_run is not None) == (1, True)
    report, withdrawn = engine.evaluate(with_spans(trace, agent("a", "x")))
    assert (
        report.evaluation,
        withdrawn.revision,
        withdrawn.no_run and withdrawn.no_run.reason,
    ) == (
        "e",
        2,
        "withdrawn",
    )


def test_an_outcome_instead_of_evaluation_calls_no_scorer():
    """For a trace during whose evaluation the process crashed."""
    mine, gone = (
        Scorer(lambda run: Scored(1.0, passed=True)),
        Failed(error_type="Crashed", message=""),
    )
    (result,) = results_of(
        engine_of(mine).evaluate(closed(agent("a"), tool("t", "a")), instead=gone)
    )
    assert (result.outcome, mine.seen) == (gone, [])


def test_an_outcome_without_reading_the_trace_is_reported_of_its_root():
    """For every evaluation that samples the trace; the next one is a revision further."""
    engine, trace = engine_of(), closed(span("x"), span("y", "x"))
    gone = Failed(error_type="Crashed", message="")
    for revision in (0, 1):
        (report,), evaluations = engine.report_unbuilt(trace, Stamp(), gone)
        trace.history.record(evaluations)
        assert (report.trajectory.span_id, report.revision) == (b"x".hex(), revision)
        assert [each.outcome for each in report.results] == [gone]


def test_building_and_scoring_change_nothing_of_the_trace():
    """What they say of the next evaluation is recorded by the caller, so both can be repeated."""
    engine, trace = engine_of(), closed(agent("a"), tool("t", "a"))
    first, again = (engine.score(engine.build(trace)) for _ in range(2))
    assert (first, trace.history) == (again, EvaluationHistory())
    trace.history.record(first.evaluations)
    (report,) = engine.score(engine.build(trace)).reports
    assert report.revision == 1


def test_exported_attributes_are_those_of_the_run():
    """Only the keys that are asked for, and only where they were recorded."""
    (report,) = engine_of(exported=("tenant", "absent")).evaluate(
        closed(agent("a", tenant="a", other="b"), tool("t", "a"))
    )
    assert dict(report.attributes) == {"tenant": "a"}


def test_calls_of_runs_inside_others_are_read_only_where_an_evaluation_is_for_them():
    """They are unknown then, not none; agent, times and completeness of the run are there."""
    spans = [agent("a"), agent("b", "a"), tool("t", "b")]
    outer, inner = (match.trajectory for match in engine_of().build(closed(*spans)).matches)
    assert [call.name for call in outer.calls] == ["search"]
    assert (inner.agent, inner.start_ns, inner.calls) == ("agent-b", 10, ())
    assert inner.calls_unknown
    everywhere = Scorer(lambda run: Scored(1.0, passed=True))
    engine_of(everywhere, evaluation={"match": RunFilter(runs="all")}).evaluate(closed(*spans))
    assert [len(run.calls) for run in everywhere.seen] == [1, 1]
