"""What every scorer that compares calls with expected ones shares.

Knows values, explanations and per-run references; the alignment itself is `alignment`'s. The details of each:
`matched` [[expected, actual], …] (with the weight where arguments or results are compared), `missing` [{tool,
expected}], `extra` [{tool, actual}], `misplaced` [{tool, expected, actual}]; positions count from 0 among the calls
that are looked at.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from otel_eval.errors import ConfigError
from otel_eval.model import UNRECORDED, Failed, Outcome, Skipped, Trajectory
from otel_eval.native import maker
from otel_eval.scorers.agreement import MODES
from otel_eval.scorers.alignment import (
    Alignment,
    Comparison,
    Expectation,
    TooMuch,
    Unrecorded,
    align,
    fits_exactly,
)
from otel_eval.scorers.batches import Visit
from otel_eval.scorers.built_in import BuiltIn, Finding, late
from otel_eval.scorers.counting import (
    alignment_of_equals,
    alignment_of_kinds,
    prepared_calls,
    prepared_kinds,
    weight_of_kinds,
    weight_of_names,
)
from otel_eval.scorers.parameters import flag, one_of, optional, reads, wrong
from otel_eval.scorers.references import Reference, reference
from otel_eval.scorers.subsequence import Prepared
from otel_eval.scorers.wording import listed, plural
from otel_eval.telling import nearest

__all__ = ["MATCHES", "MEASURES", "Matching", "arguments_mode"]

MATCHES: Final = ("exact", "in_order", "any_order")
MEASURES: Final = ("recall", "precision", "f1")
_MOST_CONTENT: Final = 400


def arguments_mode(key: str, value: Any) -> str | tuple[str, ...]:
    """How arguments are compared: one of the modes, or the dotted keys to compare."""
    if isinstance(value, str) and value in MODES:
        return value
    if isinstance(value, list | tuple) and value and all(isinstance(each, str) and each for each in value):
        return tuple(value)
    near = nearest(value, MODES)
    remedy = f"did you mean {near!r}?" if near else f"write e.g. {key}: subset or {key}: [user.id]"
    raise wrong(key, value, f"one of {', '.join(MODES)} or a list of keys", remedy)


@dataclass(frozen=True, slots=True, kw_only=True)
class Matching(BuiltIn):
    """Base of the matching scorers.

    Attributes:
        expected: the expectation, in the form that the field's reader reads.
        reference: where a run's own expectation is (JSON text or a list); it replaces `expected`.
        concurrency: `respect` lets calls that could not have known of one another come in any order; `ignore` does not.
        include_content: lets arguments and results into explanation and details.
    """

    expected: Expectation | None = None
    reference: Reference | None = field(default=None, metadata=reads(optional(reference)))
    concurrency: str = field(default="respect", metadata=reads(one_of("respect", "ignore")))
    include_content: bool = field(default=False, metadata=reads(flag))
    comparison: Comparison = field(init=False, repr=False, compare=False)
    kinds: Prepared | None = field(init=False, repr=False, compare=False)
    weigher: Any = field(init=False, repr=False, compare=False)  # the expected calls for the shortcut in C; None: there is none
    manner: tuple[str, str, bool, bool] = field(init=False, repr=False, compare=False)  # asked of every run

    @property
    def how(self) -> str:
        """One of `MATCHES`."""
        raise NotImplementedError

    @property
    def ratio(self) -> str:
        """One of `MEASURES`."""
        return "recall"

    @property
    def compared(self) -> Comparison:
        """What is compared beside names."""
        return _NAMES

    @property
    def asked(self) -> frozenset[str]:
        """The reference's attribute."""
        return frozenset({self.reference.key}) if self.reference else frozenset()

    @property
    def needs(self) -> frozenset[str]:
        """Arguments and results where they are compared or shown."""
        compared = self.compared
        arguments = {"arguments"} if compared.arguments or self.include_content else set()
        return frozenset(arguments | ({"results"} if compared.results or self.include_content else set()))

    def prepare(self) -> None:
        """Check that there is an expectation, inline or by reference."""
        if self.expected is None and self.reference is None:
            raise ConfigError(
                "expected: missing; list the expected calls, or name the attribute that does: reference: my.expected"
            )
        self._set("comparison", self.compared)
        self._set("kinds", prepared_kinds(self.expected) if self.expected and self.comparison.arguments else None)
        self._set("weigher", prepared_calls(self.expected, self.comparison) if self.expected else None)
        self._set("manner", (self.how, self.ratio, self.concurrency == "respect", self.comparison.names_only))

    def visits(self, trajectory: Trajectory) -> Sequence[Visit]:
        """What is compared with the expectation."""
        return trajectory.calls

    def find(self, trajectory: Trajectory) -> Finding | Outcome:
        """Align, weigh and explain."""
        expectation = self._expectation(trajectory) if self.reference else self.expected
        if not isinstance(expectation, Expectation):
            assert expectation is not None, "there is one or the other"
            return expectation
        how, ratio, concurrency, by_names = self.manner
        visits = self.visits(trajectory)
        if by_names or expectation.bare:
            pairs = weight_of_names(expectation, visits, how, concurrency=concurrency)
            told: tuple[int, float] | None = None if pairs is None else (pairs, pairs)
        else:
            told = self._weight(how, expectation, visits, concurrency=concurrency)
        if told is None:
            return self._found(how, expectation, visits, concurrency=concurrency)
        return self._soon(*told, how, ratio, expectation, visits)

    def _weight(
        self, how: str, expectation: Expectation, visits: Sequence[Visit], *, concurrency: bool
    ) -> tuple[int, float] | None:
        """How many pairs there are and what they weigh with their arguments; None where that takes an alignment."""
        own = expectation is self.expected
        weigher, kinds = (self.weigher, self.kinds) if own else (prepared_calls(expectation, self.comparison), None)
        told: tuple[int, float] | None = None
        if weigher is not None:
            told = weigher.weight(visits, how, concurrency, kinds is not None)
        if told is not None or kinds is None:
            return told
        pairs = weight_of_kinds(kinds, expectation, visits, how, self.comparison, concurrency=concurrency)
        return None if pairs is None else (pairs, pairs)

    def _soon(
        self, pairs: int, weight: float, how: str, ratio: str, expectation: Expectation, visits: Sequence[Visit]
    ) -> Finding:
        """The value; which calls are paired is found out when somebody asks."""
        wanted, made = len(expectation.calls), len(visits)
        value = float(pairs == wanted == made) if how == "exact" else _ratio(weight, wanted, made, ratio)
        if not pairs == wanted == made:
            value = self.weighed(value, wanted - pairs, made - pairs)
        return late(value, partial(self._explained, value, how, expectation, visits))

    def _explained(
        self, value: float, how: str, expectation: Expectation, visits: Sequence[Visit]
    ) -> tuple[str, Mapping[str, Any]]:
        kinds = self.kinds if expectation is self.expected else None
        equals = alignment_of_equals(expectation, visits) if kinds is not None else None
        if equals is not None:
            return _reasons(self._told(value, expectation, visits, equals))
        found = self._found(how, expectation, visits, concurrency=self.concurrency == "respect")
        if isinstance(found, Finding):
            return _reasons(found)
        assert kinds is not None, "else nothing was told where there is too much"
        return _reasons(self._told(value, expectation, visits, alignment_of_kinds(kinds, visits, how)))

    def _found(self, how: str, expectation: Expectation, visits: Sequence[Visit], *, concurrency: bool) -> Finding | Skipped:
        try:
            alignment = align(expectation, visits, how, self.comparison, concurrency=concurrency)
            fits = how == "exact" and fits_exactly(expectation, visits, self.comparison, concurrency=concurrency)
        except Unrecorded as unrecorded:
            return Skipped(str(unrecorded))
        except TooMuch:
            return Skipped(f"too many calls to be weighed: {len(expectation.calls)} expected, {len(visits)} made")
        value = float(fits) if how == "exact" else _ratio(alignment.weight, len(expectation.calls), len(visits), self.ratio)
        return self._told(value, expectation, visits, alignment)

    def weighed(self, value: float, missing: int, extra: int) -> float:
        """The value, once it is known how many calls are missing and extra."""
        return value

    def _expectation(self, trajectory: Trajectory) -> Expectation | Skipped | Failed:
        assert self.reference is not None, "asked only where there is one"
        found = self.reference.of(trajectory)
        if isinstance(found, Failed):
            return found
        if isinstance(found, Skipped):
            return found if self.expected is None else self.expected
        try:
            return self._read(self.reference.key if self.reference.records is None else self.reference.field, found)
        except ConfigError as error:
            return Failed("InvalidReference", str(error))

    def _read(self, key: str, value: Any) -> Expectation:
        """As the inline expectation is read."""
        read: Callable[[str, Any], Expectation] = type(self).__dataclass_fields__["expected"].metadata["read"]
        return read(key, value)

    def _told(self, value: float, expectation: Expectation, visits: Sequence[Visit], alignment: Alignment) -> Finding:
        pairs, wanted = alignment.pairs, expectation.calls
        partial = alignment.weight < len(pairs)
        said = f"{len(pairs)} of {plural(len(wanted), 'expected call')} matched"
        if partial:
            said += f" (agreement {alignment.weight:.3g})"
        details: dict[str, Any] = {"matched": _matched(alignment), "missing": [], "extra": [], "misplaced": []}
        if len(pairs) == len(wanted) == len(visits) and not (partial and self.include_content):
            return _new_finding(value, said, details)
        missing = _without(len(wanted), [row for row, _ in pairs])
        extra = _without(len(visits), [column for _, column in pairs])
        value = self.weighed(value, len(missing), len(extra))
        ordered = missing and extra and self.how != "any_order"
        misplaced = _misplaced(expectation, visits, missing, extra, alignment) if ordered else []
        for row, column in misplaced:
            missing.remove(row)
            extra.remove(column)
        details["missing"] = [{"tool": wanted[row].name, "expected": row} for row in missing]
        details["extra"] = [{"tool": visits[column].name, "actual": column} for column in extra]
        details["misplaced"] = [{"tool": visits[column].name, "expected": row, "actual": column} for row, column in misplaced]
        if missing:
            said += f"; missing: {listed([(wanted[row].name, row) for row in missing])}"
        if extra:
            said += f"; extra: {listed([(visits[column].name, column) for column in extra])}"
        if misplaced:
            said += f"; out of order: {listed([(visits[column].name, column) for _, column in misplaced])}"
        if self.include_content:
            details["content"] = _content(expectation, visits, missing, extra, alignment)
            said += f"; content: {_cut(json.dumps(details['content'], ensure_ascii=False, default=str))}"
        return _new_finding(value, said, details)


_NAMES: Final = Comparison()
_new_finding: Final = maker(Finding)


def _reasons(found: Finding) -> tuple[str, Mapping[str, Any]]:
    return found.explanation, found.details


def _without(count: int, paired: list[int]) -> list[int]:
    """The positions below `count` that are in no pair."""
    if len(paired) == count:
        return []
    left = set(range(count))
    left.difference_update(paired)
    return sorted(left)


def _ratio(weight: float, expected: int, actual: int, measure: str) -> float:
    if not expected or not actual:
        return float(expected == actual)
    if measure == "recall":
        return weight / expected
    return weight / actual if measure == "precision" else 2 * weight / (expected + actual)


def _matched(alignment: Alignment) -> list[list[Any]]:
    rows = alignment.rows
    if rows is None:
        return list(map(list, alignment.pairs))
    return [[row, column, rows[row][column]] for row, column in alignment.pairs]


def _misplaced(
    expectation: Expectation, visits: Sequence[Visit], missing: Sequence[int], extra: Sequence[int], alignment: Alignment
) -> list[tuple[int, int]]:
    """Pairs of a missing and an extra call that agree in all but their place."""
    waiting: dict[str, list[int]] = {}
    for column in extra:
        waiting.setdefault(visits[column].name, []).append(column)
    found = []
    for row in missing:
        columns, rows = waiting.get(expectation.calls[row].name, []), alignment.rows
        agreeing = next((each for each in columns if rows is None or each in rows[row]), None)
        if agreeing is not None:
            columns.remove(agreeing)
            found.append((row, agreeing))
    return found


def _content(
    expectation: Expectation, visits: Sequence[Visit], missing: Sequence[int], extra: Sequence[int], alignment: Alignment
) -> list[dict[str, Any]]:
    rows = alignment.rows or []
    partial = [(row, column) for row, column in alignment.pairs if rows and rows[row][column] < 1]
    wanted = expectation.calls
    told = [{"expected": row, **_values(wanted[row]), "actual": at, "found": _values(visits[at])} for row, at in partial]
    told += [{"expected": row, **_values(wanted[row])} for row in missing]
    return told + [{"actual": column, "found": _values(visits[column])} for column in extra]


def _values(call: Any) -> dict[str, Any]:
    fields = {"tool": call.name}
    for key in ("arguments", "result"):
        if getattr(call, key, UNRECORDED) is not UNRECORDED:
            fields[key] = getattr(call, key)
    return fields


def _cut(said: str) -> str:
    return said if len(said) <= _MOST_CONTENT else said[: _MOST_CONTENT - 1] + "…"
