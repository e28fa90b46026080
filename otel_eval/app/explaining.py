"""Explain stored traces: what was recognised, which runs there are, and what each evaluation did with them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from otel_eval.app.compose import engine_of
from otel_eval.app.stored import Paths, Problem, closed_traces, guarded, ignore
from otel_eval.config import EvalConfig
from otel_eval.engine import Engine
from otel_eval.evaluations import FailedCondition
from otel_eval.interfaces import ClosedTrace
from otel_eval.model import Completeness, Report, Result, Trajectory
from otel_eval.scorers.spec.functions import is_own_scorer
from otel_eval.trajectory import TraceExplanation, explain_trace

__all__ = ["EvaluationOfRun", "ExplainedRun", "ExplainedTrace", "explain"]


@dataclass(frozen=True, slots=True)
class EvaluationOfRun:
    """What one evaluation did with one run.

    Attributes:
        name: of the evaluation.
        failed: the conditions that the run does not meet; none if the evaluation matches.
        results: of its scorers.
        not_asked: the scorers that ask a judge or are coroutines: explaining does not call them.
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
    """Every trace of the files, explained. Scorers are called as in `replay`, but for those that wait for an answer.

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
    runs: list[Trajectory] = []
    reports = engine.judge(trace, on_run=lambda run, _: runs.append(run))
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
