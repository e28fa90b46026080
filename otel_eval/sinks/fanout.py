"""Several sinks as one: each gets every report, none can harm another.

Knows the sink port; knows no sink.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol, runtime_checkable

from otel_eval.model import Report
from otel_eval.ports import Sink
from otel_eval.sinks.tally import Counters, Tally, Warnings, renew_after_fork

__all__ = ["Fanout"]


@runtime_checkable
class _Queueing(Protocol):
    """A sink with a queue."""

    def counts(self) -> dict[str, int]:
        """How many results wait."""
        ...


class Fanout:
    """Emits to all sinks in turn; flushes and closes them side by side within one deadline.

    Counts `results.emitted`, which a sink has accepted, and `results.failed` by sink.
    """

    name: Final = "all"

    def __init__(self, sinks: Sequence[Sink], counters: Counters | None = None) -> None:
        self._sinks: Final = tuple(sinks)
        self._counters: Final = counters if counters is not None else Tally()
        self._warnings: Final = Warnings()
        self._lock = threading.Lock()  # held while emitting: late results come from a thread of their own
        renew_after_fork(self)

    def emit(self, report: Report) -> None:
        """Emit to every sink. Never raises: a sink that does loses its own results, counted and said."""
        with self._lock:
            self._emit(report)

    def _emit(self, report: Report) -> None:
        for sink in self._sinks:
            try:
                accepted = sink.emit(report) is not False
            except Exception as error:  # noqa: BLE001 - one sink's trouble is its own
                self._counters.add("results.failed", len(report.results), sink=sink.name)
                self._warnings.say(sink.name, "results could not be sent to %s: %s", sink.name, type(error).__name__)
            else:
                if accepted:
                    self._counters.add("results.emitted", len(report.results), sink=sink.name)

    def counts(self) -> dict[str, int]:
        """What waits in the queues of sinks that have one."""
        counted = [sink.counts() for sink in self._sinks if isinstance(sink, _Queueing)]
        return {name: count for each in counted for name, count in each.items()}

    def flush(self, timeout_s: float) -> bool:
        """Deliver what every sink holds; False if one could not in time."""
        return self._each("flush", lambda sink, left_s: sink.flush(left_s), timeout_s)

    def close(self, timeout_s: float) -> None:
        """Close every sink; one that hangs is left behind at the deadline."""
        self._each("close", lambda sink, left_s: sink.close(left_s), timeout_s)

    def _each(self, what: str, act: Callable[[Sink, float], Any], timeout_s: float) -> bool:
        deadline = time.monotonic() + timeout_s
        outcomes: dict[int, bool] = {}

        def run(index: int) -> None:
            sink = self._sinks[index]
            try:
                outcomes[index] = act(sink, max(0.0, deadline - time.monotonic())) is not False
            except Exception as error:  # noqa: BLE001 - one sink's trouble is its own
                outcomes[index] = False
                self._warnings.say(sink.name, "%s of %s failed: %s", what, sink.name, type(error).__name__)

        for thread in [started for index in range(len(self._sinks)) if (started := _start(run, index)) is not None]:
            thread.join(max(0.0, deadline - time.monotonic()))
        return all(outcomes.get(index, False) for index in range(len(self._sinks)))


def _start(run: Callable[[int], None], index: int) -> threading.Thread | None:
    """Run on a thread, since the SDK's flushes keep no deadline; here where there can be no thread any more."""
    thread = threading.Thread(target=run, args=(index,), name="otel-eval-flush", daemon=True)
    try:
        thread.start()
    except RuntimeError:  # the interpreter is ending
        run(index)
        return None
    return thread
