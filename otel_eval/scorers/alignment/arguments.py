"""Compute the weight of each pair of an expected and an actual call whose arguments or results are
compared.

Calls of one tool are compared once for each two different arguments. For `subset` and `superset`,
the sets of calls that have each key with its value are intersected; only `overlap` weighs pairs.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from math import fsum
from operator import and_
from typing import Any, Final

from otel_eval.scorers.alignment.assignment import bits_of, positions
from otel_eval.scorers.alignment.expected import (
    ANY,
    Criterion,
    Mode,
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


@dataclass(frozen=True, slots=True)
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
Agreeing = tuple[int, dict[int, float] | None]  # a member of `masks`, and one of `rows`


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
    results = {at: decode_json(calls[at].result) for same in columns.values() for at in same}
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
    """Compare by the words of the fields that each expected call names; expected calls with equal
    words are compared once.

    Raises:
        TypeError: a value cannot be hashed.
    """
    expected: dict[str, dict[Word, Any]] = {name: {} for name in columns}
    for call, word in zip(criterion.expectation.calls, keys, strict=True):
        if call.name in columns:
            expected[call.name].setdefault(word, call.arguments)
    mode = criterion.comparison.arguments
    tools = [
        _Tool([calls[at] for at in same], same, expected[name], mode)
        for name, same in columns.items()
    ]
    if mode == "overlap":
        limit_pairs(sum([tool.pairs_to_weigh() for tool in tools]), _MOST_WEIGHED)
    agreeing: dict[Word, Agreeing] = {}
    alike = list(range(len(calls)))
    for tool in tools:
        agreeing |= tool.agreeing()
        tool.mark(alike)
    masks = [agreeing.get(word, _NONE)[0] for word in keys]
    if all(row is None for _, row in agreeing.values()):
        return Relation(masks, None)
    rows = {
        word: dict.fromkeys(positions(mask), 1.0) if row is None else row
        for word, (mask, row) in agreeing.items()
    }
    return Relation(masks, [rows.get(word, {}) for word in keys], alike)


_NONE: Final = (0, None)


class _Tool:
    """The calls of one tool, and which of them agree with what is expected of that tool.

    Args:
        calls: the actual calls.
        columns: their positions among the calls of all tools.
        expected: the arguments of the expected calls, by their words.
        mode: how arguments are compared.
    """

    def __init__(
        self, calls: Sequence[Any], columns: list[int], expected: Mapping[Word, Any], mode: Mode
    ) -> None:
        self._columns, self._expected_words, self._mode = columns, expected.keys(), mode
        # The word of arguments → the arguments as an object.
        self._expected: dict[Any, Mapping[str, Any]] = {
            word[1]: as_object(arguments)
            for word, arguments in expected.items()
            if word[1] is not ANY
        }
        has_result = any(word[2] is not ANY for word in expected)
        objects = [as_object(call.arguments) for call in calls]
        self._words: list[Hashable] = [
            arguments_word(arguments, mode) if self._expected else ANY for arguments in objects
        ]
        self._results: list[Hashable] = [
            hashable(decode_json(call.result)) if has_result else ANY for call in calls
        ]
        self._actual: dict[Any, Mapping[str, Any]] = dict(zip(self._words, objects, strict=True))

    def pairs_to_weigh(self) -> int:
        """How many pairs of different arguments there are; one with nested objects counts for each
        of their members, too.
        """
        sides = (self._expected, self._actual)
        (expected, members), (actual, other_members) = (
            (len(side), len(side) + sum(map(_nested_members, side.values()))) for side in sides
        )
        return (expected * other_members + actual * members) // 2

    def agreeing(self) -> dict[Word, Agreeing]:
        """The calls that agree with each expected call."""
        rows = self._weights() if self._mode == "overlap" else {}
        masks = {word: bits_of(row) for word, row in rows.items()} or self._masks()
        every = masks[ANY] = bits_of(self._columns)
        of_results = _columns_by(self._results, self._columns)
        result_masks = {word: bits_of(columns) for word, columns in of_results.items()}
        result_masks[ANY] = every
        agreeing: dict[Word, Agreeing] = {}
        for word in self._expected_words:
            mask, row = masks[word[1]] & result_masks.get(word[2], 0), rows.get(word[1])
            weights = row and {at: weight for at, weight in row.items() if mask >> at & 1}
            agreeing[word] = mask, weights
        return agreeing

    def _masks(self) -> dict[Hashable, int]:
        """A mask of the calls that agree with each of the expected arguments, where all pairs weigh
        1.
        """
        if not self._expected:
            return {}
        columns = _columns_by(self._words, self._columns)
        if self._mode == "subset":
            return _containing(self._expected, columns)
        if self._mode == "superset":
            return _contained_in(self._expected, columns)
        return {word: bits_of(columns.get(word, ())) for word in self._expected}

    def _weights(self) -> dict[Hashable, dict[int, float]]:
        """Column → weight (`values.overlap_share`) for each of the expected arguments, in the order
        of columns, without columns of weight 0.
        """
        weights = {}
        for word, expected in self._expected.items():
            objects = [(key, value) for key, value in expected.items() if is_object(value)]
            shares: dict[Hashable, float] = {}
            for other, actual in self._actual.items():
                equal: float = len(word[1] & other[1])
                if objects:  # those that are not equal count by their own share
                    parts = [
                        overlap_share(value, actual.get(key))
                        for key, value in objects
                        if value != actual.get(key)
                    ]
                    equal = fsum([equal, *parts])
                union = len(expected.keys() | actual.keys())
                shares[other] = equal / union if union else 1.0
            pairs = zip(self._columns, self._words, strict=True)
            weights[word] = {column: shares[other] for column, other in pairs if shares[other]}
        return weights

    def mark(self, alike: list[int]) -> None:
        """Set in `alike`, for each call of this tool, the first call that is equal in all compared
        fields.
        """
        first: dict[tuple[Hashable, Hashable], int] = {}
        fields = zip(self._words, self._results, strict=True)
        for column, key in zip(self._columns, fields, strict=True):
            alike[column] = first.setdefault(key, column)


def _columns_by(words: Iterable[Hashable], columns: Iterable[int]) -> dict[Hashable, list[int]]:
    """Return the columns of each word."""
    by_word: dict[Hashable, list[int]] = {}
    for word, column in zip(words, columns, strict=True):
        by_word.setdefault(word, []).append(column)
    return by_word


# The words of arguments that are objects; `values.hashable` makes them of the keys with their
# values, the items.
ObjectWords = Mapping[Any, object]


def _containing(expected: ObjectWords, columns: Mapping[Any, list[int]]) -> dict[Hashable, int]:
    """Return for each of the expected arguments a mask of the columns whose arguments have all of
    its items, by intersecting sets of columns.
    """
    expected_items = set[object]().union(*(items for _, items in expected))
    columns_of_items: dict[object, list[int]] = {}
    for (_, items), same in columns.items():
        for item in expected_items.intersection(items):
            columns_of_items.setdefault(item, []).extend(same)
    masks = {item: bits_of(of_item) for item, of_item in columns_of_items.items()}
    every = bits_of([column for same in columns.values() for column in same])
    return {
        word: reduce(and_, [masks.get(item, 0) for item in word[1]], every) for word in expected
    }


def _contained_in(expected: ObjectWords, columns: Mapping[Any, list[int]]) -> dict[Hashable, int]:
    """Return for each of the expected arguments a mask of the columns whose arguments have no other
    items: `_containing` with sides exchanged.
    """
    rows = {word: [row] for row, word in enumerate(expected)}
    columns_of_rows: list[list[int]] = [[] for _ in expected]
    for word, mask in _containing(columns, rows).items():
        for row in positions(mask):
            columns_of_rows[row] += columns[word]
    return dict(zip(expected, map(bits_of, columns_of_rows), strict=True))


def _nested_members(arguments: Mapping[str, Any]) -> int:
    """How many members the objects inside of arguments have."""
    objects = [value for value in arguments.values() if is_object(value)]
    return sum([len(members) + _nested_members(members) for members in objects])
