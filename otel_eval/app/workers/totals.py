"""Adds up what the workers counted, and finds the one whose health is worst."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from otel_eval.admin import Readiness
from otel_eval.admin.prometheus import Family

__all__ = ["joined_families", "total_counts", "worst_readiness"]

_GREATEST: Final = frozenset(
    {"oldest_trace_s", "evaluating_s", "exporter.certificate_not_after", "exports.unsupported", "forward.unsupported"}
)


def total_counts(several: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Sums, by transport where there are several; of ages, and of what is the same for all, the greatest."""
    total: dict[str, Any] = {}
    for counts in several:
        for key, value in counts.items():
            before = total.get(key)
            if before is None:
                total[key] = value
            elif isinstance(value, Mapping):
                total[key] = total_counts((before, value))
            else:
                total[key] = max(before, value) if key.partition("{")[0] in _GREATEST else before + value
    return total


def joined_families(several: Iterable[Family]) -> list[Family]:
    """One family for each name, with the rows of all of that name."""
    joined: dict[str, Family] = {}
    for each in several:
        before = joined.get(each.name)
        joined[each.name] = replace(before, rows=[*before.rows, *each.rows]) if before else each
    return list(joined.values())


def worst_readiness(workers: Sequence[tuple[int, Readiness]]) -> Readiness:
    """Ready if every worker is; otherwise, and for what is shown, the first worker that is not, or that waits for something."""
    number, worst = min(workers, key=lambda each: (each[1].ready, not each[1].why))
    ready = sum(found.ready for _, found in workers)
    why = f"worker {number}: {worst.why}" if worst.why else ""
    return Readiness(worst.ready, why, {"workers_ready": f"{ready} of {len(workers)}", **worst.evaluation})
