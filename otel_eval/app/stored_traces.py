"""Evaluates, shows or explains stored traces: they are read from files and passed to the engine
that also evaluates live traces, without a clock.
"""

from __future__ import annotations

import time
from collections import defaultdict, deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import replace
from functools import partial
from itertools import chain, islice
from math import inf
from os import PathLike, fspath
from sys import maxsize
from typing import TYPE_CHECKING, Any, Final, TypeVar

from otel_eval.app.build import (
    READ_BY_REPLAY,
    build_async_evaluator,
    build_engine,
    build_limits,
    build_plan,
    convention_tables,
)
from otel_eval.app.exporting import build_cases, build_replay_exports
from otel_eval.app.replay_coverage import ReplayCoverage, attempt
from otel_eval.assembly import TraceBuffer
from otel_eval.config import EvalConfig, load
from otel_eval.counters import Counters
from otel_eval.diagnostics import Coverage
from otel_eval.engine import Engine
from otel_eval.errors import InputError
from otel_eval.evaluations import FailedCondition, ScorerSet
from otel_eval.interfaces import ClosedTrace, JoinedLog, SpanFrame
from otel_eval.model import Completeness, Report, Result, Stamp, Trajectory, verdict_of
from otel_eval.records import record
from otel_eval.sources.files import Notify, ProblemListener, ReadingListener
from otel_eval.sources.files.conversations import conversations_in
from otel_eval.sources.files.whole_traces import read_whole_traces
from otel_eval.trajectory.builder import build
from otel_eval.trajectory.explanation import TraceExplanation, explain_trace
from otel_eval.trajectory.messages import offered_names

# What reads spans of the SDK is imported by the functions that get some: stored traces do without.
if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan

    from otel_eval.judges import AsyncEvaluator


_BATCH: Final = 32
_LOOK_S: Final = 1.0  # a wait is interrupted this often, so that Ctrl-C works


class LateResults:
    """Collects the results of asynchronous scorers.

    Attributes:
        results: those of one batch of reports, in the order in which they arrived.
    """

    def __init__(self) -> None:
        self.results: Final = list[Result]()

    def on_late_report(self, report: Report) -> None:
        """Collect the results of a report."""
        self.results.extend(report.results)

    def computing(self, trace_id: str) -> AbstractContextManager[None]:
        """Nothing is recorded of a result that is computed."""
        return nullcontext()


def with_late_results(
    reports: Iterable[Report],
    late: LateResults,
    evaluator: AsyncEvaluator | None,
    listener: ReadingListener,
) -> Generator[Report, None, None]:
    """Yield the reports in their order with all results; the results of asynchronous scorers come
    last in each report.

    Reports are evaluated in batches of 32, so that judges work on several runs in parallel.

    Args:
        reports: reports whose asynchronous results may be pending.
        late: collects these results.
        evaluator: computes them for `late`; None if there are no asynchronous scorers.
        listener: told every second that asynchronous scorers are awaited.
    """
    if evaluator is None:
        yield from reports
        return
    reports = iter(reports)
    try:
        while batch := list(islice(reports, _BATCH)):
            late.results.clear()
            awaited = sum(len(report.pending) for report in batch)
            for report in batch:
                evaluator.put(report)
            while not evaluator.wait(_LOOK_S):
                listener.wait(len(late.results), awaited)
            by_id: defaultdict[str, deque[Result]] = defaultdict(deque)
            for result in late.results:
                by_id[result.result_id].append(result)
            for report in batch:
                results = [by_id[pending.result_id].popleft() for pending in report.pending]
                yield replace(
                    report,
                    results=(*report.results, *results),
                    pending=(),
                    standing=report.standing and verdict_of(results, report.standing),
                    awaited=0,
                )
    finally:
        evaluator.stop(0.0)


T = TypeVar("T")
_LOGGED: Final = ReadingListener()

Paths = Iterable[str | PathLike[str]]


def replay(
    paths: Paths,
    config: EvalConfig,
    listener: ReadingListener = _LOGGED,
    *,
    on_problem: Notify | None = None,
    export: bool = False,
    coverage: ReplayCoverage | None = None,
    jobs: int = 1,
) -> Iterator[Report]:
    """Score every run of stored traces.

    Args:
        paths: files of traces; "-" is stdin.
        config: its evaluations and limits; `receivers` is ignored, `exporters` used only with
            `export`.
        export: whether results go to the configured exporters as well, without metrics. Only
            results that a file of JSON Lines lacks are appended to it; a result that has changed is
            appended again, and its last line is valid.
        listener: told of problems, notices and progress; without one, problems are logged.
        on_problem: takes the place of a listener: called with one line about each problem.
        coverage: counts what was read and evaluated; complete after the last report was yielded.
        jobs: the number of processes that evaluate; with 1 it is this one. Reports and their order
            are the same. Without effect if there are judges.

    Raises:
        ConfigError: the configuration cannot be passed to other processes.
    """
    if on_problem is not None:
        listener = ProblemListener(on_problem)
    counted = coverage or ReplayCoverage()
    engine = build_engine(config, lines=True, reads=READ_BY_REPLAY)
    counted.use(engine.evaluations)
    cases = build_cases(config, Counters(), engine.plan) if export else None
    exporters = build_replay_exports(config, cases) if export else None
    traced, untraced = _split(paths, listener)
    closed = read_whole_traces(traced, build_limits(config), listener)
    evaluate = partial(counted.evaluate, engine, cases=cases)
    evaluated: Iterable[Report] = (
        report for trace in closed for report in attempt(trace, evaluate, listener)
    )
    if jobs > 1 and (engine.waits or cases):
        listener.notice(
            "--jobs has no effect with judges, whose endpoint limits the pace, or exporters.cases"
        )
    elif jobs > 1:
        from otel_eval.app.jobs import evaluate_in_processes  # deferred: few need it

        evaluated = evaluate_in_processes(closed, config, jobs, engine, counted, listener)
    of_messages = (report for run in untraced for report in counted.evaluate_run(engine, run))
    evaluated = chain(of_messages, evaluated)
    late = LateResults()
    evaluator = build_async_evaluator(config, engine, late, unbounded=True)
    try:
        with closing(with_late_results(evaluated, late, evaluator, listener)) as completed:
            for report in completed:
                counted.add(report)
                if exporters:
                    exporters.export((report,))
                yield report
    finally:
        if exporters:
            exporters.close(30.0)
            if exporters.failed:
                listener.problem(f"exporters: {exporters.failed} results were not delivered")


def _split(paths: Paths, listener: ReadingListener) -> tuple[list[str], list[Trajectory]]:
    """The files of traces, and the runs of the files of conversations among the paths."""
    traced: list[str] = []
    untraced: list[Trajectory] = []
    for path in [fspath(path) for path in paths]:
        try:
            runs = conversations_in(path)
        except InputError as error:
            listener.problem(str(error))
            continue
        if runs is None:
            traced.append(path)
        else:
            untraced += runs
    return traced, untraced


def understand(
    paths: Paths,
    config: EvalConfig,
    listener: ReadingListener = _LOGGED,
    *,
    coverage: Coverage | None = None,
    lone_calls: bool = False,
) -> Iterator[Trajectory]:
    """Yield the trajectory of every run of stored traces, including nested runs (see
    `Trajectory.outermost`) and, with `lone_calls`, tool calls that belong to no agent run.
    Problems are told as by `replay`.
    """
    plan = build_plan(config)
    traced, untraced = _split(paths, listener)
    yield from untraced
    for trace in read_whole_traces(traced, build_limits(config), listener):
        all_runs = [
            run.trajectory
            for run in attempt(trace, partial(build, plan=plan, lone_calls=True), listener)
        ]
        runs = [run for run in all_runs if lone_calls or not run.is_tool_call]
        if coverage is not None and trace.frames:
            coverage.understood(trace, all_runs, runs)
        yield from runs


def understand_with_offers(
    paths: Paths,
    config: EvalConfig,
    listener: ReadingListener,
) -> Iterator[tuple[Trajectory, frozenset[str]]]:
    """Yield the runs of `understand`, each with the names of the tools that its model calls
    offered, as far as these are recorded.
    """
    plan = build_plan(config)
    traced, untraced = _split(paths, listener)
    yield from ((run, frozenset()) for run in untraced)
    for trace in read_whole_traces(traced, build_limits(config), listener):
        offered = dict(attempt(trace, lambda it: offered_names(it, plan).items(), listener))
        for run in attempt(trace, partial(build, plan=plan), listener):
            names = (offered[span_id] for span_id in run.members if span_id in offered)
            yield run.trajectory, frozenset[str]().union(*names)


@record
class EvaluationOfRun:
    """One evaluation of one run.

    Attributes:
        evaluation: the evaluation; its asynchronous scorers, such as judges, are not called for an
            explanation.
        failed: the conditions that the run does not meet; none if the evaluation matches.
        results: the results of the other scorers.
    """

    evaluation: ScorerSet
    failed: tuple[FailedCondition, ...]
    results: tuple[Result, ...] = ()


@record
class ExplainedRun:
    """A run, and the outcome of every evaluation for it."""

    trajectory: Trajectory
    evaluations: tuple[EvaluationOfRun, ...]


@record
class ExplainedTrace:
    """The explanation of a trace, with its runs in order of time."""

    trace: TraceExplanation
    completeness: Completeness
    runs: tuple[ExplainedRun, ...]


def explain(
    paths: Paths,
    config: EvalConfig,
    listener: ReadingListener = _LOGGED,
) -> Iterator[ExplainedTrace]:
    """Explain every trace of the files. Scorers are called as in `replay`, except asynchronous
    ones.

    Args:
        paths: files of traces; "-" is stdin.
        config: its evaluations, conventions and limits.
        listener: told of problems, notices and progress; without one, problems are logged.
    """
    engine = build_engine(config)
    for trace in read_whole_traces(paths, build_limits(config), listener):
        yield from attempt(trace, partial(_explained, engine), listener)


def _explained(engine: Engine, trace: ClosedTrace) -> list[ExplainedTrace]:
    results = {
        (report.trajectory.span_id, report.evaluation): report.results
        for report in engine.evaluate(trace)
    }
    runs = []
    lone_calls = any(evaluation.match.runs == "tools" for evaluation in engine.evaluations)
    built = build(trace, engine.plan, lone_calls=lone_calls)
    for run in (built_run.trajectory for built_run in built):
        conditions = engine.failed_conditions(run)
        evaluations = [
            EvaluationOfRun(evaluation, failed, results.get((run.span_id, evaluation.name), ()))
            for evaluation, failed in conditions
        ]
        runs.append(ExplainedRun(run, tuple(evaluations)))
    understood = explain_trace(trace, engine.plan, lone_calls=lone_calls)
    return [ExplainedTrace(understood, trace.reason, tuple(runs))]


def trajectories(
    spans: Iterable[ReadableSpan],
    config: EvalConfig | Mapping[str, Any] | None = None,
    *,
    one_run: bool = False,
) -> list[Trajectory]:
    """Return every agent run in finished spans, including runs within runs, in the order of the
    first spans of their traces.

    Args:
        spans: spans of the SDK, of any number of traces; the order of the list counts where ids are
            missing.
        config: its `conventions` and limits are used.
        one_run: whether all spans are of one run, whatever ids they have: a plain list of spans
            without ids or parents is one run then.
    """
    from otel_eval.sources.inprocess.sdk_spans import frames_of, frames_of_one_run

    settings = load(config)
    frames = (
        frames_of_one_run(spans, Engine((), convention_tables(settings)).describes_agent)
        if one_run
        else frames_of(spans)
    )
    plan = build_plan(settings)
    return [run.trajectory for trace in traces_of(frames, settings) for run in build(trace, plan)]


def traces_of(
    frames: Iterable[SpanFrame], config: EvalConfig, logs: Iterable[JoinedLog] = ()
) -> list[ClosedTrace]:
    """The traces of finished spans, whatever their age and number: the limits of one trace apply,
    not those of all, because the caller has them in memory already.
    """
    limits = replace(
        build_limits(config),
        max_traces=maxsize,
        max_bytes=maxsize,
        decision_wait_s=inf,
        decision_wait_partial_s=inf,
        idle_s=inf,
        max_age_s=inf,
    )
    buffer = TraceBuffer(limits)
    buffer.push_many(frames, 0.0)
    buffer.push_logs(logs, 0.0)
    return list(buffer.drain(0.0))


def score_spans(
    spans: Iterable[ReadableSpan], config: EvalConfig | Mapping[str, Any] | None = None
) -> list[Report]:
    """Score every run in finished spans, as `replay` scores those of stored traces.

    Args:
        spans: spans of the SDK, of any number of traces.
        config: its evaluations, conventions, limits and judges are used.
    """
    from otel_eval.sources.inprocess.sdk_spans import frames_of

    settings = load(config)
    engine = build_engine(settings, lines=True)
    traces = traces_of(frames_of(spans), settings)
    reports = complete_reports(traces, settings, engine, partial(evaluate_now, engine))
    return [report for report in reports if report.no_run is None]


def evaluate_now(engine: Engine, trace: ClosedTrace) -> list[Report]:
    """Evaluate a trace at the time of the call. The reports name no evaluator: stored traces give
    the same results anywhere.
    """
    return engine.evaluate(trace, Stamp(at_ns=time.time_ns()))


def complete_reports(
    traces: Iterable[ClosedTrace],
    config: EvalConfig,
    engine: Engine,
    evaluate: Callable[[ClosedTrace], Iterable[Report]],
) -> list[Report]:
    """The reports on traces, with the results of judges."""
    evaluated = (report for trace in traces for report in evaluate(trace))
    late = LateResults()
    evaluator = build_async_evaluator(config, engine, late, unbounded=True)
    with closing(with_late_results(evaluated, late, evaluator, _LOGGED)) as completed:
        return list(completed)


def explain_spans(
    spans: Iterable[ReadableSpan], config: EvalConfig | Mapping[str, Any] | None = None
) -> list[ExplainedTrace]:
    """Explain every trace in finished spans, as `explain` does those of stored traces."""
    from otel_eval.sources.inprocess.sdk_spans import frames_of

    settings = load(config)
    engine = build_engine(settings)
    return [
        explained
        for trace in traces_of(frames_of(spans), settings)
        for explained in _explained(engine, trace)
    ]
