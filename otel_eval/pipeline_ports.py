"""What the pipeline asks of the parts around it: to wait for later results, to record evaluations, to keep what happens."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, Protocol

from otel_eval.assembly import Closing, TraceBuffer
from otel_eval.engine import Engine
from otel_eval.evaluations import ScorerSet
from otel_eval.interfaces import ClosedTrace, Crashes
from otel_eval.model import Report, Stamp, Trajectory

__all__ = ["MOST_CRASHES", "AsyncResults", "EvaluationAttempts", "EvaluationJournal", "Watch"]

MOST_CRASHES: Final = 2
"""Of the process during the evaluation of one trace, before it fails without another attempt."""


Watch = Callable[[Engine, ClosedTrace, Sequence[tuple[Trajectory, Sequence[ScorerSet]]], Sequence[Report]], None]
"""Takes an evaluated trace: the runs that were found, each with the evaluations that match it, and the reports on them."""


class AsyncResults(Protocol):
    """Brings what is pending in reports."""

    def put(self, report: Report) -> None:
        """Begin; never blocks."""
        ...

    def wait(self, timeout_s: float) -> bool:
        """Wait for what was put before; False if it was not all emitted in time."""
        ...

    def stop(self, timeout_s: float) -> bool:
        """The same, and take nothing more; what is not there in time is given up."""
        ...

    def counts(self) -> dict[str, int]:
        """What became of it."""
        ...


class EvaluationAttempts(Protocol):
    """Records evaluations before they begin, so that a trace whose evaluation ends the process is not evaluated forever."""

    def batches(self, closed: Sequence[ClosedTrace]) -> Iterable[Sequence[ClosedTrace]]:
        """What is evaluated, and then written down together, before the next batch is evaluated."""
        ...

    def begin(self, trace: ClosedTrace) -> Crashes:
        """Record that the evaluation of a trace begins; how often the process crashed during it before."""
        ...

    def scoring(self) -> None:
        """Record that the trajectories are built and scorers run."""
        ...

    def end(self, trace: ClosedTrace) -> None:
        """Record that the evaluation ended."""
        ...

    def succeeded(self, trace: ClosedTrace) -> None:
        """Forget the crashes during the evaluation of a trace."""
        ...

    def give_up(self, engine: Engine, trace: ClosedTrace, stamp: Stamp, crashes: Crashes) -> list[Report]:
        """Write failed results of a trace to the dead-letter file; the reports that are to be exported."""
        ...


class EvaluationJournal(Protocol):
    """Records what happens to spans, so that it can be repeated after a crash.

    `taken`, `closing` and `tidy` are called while the buffer is locked, in the order in which things happen to it.
    """

    @property
    def waits(self) -> str:
        """Why what was evaluated cannot be written down now, or ""."""
        ...

    @property
    def attempts(self) -> EvaluationAttempts:
        """Records evaluations before they begin."""
        ...

    def taken(self, origin: Any, trace_ids: Iterable[bytes]) -> int:
        """Write down a request whose items are about to be taken: a mark for `safe`. Overloaded: it cannot be written."""
        ...

    def safe(self, mark: int) -> None:
        """Wait until the request survives a crash. Overloaded: that cannot be known."""
        ...

    def closing(self, traces: Sequence[Closing]) -> bool:
        """Record which traces are about to be evaluated; False if that cannot be written now."""
        ...

    def note(self, evaluated: Sequence[tuple[ClosedTrace, Sequence[Report]]]) -> None:
        """Write down the reports on traces, so that they survive the process."""
        ...

    def evaluated(self) -> bool:
        """Wait until all that was noted survives the machine, before it is exported; False if the process ends first."""
        ...

    def tidy(self, buffer: TraceBuffer) -> None:
        """Remove what is not needed any more."""
        ...
