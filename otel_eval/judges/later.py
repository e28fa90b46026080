"""Results that come later: the scorers that wait for somebody are run beside the others and never hold them up.

Knows a queue with an end, slots, a time limit and one event loop; knows neither judges nor sinks. A result leaves in a
report of its own as soon as it is there. What cannot be waited for is told as failed, so that no result is missing.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Final

from otel_eval.engine import outcome_of
from otel_eval.judges.loop import LoopThread
from otel_eval.judges.weight import weight
from otel_eval.model import Failed, Outcome, Pending, Report
from otel_eval.quiet import unseen

__all__ = ["Later"]

_log = logging.getLogger("otel_eval")

_GIVEN_UP_S: Final = 1.0  # for those that were told to end


@dataclass(slots=True)
class _Tally:
    """What became of the results, as counts that only rise."""

    late_results: int = 0
    late_timeouts: int = 0
    late_refused: int = 0  # the queue was full
    late_lost: int = 0  # nothing could be said of them: something holds the loop up


class Later:
    """Runs what is pending in reports.

    Args:
        emit: takes each late report out; called on the loop's thread, or on that of `put` where there is no room.
        max_queue: results that may be pending at one time; further ones are failed with `judge_queue_full`.
        concurrency: how many of them are worked on at one time.
        timeout_s: how long one may be worked on; then it is failed with `timeout`.
        max_bytes: that the runs of all pending results may take, roughly; beyond it the queue is full as well.
    """

    def __init__(
        self,
        emit: Callable[[Report], None],
        *,
        max_queue: int = 1000,
        concurrency: int = 8,
        timeout_s: float = 300.0,
        max_bytes: int = 256 * 2**20,
    ) -> None:
        self._emit, self._max, self._timeout_s, self._max_bytes = emit, max_queue, timeout_s, max_bytes
        self._slots: Final = asyncio.Semaphore(concurrency)
        self._tasks: Final[set[asyncio.Task[None]]] = set()  # of the loop's thread
        self._changed: Final = threading.Condition()  # guards what follows
        self._open: Final[dict[int, int]] = {}  # number of what is pending → bytes, oldest first
        self._last = 0
        self._tally: Final = _Tally()
        self._thread: LoopThread | None = None
        self._stopped = False

    def put(self, report: Report) -> None:
        """Begin with what is pending in the report. Never blocks."""
        if not report.pending:
            return
        size = weight(report.trajectory) // len(report.pending)
        with self._changed:
            taken, refused = self._admitted(report.pending, size)
            numbers = range(self._last + 1, self._last + 1 + len(taken))
            self._last += len(taken)
            self._open.update(dict.fromkeys(numbers, size))
            self._tally.late_refused += len(refused)
            for number, pending in zip(numbers, taken, strict=True):
                self._thread = self._thread or LoopThread("otel-eval-later")
                self._thread.call(self._begin, number, report, pending)
        for pending in refused:
            self._tell(report, pending, Failed("timeout" if self._stopped else "judge_queue_full"))

    def _admitted(self, pending: tuple[Pending, ...], size: int) -> tuple[tuple[Pending, ...], tuple[Pending, ...]]:
        """Those that there is room for, and the others. One run is always let in, however large."""
        heavy = bool(self._open) and sum(self._open.values()) + size * len(pending) > self._max_bytes
        room = 0 if self._stopped or heavy else max(0, self._max - len(self._open))
        return pending[:room], pending[room:]

    # ------------------------------------------------------------- on the loop

    def _begin(self, number: int, report: Report, pending: Pending) -> None:
        task = asyncio.get_running_loop().create_task(self._finish(number, report, pending))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _finish(self, number: int, report: Report, pending: Pending) -> None:
        try:
            with unseen():
                outcome = await self._outcome(report, pending)
        except asyncio.CancelledError:  # we are stopping
            outcome = self._timed_out()
        self._tell(report, pending, outcome)
        with self._changed:
            self._open.pop(number, None)
            self._changed.notify_all()

    async def _outcome(self, report: Report, pending: Pending) -> Outcome:
        async with self._slots:
            try:
                async with asyncio.timeout(self._timeout_s) as limit:
                    return outcome_of(await pending.evaluate(report.trajectory))
            except Exception as error:  # noqa: BLE001 - whatever a user's scorer does
                return self._timed_out() if limit.expired() else Failed(type(error).__name__, str(error))

    def _timed_out(self) -> Failed:
        self._tally.late_timeouts += 1
        return Failed("timeout")

    def _tell(self, report: Report, pending: Pending, outcome: Outcome) -> None:
        self._tally.late_results += 1
        try:
            self._emit(replace(report, results=(pending.result(outcome),), pending=(), late=True))
        except Exception as error:  # noqa: BLE001 - a report that cannot leave must not end the loop
            _log.warning("a late result could not be emitted: %s", type(error).__name__)

    # --------------------------------------------------------------------- end

    def wait(self, timeout_s: float) -> bool:
        """Wait for all that was put before; False if it did not come in time."""
        last, thread = self._last, self._thread
        if thread is not None and not thread.is_alone:
            thread.run(lambda: self._is_over(last), timeout_s)
            return self._is_over(last)
        with self._changed:
            return self._changed.wait_for(lambda: self._is_over(last), timeout_s)

    def _is_over(self, last: int) -> bool:
        return next(iter(self._open), last + 1) > last

    def stop(self, timeout_s: float) -> bool:
        """Take nothing more and wait; what does not come in time is failed with `timeout`. True if all came."""
        with self._changed:
            self._stopped = True
        done = self.wait(timeout_s)
        thread, self._thread = self._thread, None
        if thread is None:
            return done
        if not done:
            thread.call(self._give_up)
            self._thread = thread
            self.wait(_GIVEN_UP_S)
            self._thread = None
        if not thread.close(_GIVEN_UP_S) or self._open:
            self._tally.late_lost += len(self._open)
            _log.warning("%d results were given up: something a judge does holds their thread up", len(self._open))
        return done

    def _give_up(self) -> None:
        for task in self._tasks:
            task.cancel()

    def counts(self) -> dict[str, int]:
        """What became of the results, and how many are pending."""
        return asdict(self._tally) | {"late_pending": len(self._open)}
