"""The way to one sink: a queue, and a thread that empties it in order.

Knows batches, retries and room; knows neither a wire nor a file. A report stays in the queue until the sink took it or
refused it for good, so reports of one trace arrive in the order in which they were made. While the sink is away the queue
fills; `is_full` is for whoever brings more to ask.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from otel_eval.counters import Counters, Outage, Warnings
from otel_eval.exporters.dead_letter import DeadLetterFile
from otel_eval.exporters.interface import Exporter
from otel_eval.model import UNRECORDED, Report
from otel_eval.retry import Attempts, ExportResult, RetryPolicy, SignalHistory
from otel_eval.suppression import suppress_instrumentation

__all__ = ["ExportQueue", "Settled", "slim"]

Settled = Callable[[str, Sequence[Report]], None]
"""Told the sink and the reports that it has taken, or refused for good."""

_AT_ONCE: Final = 256  # reports: some hundred kilobytes, far below what endpoints take in one request
_LINGER_S: Final = 0.05  # for company, after a run that was seconds ago
_DEFAULT: Final = RetryPolicy()


class ExportQueue:
    """Delivers to one carrier.

    Args:
        carrier: makes the attempts.
        limit: reports that may wait; `put` takes more, because they were promised room before.
        settled: is told what became of reports.
        dead_letters: takes what is refused for good; None: it is counted and said.
        retry: how long to wait between attempts.
        history: whether the endpoint has accepted results before.
        linger_s: how long a report waits for others to be sent with it.
    """

    def __init__(
        self,
        carrier: Exporter,
        counters: Counters,
        *,
        limit: int,
        settled: Settled = lambda *_: None,
        dead_letters: DeadLetterFile | None = None,
        retry: RetryPolicy = _DEFAULT,
        history: SignalHistory | None = None,
        linger_s: float = _LINGER_S,
    ) -> None:
        self.name: Final = carrier.name
        self.lines: Final = carrier.lines
        self._carrier, self._counters, self._limit = carrier, counters, limit
        self._settled, self._dead, self._linger_s = settled, dead_letters, linger_s
        history = history or SignalHistory(recheck_s=retry.recheck_s, clock=retry.clock)
        refusals = "results are dropped" if dead_letters is None else "results are written to the dead-letter file"
        self._attempts: Final = Attempts(self.name, retry, history, refusals)
        self._warnings: Final = Warnings()
        self._outage: Final = Outage(self.name, counters)
        self._changed = threading.Condition()  # guards what follows
        self._queue: deque[Report] = deque()
        self._results = 0  # of the reports in the queue
        self._failures = 0  # attempts that failed, and refusals
        self.last_failure = ""
        self._hurry = self._closed = False
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"otel-eval-{self.name}", daemon=True)

    def start(self) -> None:
        """Begin to deliver."""
        self._thread.start()

    def put(self, reports: Sequence[Report]) -> None:
        """Queue reports. Never blocks."""
        with self._changed:
            before = len(self._queue)
            self._queue.extend(reports)
            self._results += sum([len(report.results) for report in reports])
            # Whoever waits for company is not woken by each of it: that would cost more than delivering it.
            if not before or before < _AT_ONCE <= len(self._queue):
                self._changed.notify_all()

    def again(self, reports: Sequence[Report]) -> None:
        """Queue reports of an earlier life; those that are found with the sink are settled."""
        missing = self._carrier.missing(reports)
        left = {id(report) for report in missing}
        self._settled(self.name, [report for report in reports if id(report) not in left])
        self.put(missing)

    def expect_repeats(self) -> None:
        """Before `start`: results that were delivered in an earlier life may be queued again, unknowingly."""
        self._carrier.expect_repeats()

    def __len__(self) -> int:
        """Reports that wait or are under way."""
        return len(self._queue)

    def waiting_results(self) -> int:
        """Results of the reports that wait or are under way."""
        return self._results

    @property
    def is_full(self) -> bool:
        """Whether nothing more should come."""
        return len(self._queue) >= self._limit

    # ----------------------------------------------------------------- out

    def _run(self) -> None:
        while batch := self._next():
            self._deliver(batch)
            with self._changed:
                if self._closed:
                    return
                for _ in batch:
                    self._results -= len(self._queue.popleft().results)
                self._changed.notify_all()

    def _next(self) -> list[Report]:
        """The oldest reports, which stay in the queue until they are settled; none when the outbox ends."""
        with self._changed:
            self._changed.wait_for(lambda: self._queue or self._closed)
            if not self._hurry and len(self._queue) < _AT_ONCE:
                self._changed.wait_for(lambda: self._hurry or self._closed or len(self._queue) >= _AT_ONCE, self._linger_s)
            return [] if self._closed else [self._queue[at] for at in range(min(_AT_ONCE, len(self._queue)))]

    def _deliver(self, reports: Sequence[Report]) -> None:
        """Try until the sink took them or refused them for good, or the outbox ends."""
        if self._attempts.unsupported and len(reports) > 1 and self._attempts.allowed:
            self._deliver(reports[:1])  # one result shows whether the endpoint supports the signal by now
            return self._deliver(reports[1:])
        written, backoff = self._written(reports), self._attempts.backoff(self._stopping)
        while not self._closed:
            result = self._attempts.make(lambda: self._attempt(written))
            if result.status == "permanent" and len(reports) > 1 and not result.concerns_all:  # one of them may be why
                half = len(reports) // 2
                self._deliver(reports[:half])
                return self._deliver(reports[half:])
            if result.status != "retryable" and self._settle(result, reports):
                return None
            self._outage.began()
            self._failed(result.reason)
            self._counters.add("results.retries", exporter=self.name)
            if not self._stopping.is_set():
                queued = len(self._queue)
                self._warnings.say("later", "export to %s failed (%s), %d queued, retrying", self.name, result.reason, queued)
            backoff.wait(result.after_s)
        return None

    def _written(self, reports: Sequence[Report]) -> bytes | None:
        try:
            return self._carrier.written(reports)
        except Exception as error:  # noqa: BLE001 - a result that cannot be written must not hold up the others
            self._warnings.say("unwritable", "results cannot be written for %s: %s", self.name, type(error).__name__)
            return None

    def _attempt(self, written: bytes | None) -> ExportResult:
        if written is None:
            return ExportResult("permanent", "cannot be written")
        try:
            with suppress_instrumentation():  # an instrumentation of the process must not trace our own requests
                return self._carrier.attempt(written)
        except Exception as error:  # noqa: BLE001 - the thread must live on
            return ExportResult("retryable", type(error).__name__)

    def _failed(self, reason: str) -> None:
        with self._changed:
            self._failures, self.last_failure = self._failures + 1, reason
            self._changed.notify_all()

    def _settle(self, result: ExportResult, reports: Sequence[Report]) -> bool:
        """The reports are done with; False if what was refused could not be written to the dead-letter file."""
        count = sum(len(report.results) for report in reports)
        refused = min(result.rejected, count) if result.status == "ok" else count
        if refused and not self._put_aside(result, reports, refused, count):
            return False
        if result.status == "ok":
            self._outage.over(len(self._queue) - len(reports))
        if count > refused:
            self._counters.add("results.exported", count - refused, exporter=self.name)
        if refused:
            self._counters.add("results.export_failed", refused, exporter=self.name)
            self._failed(result.reason)
        self._settled(self.name, reports)
        return True

    def _put_aside(self, result: ExportResult, reports: Sequence[Report], refused: int, count: int) -> bool:
        reason = result.reason or "partial success"
        if result.status != "unsupported":  # that is logged when it begins
            self._warnings.say("refused", "%d results were refused by %s for good (%s)", refused, self.name, reason)
        if self._dead is None:
            self._counters.add("results.dropped", refused, exporter=self.name)
            return True
        try:
            self._dead.add(self.name, reports, reason, refused if refused < count else None)
        except OSError as error:
            self._warnings.say("dead", "dead letters cannot be written (%s)", error.strerror or type(error).__name__)
            return False
        self._counters.add("results.dead_letters", refused, exporter=self.name)
        return True

    def counts(self) -> dict[str, int]:
        """Results that wait, and 1 where the endpoint does not support the signal."""
        waiting = {f"results.queued{{exporter={self.name}}}": self._results}
        return waiting | ({f"exports.unsupported{{exporter={self.name}}}": 1} if self._attempts.unsupported else {})

    # ----------------------------------------------------------------- end

    def flush(self, timeout_s: float) -> bool:
        """Deliver what waits; False if something is left."""
        with self._changed:
            self._hurry = True
            self._changed.notify_all()
            done = self._changed.wait_for(lambda: not self._queue, timeout_s)
            self._hurry = self._stopping.is_set()
        return done

    def flush_once(self, timeout_s: float) -> bool:
        """Try to deliver what waits without waiting any longer after a failure; False if there was one or something is left."""
        with self._changed:
            failures, self._hurry = self._failures, True
            self._interrupt()
            self._changed.notify_all()
            self._changed.wait_for(lambda: not self._queue or self._failures > failures, timeout_s)
            self._hurry = self._stopping.is_set()
            return not self._queue and self._failures == failures

    def _interrupt(self) -> None:
        """End a wait between two attempts."""
        if not self._stopping.is_set():
            self._stopping.set()
            self._stopping.clear()

    def stop(self) -> None:
        """From now on try again without long pauses: the process ends."""
        with self._changed:
            self._hurry = True
            self._stopping.set()

    def left(self) -> list[Report]:
        """After `close`: the reports that were not delivered."""
        return list(self._queue)

    def close(self, timeout_s: float) -> None:
        """Begin no further attempt, and end."""
        self.stop()
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        if self._thread.ident is not None:
            self._thread.join(timeout_s)
        self._carrier.close()


def slim(report: Report) -> Report:
    """The report without what no sink sends: it may wait for hours, and arguments and results may be large."""
    run = replace(report.trajectory, calls=(), spans=(), input=UNRECORDED, output=UNRECORDED, attributes={})
    return replace(report, trajectory=run, pending=())
