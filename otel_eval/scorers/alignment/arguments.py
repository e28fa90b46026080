"""Compute the weight of each pair of an expected and an actual call whose arguments or results are
compared.

For `subset` and `superset`, the sets of calls that have each key with its value are intersected.
Only `overlap` weighs calls pair by pair, each pair of distinct arguments once.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, KeysView, Mapping, Sequence
from dataclasses import dataclass
from math import fsum
from typing import Any, Final

from otel_eval.scorers.alignment.assignment import bits_of, positions
from otel_eval.scorers.alignment.expected import (
    ANY,
    PARTIAL,
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


Words = Sequence[Word] | None
Columns = Mapping[str, list[int]]  # the positions of the calls of each name


def relation_of(criterion: Criterion, calls: Sequence[Any], words: Words) -> Relation:
    """Return the relation of expected and actual calls, for criteria that equal words do not
    decide.

    Args:
        criterion: the expected calls.
        calls: the actual calls.
        words: the words of the actual calls, or None if these were not computed.

    Raises:
        TooManyPairs: too many pairs would be weighed one by one.
    """
    columns: dict[str, list[int]] = {}
    for at, call in enumerate(calls):
        if call.name in criterion.fields:
            columns.setdefault(call.name, []).append(at)
    if (
        criterion.keys is None
        or sum([len(columns.get(name, ())) for name in criterion.names]) <= _FEW_PAIRS
    ):
        return _pairwise(criterion, calls, columns)
    try:
        return _hashed(criterion, criterion.keys, calls, words, columns)
    except (TypeError, RecursionError):
        return _pairwise(criterion, calls, columns)


def _pairwise(criterion: Criterion, calls: Sequence[Any], columns: Columns) -> Relation:
    """Compare each pair of calls: for few calls, or for values that cannot be hashed."""
    limit_pairs(sum([len(columns.get(name, ())) for name in criterion.names]), _MOST_WEIGHED)
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
    criterion: Criterion,
    keys: list[Word],
    calls: Sequence[Any],
    words: Words,
    columns: Columns,
) -> Relation:
    """Compare by the words of the fields that each expected call names; expected calls with equal
    words are compared once.
    """
    mode = criterion.comparison.arguments
    tools = {name: _Tool(calls, words, same, mode) for name, same in columns.items()}
    for call, (name, arguments, _) in zip(criterion.expectation.calls, keys, strict=True):
        if arguments is not ANY and name in tools:
            tools[name].expected.setdefault(arguments, call.arguments)
    for tool in tools.values():
        tool.set_words()
    if mode == "overlap":
        limit_pairs(sum([tool.pairs_to_weigh() for tool in tools.values()]), _MOST_WEIGHED)
    agreeing: dict[Word, tuple[int, dict[int, float] | None]] = {}
    for name, tool in tools.items():
        tool.compare()
        for key in keys:
            if key[0] == name and key not in agreeing:
                agreeing[key] = tool.agreeing(key[1], key[2])
    masks = [agreeing.get(key, _NONE)[0] for key in keys]
    if all(row is None for _, row in agreeing.values()):
        return Relation(masks, None)
    rows = {
        key: dict.fromkeys(positions(mask), 1.0) if row is None else row
        for key, (mask, row) in agreeing.items()
    }
    alike = list(range(len(calls)))
    for tool in tools.values():
        tool.mark(alike)
    return Relation(masks, [rows.get(key, {}) for key in keys], alike)


_NONE: Final = (0, None)


class _Tool:
    """The actual calls of one tool, and which of them agree with the expected calls of that
    tool.
    """

    def __init__(self, calls: Sequence[Any], words: Words, columns: list[int], mode: Mode) -> None:
        self.expected: dict[Hashable, Any] = {}  # expected arguments by their word
        self._mode = mode
        self._calls = [calls[at] for at in columns]
        self._columns = columns
        self._all = bits_of(columns)
        self._argument_words = None if words is None else [words[at][1] for at in columns]
        self._words: list[Hashable] = []
        self._actual: dict[Hashable, Any] = {}  # actual arguments by their word
        self._results: list[Hashable] = []
        self._of_result: dict[Hashable, int] | None = None
        self._masks: dict[Hashable, int] = {}
        self._weights: dict[Hashable, dict[int, float]] = {}

    def set_words(self) -> None:
        """Compute the words of the actual arguments, if arguments are expected."""
        if not self.expected:
            return
        # equal words become one object, which is looked up without a comparison
        known = {word: word for word in self.expected}
        words = self._argument_words or [
            arguments_word(call.arguments, self._mode) for call in self._calls
        ]
        self._words = [known.setdefault(word, word) for word in words]
        self._actual = dict(zip(self._words, [call.arguments for call in self._calls], strict=True))

    def pairs_to_weigh(self) -> int:
        """How many pairs of different arguments there are; one with nested objects counts for each
        of their members, too.
        """
        sides = (self.expected, self._actual)
        (expected, members), (actual, other_members) = (
            (len(side), len(side) + sum(map(_nested_members, side.values()))) for side in sides
        )
        return (expected * other_members + actual * members) // 2

    def compare(self) -> None:
        """Find the actual calls that agree with each of the expected arguments (`expected`)."""
        if not self.expected:
            return
        columns = _columns_of_words(self._words, self._columns)
        if self._mode not in PARTIAL:
            self._masks = {word: bits_of(columns.get(word, ())) for word in self.expected}
            return
        expected, actual = _items(self.expected), _items(self._actual)
        if self._mode == "subset":
            self._masks = _containing(expected, actual, columns, self._all)
        elif self._mode == "superset":
            self._masks = _contained_in(expected, actual, columns)
        else:
            shares = _Shares(self.expected, self._actual, expected, actual)
            self._weights = {
                word: _row(shares.of(word), self._words, self._columns) for word in self.expected
            }
            self._masks = {word: bits_of(row) for word, row in self._weights.items()}

    def agreeing(
        self, arguments: Hashable, result: Hashable
    ) -> tuple[int, dict[int, float] | None]:
        """Return a mask of the calls that agree with an expected call, and their weights, or None
        if all weigh 1.
        """
        mask = self._all if arguments is ANY else self._masks[arguments]
        row = self._weights.get(arguments)
        if result is ANY:
            return mask, row
        if self._of_result is None:
            self._results = [hashable(decode_json(call.result)) for call in self._calls]
            self._of_result = {
                word: bits_of(columns)
                for word, columns in _columns_of_words(self._results, self._columns).items()
            }
        mask &= self._of_result.get(result, 0)
        return mask, row and {
            column: weight for column, weight in row.items() if mask >> column & 1
        }

    def mark(self, alike: list[int]) -> None:
        """Set in `alike`, for each call of this tool, the first call that is equal in all compared
        fields.
        """
        first: dict[tuple[Hashable, Hashable], int] = {}
        for at, column in enumerate(self._columns):
            key = (
                self._words[at] if self._words else ANY,
                self._results[at] if self._results else ANY,
            )
            alike[column] = first.setdefault(key, column)


def _columns_of_words(
    words: Iterable[Hashable], columns: Iterable[int]
) -> dict[Hashable, list[int]]:
    """Return the columns of each word."""
    by_word: dict[Hashable, list[int]] = {}
    for word, column in zip(words, columns, strict=True):
        by_word.setdefault(word, []).append(column)
    return by_word


def _row(
    weights: Mapping[Hashable, float], words: Iterable[Hashable], columns: Iterable[int]
) -> dict[int, float]:
    """Return column → weight in the order of columns, without columns of weight 0."""
    return {
        column: weights[word]
        for word, column in zip(words, columns, strict=True)
        if word in weights
    }


Item = tuple[Any, Hashable]  # a key with its value
Items = dict[Hashable, KeysView[Item]]  # word of arguments → their items, in order


def _items(arguments: Mapping[Hashable, Any]) -> Items:
    return {
        word: dict.fromkeys(
            [(key, hashable(value)) for key, value in as_object(members).items()]
        ).keys()
        for word, members in arguments.items()
    }


def _containing(
    expected: Items, actual: Items, columns: Mapping[Hashable, list[int]], every_column: int
) -> dict[Hashable, int]:
    """Return for each of the expected arguments a mask of the calls that have all of its items, by
    intersecting sets of calls.
    """
    expected_items = set[Item]().union(*expected.values())
    columns_of_items: dict[Item, list[int]] = {}
    for word, items in actual.items():
        for item in expected_items.intersection(items):
            columns_of_items.setdefault(item, []).extend(columns[word])
    item_masks = {item: bits_of(of_item) for item, of_item in columns_of_items.items()}
    masks = {}
    for word, items in expected.items():
        mask = every_column
        for item in items:
            mask &= item_masks.get(item, 0)
        masks[word] = mask
    return masks


def _contained_in(
    expected: Items, actual: Items, columns: Mapping[Hashable, list[int]]
) -> dict[Hashable, int]:
    """Return for each of the expected arguments a mask of the calls that have no other items:
    `_containing` with sides exchanged.
    """
    rows = _columns_of_words(expected, range(len(expected)))
    columns_of_rows: list[list[int]] = [[] for _ in expected]
    for word, mask in _containing(actual, expected, rows, (1 << len(expected)) - 1).items():
        for row in positions(mask):
            columns_of_rows[row] += columns[word]
    return dict(zip(expected, map(bits_of, columns_of_rows), strict=True))


class _Shares:
    """The share of equal items among the keys of expected and actual arguments, computed once for
    each pair of distinct ones.

    Each key, and each key with its value, that both sides have is given a bit. The number of keys
    or items that two sets of arguments have in common is then the number of bits that two integers
    have in common.
    """

    def __init__(
        self,
        expected: Mapping[Hashable, Any],
        actual: Mapping[Hashable, Any],
        expected_items: Items,
        actual_items: Items,
    ) -> None:
        sides = expected_items.values(), actual_items.values()
        self._items = _common(*sides)
        self._keys = _common(*([[key for key, _ in items] for items in side] for side in sides))
        self._expected = {
            word: (self._bits(items), as_object(expected[word]))
            for word, items in expected_items.items()
        }
        self._actual = [
            (word, *self._bits(items), len(items), as_object(actual[word]))
            for word, items in actual_items.items()
        ]

    def _bits(self, items: KeysView[Item]) -> tuple[int, int]:
        keys = sum([self._keys.get(key, 0) for key, _ in items])
        return sum([self._items.get(item, 0) for item in items]), keys

    def of(self, word: Hashable) -> dict[Hashable, float]:
        """Return the share of each set of actual arguments with these expected ones, without shares
        of 0.
        """
        (items, keys), members = self._expected[word]
        objects = [(key, value) for key, value in members.items() if is_object(value)]
        shares, size = {}, len(members)
        for other, other_items, other_keys, other_size, others in self._actual:
            share: float = (items & other_items).bit_count()
            if objects:  # and what nested objects under the same key share that are not equal
                nested = [
                    overlap_share(value, others[key])
                    for key, value in objects
                    if is_object(others.get(key)) and value != others[key]
                ]
                share = fsum([share, *nested])
            if share:
                shares[other] = share / (size + other_size - (keys & other_keys).bit_count())
            elif not size and not other_size:
                shares[other] = 1.0
        return shares


def _nested_members(arguments: Any) -> int:
    """How many members the objects inside of arguments have."""
    count, objects = 0, [value for value in as_object(arguments).values() if is_object(value)]
    while objects:
        members = objects.pop()
        count += len(members)
        objects += [value for value in members.values() if is_object(value)]
    return count


def _common(expected: Iterable[Iterable[Any]], actual: Iterable[Iterable[Any]]) -> dict[Any, int]:
    """Assign a bit to each member that both sides have."""
    common = set[Any]().union(*expected) & set[Any]().union(*actual)
    return {member: 1 << at for at, member in enumerate(common)}
