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

from otel_eval.interfaces import Steps
from otel_eval.scorers.alignment.assignment import bits_of, positions
from otel_eval.scorers.alignment.expected import ANY, PARTIAL, Criterion, Mode, Word, arguments_word
from otel_eval.scorers.values import (
    agreement,
    as_object,
    decode_json,
    hashable,
    is_object,
    overlap_share,
)

_FEW_PAIRS: Final = 100  # up to this number of pairs, comparing them costs less than hashing
_PAIR: Final = 3  # steps for weighing two calls by `overlap`
_COMPARED: Final = 20  # steps for comparing values that cannot be hashed
_SHARE: Final = 15  # steps for weighing two nested objects


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


def relation_of(criterion: Criterion, calls: Sequence[Any], words: Words, work: Steps) -> Relation:
    """Return the relation of expected and actual calls, for criteria that equal words do not
    decide.

    Args:
        criterion: the expected calls.
        calls: the actual calls.
        words: the words of the actual calls, or None if these were not computed.
        work: the steps that are left.

    Raises:
        TooLarge: the comparison would take more steps than are left.
    """
    columns: dict[str, list[int]] = {}
    for at, call in enumerate(calls):
        if call.name in criterion.fields:
            columns.setdefault(call.name, []).append(at)
    if (
        criterion.keys is None
        or sum([len(columns.get(name, ())) for name in criterion.names]) <= _FEW_PAIRS
    ):
        return _pairwise(criterion, calls, columns, work)
    try:
        return _hashed(criterion, criterion.keys, calls, words, columns, work)
    except (TypeError, RecursionError):
        return _pairwise(criterion, calls, columns, work)


def _pairwise(
    criterion: Criterion, calls: Sequence[Any], columns: Columns, work: Steps
) -> Relation:
    """Compare each pair of calls: for few calls, or for values that cannot be hashed."""
    mode, rows = criterion.comparison.arguments, []
    agrees = agreement(mode) if mode is not None else None
    results = {at: decode_json(calls[at].result) for found in columns.values() for at in found}
    for call, fields in zip(criterion.expectation.calls, criterion.each, strict=True):
        row = dict[int, float]()
        work.take(_COMPARED * len(columns.get(call.name, ())))
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
    return _weighed(rows, len(calls))


def _weighed(rows: list[dict[int, float]], columns: int) -> Relation:
    known: dict[int, int] = {}
    for row in rows:
        if id(row) not in known:
            known[id(row)] = bits_of(row)
    masks = [known[id(row)] for row in rows]
    whole = all(weight == 1 for row in rows for weight in row.values())
    return Relation(masks, None if whole else rows, range(columns))


def _hashed(
    criterion: Criterion,
    keys: list[Word],
    calls: Sequence[Any],
    words: Words,
    columns: Columns,
    work: Steps,
) -> Relation:
    """Compare by the words of the fields that each expected call names; expected calls with equal
    words are compared once.
    """
    mode = criterion.comparison.arguments
    tools = {name: _Tool(calls, words, found, mode) for name, found in columns.items()}
    for call, (name, arguments, _) in zip(criterion.expectation.calls, keys, strict=True):
        if arguments is not ANY and name in tools:
            tools[name].wanted.setdefault(arguments, call.arguments)
    agreeing: dict[Word, tuple[int, dict[int, float] | None]] = {}
    for name, tool in tools.items():
        tool.compare(work)
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
        self._results: list[Hashable] = []
        self._of_result: dict[Hashable, int] | None = None
        self._masks: dict[Hashable, int] = {}
        self._weights: dict[Hashable, dict[int, float]] = {}

    def compare(self, work: Steps) -> None:
        """Find the actual calls that agree with each of the expected arguments (`wanted`)."""
        if not self.wanted:
            return
        # equal words become one object, which is looked up without a comparison
        known = {word: word for word in self.wanted}
        words = self._given or [arguments_word(call.arguments, self._mode) for call in self._calls]
        words = self._words = [known.setdefault(word, word) for word in words]
        if self._mode not in PARTIAL:
            places = _places(words, self._columns)
            self._masks = {word: bits_of(places.get(word, ())) for word in self.wanted}
            return
        made = dict(zip(words, [call.arguments for call in self._calls], strict=True))
        wanted, had, places = _items(self.wanted), _items(made), _places(words, self._columns)
        if self._mode == "subset":
            self._masks = _holding(wanted, had, places, self._all, work)
        elif self._mode == "superset":
            self._masks = _held_by(wanted, had, places, work)
        else:
            shares = _Shares(self.wanted, made, work)
            work.take(len(self.wanted) * len(self._columns))
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
    wanted: Items, had: Items, places: Mapping[Hashable, list[int]], everything: int, work: Steps
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
        work.take(1 + len(items))
        mask = everything
        for item in items:
            mask &= masks.get(item, 0)
        found[word] = mask
    return found


def _held_by(
    wanted: Items, had: Items, places: Mapping[Hashable, list[int]], work: Steps
) -> dict[Hashable, int]:
    """Return for each of the expected arguments a mask of the calls that have no other items:
    `_holding` with sides exchanged.
    """
    found: list[list[int]] = [[] for _ in wanted]
    for word, holders in _holding(
        had, wanted, _places(wanted, range(len(wanted))), (1 << len(wanted)) - 1, work
    ).items():
        work.take(holders.bit_count())
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

    def __init__(
        self, wanted: Mapping[Hashable, Any], made: Mapping[Hashable, Any], work: Steps
    ) -> None:
        work.take(_PAIR * len(wanted) * len(made))
        self._work = work
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
        self._work.take(_SHARE * len(pairs))
        return [
            part
            for one, other in pairs
            if is_object(other) and one != other and (part := overlap_share(one, other))
        ]


def _keys(items: Iterable[Item]) -> list[Any]:
    return [key for key, _ in items]


def _common(ours: Iterable[Iterable[Any]], theirs: Iterable[Iterable[Any]]) -> dict[Any, int]:
    """Assign a bit to each member that both sides have."""
    common = set[Any]().union(*ours) & set[Any]().union(*theirs)
    return {each: 1 << at for at, each in enumerate(common)}
