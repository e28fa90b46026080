"""Run asynchronous scorers on an event loop in a thread of its own.

The queue, the concurrency and the time for each result are limited. Each result is emitted in a
separate report as soon as it is complete; a result that exceeds a limit is emitted as failed, so
that no result is missing.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
import time
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import Future
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol

from otel_eval.model import (
    Failed,
    Outcome,
    Pending,
    Report,
    Trajectory,
    Verdict,
    verdict_of,
)
from otel_eval.retry import suppress_tracing
from otel_eval.scorers.outcomes import checked_outcome, failed_from

_LAST_S: Final = 0.5  # for cancelled tasks to end when the loop is closed
_TICK_S: Final = 1.0


class _ResolvingLoop(asyncio.SelectorEventLoop):
    """Resolves host names even during interpreter shutdown, when the thread pool accepts no
    work.
    """

    async def getaddrinfo(self, *args: Any, **options: Any) -> Any:
        try:
            return await super().getaddrinfo(*args, **options)
        except RuntimeError:
            return socket.getaddrinfo(*args, **options)


class LoopThread:
    """An event loop in a daemon thread, or without one if the interpreter is shutting down.

    Attributes:
        slots: a semaphore with which coroutines on the loop limit their concurrency.
    """

    def __init__(self, name: str, slots: int) -> None:
        self._loop: Final = _ResolvingLoop()
        self.slots: Final = asyncio.Semaphore(slots)
        self._begun: Final[set[Future[None]]] = set()  # the futures of running coroutines
        self._alive_at = time.monotonic()
        self._thread: threading.Thread | None = threading.Thread(
            target=self._run, name=name, daemon=True
        )
        try:
            self._thread.start()
        except RuntimeError:  # the interpreter is shutting down
            self._thread = None

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.call_soon(self._tick)
        self._loop.run_forever()
        self._shut_down()

    def _tick(self) -> None:
        self._alive_at = time.monotonic()
        self._loop.call_later(_TICK_S, self._tick)

    def _shut_down(self) -> None:
        """Cancel the remaining tasks, wait for them, and close the loop."""
        for task in asyncio.all_tasks(self._loop):
            task.cancel()
        self._loop.run_until_complete(_poll(lambda: len(asyncio.all_tasks()) <= 1, _LAST_S))
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.close()

    @property
    def has_thread(self) -> bool:
        """Whether the loop has a thread; without one it runs only during `run`."""
        return self._thread is not None

    def is_blocked(self, for_s: float) -> bool:
        """Whether a coroutine has blocked the loop for more than `for_s` seconds."""
        return self._thread is not None and time.monotonic() - self._alive_at > for_s + _TICK_S

    def begin(self, coroutine: Coroutine[Any, Any, None]) -> None:
        """Schedule a coroutine on the loop. May be called from any thread; never blocks."""
        future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        self._begun.add(future)
        future.add_done_callback(self._begun.discard)

    def cancel(self) -> None:
        """Cancel every coroutine that is running."""
        for future in [*self._begun]:
            future.cancel()

    def run(self, until: Callable[[], bool], timeout_s: float) -> None:
        """Run the loop in the calling thread until `until` returns true, for at most `timeout_s`
        seconds.
        """
        self._loop.run_until_complete(_poll(until, timeout_s))

    def close(self, timeout_s: float) -> None:
        """Stop the loop and wait up to `timeout_s` seconds; a loop that a coroutine blocks ends
        when it is no longer blocked.
        """
        if self._thread is None:
            return self._shut_down()
        self._loop.call_soon_threadsafe(self._loop.stop)
        return self._thread.join(timeout_s)


async def _poll(until: Callable[[], bool], timeout_s: float) -> None:
    deadline = asyncio.get_running_loop().time() + timeout_s
    while not until() and asyncio.get_running_loop().time() < deadline:
        await asyncio.sleep(0.01)


_log = logging.getLogger("otel_eval")

_GIVEN_UP_S: Final = 1.0  # for results of cancelled tasks, and for the thread to end
_MOST_ABANDONED: Final = 3  # blocked threads that may be abandoned


# Monotonic counters of results. Refused: the queue was full, or the evaluator was stopped. Lost:
# abandoned, because a coroutine blocked the thread.
_COUNTS: Final = ("late_results", "late_timeouts", "late_refused", "late_lost")


@dataclass(slots=True, eq=False)
class _Progress:
    """What is known of a run under an evaluation while its results arrive: the verdict so far, and
    the number of missing results.
    """

    standing: Verdict
    awaited: int


@dataclass(slots=True, eq=False)
class _Job:
    """A pending result: its report, its share of the run's size in bytes, and whether its result
    was reported.
    """

    report: Report
    pending: Pending
    progress: _Progress
    size: int
    reported: bool = False


class LateResultListener(Protocol):
    """What an `AsyncEvaluator` tells of the results that it computes."""

    def on_late_report(self, report: Report) -> None:
        """Take a report with one more result. Called on the loop's thread, or on that of a caller
        that fails a result.
        """

    def computing(self, trace_id: str) -> AbstractContextManager[None]:
        """Return a context that is open while a result of the trace with this hexadecimal id is
        computed.
        """


class AsyncEvaluator:
    """Evaluates the pending results of reports on an event loop.

    Args:
        listener: gets the report of each result.
        max_queue: results that may be pending at one time; further ones are failed with
            `judge_queue_full`.
        concurrency: results that are evaluated at one time.
        timeout_s: seconds that one evaluation may take; then its result is failed with `timeout`.
        max_bytes: approximate size that the runs of all pending results may have; beyond it, too,
            the queue is full.
    """

    def __init__(
        self,
        listener: LateResultListener,
        *,
        max_queue: int = 1000,
        concurrency: int = 8,
        timeout_s: float = 300.0,
        max_bytes: int = 256 * 2**20,
    ) -> None:
        self._listener: Final = listener
        self._max, self._max_bytes = max_queue, max_bytes
        self._timeout_s, self._concurrency = timeout_s, concurrency
        self._changed: Final = threading.Condition()  # guards the attributes below
        self._open: Final[dict[int, _Job]] = {}  # by number, oldest first
        self._last = self._abandoned = 0
        self._counts: Final = dict.fromkeys(_COUNTS, 0)
        self._thread: LoopThread | None = None
        self._stopped = False

    def put(self, report: Report) -> None:
        """Schedule the pending results of a report, or fail them if the queue is full. Never
        blocks.
        """
        if not report.pending:
            return
        self._abandon_blocked()
        size = trajectory_size(report.trajectory) // len(report.pending)
        progress = _Progress(report.standing or Verdict.PASS, len(report.pending))
        with self._changed:
            capacity = self._capacity(size * len(report.pending))
            for pending in report.pending[:capacity]:
                self._schedule(_Job(report, pending, progress, size))
            refused = report.pending[capacity:]
            self._counts["late_refused"] += len(refused)
        for pending in refused:
            outcome = Failed("timeout" if self._stopped else "judge_queue_full")
            self._emit_result(report, pending, progress, outcome)

    def _capacity(self, size: int) -> int:
        """Return how many results of a run of this size in bytes fit into the queue. An empty queue
        accepts a run of any size.
        """
        total = size + sum(job.size for job in self._open.values())
        if self._stopped or (self._open and total > self._max_bytes):
            return 0
        return max(0, self._max - len(self._open))

    def _schedule(self, job: _Job) -> None:
        self._last += 1
        self._open[self._last] = job
        if self._thread is None:
            self._thread = LoopThread("otel-eval-later", self._concurrency)
        self._thread.begin(self._finish(self._thread, self._last, job))

    # ------------------------------------------------------------- on the loop

    async def _finish(self, thread: LoopThread, number: int, job: _Job) -> None:
        try:
            with suppress_tracing():
                outcome = await self._outcome(thread, job)
        except asyncio.CancelledError as error:
            outcome = self._timed_out() if self._stopped else Failed(type(error).__name__)
        self._report(number, job, outcome)

    async def _outcome(self, thread: LoopThread, job: _Job) -> Outcome:
        async with thread.slots:
            try:
                async with asyncio.timeout(self._timeout_s) as limit:
                    with self._listener.computing(job.report.trajectory.trace_id):
                        return checked_outcome(await job.pending.evaluate(job.report.trajectory))
            except (asyncio.CancelledError, GeneratorExit):  # cancelled, or discarded with the loop
                raise
            except BaseException as error:  # noqa: BLE001
                # scorers may raise anything; some timeouts are no `Exception`
                return self._timed_out() if limit.expired() else failed_from(error)

    def _timed_out(self) -> Failed:
        self._counts["late_timeouts"] += 1
        return Failed("timeout")

    def _report(self, number: int, job: _Job, outcome: Outcome) -> bool:
        """Report the result, unless one was reported already."""
        with self._changed:
            if job.reported:
                return False
            job.reported = True
        self._emit_result(job.report, job.pending, job.progress, outcome)
        with self._changed:
            self._open.pop(number, None)
            self._changed.notify_all()
        return True

    def _emit_result(
        self, report: Report, pending: Pending, progress: _Progress, outcome: Outcome
    ) -> None:
        self._counts["late_results"] += 1
        results = (pending.result(outcome),)
        with self._changed:
            progress.awaited -= 1
            progress.standing = verdict_of(results, progress.standing)
            standing, awaited = progress.standing, progress.awaited
        try:
            self._listener.on_late_report(
                replace(
                    report,
                    results=results,
                    pending=(),
                    late=True,
                    stamp=replace(report.stamp, at_ns=time.time_ns()),
                    standing=standing,
                    awaited=awaited,
                )
            )
        except Exception as error:  # noqa: BLE001
            # a report that cannot be exported must not end the loop
            _log.warning("an asynchronous result could not be exported: %s", type(error).__name__)

    # --------------------------------------------------------------------- end

    def wait(self, timeout_s: float) -> bool:
        """Wait up to `timeout_s` seconds for all results that were put before; return whether all
        are complete.
        """
        self._abandon_blocked()
        return self._wait(self._thread, timeout_s)

    def _wait(self, thread: LoopThread | None, timeout_s: float) -> bool:
        last = self._last
        if thread is not None and not thread.has_thread:
            thread.run(lambda: self._is_over(last), timeout_s)
            return self._is_over(last)
        with self._changed:
            return self._changed.wait_for(lambda: self._is_over(last), timeout_s)

    def _is_over(self, last: int) -> bool:
        return next(iter(self._open), last + 1) > last

    def stop(self, timeout_s: float) -> bool:
        """Refuse further results, wait for pending ones, and fail those that exceed `timeout_s`.
        True if none did.
        """
        with self._changed:
            self._stopped = True
        done = self.wait(timeout_s)
        with self._changed:  # of concurrent calls only one closes the loop
            thread, self._thread = self._thread, None
        if thread is not None:
            if not done:
                thread.cancel()
                self._wait(thread, _GIVEN_UP_S)
            thread.close(_GIVEN_UP_S)
            self._fail_pending()
        return done

    def _abandon_blocked(self) -> None:
        """Abandon the thread if its loop is blocked, and fail its results; the next report starts
        another thread.
        """
        thread = self._thread
        if (
            thread is None
            or self._abandoned >= _MOST_ABANDONED
            or not thread.is_blocked(self._timeout_s)
        ):
            return
        with self._changed:
            if self._thread is not thread:
                return
            self._thread = None
            self._abandoned += 1
        thread.close(0.0)
        self._fail_pending()

    def _fail_pending(self) -> None:
        """Fail all pending results with `timeout`."""
        with self._changed:
            jobs = list(self._open.items())
        lost = sum([self._report(number, job, Failed("timeout")) for number, job in jobs])
        if lost:
            self._counts["late_lost"] += lost
            _log.warning(
                "%d results were given up: a coroutine blocks the thread of all judges; have it"
                " await",
                lost,
            )

    def counts(self) -> dict[str, int]:
        """Return the counters of results, and the number of pending ones."""
        return self._counts | {"late_pending": len(self._open)}


_VALUE: Final = 64  # bytes of a value without its text
_CALL: Final = 400


def trajectory_size(run: Trajectory) -> int:
    """Estimate the bytes that a trajectory takes in memory, within a factor of two.

    >>> trajectory_size(Trajectory(output="x" * 10_000)) // 1000
    10
    """
    values: list[Any] = [run.input, run.output, run.attributes]
    for call in run.calls:
        values += (call.arguments, call.result, call.error.message if call.error else None)
    size = _CALL * len(run.calls)
    while values:
        value = values.pop()
        size += _VALUE
        if isinstance(value, str):
            size += len(value)
        elif isinstance(value, Mapping):
            values += value.keys()
            values += value.values()
        elif isinstance(value, list | tuple):
            values += value
    return size
