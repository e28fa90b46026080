"""Evaluates, shows or explains stored traces: files go through the same engine, without a clock."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from os import PathLike
from typing import TypeVar

from otel_eval.app.coverage import Coverage
from otel_eval.app.late_results import LateResults
from otel_eval.app.wiring import engine_of, later_of, limits_of, plan_of, replay_fanout
from otel_eval.config import EvalConfig
from otel_eval.engine import Engine
from otel_eval.errors import InputError
from otel_eval.evaluations import FailedCondition
from otel_eval.interfaces import ClosedTrace
from otel_eval.model import Completeness, Report, Result, Trajectory
from otel_eval.scorers.build import is_own_scorer
from otel_eval.sources.files import NO_SCOPES, lacks_scopes, whole_traces
from otel_eval.trajectory import TraceExplanation, build, explain_trace

__all__ = [
    "EvaluationOfRun",
    "ExplainedRun",
    "ExplainedTrace",
    "Paths",
    "Problem",
    "closed_traces",
    "explain",
    "guarded",
    "ignore",
    "replay",
    "understand",
]


T = TypeVar("T")
Problem = Callable[[str], None]
Paths = Iterable[str | PathLike[str]]


def ignore(_: str) -> None:
    """Drop a line."""


def replay(
    paths: Paths,
    config: EvalConfig,
    *,
    export: bool = False,
    on_problem: Problem,
    on_notice: Problem = ignore,
    on_progress: Callable[[int], None] | None = None,
    coverage: Coverage | None = None,
) -> Iterator[Report]:
    """Score every run of stored traces.

    Args:
        paths: files of traces; "-" is stdin.
        config: its evaluations and limits; `receivers` is ignored, `exporters` used only with `export`.
        export: whether results go to the configured exporters as well, without metrics. A file of JSON Lines gets those that
            it does not hold already; those that have changed are added again, and the later line counts.
        on_problem: called with one line about each file, or part of one, that could not be used.
        on_notice: called with one line about each file whose format lacks something.
        on_progress: called with the number of bytes read since the last call.
        coverage: counts what was read and evaluated; complete once all reports were taken.
    """
    counted = coverage or Coverage()
    engine = engine_of(config, lines=True)
    outlet = replay_fanout(config) if export else None
    gathering = LateResults(lambda emit: later_of(config, engine, emit, unbounded=True))
    closed = closed_traces(paths, config, on_problem, on_progress, on_notice)
    evaluated = (report for trace in closed for report in guarded(trace, partial(counted.evaluate, engine), on_problem))
    try:
        for report in gathering.whole(evaluated):
            if outlet:
                outlet.export(report)
            yield report
    finally:
        gathering.stop()
        if outlet:
            outlet.close(30.0)


def understand(
    paths: Paths,
    config: EvalConfig,
    *,
    on_problem: Problem,
    on_notice: Problem = ignore,
    coverage: Coverage | None = None,
) -> Iterator[Trajectory]:
    """The trajectory of every run of stored traces, nested runs too (see `Trajectory.outermost`)."""
    counted, plan = coverage or Coverage(), plan_of(config)
    for trace in closed_traces(paths, config, on_problem, None, on_notice):
        for run in guarded(trace, lambda closed: counted.build(closed, plan), on_problem):
            yield run.trajectory


def closed_traces(
    paths: Paths, config: EvalConfig, on_problem: Problem, on_progress: Callable[[int], None] | None, on_notice: Problem
) -> Iterator[ClosedTrace]:
    """Every trace of the files, whole, in the order in which they end."""
    return whole_traces(paths, limits_of(config), on_problem=on_problem, on_notice=on_notice, on_progress=on_progress)


def guarded(trace: ClosedTrace, judge: Callable[[ClosedTrace], Iterable[T]], on_problem: Problem) -> Iterable[T]:
    """What `judge` returns for a trace; an error is reported and skips this trace only."""
    try:
        return judge(replace(trace, cut=trace.cut or NO_SCOPES) if lacks_scopes(trace) else trace)
    except (InputError, ValueError, TypeError, LookupError, ArithmeticError, RecursionError) as error:
        on_problem(f"trace {trace.trace_id.hex()}: cannot be evaluated: {type(error).__name__}")
        return ()


@dataclass(frozen=True, slots=True)
class EvaluationOfRun:
    """The outcome of one evaluation for one run.

    Attributes:
        name: of the evaluation.
        failed: the conditions that the run does not meet; none if the evaluation matches.
        results: of its scorers.
        not_asked: asynchronous scorers, such as judges: explaining does not call them.
        user_defined: the scorers that are not built in, whose texts may quote content.
    """

    name: str
    failed: tuple[FailedCondition, ...]
    results: tuple[Result, ...] = ()
    not_asked: tuple[str, ...] = ()
    user_defined: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class ExplainedRun:
    """A run as evaluations see it, with each of them."""

    trajectory: Trajectory
    evaluations: tuple[EvaluationOfRun, ...]


@dataclass(frozen=True, slots=True)
class ExplainedTrace:
    """A trace as it was understood, with its runs in order of time."""

    trace: TraceExplanation
    completeness: Completeness
    runs: tuple[ExplainedRun, ...]


def explain(paths: Paths, config: EvalConfig, *, on_problem: Problem, on_notice: Problem = ignore) -> Iterator[ExplainedTrace]:
    """Explain every trace of the files. Scorers are called as in `replay`, except asynchronous ones.

    Args:
        paths: files of traces; "-" is stdin.
        config: its evaluations, conventions and limits.
        on_problem: called with one line about each file or part of one that could not be used.
        on_notice: called with one line about each file whose format lacks something.
    """
    engine = engine_of(config)
    for trace in closed_traces(paths, config, on_problem, None, on_notice):
        yield from guarded(trace, partial(_explained, engine), on_problem)


def _explained(engine: Engine, trace: ClosedTrace) -> list[ExplainedTrace]:
    runs = [run.trajectory for run in build(trace, engine.plan)]
    reports = engine.evaluate(trace)
    by_run = {(report.trajectory.span_id, report.evaluation): report for report in reports}
    explained = tuple(ExplainedRun(run, tuple(_evaluations(engine, run, by_run))) for run in runs)
    return [ExplainedTrace(explain_trace(trace, engine.plan), trace.reason, explained)]


def _evaluations(engine: Engine, run: Trajectory, reports: dict[tuple[str, str], Report]) -> Iterator[EvaluationOfRun]:
    for evaluation, failed in engine.failed_conditions(run):
        report = reports.get((run.span_id, evaluation.name))
        yield EvaluationOfRun(
            name=evaluation.name,
            failed=failed,
            results=report.results if report else (),
            not_asked=() if failed else tuple(each.name for each in evaluation.later),
            user_defined=frozenset(each.name for each in evaluation.scorers if not is_own_scorer(each)),
        )
