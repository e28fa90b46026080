"""Expected calls against actual ones: which belong together, and how much that weighs.

Knows names, batches and agreement; knows no thresholds and writes no sentences. Every matching scorer asks here.
Unless arguments or results are compared, a pair weighs 0 or 1 and names alone decide: then bit rows and counting do
the work; otherwise weights are laid out per pair of same-named calls.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import fsum
from typing import Any, Final

from otel_eval.model import UNRECORDED, ToolCall
from otel_eval.native import extension, maker
from otel_eval.scorers.agreement import MODES, Agreement, decoded, frozen
from otel_eval.scorers.assignment import TooMuch, Work, assign
from otel_eval.scorers.batches import Visit, batches, follow_one_another
from otel_eval.scorers.ordered import align_in_order
from otel_eval.scorers.subsequence import Prepared, common, common_in_groups, prepare

__all__ = [
    "Alignment",
    "Comparison",
    "Expectation",
    "Expected",
    "TooMuch",
    "Unrecorded",
    "align",
    "fits_exactly",
    "kind_of",
    "limits",
]

Pairs = list[tuple[int, int]]
Rows = list[dict[int, float]]
Column = tuple[int, ToolCall, Any]  # position, call, decoded result

_matching: Final = extension("_matching")
_MANY_PAIRS: Final = 2500  # beyond, equal calls are looked for: that costs more than it saves for fewer
_MOST_STEPS: Final = 9_000_000  # looks at a pair: about a second
_COMPARED, _KEY = 4, 3  # steps that comparing arguments costs, and for each key where all are looked at


@dataclass(frozen=True, slots=True)
class Expected:
    """One expected call. `arguments` and `result` are `UNRECORDED` where the expectation does not name them."""

    name: str
    arguments: Any = UNRECORDED
    result: Any = UNRECORDED


@dataclass(frozen=True, slots=True)
class Expectation:
    """Expected calls in order, prepared once. `groups` are the positions that may come in any order."""

    calls: tuple[Expected, ...]
    groups: tuple[range, ...]
    prepared: Prepared = field(init=False, repr=False, compare=False)
    names: Any = field(init=False, repr=False, compare=False)  # prepared for the shortcut in C; None: there is none
    bare: bool = field(init=False, repr=False, compare=False)  # no call names arguments or a result
    nested: bool = field(init=False, repr=False, compare=False)  # some group has more than one member

    def __post_init__(self) -> None:
        object.__setattr__(self, "prepared", prepare([call.name for call in self.calls]))
        object.__setattr__(self, "names", None if _matching is None else _matching.names(self.prepared.names))
        named = any(call.arguments is not UNRECORDED or call.result is not UNRECORDED for call in self.calls)
        object.__setattr__(self, "bare", not named)
        object.__setattr__(self, "nested", len(self.groups) < len(self.calls))


@dataclass(frozen=True, slots=True)
class Comparison:
    """What beside the names is compared: arguments by an agreement, results by equality."""

    arguments: Agreement | None = None
    results: bool = False

    @property
    def names_only(self) -> bool:
        """Whether nothing is."""
        return self.arguments is None and not self.results


class Unrecorded(Exception):
    """A same-named call did not record what the expectation names. `why` says what and where."""


@dataclass(frozen=True, slots=True)
class Alignment:
    """The pairs (expected, actual) in order of expectation, what each weighs, and the sum."""

    pairs: Pairs
    rows: Rows | None  # expected → actual → weight; None: equal names weigh 1
    weight: float


_new_alignment: Final = maker(Alignment)


def align(expectation: Expectation, visits: Sequence[Visit], match: str, compared: Comparison, *, concurrency: bool) -> Alignment:
    """The heaviest alignment: `in_order` (also for `exact`) keeps both orders, `any_order` is a one-to-one assignment.

    Raises:
        Unrecorded: arguments or results are compared that a same-named call did not record.
        TooMuch: so many same-named calls with arguments or results that weighing them would take more than about a second.
    """
    if compared.names_only or expectation.bare:
        names = [visit.name for visit in visits]
        if expectation.prepared.names == tuple(names):
            return _new_alignment([(each, each) for each in range(len(names))], None, float(len(names)))
        anyhow = match == "any_order"
        pairs = _same_names(expectation, names) if anyhow else _names_in_order(expectation, visits, names, concurrency)
        return _new_alignment(pairs, None, float(len(pairs)))
    work = Work(_MOST_STEPS)
    rows = _rows(expectation, visits, compared, work)
    actual = [] if match == "any_order" else _batches(visits, concurrency)
    anyhow = match == "any_order"
    pairs = assign(rows, work) if anyhow else align_in_order(rows, expectation.groups, actual, alike=False, work=work)
    return Alignment(pairs, rows, fsum([rows[row][column] for row, column in pairs]))


def limits() -> tuple[int, int, int, int]:
    """What the shortcut in C keeps to as well.

    Pairs beyond which equal calls are compared once, steps that may be taken, steps for a comparison, and for each key.
    """
    return _MANY_PAIRS, _MOST_STEPS, _COMPARED, _KEY


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


def _rows(expectation: Expectation, visits: Sequence[Visit], compared: Comparison, work: Work) -> Rows:
    columns: dict[str, list[Column]] = {}
    for column, visit in enumerate(visits):
        if visit.name in expectation.prepared.masks:
            assert isinstance(visit, ToolCall), "only calls have arguments and results"
            result = decoded(visit.result) if compared.results else UNRECORDED
            columns.setdefault(visit.name, []).append((column, visit, result))
    if len(expectation.calls) * len(visits) > _MANY_PAIRS and compared.arguments:
        return _shared_rows(expectation, columns, compared, work)
    return [_row(call, columns.get(call.name, ()), compared) for call in expectation.calls]


def _shared_rows(expectation: Expectation, columns: Mapping[str, list[Column]], compared: Comparison, work: Work) -> Rows:
    """As row by row, but equal calls are compared once, and expected calls that are equal share one row."""
    kinds = {at: kind_of(visit.arguments) for each in columns.values() for at, visit, _ in each}
    rows: dict[Any, dict[int, float]] = {}
    found = []
    for call in expectation.calls:
        key = (call.name, kind_of(call.arguments), kind_of(call.result))
        if key not in rows:
            rows[key] = _row(call, columns.get(call.name, ()), compared, _by_kind(compared, kinds, work))
        found.append(rows[key])
    return found


def _by_kind(compared: Comparison, kinds: Mapping[int, Any], work: Work) -> Callable[[int, Any, Any], float]:
    """The agreement of one expected call's arguments with those of a column, asked once for all that are equal."""
    agrees = compared.arguments
    assert agrees is not None, "asked only where arguments are compared"
    by_share = agrees is MODES["overlap"]
    known: dict[Any, float] = {}

    def weigh(column: int, expected: Any, actual: Any) -> float:
        kind = kinds[column]
        if kind not in known:
            work.spend(_COMPARED + (_KEY * len(expected) if by_share and isinstance(expected, Mapping) else 0))
            known[kind] = agrees(expected, actual)
        return known[kind]

    return weigh


def kind_of(value: Any) -> Any:
    """Equal for equal values; for what cannot be hashed, the object itself."""
    try:
        kind = frozen(value)
        hash(kind)
    except TypeError:
        return "object", id(value)
    return kind


def _row(
    call: Expected, columns: Sequence[Column], compared: Comparison, weigh: Callable[[int, Any, Any], float] | None = None
) -> dict[int, float]:
    weights: dict[int, float] = {}
    by_arguments = compared.arguments if call.arguments is not UNRECORDED else None
    by_result = compared.results and call.result is not UNRECORDED
    for column, actual, result in columns:
        if by_arguments is not None and actual.arguments is UNRECORDED:
            raise Unrecorded(f"arguments of {actual.name} (call {column}) not recorded")
        if by_result and result is UNRECORDED:
            raise Unrecorded(f"result of {actual.name} (call {column}) not recorded")
        if by_result and result != call.result:
            continue
        if by_arguments is None:
            weight = 1.0
        elif weigh is None:
            weight = by_arguments(call.arguments, actual.arguments)
        else:
            weight = weigh(column, call.arguments, actual.arguments)
        if weight > 0:
            weights[column] = weight
    return weights


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
    groups, rows = _batches(visits, concurrency), _rows(expectation, visits, compared, Work(_MOST_STEPS))
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
