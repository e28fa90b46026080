"""What an exporter defers: parts of reports that are tried again by themselves, while the queue goes on."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Final

from otel_eval.model import Report
from otel_eval.retry import ExportResult, Place, RetryPolicy, delays


@dataclass(slots=True)
class _Deferred:
    """What is left of a report that was exported in part.

    Attributes:
        rest: the report with the results that were not exported.
        whole: the report as it was queued, to be acknowledged.
        tried: when, on the monotonic clock.
        delay_s: how long to wait from then on.
        delays: the waits after that.
    """

    rest: Report
    whole: Report
    tried: float
    delay_s: float
    delays: Iterator[float]


class DeferredReports:
    """Reports that wait for their next attempt, longer each time. Not safe for threads: the queue has the lock."""

    def __init__(self, retry: RetryPolicy) -> None:
        self._retry: Final = retry
        self._waiting: dict[int, _Deferred] = {}  # by the id of what is left, in order of the last attempts

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def reports(self) -> list[Report]:
        """What is left of each."""
        return [each.rest for each in self._waiting.values()]

    def due(self, hurry: bool) -> list[Report]:
        """What is to be tried again now; in a hurry each wait is short."""
        now = time.monotonic()
        return [each.rest for each in self._waiting.values() if self._due_at(each, hurry) <= now]

    def due_in_s(self, hurry: bool) -> float:
        """Seconds until something is due; infinite if nothing waits."""
        return min([self._due_at(each, hurry) for each in self._waiting.values()], default=inf) - time.monotonic()

    def _due_at(self, each: _Deferred, hurry: bool) -> float:
        return each.tried + (self._retry.last_s if hurry else each.delay_s)

    def finish(self, reports: Sequence[Report], deferred: dict[int, Report]) -> list[Report]:
        """After an attempt: keep what was deferred, by its place in the batch.

        Returns:
            The reports, as they were queued, of which nothing is left.
        """
        if not (self._waiting or deferred):
            return list(reports)
        now, finished = time.monotonic(), []
        for at, report in enumerate(reports):
            before = self._waiting.pop(id(report), None)
            whole = before.whole if before else report
            if at in deferred:
                waits = before.delays if before else delays(self._retry)
                self._waiting[id(deferred[at])] = _Deferred(deferred[at], whole, now, next(waits), waits)
            else:
                finished.append(whole)
        return finished


def results_of(reports: Sequence[Report]) -> int:
    """The number of results in the reports."""
    return sum([len(report.results) for report in reports])


def refusals_of(result: ExportResult, reports: Sequence[Report]) -> list[tuple[str, Sequence[Report]]]:
    """The reports of an accepted batch that were refused, grouped by reason."""
    by_reason: dict[str, list[Place]] = {}
    for place in result.failed:
        by_reason.setdefault(result.reasons.get(place, result.reason), []).append(place)
    return [(why, list(parts_of(reports, places).values())) for why, places in by_reason.items()]


def parts_of(reports: Sequence[Report], places: Sequence[Place]) -> dict[int, Report]:
    """The reports at these places with those of their results that are named, by their place in the batch."""
    named: dict[int, set[int]] = {}
    for place in places:
        at, some = (place, range(len(reports[place].results))) if isinstance(place, int) else (place[0], place[1:])
        named.setdefault(at, set()).update(some)
    return {at: _with_results(reports[at], some) for at, some in sorted(named.items())}


def _with_results(report: Report, places: Collection[int]) -> Report:
    if len(places) == len(report.results):
        return report
    return replace(report, results=tuple([report.results[at] for at in sorted(places)]))
