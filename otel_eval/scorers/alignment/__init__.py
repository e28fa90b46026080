"""Align expected and actual calls with the greatest weight, check for an exact match, and explain
the differences.

Where calls agree only if their words (hashable keys, see `Word`) are equal, counting words gives
the assignment in any order, and their longest common subsequence gives the alignment in order.
Otherwise each pair is weighed first (`Relation`). The number of pairs is limited, not the time, so
that equal inputs give equal outcomes on every machine.

The details of every scorer that aligns: `matched` [[expected, actual], …] (with the weight where
arguments or results are compared), `missing` [{tool, expected}], `extra` [{tool, actual}],
`misplaced` [{tool, expected, actual}], `seen` [tool], and `differences` [{expected, actual,
differs, missing, unexpected, result}] if arguments or results of calls of one tool differ;
positions count from 0 among the calls that the scorer compares.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Hashable, Mapping, Sequence
from math import fsum
from typing import Any, Final, NamedTuple

from otel_eval.model import UNRECORDED
from otel_eval.scorers.alignment.arguments import Relation, relation_of
from otel_eval.scorers.alignment.assignment import assign_kinds, assign_masks, bits_of, lowest
from otel_eval.scorers.alignment.expected import (
    Criterion,
    Expected,
    Mode,
    check_recorded,
    limit_pairs,
    words_of,
)
from otel_eval.scorers.alignment.ordered import (
    Pairs,
    align_in_order,
    align_masks_in_order,
    common,
)
from otel_eval.scorers.partial_order import (
    TimedCall,
    groups_of,
    is_sequential,
    parallel_groups,
)
from otel_eval.scorers.tool_names import listed, listed_names, numbered, plural, shortened, tool
from otel_eval.scorers.values import as_object, decode_json, value_at

Reasons = tuple[str, Mapping[str, Any]]  # explanation and details
Calls = list[tuple[str, int]]  # names and positions
_MOST_CONTENT: Final = 400
_MOST_DIFFERENCES: Final = 8


def _unpaired(names: Sequence[str], paired: Collection[int]) -> Calls:
    """Return name and position of each call whose position is not in `paired`."""
    if len(paired) == len(names):
        return []
    return [(name, position) for position, name in enumerate(names) if position not in paired]


def _content_of(call: Any) -> dict[str, Any]:
    """The tool, arguments and result of a call, as far as they were recorded."""
    fields = {"tool": call.name}
    for key in ("arguments", "result"):
        if getattr(call, key, UNRECORDED) is not UNRECORDED:
            fields[key] = getattr(call, key)
    return fields


_MOST_BY_WORDS: Final = 2**28
_MOST_PAIRS: Final[Mapping[tuple[bool, bool], int]] = {
    (False, False): 16_000_000,
    (True, False): 250_000,
    (False, True): 250_000,
    (True, True): 10_000,
}
"""Expected calls times actual calls: by whether pairs have weights of their own, and whether a
group of several calls has to keep its place. Each takes a second or two at most. Where no order has
to be kept, `relation_of` limits what has weights.
"""


class Alignment:
    """The pairs of expected and actual calls of one run whose total weight is greatest.

    Args:
        criterion: the expected calls.
        actual: the actual calls, in order.
        any_order: whether calls are paired in any order (an assignment); if not, pairs keep the
            order of both sides.
        concurrency: whether parallel calls may match in any order.

    Attributes:
        pairs: positions (expected, actual), sorted by the expected one.
        weights: the weight of each pair; None if only names are compared, so that each pair weighs
            1.
        weight: the sum of the weights.
        missing, extra: names and positions of the expected and the actual calls that are neither
            paired nor misplaced.
        misplaced: pairs of an unpaired expected call and an unpaired actual call that differ in
            their place only.

    Raises:
        NoScore: a call with an expected name did not record arguments or results that are compared.
        TooManyPairs: too many pairs would be compared.
    """

    def __init__(
        self,
        criterion: Criterion,
        actual: Sequence[TimedCall],
        *,
        any_order: bool,
        concurrency: bool,
    ) -> None:
        self._criterion, self._actual, self._any_order = criterion, actual, any_order
        self._names = names = [call.name for call in actual]
        # None if no calls ran in parallel, or the order does not matter.
        is_parallel = concurrency and not any_order and not is_sequential(actual)
        self._column_groups = parallel_groups(actual) if is_parallel else None
        self._words: Sequence[Any] | None = names
        self._relation: Relation | None = None  # set only if equal words do not decide
        self.pairs = pairs = self._heaviest()
        self.weights = (
            [self._weight(row, column) for row, column in pairs] if criterion.weighed else None
        )
        self.weight = float(len(pairs)) if self.weights is None else fsum(self.weights)
        paired = dict(pairs)
        missing, extra = _unpaired(criterion.names, paired), _unpaired(names, {*paired.values()})
        # If no pair was found, no two calls agree at all, so none can be misplaced.
        self.misplaced = (
            self._misplaced(missing, extra) if pairs and missing and extra and not any_order else []
        )
        if self.misplaced:
            rows, columns = map(set, zip(*self.misplaced, strict=True))
            missing = [call for call in missing if call[1] not in rows]
            extra = [call for call in extra if call[1] not in columns]
        self.missing, self.extra = missing, extra

    @property
    def is_exact(self) -> bool:
        """Whether every call is in a pair of weight 1, so that both sides are equal in some order
        that the groups allow.
        """
        if self.missing or self.extra or self.misplaced:
            return False
        return self.weights is None or all(weight == 1 for weight in self.weights)

    def _heaviest(self) -> Pairs:
        """Find the pairs of the heaviest alignment, by the cheapest way that decides it."""
        criterion, expected, any_order = self._criterion, self._criterion.words, self._any_order
        if (
            criterion.plain
            and expected is not None
            and expected.masks.keys().isdisjoint(self._names)
        ):
            return []  # no call has an expected name
        # Without groups, sequences that are equal call by call are the heaviest alignment; no pair
        # has to be weighed.
        one_by_one = (
            self._column_groups is None or len(self._column_groups) == len(self._actual)
        ) and not criterion.nested
        sequential = any_order or one_by_one
        if sequential and self._all_equal():
            return [(at, at) for at in range(len(self._actual))]
        if not criterion.plain:
            check_recorded(criterion, self._actual)
            self._words = None if expected is None else words_of(criterion, self._actual)
        if sequential and expected is not None and self._words is not None:
            if any_order:
                equal = _assigned_words(expected.names, self._words)
            else:
                limit_pairs(len(expected.names) * len(self._words), _MOST_BY_WORDS)
                equal = common(expected, self._words)
            # Equal calls weigh 1, the most a pair can. If they cover the shorter side, no partial
            # agreement adds weight.
            if criterion.decisive or len(equal) == min(len(self._words), len(expected.names)):
                return equal
        return self._by_relation()

    def _all_equal(self) -> bool:
        """Whether names and arguments equal the expected ones, call by call: the usual case, found
        without hashing.
        """
        criterion = self._criterion
        if not (criterion.plain or criterion.whole) or criterion.names != self._names:
            return False
        if criterion.plain:
            return True
        # spans have no arguments, and no criterion compares those of spans
        actual = [call.arguments for call in self._actual]  # type: ignore[union-attr]
        return [call.arguments for call in criterion.expectation.calls] == actual

    def _by_relation(self) -> Pairs:
        """Find the pairs by the weight of each pair; raises `TooManyPairs`."""
        criterion, columns = self._criterion, len(self._actual)
        groups = criterion.expectation.groups
        column_groups = self._column_groups or groups_of(self._actual, "ignore")
        has_weights = criterion.comparison.arguments == "overlap" and not self._any_order
        is_grouped = not self._any_order and (criterion.nested or len(column_groups) < columns)
        limit_pairs(len(criterion.names) * columns, _MOST_PAIRS[has_weights, is_grouped])
        relation = self._relation = relation_of(criterion, self._actual)
        if relation.rows is None:
            if self._any_order:
                return assign_masks(relation.masks, columns)
            return align_masks_in_order(relation.masks, columns, groups, column_groups)
        if self._any_order:
            return assign_kinds(relation.rows, relation.alike)
        return align_in_order(relation.rows, groups, column_groups)

    def _weight(self, row: int, column: int) -> float:
        return (
            1.0
            if self._relation is None or self._relation.rows is None
            else self._relation.rows[row][column]
        )

    def _misplaced(self, missing: Calls, extra: Calls) -> Pairs:
        """Pair each missing call with the first extra call that agrees with it and is not paired
        yet.
        """
        expected, words = self._criterion.words, self._words
        if self._criterion.decisive and expected is not None and words is not None:
            pairs = _assigned_words(
                [expected.names[row] for _, row in missing], [words[column] for _, column in extra]
            )
            return [(missing[at][1], extra[to][1]) for at, to in pairs]
        assert self._relation is not None, (
            "words do not decide, so the calls were aligned by their relation"
        )
        unpaired, pairs = bits_of([column for _, column in extra]), []
        for _, row in missing:
            agreeing = self._relation.masks[row] & unpaired
            if agreeing:
                column = lowest(agreeing)
                unpaired ^= 1 << column
                pairs.append((row, column))
        return pairs

    def explain(self, *, content: bool, noun: str = "call") -> Reasons:
        """Return explanation and details; `noun` is what the explanation calls an actual call.

        With `content`, both include arguments and results of the calls that are not matched, or
        only in part.
        """
        pairs, weights, misplaced, names = self.pairs, self.weights, self.misplaced, self._names
        text = f"{len(pairs)} of {plural(len(self._criterion.names), 'expected call')} matched"
        if partial := self.weight < len(pairs):
            text += f" (agreement {self.weight:.3g})"
        if self.missing:
            text += f"; missing: {listed(self.missing, 'expected')}"
        if self.extra:
            text += f"; extra: {listed(self.extra, noun)}"
        if misplaced:
            out_of_order = [(names[column], column) for _, column in misplaced]
            text += f"; out of order: {listed(out_of_order, noun)}"
        details: dict[str, Any] = {
            "matched": [[*pair] for pair in pairs],
            "missing": [{"tool": name, "expected": row} for name, row in self.missing],
            "extra": [{"tool": name, "actual": column} for name, column in self.extra],
            "misplaced": [
                {"tool": names[column], "expected": row, "actual": column}
                for row, column in misplaced
            ],
            "seen": listed_names(set(names)),
        }
        if weights is not None:
            details["matched"] = [
                [row, column, weight] for (row, column), weight in zip(pairs, weights, strict=True)
            ]
        if differences := self._differences():
            details["differences"] = [difference._asdict() for difference in differences]
            for difference in differences:
                text += f"; {numbered(names[difference.actual], difference.actual)}: {difference}"
        if content and (partial or self.missing or self.extra or misplaced):
            details["content"] = self._content()
            values = json.dumps(details["content"], ensure_ascii=False, default=str)
            text += f"; content: {shortened(values, _MOST_CONTENT)}"
        return text, details

    def _differences(self) -> list[Difference]:
        """How calls of expected tools differ from what was expected of them, the first ones: calls
        that agree in part, and a missing and an extra call of one tool.
        """
        if self._criterion.plain:
            return []
        extra: dict[str, list[int]] = {}
        for name, column in reversed(self.extra):
            extra.setdefault(name, []).append(column)
        unpaired = [(row, extra[name].pop()) for name, row in self.missing if extra.get(name)]
        criterion, calls = self._criterion, self._criterion.expectation.calls
        return [
            difference_of(row, column, calls[row], self._actual[column], criterion)
            for row, column in (*self._partial_pairs(), *unpaired)[:_MOST_DIFFERENCES]
        ]

    def _partial_pairs(self) -> Pairs:
        """The pairs that agree in part."""
        weights = self.weights or ()
        return [pair for pair, weight in zip(self.pairs, weights, strict=False) if weight < 1]

    def _content(self) -> list[dict[str, Any]]:
        """The calls that are not matched, or only in part, with their arguments and results."""
        expected, actual = self._criterion.expectation.calls, self._actual
        shown = [
            {
                "expected": row,
                **_content_of(expected[row]),
                "actual": at,
                "found": _content_of(actual[at]),
            }
            for row, at in self._partial_pairs()
        ]
        shown += [{"expected": row, **_content_of(expected[row])} for _, row in self.missing]
        return shown + [
            {"actual": column, "found": _content_of(actual[column])} for _, column in self.extra
        ]


def _assigned_words(expected: Sequence[Hashable], actual: Sequence[Hashable]) -> Pairs:
    """Pair the n-th expected call of each word with the n-th actual one, which gives the greatest
    possible number of pairs.
    """
    unpaired: dict[Hashable, list[int]] = {}  # word → positions, last first
    for position in range(len(actual) - 1, -1, -1):
        unpaired.setdefault(actual[position], []).append(position)
    return [(row, unpaired[word].pop()) for row, word in enumerate(expected) if unpaired.get(word)]


_BARE: Final = "__value__"
_MOST_KEYS: Final = 8


class Difference(NamedTuple):
    """How an actual call differs from an expected call of the same tool: by names of arguments,
    never by values. Its text is `city differs, days missing; 2
    unexpected`.

    Attributes:
        expected, actual: positions of both calls.
        differs: expected arguments with another value.
        missing: expected arguments that the call does not have.
        unexpected: the number of arguments that are not expected; their names are content.
        result: whether the result is another one.
    """

    expected: int
    actual: int
    differs: list[str]
    missing: list[str]
    unexpected: int
    result: bool

    def __str__(self) -> str:
        keys = [f"{_key_text(key)} differs" for key in self.differs]
        keys += [f"{_key_text(key)} missing" for key in self.missing]
        if len(keys) > _MOST_KEYS:
            keys = [*keys[:_MOST_KEYS], f"{len(keys) - _MOST_KEYS} more"]
        if self.result:
            keys.append("result differs")
        unexpected = [f"{self.unexpected} unexpected"] if self.unexpected else []
        return "; ".join([*([", ".join(keys)] if keys else []), *unexpected])


def _key_text(key: str) -> str:
    return "the value" if key == _BARE else tool(key)


def difference_of(
    row: int, column: int, expected: Expected, actual: Any, criterion: Criterion
) -> Difference:
    """Compare what the criterion compares of an expected call and an actual call of its tool."""
    fields = criterion.compared_fields[row]
    differs: list[str] = []
    missing: list[str] = []
    unexpected = 0
    if fields.arguments:
        arguments, actual_arguments = as_object(expected.arguments), as_object(actual.arguments)
        mode = criterion.comparison.arguments
        differs, missing = _different_keys(arguments, actual_arguments, mode)
        if not isinstance(mode, tuple):
            unexpected = len(actual_arguments.keys() - arguments.keys())
    result = fields.result and decode_json(expected.result) != decode_json(actual.result)
    return Difference(row, column, differs, missing, unexpected, result)


def _different_keys(
    expected: Mapping[str, Any], actual: Mapping[str, Any], mode: Mode
) -> tuple[list[str], list[str]]:
    """The expected keys whose values differ, and those that are missing."""
    if isinstance(mode, tuple):
        pairs = [(key, value_at(expected, key), value_at(actual, key)) for key in mode]
    else:
        pairs = [(key, value, actual.get(key, UNRECORDED)) for key, value in expected.items()]
    different = [(key, other) for key, value, other in pairs if value != other]
    missing = [key for key, other in different if other is UNRECORDED]
    differs = [key for key, other in different if other is not UNRECORDED]
    # With `superset` the call may lack what is expected.
    return differs, [] if mode == "superset" else missing
