"""Results of a program on their way to an endpoint: the receiver's queue, bounded so that it never blocks the program."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from otel_eval.model import Report
from otel_eval.sinks.delivery.dead_letters import DeadLetters
from otel_eval.sinks.delivery.outbox import Outbox, slim
from otel_eval.sinks.tally import Counters, Warnings, renew_after_fork

__all__ = ["QueuedExporter"]

_SHARE: Final = 0.8  # of the time for closing: for delivery, the rest is for ending the thread


class QueuedExporter:
    """A sink that hands results to a thread.

    A full queue drops what comes, counted as `results.refused`. After a fork the child begins with an empty queue and a thread of
    its own, and its parent delivers what was queued before.

    Args:
        make: makes the queue, at the start and in each child process; it must not do I/O.
        counters: counted into.
        max_results: that may wait.
        dead_letters: takes what could not be delivered before the end, and is closed then; None: it is counted and logged.
    """

    def __init__(
        self, make: Callable[[], Outbox], counters: Counters, max_results: int, dead_letters: DeadLetters | None = None
    ) -> None:
        self._make, self._counters, self._limit, self._dead = make, counters, max_results, dead_letters
        self._warnings: Final = Warnings()
        self._lock = threading.Lock()  # held while emitting
        renew_after_fork(self)
        self._begin()
        self.name: Final = self._outbox.name
        if hasattr(os, "register_at_fork"):
            held = weakref.ref(self)
            os.register_at_fork(after_in_child=lambda: alive._begin() if (alive := held()) is not None else None)

    def _begin(self) -> None:
        self._outbox = self._make()
        with suppress(RuntimeError):  # the system has no more threads: results wait, and are counted when the queue is full
            self._outbox.start()

    def emit(self, report: Report) -> bool:
        """Queue the report. False: it is counted when it was delivered."""
        count = len(report.results)
        if not count:
            return False
        with self._lock:
            has_room = self._outbox.waiting_results() + count <= self._limit
            if has_room:
                self._outbox.put([slim(report)])
        if not has_room:
            self._counters.add("results.refused", count, sink=self.name)
            self._warnings.say("full", "%d results were dropped: the queue of %s is full", count, self.name)
        return False

    def counts(self) -> dict[str, int]:
        """Results that wait, and 1 where the endpoint does not support the signal."""
        return self._outbox.counts()

    def flush(self, timeout_s: float) -> bool:
        """Deliver what waits; False if an attempt failed, a result was refused or time ran out."""
        return self._outbox.flush_once(timeout_s)

    def close(self, timeout_s: float) -> None:
        """Deliver what waits, again and again until time is up, and end."""
        self._outbox.stop()
        self._outbox.flush(timeout_s * _SHARE)
        self._outbox.close(timeout_s * (1 - _SHARE) / 2)
        if left := self._outbox.waiting_results():
            self._give_up(left)
        if self._dead is not None:
            self._dead.close()

    def _give_up(self, left: int) -> None:
        reason = self._outbox.last_failure or "no time"
        self._warnings.say("left", "%s did not deliver %d results before the end (%s)", self.name, left, reason)
        self._counters.add("results.failed", left, sink=self.name)
        if self._dead is not None:
            with suppress(OSError):
                self._dead.add(self.name, self._outbox.left(), f"not delivered before the end ({reason})")
                self._counters.add("results.dead_letters", left, sink=self.name)
                return
        self._counters.add("results.dropped", left, sink=self.name)
