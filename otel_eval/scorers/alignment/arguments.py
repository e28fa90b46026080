"""Compute the weight of each pair of an expected and an actual call whose arguments or results are
compared.

Calls of one tool are compared once for each two different arguments; only `overlap` weighs pairs.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from math import fsum
from typing import Any, Final, NamedTuple

from otel_eval.records import record
from otel_eval.scorers.alignment.assignment import bits_of
from otel_eval.scorers.alignment.expected import (
    ANY,
    Criterion,
    Word,
    arguments_word,
    limit_pairs,
)
from otel_eval.scorers.values import (
    agreement,
    as_object,
    decode_json,
    hashable,
    is_object,
    overlap_share,
)

_FEW_PAIRS: Final = 100  # up to this number of pairs, comparing them costs less than hashing
# Pairs of different arguments of one tool that are weighed by `overlap`, or of calls whose values
# cannot be hashed. Members of nested objects are weighed, too.
_MOST_WEIGHED: Final = 250_000
_MOST_COMPARED: Final = 1_000_000  # pairs of different arguments of one tool, by other modes


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


Columns = Mapping[str, list[int]]  # the positions of the calls of each name


def relation_of(criterion: Criterion, calls: Sequence[Any]) -> Relation:
    """Return the relation of expected and actual calls, for criteria that equal words do not
    decide.

    Raises:
        TooManyPairs: too many pairs would be weighed one by one.
    """
    columns: dict[str, list[int]] = {}
    for at, call in enumerate(calls):
        if call.name in criterion.fields:
            columns.setdefault(call.name, []).append(at)
    pairs = sum([len(columns.get(name, ())) for name in criterion.names])
    if criterion.keys is not None and pairs > _FEW_PAIRS:
        try:
            return _hashed(criterion, criterion.keys, calls, columns)
        except (TypeError, RecursionError):
            pass  # some value cannot be hashed
    limit_pairs(pairs, _MOST_WEIGHED)
    return _pairwise(criterion, calls, columns)


def _pairwise(criterion: Criterion, calls: Sequence[Any], columns: Columns) -> Relation:
    """Compare each pair of calls: for few calls, or for values that cannot be hashed."""
    mode, rows = criterion.comparison.arguments, []
    agrees = agreement(mode) if mode is not None else None
    results = {
        at: decode_json(calls[at].result)
        for same in columns.values()
        for at in same
        if criterion.comparison.results
    }
    for call, fields in zip(criterion.expectation.calls, criterion.compared_fields, strict=True):
        row = dict[int, float]()
        for at in columns.get(call.name, ()):
            if not fields.result or results[at] == call.result:
                weight = (
                    agrees(call.arguments, calls[at].arguments)
                    if agrees and fields.arguments
                    else 1.0
                )
                if weight > 0:
                    row[at] = weight
        rows.append(row)
    whole = all(weight == 1 for row in rows for weight in row.values())
    return Relation(list(map(bits_of, rows)), None if whole else rows, range(len(calls)))


def _hashed(
    criterion: Criterion, keys: list[Word], calls: Sequence[Any], columns: Columns
) -> Relation:
    """Compare each two different arguments of a tool once, by their words.

    Raises:
        TypeError: a value cannot be hashed.
        TooManyPairs: too many different arguments would be compared.
    """
    mode = criterion.comparison.arguments
    alike, kinds = _kinds_of_calls(criterion, calls, columns)
    expected = {
        word: as_object(call.arguments)
        for word, call in zip(keys, criterion.expectation.calls, strict=True)
    }
    weighed = mode == "overlap" and any(word[1] is not ANY for word in expected)
    _limit_words(expected, kinds, weighed=weighed)
    agrees: _Agreement = _AGREES.get(mode, lambda word, other, *_: float(word == other))
    masks: dict[Word, int] = {}
    rows: dict[Word, dict[int, float]] = {}
    for word, arguments in expected.items():
        name, key, result = word
        row: dict[int, float] = {}
        for other, kind in kinds.get(name, _NO_KINDS).items():
            same = kind.columns.get(result, ())
            if same and (weight := 1.0 if key is ANY else agrees(key, other, arguments, kind)):
                row.update(dict.fromkeys(same, weight))
        masks[word] = bits_of(row)
        if weighed:
            rows[word] = dict(sorted(row.items()))
    return Relation(
        [masks[word] for word in keys], [rows[word] for word in keys] if weighed else None, alike
    )


class _Kind(NamedTuple):
    """The calls of one tool with equal arguments.

    Attributes:
        arguments: their arguments as an object.
        columns: result → the positions of the calls that have it; `ANY` → of every call.
    """

    arguments: Mapping[str, Any]
    columns: dict[Hashable, list[int]]


_Kinds = Mapping[Any, _Kind]  # by the words of the arguments
_NO_KINDS: Final[_Kinds] = {}
_NO_ARGUMENTS: Final[Mapping[str, Any]] = {}


def _kinds_of_calls(
    criterion: Criterion, calls: Sequence[Any], columns: Columns
) -> tuple[list[int], dict[str, _Kinds]]:
    """For each call the first one that is equal in all compared fields, and the kinds of the calls
    of each tool.

    Raises:
        TypeError: a value cannot be hashed.
    """
    mode = criterion.comparison.arguments
    with_arguments = {name for name, fields in criterion.required if fields.arguments}
    with_results = {name for name, fields in criterion.required if fields.result}
    alike, first = list(range(len(calls))), dict[object, int]()
    kinds: dict[str, _Kinds] = {}
    for name, same in columns.items():
        kinds_of_tool: dict[Any, _Kind] = {}
        for at in same:
            arguments, key, result = _NO_ARGUMENTS, ANY, ANY
            if name in with_arguments:
                arguments = as_object(calls[at].arguments)
                key = arguments_word(arguments, mode)
            if name in with_results:
                result = hashable(decode_json(calls[at].result))
            alike[at] = first.setdefault((name, key, result), at)
            kind = kinds_of_tool.setdefault(key, _Kind(arguments, {ANY: []}))
            kind.columns[ANY].append(at)
            if result is not ANY:
                kind.columns.setdefault(result, []).append(at)
        kinds[name] = kinds_of_tool
    return alike, kinds


def _limit_words(
    expected: Mapping[Word, Mapping[str, Any]], kinds: Mapping[str, _Kinds], *, weighed: bool
) -> None:
    """Refuse too many pairs of different arguments of one tool; where they are weighed, one with
    nested objects counts for each of their members, too.

    Raises:
        TooManyPairs: there are too many.
    """
    by_name: dict[str, list[int]] = {}
    for word, arguments in expected.items():
        size = 1 + (_nested_members(arguments) if weighed else 0)
        by_name.setdefault(word[0], []).append(size)
    pairs = 0
    for name, sizes in by_name.items():
        others = [
            1 + (_nested_members(kind.arguments) if weighed else 0)
            for kind in kinds.get(name, _NO_KINDS).values()
        ]
        pairs += (len(sizes) * sum(others) + len(others) * sum(sizes)) // 2
    limit_pairs(pairs, _MOST_WEIGHED if weighed else _MOST_COMPARED)


def _overlap(word: Any, other: Any, expected: Mapping[str, Any], kind: _Kind) -> float:
    """What `values.overlap_share` gives, by the words of the arguments."""
    actual = kind.arguments
    equal: float = len(word[1] & other[1])
    # objects that are not equal count by their own share
    parts = [
        overlap_share(value, actual.get(key))
        for key, value in expected.items()
        if is_object(value) and value != actual.get(key)
    ]
    union = len(expected.keys() | actual.keys())
    return fsum([equal, *parts]) / union if union else 1.0


_Agreement = Callable[[Any, Any, Mapping[str, Any], _Kind], float]
# The second part of the word of an object is the set of its items, see `values.hashable`.
_AGREES: Final[Mapping[Any, _Agreement]] = {
    "subset": lambda word, other, *_: float(word[1] <= other[1]),
    "superset": lambda word, other, *_: float(word[1] >= other[1]),
    "overlap": _overlap,
}


def _nested_members(arguments: Mapping[str, Any]) -> int:
    """How many members the objects inside of arguments have."""
    objects = [value for value in arguments.values() if is_object(value)]
    return sum([len(members) + _nested_members(members) for members in objects])
