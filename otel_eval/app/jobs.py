"""Evaluates stored traces in several processes, with the same reports in the same order as in one.

This process reads the inputs and closes the traces; each is evaluated as a whole by another
process. So inputs, limits and messages are those of one process, and only few traces are on their
way at any time.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections import deque
from collections.abc import Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from multiprocessing import get_context, parent_process
from multiprocessing.connection import wait
from typing import Final, NamedTuple

from otel_eval.app.build import READ_BY_REPLAY, build_engine, require_picklable
from otel_eval.app.replay_coverage import ReplayCoverage, attempt
from otel_eval.config import EvalConfig
from otel_eval.engine import Engine
from otel_eval.errors import OtelEvalError
from otel_eval.evaluations import RunMatch
from otel_eval.interfaces import ClosedTrace
from otel_eval.model import Completeness, Report, Stamp, Trajectory
from otel_eval.sources.files import CollectedMessages, ReadingListener

_MOST_TRACES: Final = 64  # of one message to a process
_MOST_BYTES: Final = 1024 * 1024
_WAITING: Final = 2  # messages for each process


class _Evaluated(NamedTuple):
    """What a process returns for a trace.

    Attributes:
        reports: the reports on its runs.
        runs: its runs, each with the names of the evaluations that match it.
        problem: why it could not be evaluated, or "".
    """

    reports: Sequence[Report]
    runs: Sequence[tuple[Trajectory, Sequence[str]]]
    problem: str


_engines: Final[list[Engine]] = []  # in a process that evaluates: its own


def _start(config: EvalConfig) -> None:
    """Prepare a process: Ctrl-C is for its parent, and it ends with its parent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_exit_after_parent, daemon=True).start()
    _engines.append(build_engine(config, lines=True, reads=READ_BY_REPLAY))


def _exit_after_parent() -> None:
    """Wait until the parent process has ended, then end this one; runs on a thread of its own."""
    if (parent := parent_process()) is not None:
        wait([parent.sentinel])
        os._exit(1)


def _evaluate_all(traces: Sequence[ClosedTrace]) -> list[_Evaluated]:
    """Evaluate the traces of one message, within another process; one result for each, in order."""
    evaluated = []
    for trace in traces:
        messages = CollectedMessages()
        of_trace = [*attempt(trace, _evaluate, messages)]
        evaluated += of_trace or [_Evaluated([], [], "".join(messages.problems))]
    return evaluated


def _evaluate(trace: ClosedTrace) -> list[_Evaluated]:
    (engine,) = _engines
    built = engine.build(trace, Stamp(at_ns=time.time_ns()))
    runs = [(run, [evaluation.name for evaluation in matching]) for run, matching in built.matches]
    return [_Evaluated(engine.score(built).reports, runs, "")]


def evaluate_in_processes(
    traces: Iterable[ClosedTrace],
    config: EvalConfig,
    jobs: int,
    engine: Engine,
    coverage: ReplayCoverage,
    listener: ReadingListener,
) -> Generator[Report, None, None]:
    """Evaluate traces in other processes, and yield the reports in the order of the traces.

    Args:
        traces: the traces.
        config: the configuration, from which each process builds an engine.
        jobs: the number of processes.
        engine: the engine of this process. It evaluates the traces that are closed in parts,
            because it has what is known of the parts before.
        coverage: counts the traces and their runs.
        listener: gets a message for each trace that cannot be evaluated, and that has no reports.

    Raises:
        ConfigError: the configuration cannot be passed to other processes.
        OtelEvalError: a process ended before its work was done.
    """
    require_picklable(config, "--jobs", jobs)

    evaluations = {evaluation.name: evaluation for evaluation in engine.evaluations}

    def counted(sent: Sequence[ClosedTrace], returned: Sequence[_Evaluated]) -> Iterable[Report]:
        for trace, evaluated in zip(sent, returned, strict=True):
            if evaluated.problem:
                listener.problem(evaluated.problem)
            else:
                runs = [
                    RunMatch(run, tuple([evaluations[name] for name in matching]))
                    for run, matching in evaluated.runs
                ]
                coverage.note(trace, runs)
            yield from evaluated.reports

    sent: deque[tuple[Sequence[ClosedTrace], Future[list[_Evaluated]]]] = deque()

    def finished(most_waiting: int) -> Iterator[Report]:
        while len(sent) > most_waiting:
            group, future = sent.popleft()
            yield from counted(group, future.result())

    # Threads and gRPC channels of a program that calls `replay` do not survive a fork.
    with ProcessPoolExecutor(jobs, get_context("spawn"), _start, (config,)) as pool:
        try:
            for group in _groups(traces):
                if isinstance(group, ClosedTrace):
                    yield from finished(0)
                    yield from attempt(group, partial(coverage.evaluate, engine), listener)
                else:
                    sent.append((group, pool.submit(_evaluate_all, group)))
                    yield from finished(_WAITING * jobs)
            yield from finished(0)
        except BrokenProcessPool:
            raise OtelEvalError(
                "--jobs: a process that evaluates was ended, perhaps for lack of memory; use fewer"
            ) from None
        finally:
            pool.shutdown(cancel_futures=True)


def _groups(traces: Iterable[ClosedTrace]) -> Iterator[list[ClosedTrace] | ClosedTrace]:
    """Yield traces in groups for one message; alone, and not in a list, a trace that is evaluated
    in parts: what is known of the first is in this process.
    """
    group, size = list[ClosedTrace](), 0
    for trace in traces:
        is_part = trace.reason is Completeness.OVERFLOW or bool(trace.history.evaluations)
        if not is_part:
            group.append(trace)
            size += sum(len(payload) for _, payload, _ in trace.frames.values())
        if group and (is_part or len(group) >= _MOST_TRACES or size >= _MOST_BYTES):
            yield group
            group, size = [], 0
        if is_part:
            yield trace
    if group:
        yield group
