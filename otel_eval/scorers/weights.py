"""What each pair of an expected and an actual call of one name weighs, where arguments or results are compared.

Knows agreement, and how much work comparing may take; knows no order. Names alone need no weights.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from otel_eval.model import UNRECORDED, ToolCall, Unnamed
from otel_eval.scorers.agreement import MODES, decoded, frozen, is_unnamed
from otel_eval.scorers.assignment import Work
from otel_eval.scorers.batches import Visit
from otel_eval.scorers.expected import Comparison, Expectation, Expected

__all__ = ["Rows", "Unrecorded", "allowed", "kind_of", "limits", "weights_of"]

Rows = list[dict[int, float]]  # by expected call: actual call → weight in (0, 1]
Column = tuple[int, ToolCall, Any]  # position, call, decoded result

_MANY_PAIRS: Final = 2500  # beyond, equal calls are looked for: that costs more than it saves for fewer
_MOST_STEPS: Final = 9_000_000  # looks at a pair: about a second
_COMPARED, _KEY = 4, 3  # steps that comparing arguments costs, and for each key where all are looked at


class Unrecorded(Exception):
    """A same-named call did not record what the expectation names. `why` says what and where."""


def allowed() -> Work:
    """The work that one alignment may take."""
    return Work(_MOST_STEPS)


def limits() -> tuple[int, int, int, int]:
    """What the shortcut in C keeps to as well.

    Pairs beyond which equal calls are compared once, steps that may be taken, steps for a comparison, and for each key.
    """
    return _MANY_PAIRS, _MOST_STEPS, _COMPARED, _KEY


def weights_of(expectation: Expectation, visits: Sequence[Visit], compared: Comparison, work: Work) -> Rows:
    """By expected call what each actual one of its name weighs, if anything.

    Raises:
        Unrecorded: a same-named call did not record what the expectation names.
        TooMuch: it would take more work than is allowed.
    """
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
        if by_arguments is not None and type(actual.arguments) is Unnamed and not is_unnamed(call.arguments):
            raise Unrecorded(f"names of the arguments of {actual.name} (call {column}) not recorded")
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
