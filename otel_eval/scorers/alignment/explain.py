"""An alignment, and what its explanation and details say: which calls are matched, missing, extra or out of order.

The details of every scorer that aligns: `matched` [[expected, actual], …] (with the weight where arguments or results are
compared), `missing` [{tool, expected}], `extra` [{tool, actual}], `misplaced` [{tool, expected, actual}], `seen` [tool];
positions count from 0 among the calls that are looked at.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from otel_eval.model import UNRECORDED
from otel_eval.scorers.alignment.expected import Expectation
from otel_eval.scorers.alignment.parallel_calls import Visit
from otel_eval.scorers.wording import listed, plural, seen

__all__ = ["Alignment", "Pairs", "Reasons", "explained", "left_over"]

Pairs = list[tuple[int, int]]
Reasons = tuple[str, Mapping[str, Any]]  # explanation and details
_MOST_CONTENT: Final = 400


@dataclass(frozen=True, slots=True)
class Alignment:
    """Expected and actual calls in pairs.

    Attributes:
        pairs: (expected, actual), in order of expectation.
        weights: what each pair weighs; None where names alone are compared: each weighs 1.
        weight: their sum.
        missing, extra: expected and actual calls in no pair, but for misplaced ones.
        misplaced: pairs of an expected call that is missing and an extra one that agrees in all but its place.
    """

    pairs: Pairs
    weights: list[float] | None
    weight: float
    missing: list[int]
    extra: list[int]
    misplaced: Pairs


def left_over(count: int, paired: Sequence[int]) -> list[int]:
    """The positions below `count` that are in no pair.

    >>> left_over(4, [2, 0])
    [1, 3]
    """
    if len(paired) == count:
        return []
    left = set(range(count))
    left.difference_update(paired)
    return sorted(left)


def explained(alignment: Alignment, expectation: Expectation, visits: Sequence[Visit], *, content: bool) -> Reasons:
    """Explanation and details of an alignment.

    With `content` arguments and results of what is not matched, or only in part, are shown as well.
    """
    pairs, wanted = alignment.pairs, expectation.calls
    partial = alignment.weight < len(pairs)
    said = f"{len(pairs)} of {plural(len(wanted), 'expected call')} matched"
    if partial:
        said += f" (agreement {alignment.weight:.3g})"
    missing, extra, misplaced = alignment.missing, alignment.extra, alignment.misplaced
    details: dict[str, Any] = {
        "matched": _matched(alignment),
        "missing": [{"tool": wanted[row].name, "expected": row} for row in missing],
        "extra": [{"tool": visits[column].name, "actual": column} for column in extra],
        "misplaced": [{"tool": visits[column].name, "expected": row, "actual": column} for row, column in misplaced],
        "seen": seen(visits),
    }
    if missing:
        said += f"; missing: {listed([(wanted[row].name, row) for row in missing])}"
    if extra:
        said += f"; extra: {listed([(visits[column].name, column) for column in extra])}"
    if misplaced:
        said += f"; out of order: {listed([(visits[column].name, column) for _, column in misplaced])}"
    if content and (partial or len(pairs) < max(len(wanted), len(visits))):
        details["content"] = _content(expectation, visits, alignment)
        said += f"; content: {_cut(json.dumps(details['content'], ensure_ascii=False, default=str))}"
    return said, details


def _matched(alignment: Alignment) -> list[list[Any]]:
    if alignment.weights is None:
        return list(map(list, alignment.pairs))
    return [[row, column, weight] for (row, column), weight in zip(alignment.pairs, alignment.weights, strict=True)]


def _content(expectation: Expectation, visits: Sequence[Visit], alignment: Alignment) -> list[dict[str, Any]]:
    partial = [pair for pair, weight in zip(alignment.pairs, alignment.weights or (), strict=False) if weight < 1]
    wanted = expectation.calls
    shown = [{"expected": row, **_values(wanted[row]), "actual": at, "found": _values(visits[at])} for row, at in partial]
    shown += [{"expected": row, **_values(wanted[row])} for row in alignment.missing]
    return shown + [{"actual": column, "found": _values(visits[column])} for column in alignment.extra]


def _values(call: Any) -> dict[str, Any]:
    fields = {"tool": call.name}
    for key in ("arguments", "result"):
        if getattr(call, key, UNRECORDED) is not UNRECORDED:
            fields[key] = getattr(call, key)
    return fields


def _cut(said: str) -> str:
    return said if len(said) <= _MOST_CONTENT else said[: _MOST_CONTENT - 1] + "…"
