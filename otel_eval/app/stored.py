"""Evaluate or show stored traces: files through the same core, without a clock.

Every trace is evaluated when the last of its spans was read, or earlier if it reaches a limit of size.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from os import PathLike
from typing import TypeVar

from otel_eval.app.compose import engine_of, later_of, limits_of, plan_of
from otel_eval.app.coverage import Coverage
from otel_eval.app.gathering import Gathering
from otel_eval.app.outlets import replay_fanout
from otel_eval.app.whole_traces import whole_traces
from otel_eval.config import EvalConfig
from otel_eval.errors import InputError
from otel_eval.interfaces import ClosedTrace
from otel_eval.model import Report, Trajectory
from otel_eval.sources.files import NO_SCOPES, lacks_scopes

__all__ = ["Paths", "Problem", "closed_traces", "guarded", "ignore", "replay", "understand"]

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
        on_problem: told in one line about each file or part of one that could not be used.
        on_notice: called with one line about each file whose format lacks something.
        on_progress: told how many bytes of input were read since it was last told.
        coverage: counts what was read and evaluated; complete once all reports were taken.
    """
    counted = coverage or Coverage()
    engine = engine_of(config, lines=True)
    outlet = replay_fanout(config) if export else None
    gathering = Gathering(lambda emit: later_of(config, engine, emit, unbounded=True))
    closed = closed_traces(paths, config, on_problem, on_progress, on_notice)
    judged = (report for trace in closed for report in guarded(trace, partial(counted.evaluate, engine), on_problem))
    try:
        for report in gathering.whole(judged):
            if outlet:
                outlet.emit(report)
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
    """Every run of stored traces as it was understood, runs within runs too (`outermost` tells)."""
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
    """A trace that cannot be read costs itself, not the others."""
    try:
        return judge(replace(trace, cut=trace.cut or NO_SCOPES) if lacks_scopes(trace) else trace)
    except (InputError, ValueError, TypeError, LookupError, ArithmeticError, RecursionError) as error:
        on_problem(f"trace {trace.trace_id.hex()}: cannot be judged: {type(error).__name__}")
        return ()
