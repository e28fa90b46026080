"""The heaviest alignment of expected and actual calls, whether they match exactly, and the explanation of the differences.

Equal words decide where they can: counting them gives the assignment, their longest common subsequence the alignment in
order. Otherwise the relation of the calls is aligned. All work is counted in steps, so that equal inputs give equal outcomes
on every machine.

The details of every scorer that aligns: `matched` [[expected, actual], …] (with the weight where arguments or results are
compared), `missing` [{tool, expected}], `extra` [{tool, actual}], `misplaced` [{tool, expected, actual}], `seen` [tool];
positions count from 0 among the calls that are looked at.
"""

from __future__ import annotations

import json
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import fsum
from typing import Any, Final

from otel_eval.interfaces import Steps
from otel_eval.model import UNRECORDED
from otel_eval.scorers.alignment.arguments import Relation, relation_of
from otel_eval.scorers.alignment.assignment import assign_kinds, assign_masks, bits_of, lowest
from otel_eval.scorers.alignment.expected import Criterion, Expectation, check_recorded, words_of
from otel_eval.scorers.alignment.lcs import Pairs, common, prepare
from otel_eval.scorers.alignment.ordered import align_in_order, align_masks_in_order
from otel_eval.scorers.alignment.partial_order import TimedCall, is_sequential, parallel_groups
from otel_eval.scorers.tool_names import listed, plural, seen, shortened

Reasons = tuple[str, Mapping[str, Any]]  # explanation and details
_MOST_CONTENT: Final = 400


@dataclass(slots=True)  # not frozen: each run makes some, at a third of the cost
class Alignment:
    """Expected and actual calls in pairs.

    Attributes:
        pairs: (expected, actual), in order of expectation.
        weights: what each pair weighs; None where names alone are compared: each weighs 1.
        weight: their sum.
        missing, extra: expected and actual calls in no pair, but for misplaced ones.
        misplaced: pairs of an expected call that is missing and an extra one that agrees in all but its place.
    """

    pairs: Pairs
    weights: list[float] | None
    weight: float
    missing: list[int]
    extra: list[int]
    misplaced: Pairs


def left_over(count: int, paired: Sequence[int]) -> list[int]:
    """The positions below `count` that are in no pair.

    >>> left_over(4, [2, 0])
    [1, 3]
    """
    if len(paired) == count:
        return []
    left = set(range(count))
    left.difference_update(paired)
    return sorted(left)


def explained(alignment: Alignment, expectation: Expectation, visits: Sequence[TimedCall], *, content: bool) -> Reasons:
    """Explanation and details of an alignment.

    With `content` arguments and results of what is not matched, or only in part, are shown as well.
    """
    pairs, wanted = alignment.pairs, expectation.calls
    partial = alignment.weight < len(pairs)
    text = f"{len(pairs)} of {plural(len(wanted), 'expected call')} matched"
    if partial:
        text += f" (agreement {alignment.weight:.3g})"
    missing, extra, misplaced = alignment.missing, alignment.extra, alignment.misplaced
    details: dict[str, Any] = {
        "matched": _matched(alignment),
        "missing": [{"tool": wanted[row].name, "expected": row} for row in missing],
        "extra": [{"tool": visits[column].name, "actual": column} for column in extra],
        "misplaced": [{"tool": visits[column].name, "expected": row, "actual": column} for row, column in misplaced],
        "seen": seen(visits),
    }
    if missing:
        text += f"; missing: {listed([(wanted[row].name, row) for row in missing])}"
    if extra:
        text += f"; extra: {listed([(visits[column].name, column) for column in extra])}"
    if misplaced:
        text += f"; out of order: {listed([(visits[column].name, column) for _, column in misplaced])}"
    if content and (partial or len(pairs) < max(len(wanted), len(visits))):
        details["content"] = _content(expectation, visits, alignment)
        text += f"; content: {shortened(json.dumps(details['content'], ensure_ascii=False, default=str), _MOST_CONTENT)}"
    return text, details


def _matched(alignment: Alignment) -> list[list[Any]]:
    if alignment.weights is None:
        return list(map(list, alignment.pairs))
    return [[row, column, weight] for (row, column), weight in zip(alignment.pairs, alignment.weights, strict=True)]


def _content(expectation: Expectation, visits: Sequence[TimedCall], alignment: Alignment) -> list[dict[str, Any]]:
    partial = [pair for pair, weight in zip(alignment.pairs, alignment.weights or (), strict=False) if weight < 1]
    wanted = expectation.calls
    shown = [{"expected": row, **_values(wanted[row]), "actual": at, "found": _values(visits[at])} for row, at in partial]
    shown += [{"expected": row, **_values(wanted[row])} for row in alignment.missing]
    return shown + [{"actual": column, "found": _values(visits[column])} for column in alignment.extra]


def _values(call: Any) -> dict[str, Any]:
    fields = {"tool": call.name}
    for key in ("arguments", "result"):
        if getattr(call, key, UNRECORDED) is not UNRECORDED:
            fields[key] = getattr(call, key)
    return fields


_MOST_STEPS: Final = 600_000  # about a tenth of a second


class Aligner:
    """Expected calls against those of one run.

    Args:
        criterion: the expected calls.
        visits: the actual calls, in order.
        concurrency: lets calls that could not have known of one another come in any order.
    """

    def __init__(self, criterion: Criterion, visits: Sequence[TimedCall], *, concurrency: bool) -> None:
        self._criterion = criterion
        self._visits = visits
        self._names = [visit.name for visit in visits]
        self._batches = None if not concurrency or is_sequential(visits) else _parallel(visits)
        self._work = Steps(_MOST_STEPS)

    def heaviest(self, *, any_order: bool) -> Alignment:
        """The heaviest alignment in the order of both sides, or the heaviest assignment.

        Raises:
            NotRecorded: arguments or results are compared that a same-named call did not record.
            TooLarge: so many calls agree in part or ran in parallel that it would take too many steps.
        """
        criterion = self._criterion
        if criterion.plain and criterion.words is not None and criterion.words.masks.keys().isdisjoint(self._names):
            return self._alignment([], any_order=True)  # no call has an expected name
        # Without groups, calls that are equal one by one are the heaviest alignment, and no pair has to be weighed.
        sequential = any_order or self._one_by_one
        if sequential and self._all_equal():
            return self._alignment([(at, at) for at in range(len(self._visits))], any_order=True)
        if not criterion.plain:
            check_recorded(criterion, self._visits)
        words = self._words
        if sequential and words is not None and criterion.words is not None:
            equal = _assigned_words(criterion.words.names, words) if any_order else common(criterion.words, words)
            # Equal calls weigh 1, the most a pair can: if they pair all of the shorter side, no partial agreement adds anything.
            if criterion.decisive or len(equal) == min(len(words), len(criterion.words.names)):
                return self._alignment(equal, any_order=any_order)
        return self._alignment(self._by_relation(any_order=any_order), any_order=any_order)

    def fits(self) -> bool:
        """Whether there is one call for each expected one and, in some order the groups allow, each pair weighs 1.

        Raises:
            NotRecorded, TooLarge: as `heaviest` does.
        """
        criterion, words = self._criterion, self._words
        if len(self._visits) != len(criterion.expectation.calls):
            return False
        if words is not None and criterion.words is not None:
            equal = criterion.words.names == tuple(words)
            if equal or (self._one_by_one and self._equality_decides):
                return equal
        windows = _windows(criterion.expectation.groups, self._ran)
        rows = [mask & window for mask, window in zip(self._whole(), windows, strict=True)]
        return len(assign_masks(rows, len(rows), self._work)) == len(rows)

    @property
    def _one_by_one(self) -> bool:
        """Whether neither side has a group of several calls."""
        return self._batches is None and not self._criterion.expectation.nested

    @property
    def _equality_decides(self) -> bool:
        """Whether only equal calls weigh 1."""
        return self._criterion.decisive or self._criterion.comparison.arguments == "overlap"

    @property
    def _words(self) -> Sequence[Hashable] | None:
        return self._names if self._criterion.plain else self._compared_words

    @cached_property
    def _compared_words(self) -> list[Hashable] | None:
        return words_of(self._criterion, self._visits)

    @cached_property
    def _relation(self) -> Relation:
        equal = self._equal_masks() if self._criterion.decisive else None
        return relation_of(self._criterion, self._visits, self._work) if equal is None else Relation(equal, None)

    def _equal_masks(self) -> list[int] | None:
        """By expected call the bits of the equal ones, if equal words alone weigh 1; else None."""
        criterion, words = self._criterion, self._words
        if words is None or criterion.words is None or not self._equality_decides:
            return None
        masks = prepare(words).masks
        return [masks.get(word, 0) for word in criterion.words.names]

    @property
    def _ran(self) -> list[range]:
        return self._batches or [range(at, at + 1) for at in range(len(self._visits))]

    def _all_equal(self) -> bool:
        """Whether calls and arguments are the expected ones, one by one: the usual case, found without hashing."""
        criterion, visits = self._criterion, self._visits
        calls = criterion.expectation.calls
        if len(calls) != len(visits) or not (criterion.plain or criterion.whole) or [call.name for call in calls] != self._names:
            return False
        return criterion.plain or [call.arguments for call in calls] == [visit.arguments for visit in visits]  # type: ignore[union-attr]

    def _by_relation(self, *, any_order: bool) -> Pairs:
        relation, groups, columns = self._relation, self._criterion.expectation.groups, len(self._visits)
        if relation.rows is None:
            if any_order:
                return assign_masks(relation.masks, columns, self._work)
            return align_masks_in_order(relation.masks, columns, groups, self._ran, self._work)
        if any_order:
            return assign_kinds(relation.rows, relation.alike, self._work)
        return align_in_order(relation.rows, groups, self._ran, work=self._work)

    def _whole(self) -> list[int]:
        """By expected call the bits of the calls that agree entirely."""
        if (equal := self._equal_masks()) is not None:
            return equal
        relation = self._relation
        if relation.rows is None:
            return relation.masks
        return [bits_of([column for column, weight in row.items() if weight == 1]) for row in relation.rows]

    def _alignment(self, pairs: Pairs, *, any_order: bool) -> Alignment:
        wanted, made = len(self._criterion.expectation.calls), len(self._visits)
        weights = [self._weight(row, column) for row, column in pairs] if self._criterion.weighed else None
        weight = float(len(pairs)) if weights is None else fsum(weights)
        missing, extra = left_over(wanted, [row for row, _ in pairs]), left_over(made, [column for _, column in pairs])
        misplaced = [] if any_order or not missing or not extra else self._misplaced(missing, extra)
        if misplaced:
            rows, columns = map(set, zip(*misplaced, strict=True))
            missing, extra = [row for row in missing if row not in rows], [at for at in extra if at not in columns]
        return Alignment(pairs, weights, weight, missing, extra, misplaced)

    def _weight(self, row: int, column: int) -> float:
        relation = self.__dict__.get("_relation")  # not made where words decided
        return 1.0 if relation is None or relation.rows is None else relation.rows[row][column]

    def _misplaced(self, missing: list[int], extra: list[int]) -> Pairs:
        """Of the calls left over those that agree: each expected one with the first that is still there."""
        wanted, made = self._criterion.words, self._words
        if self._criterion.decisive and wanted is not None and made is not None:
            found = _assigned_words([wanted.names[row] for row in missing], [made[column] for column in extra])
            return [(missing[row], extra[column]) for row, column in found]
        left, pairs = bits_of(extra), []
        for row in missing:
            agreeing = self._relation.masks[row] & left
            if agreeing:
                column = lowest(agreeing)
                left ^= 1 << column
                pairs.append((row, column))
        return pairs


def _parallel(visits: Sequence[TimedCall]) -> list[range] | None:
    """The batches of parallel calls; None where calls follow one another."""
    found = parallel_groups(visits)
    return None if len(found) == len(visits) else found


def _assigned_words(wanted: Sequence[Hashable], made: Sequence[Hashable]) -> Pairs:
    """The n-th expected call of a word with the n-th actual one: as many pairs as there can be."""
    waiting: dict[Hashable, list[int]] = {}
    for position in range(len(made) - 1, -1, -1):
        waiting.setdefault(made[position], []).append(position)
    return [(row, waiting[word].pop()) for row, word in enumerate(wanted) if waiting.get(word)]


def _windows(groups: Sequence[range], batches_: Sequence[range]) -> list[int]:
    """By row the bits of the columns whose batches share positions with its group."""
    batch_of = [batch for batch in batches_ for _ in batch]
    windows = []
    for group in groups:
        first, last = batch_of[group.start].start, batch_of[group.stop - 1].stop
        windows += [(1 << last) - (1 << first)] * len(group)
    return windows
