"""The way to one sink: a queue, and a thread that empties it in order.

Knows batches, retries and room; knows neither a wire nor a file. A report stays in the queue until the sink took it or
refused it for good, so reports of one trace arrive in the order in which they were made. While the sink is away the queue
fills; `is_full` is for whoever brings more to ask.
"""

from __future__ import annotations

import random
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from otel_eval.model import Report
from otel_eval.sinks.delivery.carrier import Answer, Carrier
from otel_eval.sinks.delivery.dead_letters import DeadLetters
from otel_eval.sinks.tally import Counters, Outage, Warnings

__all__ = ["Outbox", "Settled"]

Settled = Callable[[str, Sequence[Report]], None]
"""Told the sink and the reports that it has taken, or refused for good."""

_AT_ONCE: Final = 256  # reports: some hundred kilobytes, far below what endpoints take in one request
_LINGER_S: Final = 0.05  # for company, after a run that was seconds ago
_FIRST_S: Final = 0.5
_LONGEST_S: Final = 30.0
_FACTOR: Final = 1.5
_MOST_S: Final = 60.0  # an endpoint that asks for a longer wait is asked again all the same
_LAST_S: Final = 0.2  # between attempts when the process ends


class Outbox:
    """Delivers to one carrier.

    Args:
        carrier: makes the attempts.
        limit: reports that may wait; `put` takes more, because they were promised room before.
        settled: is told what became of reports.
        dead_letters: takes what is refused for good; None: it is counted and said.
    """

    def __init__(
        self,
        carrier: Carrier,
        counters: Counters,
        *,
        limit: int,
        settled: Settled = lambda *_: None,
        dead_letters: DeadLetters | None = None,
    ) -> None:
        self.name: Final = carrier.name
        self.lines: Final = carrier.lines
        self._carrier, self._counters, self._limit = carrier, counters, limit
        self._settled, self._dead = settled, dead_letters
        self._warnings: Final = Warnings()
        self._outage: Final = Outage(self.name, counters)
        self._changed = threading.Condition()  # guards what follows
        self._queue: deque[Report] = deque()
        self._hurry = self._closed = self._unwanted = False
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
        with self._changed:
            return sum([len(report.results) for report in self._queue])

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
                    self._queue.popleft()
                self._changed.notify_all()

    def _next(self) -> list[Report]:
        """The oldest reports, which stay in the queue until they are settled; none when the outbox ends."""
        with self._changed:
            self._changed.wait_for(lambda: self._queue or self._closed)
            if not self._hurry and len(self._queue) < _AT_ONCE:
                self._changed.wait_for(lambda: self._hurry or self._closed or len(self._queue) >= _AT_ONCE, _LINGER_S)
            return [] if self._closed else [self._queue[at] for at in range(min(_AT_ONCE, len(self._queue)))]

    def _deliver(self, reports: Sequence[Report]) -> None:
        """Try until the sink took them or refused them for good, or the outbox ends."""
        written, delay = self._written(reports), _FIRST_S
        while not self._closed:
            answer = Answer("unknown") if self._unwanted else self._attempt(written)
            if answer.fate == "never" and len(reports) > 1:  # one of them may be why
                half = len(reports) // 2
                self._deliver(reports[:half])
                return self._deliver(reports[half:])
            if answer.fate != "later" and self._settle(answer, reports):
                return None
            self._outage.began()
            self._counters.add("results.retries", sink=self.name)
            if not self._stopping.is_set():
                self._warnings.say("later", "results wait for %s (%s); trying again", self.name, answer.why)
            delay = self._pause(delay, answer.after_s)
        return None

    def _written(self, reports: Sequence[Report]) -> bytes | None:
        try:
            return self._carrier.written(reports)
        except Exception as error:  # noqa: BLE001 - a result that cannot be written must not hold up the others
            self._warnings.say("unwritable", "results cannot be written for %s: %s", self.name, type(error).__name__)
            return None

    def _attempt(self, written: bytes | None) -> Answer:
        if written is None:
            return Answer("never", "cannot be written")
        try:
            return self._carrier.attempt(written)
        except Exception as error:  # noqa: BLE001 - the thread must live on
            return Answer("later", type(error).__name__)

    def _pause(self, delay: float, at_least_s: float) -> float:
        """Wait before the next attempt; how long to wait after that."""
        if self._stopping.is_set():
            time.sleep(_LAST_S)
            return delay
        # Jitter: several receivers that lost one backend must not come back as one.
        self._stopping.wait(max(min(at_least_s, _MOST_S), delay * random.uniform(0.5, 1.5)))
        return min(_LONGEST_S, delay * _FACTOR)

    def _settle(self, answer: Answer, reports: Sequence[Report]) -> bool:
        """The reports are done with; False if what was refused could not be put aside."""
        count = sum(len(report.results) for report in reports)
        refused = min(answer.rejected, count) if answer.fate == "sent" else count
        if answer.fate == "unknown":
            self._refuse_all(answer)
        elif refused and not self._put_aside(answer, reports, refused, count):
            return False
        if answer.fate == "sent":
            self._outage.over(len(self._queue) - len(reports))
        if count > refused:
            self._counters.add("results.emitted", count - refused, sink=self.name)
        if refused:
            self._counters.add("results.failed", refused, sink=self.name)
        self._settled(self.name, reports)
        return True

    def _put_aside(self, answer: Answer, reports: Sequence[Report], refused: int, count: int) -> bool:
        why = answer.why or "partial success"
        self._warnings.say("refused", "%d results were refused by %s for good (%s)", refused, self.name, why)
        if self._dead is None:
            return True
        try:
            self._dead.add(self.name, reports, why, refused if refused < count else None)
        except OSError as error:
            self._warnings.say("dead", "dead letters cannot be written (%s)", error.strerror or type(error).__name__)
            return False
        self._counters.add("results.dead_letters", refused, sink=self.name)
        return True

    def _refuse_all(self, answer: Answer) -> None:
        if not self._unwanted:
            self._unwanted = True
            signal = self.name.rpartition(".")[2]
            self._warnings.once("unknown", "the endpoint takes no %s (%s); none are sent from now on", signal, answer.why)

    # ----------------------------------------------------------------- end

    def flush(self, timeout_s: float) -> bool:
        """Deliver what waits; False if something is left."""
        with self._changed:
            self._hurry = True
            self._changed.notify_all()
            done = self._changed.wait_for(lambda: not self._queue, timeout_s)
            self._hurry = self._stopping.is_set()
        return done

    def stop(self) -> None:
        """From now on try again without long pauses: the process ends."""
        self._hurry = True
        self._stopping.set()

    def close(self, timeout_s: float) -> None:
        """Begin no further attempt, and end."""
        self.stop()
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        if self._thread.ident is not None:
            self._thread.join(timeout_s)
        self._carrier.close()
