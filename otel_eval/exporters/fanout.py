"""Several exporters as one: each gets every report, and the failure of one does not affect the others."""

from __future__ import annotations

import sys
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from queue import SimpleQueue
from typing import Any, Final, Protocol, runtime_checkable

from otel_eval.counters import Counters, Warnings, renew_after_fork
from otel_eval.interfaces import Sink
from otel_eval.model import UNRECORDED, Completeness, Report, Trajectory

__all__ = ["Fanout", "FinalResults"]

_MOST: Final = 10_000  # runs that wait; of more the oldest count as final

Run = tuple[str, str]
"""Hexadecimal ids of a trace and of a run's own span."""


class FinalResults:
    """A sink in front of another, which gets results of `detached` runs when they are final.

    A run that turns out to lie inside another one is never passed on as an outermost one. What waits when the sink is closed,
    or when too many runs wait, is passed on as it is.

    Args:
        sink: the sink.
        most: runs that may wait.
    """

    def __init__(self, sink: Sink, most: int = _MOST) -> None:
        self.name: Final = sink.name
        self._sink: Final = sink
        self._most = most
        self._waiting: OrderedDict[Run, dict[str, list[Report]]] = OrderedDict()  # by run, then by evaluation

    def emit(self, report: Report) -> bool | None:
        """Hold the report, or pass it on; see `Sink.emit`."""
        run = report.trajectory.trace_id, report.trajectory.span_id
        waiting = self._waiting.get(run, {})
        if report.evaluation in waiting and waiting[report.evaluation][0].trajectory.outermost > report.trajectory.outermost:
            del waiting[report.evaluation]
            return self._sink.emit(report)
        is_first = report.revision == 0 and not report.late
        if report.trajectory.completeness is Completeness.DETACHED and (is_first or report.evaluation in waiting):
            self._waiting.setdefault(run, {}).setdefault(report.evaluation, []).append(_light(report))
            self._bound()
            return None
        if report.evaluation in waiting:
            self._pass_on(waiting.pop(report.evaluation))
        return self._sink.emit(report)

    def final(self, runs: Iterable[Run]) -> None:
        """No other run can turn out to be around these."""
        for run in runs:
            for reports in self._waiting.pop(run, {}).values():
                self._pass_on(reports)

    def _bound(self) -> None:
        while len(self._waiting) > self._most:
            self.final([next(iter(self._waiting))])

    def _pass_on(self, reports: Iterable[Report]) -> None:
        for report in reports:
            self._sink.emit(report)

    def counts(self) -> dict[str, int]:
        """What the sink counts."""
        counts: Any = getattr(self._sink, "counts", dict)
        counted: dict[str, int] = counts()
        return counted

    def flush(self, timeout_s: float) -> bool:
        """Have the sink deliver; what is not final waits on."""
        return self._sink.flush(timeout_s)

    def close(self, timeout_s: float) -> None:
        """Pass on what waits, and close the sink."""
        self.final(list(self._waiting))
        self._sink.close(timeout_s)


def _light(report: Report) -> Report:
    """The report without values, which nothing that counts has need of."""
    run = report.trajectory
    calls = tuple([replace(call, arguments=UNRECORDED, result=UNRECORDED) for call in run.calls])
    light: Trajectory = replace(run, calls=calls, input=UNRECORDED, output=UNRECORDED, spans=())
    return replace(report, trajectory=light)


_SPARES: Final = sys.version_info >= (3, 12)


@runtime_checkable
class _Queueing(Protocol):
    """A sink with a queue."""

    def counts(self) -> dict[str, int]:
        """How many results wait."""
        ...


class Fanout:
    """Emits to all sinks in turn; flushes and closes them side by side within one deadline.

    Counts `results.exported`, which a sink has accepted, and `results.export_failed` by sink.

    Args:
        sinks: the sinks.
        counters: counted into.
        spares: keep a thread for each sink from the first report on, to flush with when none can be started any more.
    """

    name: Final = "all"

    def __init__(self, sinks: Sequence[Sink], counters: Counters | None = None, *, spares: bool = _SPARES) -> None:
        self._sinks: Final = tuple(sinks)
        self._counters: Final = counters if counters is not None else Counters()
        self._warnings: Final = Warnings()
        self._lock = threading.Lock()  # held while emitting: late results come from a thread of their own
        renew_after_fork(self)
        self._since = time.monotonic()  # when the last emission began
        self._spares: Final = tuple(_Spare() for _ in self._sinks) if spares else ()

    def emit(self, report: Report) -> None:
        """Emit to every sink. Never raises: a sink that does loses its own results, counted and logged."""
        with self._lock:
            self._since = time.monotonic()
            for spare in self._spares:
                spare.ensure()
            self._emit(report)

    def final(self, runs: Sequence[tuple[str, str]]) -> None:
        """Tell the sinks that wait for it that the results of these runs are final. Never raises."""
        with self._lock:
            for sink in self._sinks:
                if isinstance(sink, FinalResults):
                    try:
                        sink.final(runs)
                    except Exception as error:  # noqa: BLE001 - one sink's trouble is its own
                        self._warnings.say(sink.name, "results could not be sent to %s: %s", sink.name, type(error).__name__)

    def blocked_s(self) -> float:
        """For how many seconds a sink has not returned from the emission that is under way; 0 if there is none."""
        return time.monotonic() - self._since if self._lock.locked() else 0.0

    def _emit(self, report: Report) -> None:
        for sink in self._sinks:
            try:
                accepted = sink.emit(report) is not False
            except Exception as error:  # noqa: BLE001 - one sink's trouble is its own
                self._counters.add("results.export_failed", len(report.results), exporter=sink.name)
                self._warnings.say(sink.name, "results could not be sent to %s: %s", sink.name, type(error).__name__)
            else:
                if accepted:
                    self._counters.add("results.exported", len(report.results), exporter=sink.name)

    def counts(self) -> dict[str, int]:
        """What waits in the queues of sinks that have one."""
        counted = [sink.counts() for sink in self._sinks if isinstance(sink, _Queueing)]
        return {name: count for each in counted for name, count in each.items()}

    def flush(self, timeout_s: float) -> bool:
        """Deliver what every sink holds; False if one could not in time."""
        return self._each("flush", lambda sink, left_s: sink.flush(left_s), timeout_s)

    def close(self, timeout_s: float) -> None:
        """Close every sink; one that hangs is left behind at the deadline, and logged."""
        self._each("close", lambda sink, left_s: sink.close(left_s), timeout_s, self._left_behind)

    def _left_behind(self, sink: Sink) -> None:
        waiting = sum(sink.counts().values()) if isinstance(sink, _Queueing) else 0
        what = f"{waiting} results" if waiting else "its last results"
        self._warnings.say(f"{sink.name} left", "%s did not deliver %s before the end", sink.name, what)

    def _each(
        self,
        what: str,
        act: Callable[[Sink, float], Any],
        timeout_s: float,
        late: Callable[[Sink], None] = lambda _: None,
    ) -> bool:
        deadline = time.monotonic() + timeout_s
        outcomes: dict[int, bool] = {}

        def run(index: int) -> None:
            sink = self._sinks[index]
            try:
                outcomes[index] = act(sink, max(0.0, deadline - time.monotonic())) is not False
            except Exception as error:  # noqa: BLE001 - one sink's trouble is its own
                outcomes[index] = False
                self._warnings.say(sink.name, "%s of %s failed: %s", what, sink.name, type(error).__name__)

        started = [self._start(partial(run, index), index) for index in range(len(self._sinks))]
        for sink, done in zip(self._sinks, started, strict=True):
            if not done.wait(max(0.0, deadline - time.monotonic())):
                late(sink)
        return all(outcomes.get(index, False) for index in range(len(self._sinks)))

    def _start(self, job: Callable[[], None], index: int) -> threading.Event:
        """Run the job on a thread, since the SDK's flushes keep no deadline; set when it is done."""
        done = threading.Event()

        def run() -> None:
            job()
            done.set()

        try:
            threading.Thread(target=run, name="otel-eval-flush", daemon=True).start()
        except RuntimeError:  # the interpreter is ending
            if not self._spares or not self._spares[index].put(run):
                run()
        return done


class _Spare:
    """A thread that waits for a job. From Python 3.12 on none can be started once the interpreter has begun to end."""

    def __init__(self) -> None:
        self._jobs: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._thread: threading.Thread | None = None

    def ensure(self) -> None:
        """Start the thread if it does not run, as in a child process after a fork."""
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(target=self._work, name="otel-eval-flush", daemon=True)
            try:
                self._thread.start()
            except RuntimeError:  # too late, or the system has no more threads
                self._thread = None

    def put(self, job: Callable[[], None]) -> bool:
        """Have the job done; False if there is no thread."""
        if self._thread is None or not self._thread.is_alive():
            return False
        self._jobs.put(job)
        return True

    def _work(self) -> None:
        while True:
            self._jobs.get()()
