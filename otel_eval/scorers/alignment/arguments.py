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
    for call, fields in zip(criterion.expectation.calls, criterion.each, strict=True):
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
            tools[name].wanted.setdefault(arguments, call.arguments)
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
        self.wanted: dict[Hashable, Any] = {}  # expected arguments by their word
        self._mode = mode
        self._calls = [calls[at] for at in columns]
        self._columns = columns
        self._all = bits_of(columns)
        self._given = None if words is None else [words[at][1] for at in columns]
        self._words: list[Hashable] = []
        self._made: dict[Hashable, Any] = {}  # actual arguments by their word
        self._results: list[Hashable] = []
        self._of_result: dict[Hashable, int] | None = None
        self._masks: dict[Hashable, int] = {}
        self._weights: dict[Hashable, dict[int, float]] = {}

    def set_words(self) -> None:
        """Compute the words of the actual arguments, if arguments are expected."""
        if not self.wanted:
            return
        # equal words become one object, which is looked up without a comparison
        known = {word: word for word in self.wanted}
        words = self._given or [arguments_word(call.arguments, self._mode) for call in self._calls]
        self._words = [known.setdefault(word, word) for word in words]
        self._made = dict(zip(self._words, [call.arguments for call in self._calls], strict=True))

    def pairs_to_weigh(self) -> int:
        """How many pairs of different arguments there are; one with nested objects counts for each
        of their members, too.
        """
        sides = (self.wanted, self._made)
        (expected, members), (actual, other_members) = (
            (len(side), len(side) + sum(map(_nested_members, side.values()))) for side in sides
        )
        return (expected * other_members + actual * members) // 2

    def compare(self) -> None:
        """Find the actual calls that agree with each of the expected arguments (`wanted`)."""
        if not self.wanted:
            return
        words, made = self._words, self._made
        if self._mode not in PARTIAL:
            places = _places(words, self._columns)
            self._masks = {word: bits_of(places.get(word, ())) for word in self.wanted}
            return
        wanted, had, places = _items(self.wanted), _items(made), _places(words, self._columns)
        if self._mode == "subset":
            self._masks = _holding(wanted, had, places, self._all)
        elif self._mode == "superset":
            self._masks = _held_by(wanted, had, places)
        else:
            shares = _Shares(self.wanted, made)
            self._weights = {
                word: _row(shares.of(word), words, self._columns) for word in self.wanted
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
                word: bits_of(found)
                for word, found in _places(self._results, self._columns).items()
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


def _places(words: Iterable[Hashable], columns: Iterable[int]) -> dict[Hashable, list[int]]:
    """Return the columns of each word."""
    found: dict[Hashable, list[int]] = {}
    for word, column in zip(words, columns, strict=True):
        found.setdefault(word, []).append(column)
    return found


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
            [(key, hashable(value)) for key, value in as_object(own).items()]
        ).keys()
        for word, own in arguments.items()
    }


def _holding(
    wanted: Items, had: Items, places: Mapping[Hashable, list[int]], everything: int
) -> dict[Hashable, int]:
    """Return for each of the expected arguments a mask of the calls that have all of its items, by
    intersecting sets of calls.
    """
    asked = set[Item]().union(*wanted.values())
    columns: dict[Item, list[int]] = {}
    for word, items in had.items():
        for item in asked.intersection(items):
            columns.setdefault(item, []).extend(places[word])
    masks = {item: bits_of(found) for item, found in columns.items()}
    found = {}
    for word, items in wanted.items():
        mask = everything
        for item in items:
            mask &= masks.get(item, 0)
        found[word] = mask
    return found


def _held_by(
    wanted: Items, had: Items, places: Mapping[Hashable, list[int]]
) -> dict[Hashable, int]:
    """Return for each of the expected arguments a mask of the calls that have no other items:
    `_holding` with sides exchanged.
    """
    found: list[list[int]] = [[] for _ in wanted]
    for word, holders in _holding(
        had, wanted, _places(wanted, range(len(wanted))), (1 << len(wanted)) - 1
    ).items():
        for at in positions(holders):
            found[at] += places[word]
    return dict(zip(wanted, map(bits_of, found), strict=True))


class _Shares:
    """The share of equal items among the keys of expected and actual arguments, computed once for
    each pair of distinct ones.

    Each key, and each key with its value, that both sides have is given a bit. The number of keys
    or items that two sets of arguments have in common is then the number of bits that two integers
    have in common.
    """

    def __init__(self, wanted: Mapping[Hashable, Any], made: Mapping[Hashable, Any]) -> None:
        ours, theirs = _items(wanted), _items(made)
        self._items, self._keys = (
            _common(ours.values(), theirs.values()),
            _common(map(_keys, ours.values()), map(_keys, theirs.values())),
        )
        self._wanted = {
            word: (self._bits(items), as_object(wanted[word])) for word, items in ours.items()
        }
        self._made = [
            (word, *self._bits(items), len(items), as_object(made[word]))
            for word, items in theirs.items()
        ]

    def _bits(self, items: KeysView[Item]) -> tuple[int, int]:
        keys = sum([self._keys.get(key, 0) for key, _ in items])
        return sum([self._items.get(item, 0) for item in items]), keys

    def of(self, word: Hashable) -> dict[Hashable, float]:
        """Return the share of each set of actual arguments with these expected ones, without shares
        of 0.
        """
        (items, keys), own = self._wanted[word]
        objects = {key: value for key, value in own.items() if is_object(value)}
        found, size = {}, len(own)
        for other, their_items, their_keys, their_size, theirs in self._made:
            equal = (items & their_items).bit_count()
            inside = self._inside(objects, theirs) if objects else None
            if inside:
                found[other] = fsum([equal, *inside]) / (
                    size + their_size - (keys & their_keys).bit_count()
                )
            elif equal:
                found[other] = equal / (size + their_size - (keys & their_keys).bit_count())
            elif not size and not their_size:
                found[other] = 1.0
        return found

    def _inside(self, objects: Mapping[Any, Any], theirs: Mapping[Any, Any]) -> list[float]:
        """Return the shares above 0 of nested objects that stand under the same key and are not
        equal.
        """
        pairs = [(value, theirs[key]) for key, value in objects.items() if key in theirs]
        return [
            part
            for one, other in pairs
            if is_object(other) and one != other and (part := overlap_share(one, other))
        ]


def _nested_members(arguments: Any) -> int:
    """How many members the objects inside of arguments have."""
    count, objects = 0, [value for value in as_object(arguments).values() if is_object(value)]
    while objects:
        members = objects.pop()
        count += len(members)
        objects += [value for value in members.values() if is_object(value)]
    return count


def _keys(items: Iterable[Item]) -> list[Any]:
    return [key for key, _ in items]


def _common(ours: Iterable[Iterable[Any]], theirs: Iterable[Iterable[Any]]) -> dict[Any, int]:
    """Assign a bit to each member that both sides have."""
    common = set[Any]().union(*ours) & set[Any]().union(*theirs)
    return {each: 1 << at for at, each in enumerate(common)}
