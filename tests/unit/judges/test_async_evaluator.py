"""Asynchronous results: concurrency, limits of queue and time, and a report for every result."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from otel_eval import judges
from otel_eval.app.stored_traces import LateResults, with_late_results
from otel_eval.judges import AsyncEvaluator
from otel_eval.model import Failed, Outcome, Pending, Report, Result, Scored, Skipped, Trajectory
from otel_eval.testing import call, trajectory
from tests.support.listeners import NO_PROBLEMS
from tests.support.listening import LateReports
from tests.support.waiting import LIMIT_S, ShiftedClock, wait_until

Evaluate = Callable[[Trajectory], Awaitable[Outcome]]


class Seen(LateReports):
    """Collects reports in order."""

    def __init__(self) -> None:
        super().__init__([])

    def outcomes(self) -> list[Any]:
        return [result.outcome for report in self.reports for result in report.results]


def report_of(*evaluates: Evaluate, run: int = 0) -> Report:
    """Return a report with a pending result for each of the functions."""
    pending = tuple(
        Pending(
            Result(
                evaluation="e",
                scorer=f"s{i}",
                type="t",
                version="1",
                outcome=Skipped("pending"),
                revision=2,
                result_id=f"{run:016x}{i:016x}",
            ),
            each,
        )
        for i, each in enumerate(evaluates)
    )
    return Report(Trajectory(agent="a"), "e", 2, (), pending)


@contextmanager
def running(**bounds: Any) -> Iterator[tuple[AsyncEvaluator, Seen]]:
    seen = Seen()
    later = AsyncEvaluator(seen, **bounds)
    try:
        yield later, seen
    finally:
        later.stop(0.0)


class Gated:
    """Scores a run as soon as its gate is opened; `begun` is set when it was asked."""

    def __init__(self, value: float = 1.0, *, is_open: bool = False) -> None:
        self._value, self.begun, self.gate = value, threading.Event(), threading.Event()
        if is_open:
            self.gate.set()

    async def __call__(self, trajectory: Trajectory) -> Outcome:
        self.begun.set()
        while not self.gate.is_set():
            await asyncio.sleep(0.005)
        return Scored(self._value, True)


def at_once(value: float = 1.0) -> Gated:
    return Gated(value, is_open=True)


async def never(trajectory: Trajectory) -> Outcome:
    await asyncio.get_running_loop().create_future()
    raise AssertionError("unreachable")


async def raises(trajectory: Trajectory) -> Outcome:
    raise OSError("secret")


def test_each_result_leaves_in_a_report_of_its_own_as_soon_as_it_is_there():
    """The faster result is emitted first; both have the announced run, revision and id."""
    slow = Gated(0.25)
    with running() as (later, seen):
        later.put(report_of(slow, at_once(0.75)))
        wait_until(lambda: seen.reports)
        slow.gate.set()
        assert later.wait(LIMIT_S)
    assert [(r.late, r.revision, r.pending, r.trajectory.agent) for r in seen.reports] == [
        (True, 2, (), "a")
    ] * 2
    assert [(r.results[0].scorer, r.results[0].result_id[-1]) for r in seen.reports] == [
        ("s1", "1"),
        ("s0", "0"),
    ]
    assert [outcome.value for outcome in seen.outcomes()] == [0.75, 0.25]


def test_put_returns_before_any_result_is_there():
    """However many results are slow."""
    slow = Gated()
    with running(concurrency=100) as (later, seen):
        later.put(report_of(*[slow] * 100))
        assert seen.reports == []
        slow.gate.set()
        assert later.wait(LIMIT_S)
    assert len(seen.reports) == 100


def test_no_more_results_are_evaluated_at_once_than_the_limit():
    """The limit holds for any number of results, and is used."""
    running_now, counts = [0], list[int]()

    async def evaluate(trajectory: Trajectory) -> Outcome:
        running_now[0] += 1
        counts.append(running_now[0])
        for _ in range(5):
            await asyncio.sleep(0)
        running_now[0] -= 1
        return Scored(1.0, True)

    with running(concurrency=3) as (later, seen):
        for _ in range(4):
            later.put(report_of(*[evaluate] * 5))
        assert later.wait(LIMIT_S)
    assert (len(seen.reports), max(counts)) == (20, 3)


def test_results_that_do_not_fit_into_the_queue_fail_at_once():
    """They are reported as failed, not dropped, and results that were pending before are still
    reported.
    """
    slow = Gated()
    with running(max_queue=2) as (later, seen):
        later.put(report_of(*[slow] * 5))
        assert seen.outcomes() == [Failed("judge_queue_full")] * 3
        slow.gate.set()
        assert later.wait(LIMIT_S)
        assert later.counts() == {
            "late_results": 5,
            "late_timeouts": 0,
            "late_refused": 3,
            "late_lost": 0,
            "late_pending": 0,
        }
        later.put(report_of(at_once()))  # there is room again
        assert later.wait(LIMIT_S)
    assert [type(outcome) for outcome in seen.outcomes()] == [Failed] * 3 + [Scored] * 3


def test_a_queue_is_full_when_its_runs_are_too_large():
    """The limit is the size of all pending runs; an empty queue accepts a run of any size."""
    slow = Gated()
    heavy = [
        replace(report_of(slow, slow), trajectory=trajectory(output=["x" * 5_000] * 10))
        for _ in range(3)
    ]
    with running(max_bytes=60_000) as (later, seen):
        for report in heavy:
            later.put(report)
        assert seen.outcomes() == [Failed("judge_queue_full")] * 4
        slow.gate.set()
        assert later.wait(LIMIT_S)
        later.put(replace(heavy[0], trajectory=trajectory(call("a", result="x" * 100_000))))
        assert later.wait(LIMIT_S)
    assert [type(outcome) for outcome in seen.outcomes()] == [Failed] * 4 + [Scored] * 4


def test_a_result_that_takes_too_long_fails():
    """Other results are not delayed by it."""
    with running(timeout_s=0.1) as (later, seen):
        later.put(report_of(never))
        assert later.wait(LIMIT_S)
    with running() as (later, scored):
        later.put(report_of(never, at_once()))
        wait_until(lambda: scored.reports)
    assert seen.outcomes() == [Failed("timeout")]
    assert scored.outcomes()[0] == Scored(1.0, True)


async def no_outcome(trajectory: Trajectory) -> Any:
    return 1


async def own_timeout(trajectory: Trajectory) -> Outcome:
    raise TimeoutError("of its own")


async def exits(trajectory: Trajectory) -> Outcome:
    sys.exit("enough")


class OutOfTime(BaseException):
    """A timeout that is not an `Exception`, as in some libraries."""


async def runs_out(trajectory: Trajectory) -> Outcome:
    raise OutOfTime


async def cancels_itself(trajectory: Trajectory) -> Outcome:
    raise asyncio.CancelledError


@pytest.mark.parametrize(
    ("evaluate", "error_type"),
    [
        (raises, "OSError"),
        (no_outcome, "TypeError"),
        (own_timeout, "TimeoutError"),
        (exits, "SystemExit"),
        (cancels_itself, "CancelledError"),
        (runs_out, "OutOfTime"),
    ],
)
def test_a_scorer_that_breaks_fails_alone(evaluate: Evaluate, error_type: str):
    """Any exception or return value of a scorer affects its own result only."""
    other = Gated()
    with running() as (later, seen):
        later.put(report_of(evaluate, other))
        wait_until(lambda: seen.reports)
        other.gate.set()
        assert later.wait(LIMIT_S)
    failed, scored = seen.outcomes()
    assert (failed.error_type, scored) == (error_type, Scored(1.0, True))


def test_stop_waits_for_results_and_then_fails_them():
    """Results that end in time are reported, the others are failed, and later ones are refused."""
    seen = Seen()
    later = AsyncEvaluator(seen, concurrency=2)
    later.put(report_of(at_once(), never, never))
    wait_until(lambda: seen.reports)
    assert not later.stop(0.3)
    later.put(report_of(at_once()))
    assert seen.outcomes() == [Scored(1.0, True), *[Failed("timeout")] * 3]


class Blocking:
    """Blocks the shared thread until it is released."""

    def __init__(self) -> None:
        self.begun, self.released = threading.Event(), threading.Event()

    async def __call__(self, trajectory: Trajectory) -> Outcome:
        self.begun.set()
        assert self.released.wait(LIMIT_S)
        return Scored(1.0, True)

    def release(self) -> None:
        self.released.set()
        for thread in threading.enumerate():
            if thread.name == "otel-eval-later":
                thread.join(LIMIT_S)


def test_a_scorer_that_blocks_the_thread_cannot_delay_the_end(caplog: pytest.LogCaptureFixture):
    """`wait` and `stop` return while it blocks; unfinished results are failed once."""
    blocking, seen = Blocking(), Seen()
    later = AsyncEvaluator(seen)
    later.put(report_of(blocking, at_once()))
    assert blocking.begun.wait(LIMIT_S)
    assert not later.wait(0.1)
    assert not later.stop(0.1)
    blocking.release()
    assert seen.outcomes() == [Failed("timeout")] * 2
    assert later.counts()["late_lost"] == 2
    assert "2 results were given up" in caplog.text


def test_a_scorer_that_blocks_the_thread_is_left_behind(monkeypatch: pytest.MonkeyPatch):
    """Results that are put after the time limit run on another thread; the number of threads is
    limited.
    """
    clock = ShiftedClock()
    monkeypatch.setattr(judges, "time", SimpleNamespace(monotonic=clock, time_ns=time.time_ns))
    blocked = list[Blocking]()
    with running(timeout_s=LIMIT_S, max_queue=2) as (later, seen):
        for _ in range(3):
            blocked.append(Blocking())
            later.put(report_of(blocked[-1], at_once()))
            assert blocked[-1].begun.wait(LIMIT_S)
            clock.advance(2 * LIMIT_S)
        blocked.append(Blocking())
        later.put(report_of(blocked[-1], at_once()))
        assert blocked[-1].begun.wait(LIMIT_S)
        clock.advance(2 * LIMIT_S)
        assert later.counts()["late_lost"] == 6
        later.put(report_of(at_once()))  # a fifth thread is not begun: the queue is full
        assert seen.outcomes() == [Failed("timeout")] * 6 + [Failed("judge_queue_full")]
        for blocking in blocked:
            blocking.released.set()
        assert later.wait(LIMIT_S)
    assert seen.outcomes()[7:] == [Scored(1.0, True)] * 2
    for blocking in blocked:
        blocking.release()


def test_waiting_is_for_results_that_were_put_before():
    """`wait` does not wait for a result that was put after its call."""
    first = Gated()
    with running(concurrency=2) as (later, _), ThreadPoolExecutor(1) as pool:
        later.put(report_of(first))
        waiting = pool.submit(later.wait, LIMIT_S)
        wait_until(lambda: later._changed._waiters)  # type: ignore[attr-defined]
        later.put(report_of(never))
        first.gate.set()
        assert waiting.result() is True


def test_spans_of_judges_are_in_no_trace_of_the_program():
    """A span that a judge creates is not recorded, and the caller's trace is not continued."""
    memory = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(memory))
    tracer = provider.get_tracer("program")

    async def traced(trajectory: Trajectory) -> Outcome:
        with tracer.start_as_current_span("chat judge"):
            return Scored(1.0, True)

    with running() as (later, seen), tracer.start_as_current_span("agent"):
        later.put(report_of(traced))
        assert later.wait(LIMIT_S)
    assert seen.outcomes() == [Scored(1.0, True)]
    assert [span.name for span in memory.get_finished_spans()] == ["agent"]


def test_reports_with_late_results_keep_their_order_and_ask_ahead():
    """The judges of all twenty runs are asked before the first of them answers."""
    evaluates = [Gated(i / 20) for i in range(20)]
    reports = [report_of(evaluate, run=i) for i, evaluate in enumerate(evaluates)]
    late = LateResults()
    evaluator = AsyncEvaluator(late, concurrency=20)
    with ThreadPoolExecutor(1) as pool:
        whole = pool.submit(lambda: list(with_late_results(reports, late, evaluator, NO_PROBLEMS)))
        for evaluate in evaluates:
            assert evaluate.begun.wait(LIMIT_S)
        for evaluate in reversed(evaluates):
            evaluate.gate.set()
    assert [[result.outcome.value for result in report.results] for report in whole.result()] == [
        [i / 20] for i in range(20)
    ]
    assert all(not report.pending for report in whole.result())


def test_reports_without_pending_results_are_passed_on():
    """Without pending results there is no thread and no wait."""
    reports = [report_of()]
    assert list(with_late_results(reports, LateResults(), None, NO_PROBLEMS)) == reports


def test_concurrent_stops_close_the_loop_once():
    """A drain and the request to stop it both end the evaluator; neither call raises."""
    for _ in range(8):
        seen = Seen()
        evaluator = AsyncEvaluator(seen)
        evaluator.put(report_of(never))
        with ThreadPoolExecutor(8) as pool:
            stops = [pool.submit(evaluator.stop, 600.0) for _ in range(7)]
            stops.append(pool.submit(evaluator.stop, 0.0))
        for stop in stops:
            stop.result()
        assert seen.outcomes() == [Failed("timeout")]
