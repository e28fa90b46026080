"""Parts of reports that an exporter deferred: they are retried by themselves, while the queue goes
on.
"""

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
    """A report that was exported in part.

    Attributes:
        remaining: the report with the results that were not exported.
        queued: the report as it was queued, to be acknowledged.
        since: the monotonic time at which it was deferred first.
        attempted_at: the monotonic time of the last attempt.
        delay_s: seconds from then to the next attempt.
        delays: the waits before later attempts, in seconds.
    """

    remaining: Report
    queued: Report
    since: float
    attempted_at: float
    delay_s: float
    delays: Iterator[float]


class DeferredReports:
    """Reports that wait for their next attempt, with backoff. Not thread-safe: the queue has the
    lock.
    """

    def __init__(self, retry: RetryPolicy) -> None:
        self._retry: Final = retry
        # by `id(remaining)`, in order of the last attempts
        self._deferred: dict[int, _Deferred] = {}

    def __len__(self) -> int:
        return len(self._deferred)

    @property
    def reports(self) -> list[Report]:
        """The reports with the results that were not exported."""
        return [each.remaining for each in self._deferred.values()]

    @property
    def since(self) -> float:
        """The monotonic time at which the oldest was deferred; infinite if there is none."""
        return min([each.since for each in self._deferred.values()], default=inf)

    def due(self, hurry: bool) -> list[Report]:
        """The reports to retry now; in a hurry each wait is `RetryPolicy.last_s`."""
        now = time.monotonic()
        return [
            each.remaining for each in self._deferred.values() if self._due_at(each, hurry) <= now
        ]

    def due_in_s(self, hurry: bool) -> float:
        """Seconds until a report is due; infinite if there is none."""
        return (
            min([self._due_at(each, hurry) for each in self._deferred.values()], default=inf)
            - time.monotonic()
        )

    def _due_at(self, each: _Deferred, hurry: bool) -> float:
        return each.attempted_at + (self._retry.last_s if hurry else each.delay_s)

    def finish(self, reports: Sequence[Report], deferred: dict[int, Report]) -> list[Report]:
        """Record the outcome of an attempt to export `reports`; `deferred` are those to retry, by
        place in the batch.

        Returns:
            The reports, as they were queued, that need no further attempt.
        """
        if not (self._deferred or deferred):
            return list(reports)
        now, finished = time.monotonic(), []
        for at, report in enumerate(reports):
            before = self._deferred.pop(id(report), None)
            queued = before.queued if before else report
            if at in deferred:
                waits = before.delays if before else delays(self._retry)
                self._deferred[id(deferred[at])] = _Deferred(
                    deferred[at], queued, before.since if before else now, now, next(waits), waits
                )
            else:
                finished.append(queued)
        return finished


def results_of(reports: Sequence[Report]) -> int:
    """The number of results in the reports."""
    return sum([len(report.results) for report in reports])


def refusals_of(
    result: ExportResult, reports: Sequence[Report]
) -> list[tuple[str, Sequence[Report]]]:
    """The reports of an accepted batch that were refused, grouped by reason."""
    by_reason: dict[str, list[Place]] = {}
    for place in result.failed:
        by_reason.setdefault(result.reasons.get(place, result.reason), []).append(place)
    return [(why, list(parts_of(reports, places).values())) for why, places in by_reason.items()]


def parts_of(reports: Sequence[Report], places: Sequence[Place]) -> dict[int, Report]:
    """The reports at these places, by place in the batch; only with the results at these places if
    results are named.
    """
    named: dict[int, set[int]] = {}
    for place in places:
        at, some = (
            (place, range(len(reports[place].results)))
            if isinstance(place, int)
            else (place[0], place[1:])
        )
        named.setdefault(at, set()).update(some)
    return {at: _with_results(reports[at], some) for at, some in sorted(named.items())}


def _with_results(report: Report, places: Collection[int]) -> Report:
    if len(places) == len(report.results):
        return report
    return replace(report, results=tuple([report.results[at] for at in sorted(places)]))
