"""Records each evaluation before it begins, so that a trace whose evaluation ends the process is not evaluated for ever."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import groupby
from typing import Final

from otel_eval.assembly import TraceBuffer
from otel_eval.engine import Engine
from otel_eval.interfaces import ClosedTrace, Crashes
from otel_eval.model import Failed, Report, Stamp
from otel_eval.storage import SLOTS, InProgress, key_of_trace

__all__ = ["WHY", "RecordedAttempts"]

_log = logging.getLogger("otel_eval")

_PIPELINE: Final = 0
"""The slot of the pipeline, which evaluates one trace at a time."""

_LATER: Final = (b"later",)
"""In place of a trace's parts: its results that come later."""

WHY: Final = "the process crashed twice while the trace was evaluated"
_CRASHED: Final = Failed("crashed", WHY)


class RecordedAttempts:
    """The evaluations of one receiver, as they are recorded in its storage.

    Args:
        in_progress: the record.

    Attributes:
        set_aside: writes results to the dead-letter file; False if there is none or it cannot be written.
    """

    def __init__(self, in_progress: InProgress) -> None:
        self._in_progress: Final = in_progress
        self._recovered: set[bytes] = set()  # recovered after a crash and not evaluated since
        self._slots: Final = list(range(_PIPELINE + 1, SLOTS))  # free ones, for results that come later
        self.set_aside: Callable[[Sequence[Report], str], bool] = lambda *_: False

    def recover(self, buffer: TraceBuffer, closed: Sequence[ClosedTrace], needed: Callable[[bytes], bool]) -> list[ClosedTrace]:
        """Count the crash, if there was one.

        Args:
            buffer: what is open.
            closed: what was closed and not evaluated.
            needed: whether the trace with an id may still be evaluated.

        Returns:
            The closed traces, those that were being evaluated at a crash last.
        """
        for key, crashes in self._in_progress.recover(needed).items():
            _log.warning("the process crashed while it evaluated trace %s, %d times by now", key[:16].hex(), crashes.times)
        if self._in_progress.crashed:
            self._recovered = buffer.undecided().union(each.trace_id for each in closed)
        suspected = {each.trace_id for each in closed if self._crashes(each).times}
        return sorted(closed, key=lambda each: each.trace_id in suspected)

    def batches(self, closed: Sequence[ClosedTrace]) -> Iterator[Sequence[ClosedTrace]]:
        """What is journaled together: traces that were recovered after a crash one by one, each before the next is evaluated."""
        for alone, traces in groupby(closed, lambda each: each.trace_id in self._recovered):
            batch = list(traces)
            yield from ([each] for each in batch) if alone else [batch]

    def begin(self, trace: ClosedTrace) -> Crashes:
        """Record that the evaluation of a trace begins; how often the process crashed during it before."""
        durable = self._in_progress.rebooted and trace.trace_id in self._recovered
        self._in_progress.begin(_PIPELINE, _key(trace), durable=durable)
        return self._crashes(trace)

    def scoring(self) -> None:
        """Record that the trajectories are built and scorers run."""
        self._in_progress.scoring(_PIPELINE)

    def end(self, trace: ClosedTrace) -> None:
        """Record that the evaluation ended."""
        self._in_progress.end(_PIPELINE)
        self._recovered.discard(trace.trace_id)

    def succeeded(self, trace: ClosedTrace) -> None:
        """Forget the crashes during the evaluation of a trace: it was evaluated."""
        self._in_progress.forget(_key(trace))

    @contextmanager
    def later(self, trace_id: str) -> Iterator[None]:
        """Record that a result that comes later is worked on; where more than 63 are, the others are not recorded."""
        try:
            slot = self._slots.pop()
        except IndexError:
            yield
            return
        self._in_progress.begin(slot, key_of_trace(bytes.fromhex(trace_id), _LATER))
        self._in_progress.scoring(slot)
        try:
            yield
        finally:
            self._in_progress.end(slot)
            self._slots.append(slot)

    def crashes_later(self, trace_id: bytes) -> int:
        """How often the process crashed while results of the trace that come later were worked on."""
        return self._in_progress.crashes(key_of_trace(trace_id, _LATER)).times

    def give_up(self, engine: Engine, trace: ClosedTrace, stamp: Stamp, crashes: Crashes) -> list[Report]:
        """Write the failed results of a trace to the dead-letter file; the reports that are to be exported.

        They are results of its runs if these could be built at the last attempt, else of the trace alone.
        """
        reports = self._built(engine, trace, stamp) if crashes.scoring else engine.unbuilt(trace, stamp, _CRASHED)
        failed = [each for each in reports if each.results]
        aside = bool(failed) and self.set_aside(failed, WHY)
        where = "in the dead-letter file" if aside else "exported"
        _log.warning("trace %s is not evaluated again: %s; its results are failed and %s", trace.trace_id.hex(), WHY, where)
        return [each for each in reports if not (aside and each.results)]

    def _built(self, engine: Engine, trace: ClosedTrace, stamp: Stamp) -> list[Report]:
        try:
            return engine.evaluate(trace, stamp, lambda *_: self.scoring(), _CRASHED)
        except Exception as error:  # noqa: BLE001 - the trace must be done with, whatever is in it
            _log.warning("the runs of trace %s could not be built: %s", trace.trace_id.hex(), type(error).__name__)
            return engine.unbuilt(trace, stamp, _CRASHED)

    def _crashes(self, trace: ClosedTrace) -> Crashes:
        return self._in_progress.crashes(_key(trace))


def _key(trace: ClosedTrace) -> bytes:
    return key_of_trace(trace.trace_id, trace.part.tops if trace.part else ())
