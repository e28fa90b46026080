"""Expected calls against actual ones: which belong together, and how much that weighs.

Knows names, batches and agreement; knows no thresholds and writes no sentences. Every matching scorer asks here.
Unless arguments or results are compared, a pair weighs 0 or 1 and names alone decide: then bit rows and counting do
the work; otherwise weights are laid out per pair of same-named calls.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import fsum
from typing import Any

from otel_eval.scorers.aligned import Alignment, Pairs, misplaced, new_alignment
from otel_eval.scorers.assignment import TooMuch, assign
from otel_eval.scorers.batches import Visit, batches, follow_one_another
from otel_eval.scorers.expected import Comparison, Expectation
from otel_eval.scorers.ordered import align_in_order
from otel_eval.scorers.subsequence import common, common_in_groups, prepare
from otel_eval.scorers.weights import Rows, Unrecorded, allowed, weights_of

__all__ = ["TooMuch", "Unrecorded", "align", "fits_exactly", "pairs_in_python"]


def align(
    expectation: Expectation,
    visits: Sequence[Visit],
    match: str,
    compared: Comparison,
    *,
    concurrency: bool,
    prepared: Any = None,
) -> Alignment:
    """The heaviest alignment: `in_order` (also for `exact`) keeps both orders, `any_order` is a one-to-one assignment.

    `prepared` are the expected calls for the shortcut in C, if there is one.

    Raises:
        Unrecorded: arguments or results are compared that a same-named call did not record.
        TooMuch: so many same-named calls with arguments or results that weighing them would take more than about a second.
    """
    anyhow = match == "any_order"
    if compared.names_only or expectation.bare:
        return _align_names(expectation, visits, anyhow, concurrency)
    shortcut = None if prepared is None else prepared.pairs(visits, anyhow, concurrency, True)
    if shortcut is not None:
        pairs, weights, moved = shortcut
        return new_alignment(pairs, weights, fsum(weights), moved)
    work = allowed()
    rows = weights_of(expectation, visits, compared, work)
    actual = [] if anyhow else _batches(visits, concurrency)
    pairs = assign(rows, work) if anyhow else align_in_order(rows, expectation.groups, actual, alike=False, work=work)
    weights = [rows[row][column] for row, column in pairs]
    names = [visit.name for visit in visits]
    moved = [] if anyhow else misplaced(expectation.prepared.names, names, pairs, lambda row, column: column in rows[row])
    return new_alignment(pairs, weights, fsum(weights), moved)


def _align_names(expectation: Expectation, visits: Sequence[Visit], anyhow: bool, concurrency: bool) -> Alignment:
    pairs = None
    if expectation.names is not None:
        pairs = expectation.names.pairs(visits, anyhow, expectation.nested, concurrency)
    names = [visit.name for visit in visits]
    if pairs is None:
        pairs = pairs_in_python(expectation, visits, names, anyhow=anyhow, concurrency=concurrency)
    return new_alignment(pairs, None, float(len(pairs)), [] if anyhow else misplaced(expectation.prepared.names, names, pairs))


def pairs_in_python(
    expectation: Expectation, visits: Sequence[Visit], names: list[str], *, anyhow: bool, concurrency: bool
) -> Pairs:
    """The pairs that names alone decide, of any calls; the shortcut in C finds them for plain ones."""
    if expectation.prepared.names == tuple(names):
        return [(each, each) for each in range(len(names))]
    return _same_names(expectation, names) if anyhow else _names_in_order(expectation, visits, names, concurrency)


def _batches(visits: Sequence[Visit], concurrency: bool) -> list[range]:
    if concurrency and not follow_one_another(visits):
        return batches(visits)
    return [range(each, each + 1) for each in range(len(visits))]


def _same_names(expectation: Expectation, names: Sequence[str]) -> Pairs:
    """The n-th expected call of a name with the n-th actual one: as many pairs as there can be."""
    waiting: dict[str, list[int]] = {}
    for position in range(len(names) - 1, -1, -1):
        waiting.setdefault(names[position], []).append(position)
    return [(row, waiting[call.name].pop()) for row, call in enumerate(expectation.calls) if waiting.get(call.name)]


def _names_in_order(expectation: Expectation, visits: Sequence[Visit], names: list[str], concurrency: bool) -> Pairs:
    groups = None if not concurrency or follow_one_another(visits) else batches(visits)
    if groups is None or len(groups) == len(names):
        if not expectation.nested:
            return common(expectation.prepared, names)
        turned = common_in_groups(prepare(names), expectation.prepared.names, expectation.groups)
        return sorted((row, column) for column, row in turned)
    if not expectation.nested:
        return common_in_groups(expectation.prepared, names, groups)
    return align_in_order(_rows_by_name(expectation, names), expectation.groups, groups, alike=True)


def fits_exactly(expectation: Expectation, visits: Sequence[Visit], compared: Comparison, *, concurrency: bool) -> bool:
    """Whether there is one call for each expected one and, in some order the groups allow, each pair weighs 1.

    Raises:
        Unrecorded: as `align` does.
    """
    if len(visits) != len(expectation.calls):
        return False
    if compared.names_only or expectation.bare:
        names = [visit.name for visit in visits]
        if expectation.prepared.names == tuple(names):
            return True
        if not expectation.nested and (not concurrency or follow_one_another(visits)):
            return False
        return _fills(_rows_by_name(expectation, names), expectation.groups, _batches(visits, concurrency))
    groups, rows = _batches(visits, concurrency), weights_of(expectation, visits, compared, allowed())
    whole = [[column for column, weight in row.items() if weight == 1] for row in rows]
    return _fills(whole, expectation.groups, groups)


def _rows_by_name(expectation: Expectation, names: Sequence[str]) -> Rows:
    columns: dict[str, dict[int, float]] = {}
    for column, name in enumerate(names):
        columns.setdefault(name, {})[column] = 1.0
    return [columns.get(call.name, {}) for call in expectation.calls]


def _fills(rows: Sequence[Iterable[int]], groups: Sequence[range], actual: Sequence[range]) -> bool:
    """Whether every row gets one of its columns, of a batch that shares places with the row's group."""
    batch_of = [batch for batch in actual for _ in batch]
    allowed = []
    for group in groups:
        first, last = batch_of[group.start].start, batch_of[group.stop - 1].stop
        allowed += [{column: 1.0 for column in rows[row] if first <= column < last} for row in group]
    return len(assign(allowed)) == len(rows)
