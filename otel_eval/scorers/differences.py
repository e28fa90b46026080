"""What an alignment says of expected and actual calls: which are matched, missing, extra or out of order.

Knows sentences and details; knows no values, and decides nothing. The details of every scorer that aligns: `matched`
[[expected, actual], …] (with the weight where arguments or results are compared), `missing` [{tool, expected}], `extra`
[{tool, actual}], `misplaced` [{tool, expected, actual}], `seen` [tool]; positions count from 0 among the calls that are
looked at.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from otel_eval.model import UNRECORDED
from otel_eval.scorers.aligned import Alignment, left_over
from otel_eval.scorers.batches import Visit
from otel_eval.scorers.expected import Expectation
from otel_eval.scorers.wording import listed, plural, seen

__all__ = ["Reasons", "explained"]

Reasons = tuple[str, Mapping[str, Any]]  # explanation and details
_MOST_CONTENT: Final = 400


def explained(alignment: Alignment, expectation: Expectation, visits: Sequence[Visit], *, content: bool) -> Reasons:
    """Explanation and details of an alignment.

    With `content` arguments and results of what is not matched, or only in part, are told as well.
    """
    pairs, wanted = alignment.pairs, expectation.calls
    partial = alignment.weight < len(pairs)
    said = f"{len(pairs)} of {plural(len(wanted), 'expected call')} matched"
    if partial:
        said += f" (agreement {alignment.weight:.3g})"
    details: dict[str, Any] = {"matched": _matched(alignment), "missing": [], "extra": [], "misplaced": [], "seen": seen(visits)}
    if len(pairs) == len(wanted) == len(visits) and not (partial and content):
        return said, details
    misplaced = alignment.misplaced
    missing = left_over(len(wanted), [row for row, _ in pairs + misplaced])
    extra = left_over(len(visits), [column for _, column in pairs + misplaced])
    details["missing"] = [{"tool": wanted[row].name, "expected": row} for row in missing]
    details["extra"] = [{"tool": visits[column].name, "actual": column} for column in extra]
    details["misplaced"] = [{"tool": visits[column].name, "expected": row, "actual": column} for row, column in misplaced]
    if missing:
        said += f"; missing: {listed([(wanted[row].name, row) for row in missing])}"
    if extra:
        said += f"; extra: {listed([(visits[column].name, column) for column in extra])}"
    if misplaced:
        said += f"; out of order: {listed([(visits[column].name, column) for _, column in misplaced])}"
    if content:
        details["content"] = _content(expectation, visits, missing, extra, alignment)
        said += f"; content: {_cut(json.dumps(details['content'], ensure_ascii=False, default=str))}"
    return said, details


def _matched(alignment: Alignment) -> list[list[Any]]:
    if alignment.weights is None:
        return list(map(list, alignment.pairs))
    return [[row, column, weight] for (row, column), weight in zip(alignment.pairs, alignment.weights, strict=True)]


def _content(
    expectation: Expectation, visits: Sequence[Visit], missing: Sequence[int], extra: Sequence[int], alignment: Alignment
) -> list[dict[str, Any]]:
    partial = [pair for pair, weight in zip(alignment.pairs, alignment.weights or (), strict=False) if weight < 1]
    wanted = expectation.calls
    told = [{"expected": row, **_values(wanted[row]), "actual": at, "found": _values(visits[at])} for row, at in partial]
    told += [{"expected": row, **_values(wanted[row])} for row in missing]
    return told + [{"actual": column, "found": _values(visits[column])} for column in extra]


def _values(call: Any) -> dict[str, Any]:
    fields = {"tool": call.name}
    for key in ("arguments", "result"):
        if getattr(call, key, UNRECORDED) is not UNRECORDED:
            fields[key] = getattr(call, key)
    return fields


def _cut(said: str) -> str:
    return said if len(said) <= _MOST_CONTENT else said[: _MOST_CONTENT - 1] + "…"
