"""Parts of reports: the results that an exporter accepted, refused or deferred."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from otel_eval.model import Report
from otel_eval.retry import ExportResult, Place


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
    return [
        (reason, list(parts_of(reports, places).values())) for reason, places in by_reason.items()
    ]


def parts_of(reports: Sequence[Report], places: Sequence[Place]) -> dict[int, Report]:
    """The reports at these places, by index in the batch; only with the results at these places if
    results are named.
    """
    results: dict[int, set[int]] = {}
    for place in places:
        if isinstance(place, int):
            results.setdefault(place, set()).update(range(len(reports[place].results)))
        else:
            results.setdefault(place[0], set()).add(place[1])
    return {index: _with_results(reports[index], some) for index, some in sorted(results.items())}


def _with_results(report: Report, indices: Collection[int]) -> Report:
    if len(indices) == len(report.results):
        return report
    return replace(report, results=tuple([report.results[index] for index in sorted(indices)]))
