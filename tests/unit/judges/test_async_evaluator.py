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
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from otel_eval import judges
from otel_eval.app import with_late_results
from otel_eval.judges import AsyncEvaluator
from otel_eval.model import Failed, Outcome, Pending, Report, Result, Scored, Skipped, Trajectory
from otel_eval.testing import call, trajectory

Evaluate = Callable[[Trajectory], Awaitable[Outcome]]


class Seen:
    """Collects emitted reports in order."""

    def __init__(self) -> None:
        self.reports: list[Report] = []

    def __call__(self, report: Report) -> None:
        self.reports.append(report)

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
        later.stop(5.0)


def after(seconds: float, value: float = 1.0) -> Evaluate:
    async def evaluate(trajectory: Trajectory) -> Outcome:
        await asyncio.sleep(seconds)
        return Scored(value, True)

    return evaluate


async def held_up(trajectory: Trajectory) -> Outcome:
    raise AssertionError("never asked") if trajectory.agent != "a" else OSError("secret")


def test_each_result_leaves_in_a_report_of_its_own_as_soon_as_it_is_there():
    """The faster result is emitted first; both have the announced run, revision and id."""
    with running() as (later, seen):
        later.put(report_of(after(0.2, 0.25), after(0.0, 0.75)))
        assert later.wait(5.0)
    assert [(r.late, r.revision, r.pending, r.trajectory.agent) for r in seen.reports] == [
        (True, 2, (), "a")
    ] * 2
    assert [(r.results[0].scorer, r.results[0].result_id[-1]) for r in seen.reports] == [
        ("s1", "1"),
        ("s0", "0"),
    ]
    assert [each.value for each in seen.outcomes()] == [0.75, 0.25]


def test_putting_does_not_wait():
    """Putting a hundred slow results takes less time than evaluating one."""
    with running(concurrency=100) as (later, seen):
        began = time.monotonic()
        later.put(report_of(*[after(0.3)] * 100))
        assert time.monotonic() - began < 0.2
        assert later.wait(5.0)
    assert len(seen.reports) == 100


def test_no_more_are_worked_on_at_once_than_may_be():
    """The limit holds for any number of results."""
    now: list[int] = [0]
    most: list[int] = [0]

    async def evaluate(trajectory: Trajectory) -> Outcome:
        now[0] += 1
        most[0] = max(most[0], now[0])
        await asyncio.sleep(0.01)
        now[0] -= 1
        return Scored(1.0, True)

    with running(concurrency=3) as (later, seen):
        for _ in range(4):
            later.put(report_of(*[evaluate] * 5))
        assert later.wait(5.0)
    assert (len(seen.reports), most[0]) == (20, 3)


def test_what_does_not_fit_into_the_queue_fails_at_once():
    """It is reported as failed, not dropped, and results that were pending before are still
    reported.
    """
    with running(max_queue=2) as (later, seen):
        later.put(report_of(*[after(0.2)] * 5))
        assert seen.outcomes() == [Failed("judge_queue_full")] * 3
        assert later.wait(5.0)
        assert later.counts() == {
            "late_results": 5,
            "late_timeouts": 0,
            "late_refused": 3,
            "late_lost": 0,
            "late_pending": 0,
        }
        later.put(report_of(after(0.0)))  # there is room again
        assert later.wait(5.0)
    assert [type(each) for each in seen.outcomes()] == [Failed] * 3 + [Scored] * 3


def test_a_queue_is_full_when_it_holds_too_much():
    """The limit is the size of all pending runs; an empty queue accepts a run of any size."""
    heavy = [
        replace(report_of(after(0.2), after(0.2)), trajectory=trajectory(output=["x" * 5_000] * 10))
        for _ in range(3)
    ]
    with running(max_bytes=60_000) as (later, seen):
        for report in heavy:
            later.put(report)
        assert seen.outcomes() == [Failed("judge_queue_full")] * 4
        assert later.wait(5.0)
        later.put(replace(heavy[0], trajectory=trajectory(call("a", result="x" * 100_000))))
        assert later.wait(5.0)
    assert [type(each) for each in seen.outcomes()] == [Failed] * 4 + [Scored] * 4


def test_one_that_takes_too_long_fails():
    """Other results are not delayed by it."""
    with running(timeout_s=0.1) as (later, seen):
        later.put(report_of(after(60.0), after(0.0)))
        assert later.wait(5.0)
    assert seen.outcomes() == [Scored(1.0, True), Failed("timeout")]


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
        (held_up, "OSError"),
        (no_outcome, "TypeError"),
        (own_timeout, "TimeoutError"),
        (exits, "SystemExit"),
        (cancels_itself, "CancelledError"),
        (runs_out, "OutOfTime"),
    ],
)
def test_one_that_breaks_fails_alone(evaluate: Evaluate, error_type: str):
    """Any exception or return value of a scorer affects its own result only."""
    with running() as (later, seen):
        later.put(report_of(evaluate, after(0.05)))
        assert later.wait(5.0)
    failed, scored = seen.outcomes()
    assert (failed.error_type, scored) == (error_type, Scored(1.0, True))


def test_the_end_waits_and_then_gives_up():
    """Results that end in time are reported, the others are failed, and later ones are refused."""
    seen = Seen()
    later = AsyncEvaluator(seen, concurrency=2)
    later.put(report_of(after(0.05), after(60.0), after(60.0)))
    began = time.monotonic()
    assert not later.stop(0.3)
    assert time.monotonic() - began < 2.0
    later.put(report_of(after(0.0)))
    assert seen.outcomes() == [Scored(1.0, True), *[Failed("timeout")] * 3]


class Blocking:
    """Blocks the shared thread until it is released."""

    def __init__(self) -> None:
        self.freed = threading.Event()

    async def __call__(self, trajectory: Trajectory) -> Outcome:
        self.freed.wait(10.0)
        return Scored(1.0, True)

    def free(self) -> None:
        self.freed.set()
        for thread in threading.enumerate():
            if thread.name == "otel-eval-later":
                thread.join(5.0)


def test_one_that_blocks_the_thread_cannot_hold_up_the_end(caplog: pytest.LogCaptureFixture):
    """`wait` and `stop` keep their time limits; unfinished results are failed once."""
    blocking, seen = Blocking(), Seen()
    later = AsyncEvaluator(seen)
    began = time.monotonic()
    later.put(report_of(blocking, after(0.0)))
    assert not later.wait(0.1)
    assert not later.stop(0.1)
    assert time.monotonic() - began < 3.5
    blocking.free()
    assert seen.outcomes() == [Failed("timeout")] * 2
    assert later.counts()["late_lost"] == 2
    assert "2 results were given up" in caplog.text


def test_one_that_blocks_the_thread_is_left_behind(monkeypatch: pytest.MonkeyPatch):
    """Results that are put after the time limit run on another thread; the number of threads is
    limited.
    """
    monkeypatch.setattr(judges, "_TICK_S", 0.05)
    blocking, before = Blocking(), threading.active_count()
    with running(timeout_s=0.1, max_queue=2) as (later, seen):
        for _ in range(5):
            later.put(report_of(blocking, after(0.0)))
            time.sleep(0.3)
        assert threading.active_count() - before <= 4
        assert later.counts()["late_lost"] == 6
        blocking.freed.set()
        assert later.wait(5.0)
    blocking.free()
    assert [each for each in seen.outcomes() if isinstance(each, Failed)][:6] == [
        Failed("timeout")
    ] * 6
    assert len(seen.reports) == 10


def test_waiting_is_for_what_was_put_before():
    """`wait` does not wait for a result that was put after its call."""
    with running(concurrency=2) as (later, _):
        later.put(report_of(after(0.3)))
        waiting: list[bool] = []
        thread = threading.Thread(target=lambda: waiting.append(later.wait(5.0)))
        thread.start()
        time.sleep(0.05)
        later.put(report_of(after(60.0)))
        thread.join(5.0)
        assert waiting == [True]
        later.stop(0.0)


def test_what_happens_meanwhile_is_in_no_trace_of_the_program():
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
        assert later.wait(5.0)
    assert seen.outcomes() == [Scored(1.0, True)]
    assert [span.name for span in memory.get_finished_spans()] == ["agent"]


def test_reports_made_whole_keep_their_order_and_ask_ahead():
    """Twenty runs with slow judges take no longer than a few of them."""
    reports = [report_of(after(0.2 if i % 2 else 0.1, i / 20), run=i) for i in range(20)]
    began = time.monotonic()
    whole = list(with_late_results(reports, lambda emit: AsyncEvaluator(emit, concurrency=20)))
    assert time.monotonic() - began < 1.5
    assert [[result.outcome.value for result in report.results] for report in whole] == [
        [i / 20] for i in range(20)
    ]
    assert all(not report.pending for report in whole)


def test_reports_are_as_they_were_where_nothing_comes_later():
    """Without pending results there is no thread and no wait."""
    reports = [report_of()]
    assert list(with_late_results(reports, lambda emit: None)) == reports


def test_concurrent_stops_close_the_loop_once():
    """A drain and the request to stop it both end the evaluator; neither call raises."""
    for _ in range(8):
        seen = Seen()
        evaluator = AsyncEvaluator(seen)
        evaluator.put(report_of(after(600.0)))
        with ThreadPoolExecutor(8) as pool:
            stops = [pool.submit(evaluator.stop, 600.0) for _ in range(7)]
            stops.append(pool.submit(evaluator.stop, 0.0))
        for stop in stops:
            stop.result()
        assert seen.outcomes() == [Failed("timeout")]
