"""Results for a sink that counts each run once: a run that may turn out to lie inside another one waits until that is known."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Final

from otel_eval.model import UNRECORDED, Completeness, Report, Trajectory
from otel_eval.ports import Sink

__all__ = ["FinalResults"]

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
