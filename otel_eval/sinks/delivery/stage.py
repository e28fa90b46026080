"""All ways out as one sink.

Knows outboxes; knows nothing of what is behind them.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from typing import Any, Final

from otel_eval.model import Report
from otel_eval.sinks.delivery.dead_letters import DeadLetters
from otel_eval.sinks.delivery.outbox import Outbox, slim

__all__ = ["Delivery"]


class Delivery:
    """Puts each report into every outbox.

    Args:
        outboxes: the ways out.
        dead_letters: what they put refusals into, to be closed with them.
    """

    name: Final = "delivery"

    def __init__(self, outboxes: Sequence[Outbox], dead_letters: DeadLetters | None = None) -> None:
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
