"""Joins the metrics of the workers, and finds the one whose health is worst."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from otel_eval.admin import Readiness
from otel_eval.admin.prometheus import Family

__all__ = ["joined_families", "worst_readiness"]


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
