"""Compute the weight of each pair of an expected and an actual call whose arguments or results are
compared.

Calls of one tool are compared once for each two different arguments.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from otel_eval.records import record
from otel_eval.scorers.alignment.assignment import bits_of
from otel_eval.scorers.alignment.expected import (
    Criterion,
    Expected,
    Mode,
    arguments_word,
    limit_pairs,
)
from otel_eval.scorers.values import agreement, as_object, decode_json, hashable, is_object

# Pairs of different arguments of one tool that are weighed by `overlap`, where members of nested
# objects are weighed, too; and that are compared by other modes.
_MOST_WEIGHED: Final = 250_000
_MOST_COMPARED: Final = 1_000_000


@record
class Relation:
    """Which expected and actual calls agree, and the weight of each pair that does.

    Attributes:
        masks: for each expected call, an integer with one bit set for each actual call that agrees.
        rows: for each expected call, actual call → weight in (0, 1]; None if each pair weighs 1.
        alike: for each actual call, the first one that has the same weights against every expected
            call.
    """

    masks: list[int]
    rows: list[dict[int, float]] | None
    alike: Sequence[int] = ()


def relation_of(criterion: Criterion, calls: Sequence[Any]) -> Relation:
    """Return the relation of expected and actual calls.

    Raises:
        TooManyPairs: too many pairs would be compared one by one.
    """
    mode, expected = criterion.comparison.arguments, criterion.expectation.calls
    agrees = agreement("exact" if mode is None else mode)
    alike, kinds = _kinds_of_calls(criterion, calls)
    # Equal expected calls are compared once; where a value cannot be hashed, each by itself.
    keys: Sequence[Hashable] = criterion.keys or range(len(expected))
    distinct = dict(zip(keys, zip(expected, criterion.compared_fields, strict=True), strict=True))
    _limit_comparisons([call for call, _ in distinct.values()], kinds, weighed=mode == "overlap")
    rows: dict[Hashable, dict[int, float]] = {}
    for key, (call, fields) in distinct.items():
        arguments = as_object(call.arguments) if fields.arguments else None
        row: dict[int, float] = {}
        for kind in kinds.get(call.name, {}).values():
            weight = 1.0 if arguments is None else agrees(arguments, kind.arguments)
            if weight:
                for result, columns in kind.results.values():
                    if not fields.result or result == call.result:
                        row.update(dict.fromkeys(columns, weight))
        rows[key] = dict(sorted(row.items()))
    masks = {key: bits_of(row) for key, row in rows.items()}
    whole = all(weight == 1 for row in rows.values() for weight in row.values())
    return Relation(
        [masks[key] for key in keys], None if whole else [rows[key] for key in keys], alike
    )


class _Kind(NamedTuple):
    """The calls of one tool with equal arguments.

    Attributes:
        arguments: their arguments as an object; empty if no arguments of the tool are compared.
        results: by its hashable form, each result with the positions of the calls that have it.
    """

    arguments: Mapping[str, Any]
    results: dict[Hashable, tuple[object, list[int]]]


_Kinds = Mapping[str, dict[Hashable, _Kind]]
"""Tool → the hashable form of arguments → the calls that have them."""


def _kinds_of_calls(criterion: Criterion, calls: Sequence[Any]) -> tuple[list[int], _Kinds]:
    """For each call the first one that is equal in all compared fields, and the kinds of calls."""
    mode = criterion.comparison.arguments
    with_arguments = {name for name, fields in criterion.required if fields.arguments}
    with_results = {name for name, fields in criterion.required if fields.result}
    alike, first = list(range(len(calls))), dict[object, int]()
    kinds: dict[str, dict[Hashable, _Kind]] = {}
    for at, call in enumerate(calls):
        if call.name not in criterion.fields:
            continue
        arguments = as_object(call.arguments) if call.name in with_arguments else _NO_ARGUMENTS
        result = decode_json(call.result) if call.name in with_results else None
        key, result_key = _key_of(arguments, mode), _key_of(result, None)
        alike[at] = first.setdefault((call.name, key, result_key), at)
        kind = kinds.setdefault(call.name, {}).setdefault(key, _Kind(arguments, {}))
        kind.results.setdefault(result_key, (result, []))[1].append(at)
    return alike, kinds


_NO_ARGUMENTS: Final[Mapping[str, Any]] = {}


def _key_of(value: object, mode: Mode) -> Hashable:
    """A hashable value that is equal for arguments or results that are equal; for one that cannot
    be hashed, equal to nothing else.
    """
    try:
        return arguments_word(value, mode) if isinstance(mode, tuple) else hashable(value)
    except (TypeError, RecursionError):
        return object()


def _limit_comparisons(expected: Sequence[Expected], kinds: _Kinds, *, weighed: bool) -> None:
    """Refuse too many pairs of different arguments of one tool; where they are weighed, one with
    nested objects counts for each of their members, too.

    Raises:
        TooManyPairs: there are too many.
    """

    def size(arguments: object) -> int:
        return 1 + (_nested_members(as_object(arguments)) if weighed else 0)

    by_name: dict[str, list[int]] = {}
    for call in expected:
        by_name.setdefault(call.name, []).append(size(call.arguments))
    pairs = 0
    for name, sizes in by_name.items():
        others = [size(kind.arguments) for kind in kinds.get(name, {}).values()]
        pairs += (len(sizes) * sum(others) + len(others) * sum(sizes)) // 2
    limit_pairs(pairs, _MOST_WEIGHED if weighed else _MOST_COMPARED)


def _nested_members(arguments: Mapping[str, Any]) -> int:
    """How many members the objects inside of arguments have."""
    objects = [value for value in arguments.values() if is_object(value)]
    return sum([len(members) + _nested_members(members) for members in objects])
