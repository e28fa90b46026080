"""The export queues of a receiver together, and the bounded queue of an exporter in a process."""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from typing import Any, Final

from otel_eval.counters import Counters, Warnings, renew_after_fork
from otel_eval.exporters.dead_letter import DeadLetterFile
from otel_eval.exporters.export_queue import ExportQueue, slim
from otel_eval.model import Report

__all__ = ["ExportQueues", "QueuedExporter"]

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
        self, make: Callable[[], ExportQueue], counters: Counters, max_results: int, dead_letters: DeadLetterFile | None = None
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
            self._counters.add("results.refused", count, exporter=self.name)
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
        self._counters.add("results.export_failed", left, exporter=self.name)
        if self._dead is not None:
            with suppress(OSError):
                self._dead.add(self.name, self._outbox.left(), f"not delivered before the end ({reason})")
                self._counters.add("results.dead_letters", left, exporter=self.name)
                return
        self._counters.add("results.dropped", left, exporter=self.name)


class ExportQueues:
    """Puts each report into every outbox.

    Args:
        outboxes: the ways out.
        dead_letters: what they put refusals into, to be closed with them.
    """

    name: Final = "delivery"

    def __init__(self, outboxes: Sequence[ExportQueue], dead_letters: DeadLetterFile | None = None) -> None:
        self._outboxes: Final = tuple(outboxes)
        self._dead: Final = dead_letters
        self.names: Final = tuple(outbox.name for outbox in outboxes)
        self._lines: Final = tuple(outbox.name for outbox in outboxes if outbox.lines)

    def start(self) -> None:
        """Begin to deliver."""
        for outbox in self._outboxes:
            outbox.start()

    def emit(self, report: Report) -> None:
        """Queue the report."""
        takers = self.takers(report)
        light = [slim(report)] if takers else []
        for outbox in self._outboxes:
            if outbox.name in takers:
                outbox.put(light)

    def takers(self, report: Report) -> Collection[str]:
        """The names of the outboxes that deliver the report: results all of them, that there is none those that write lines."""
        if report.results:
            return self.names
        return self._lines if report.no_run else ()

    def again(self, owed: Sequence[tuple[Report, Collection[str]]]) -> None:
        """Queue reports of an earlier life, each for those of the sinks that did not get it."""
        for outbox in self._outboxes:
            outbox.again([report for report, sinks in owed if outbox.name in sinks])

    def set_aside(self, reports: Sequence[Report], sink: str, why: str) -> bool:
        """Write results to the dead-letter file instead of delivering them; False if that is not possible."""
        try:
            if self._dead is not None:
                self._dead.add(sink, reports, why)
        except (OSError, ValueError):  # no room, or it is closed because the process ends
            return False
        return self._dead is not None

    def expect_repeats(self) -> None:
        """Before `start`: results that were delivered in an earlier life may be put in again, unknowingly."""
        for outbox in self._outboxes:
            outbox.expect_repeats()

    def behind(self) -> str:
        """Why nothing more should come, or ""."""
        for outbox in self._outboxes:
            if outbox.is_full:
                return f"results wait for {outbox.name}, which does not take them; come again"
        return ""

    def flush(self, timeout_s: float) -> bool:
        """Deliver what waits; False if something is left."""
        deadline = time.monotonic() + timeout_s
        done = [outbox.flush(max(0.0, deadline - time.monotonic())) for outbox in self._outboxes]
        return all(done)

    def stop(self) -> None:
        """The process ends: no long pauses any more."""
        for outbox in self._outboxes:
            outbox.stop()

    def close(self, timeout_s: float) -> None:
        """End; what still waits is left behind."""
        deadline = time.monotonic() + timeout_s
        for outbox in self._outboxes:
            outbox.close(max(0.0, deadline - time.monotonic()))
        if self._dead is not None:
            self._dead.close()

    def counts(self) -> dict[str, Any]:
        """Results that wait, and 1 where the endpoint does not support the signal, by sink."""
        return {name: count for outbox in self._outboxes for name, count in outbox.counts().items()}
