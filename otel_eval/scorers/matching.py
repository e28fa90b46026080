"""What every scorer that compares calls with expected ones shares.

Knows values and per-run references; the alignment itself is `alignment`'s, what it says `differences`'.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from otel_eval.errors import ConfigError
from otel_eval.model import Failed, Outcome, Skipped, Trajectory
from otel_eval.native import maker
from otel_eval.scorers.agreement import MODES
from otel_eval.scorers.alignment import TooMuch, Unrecorded, align, fits_exactly
from otel_eval.scorers.batches import Visit
from otel_eval.scorers.built_in import BuiltIn, Finding, late
from otel_eval.scorers.counting import (
    alignment_of_equals,
    alignment_of_kinds,
    prepared_calls,
    prepared_kinds,
    prepared_scoring,
    weight_of_kinds,
    weight_of_names,
)
from otel_eval.scorers.differences import Reasons, explained
from otel_eval.scorers.expected import Comparison, Expectation
from otel_eval.scorers.parameters import STRINGS, described, flag, one_of, optional, reads, wrong
from otel_eval.scorers.references import Reference, reference
from otel_eval.scorers.subsequence import Prepared
from otel_eval.scorers.tool_names import ToolNames
from otel_eval.telling import nearest

__all__ = ["MATCHES", "MEASURES", "Matching", "arguments_mode"]

MATCHES: Final = ("exact", "in_order", "any_order")
MEASURES: Final = ("recall", "precision", "f1")


@described({"anyOf": [{"enum": [*MODES]}, STRINGS]})
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
    scoring: Any = field(init=False, repr=False, compare=False)  # all of it in C, for runs that are plain; None: there is none

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

    @property
    def named_tools(self) -> ToolNames:
        """The tools of the inline expectation."""
        return ToolNames(required=tuple(call.name for call in self.expected.calls)) if self.expected else ToolNames()

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
        self._set("scoring", self._scoring() if self.expected and self.usual else None)

    @property
    def usual(self) -> bool:
        """Whether the expectation and all of a run's calls decide, and nothing else."""
        foreign = [vars(cls) for cls in type(self).__mro__ if cls.__module__.partition(".")[0] != _HOUSE]
        decided = any(name in own for own in foreign for name in _DECIDES)
        return not (decided or self.reference or self.keeps or self.failed_calls == "exclude")

    def _scoring(self) -> Any:
        assert self.expected is not None, "asked only where there is one"
        by_names = self.comparison.names_only or self.expected.bare
        return prepared_scoring(
            self.expected.names if by_names else self.weigher,
            self.expected,
            self.manner,
            strict=self.strict,
            threshold=self.threshold,
        )

    def __call__(self, trajectory: Trajectory) -> Outcome:
        """The outcome for one run."""
        outcome: Outcome | None = None if self.scoring is None else self.scoring.score(self, trajectory)
        return BuiltIn.__call__(self, trajectory) if outcome is None else outcome

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
        return self._soon(*told, ratio, expectation, visits)

    def _weight(
        self, how: str, expectation: Expectation, visits: Sequence[Visit], *, concurrency: bool
    ) -> tuple[int, float] | None:
        """How many pairs there are and what they weigh with their arguments; None where that takes an alignment."""
        own = expectation is self.expected
        weigher, kinds = (self.weigher, self.kinds) if own else (prepared_calls(expectation, self.comparison), None)
        told: tuple[int, float] | None = None
        if weigher is not None:
            told = weigher.weight(visits, how, concurrency, own)
        if told is not None or kinds is None:
            return told
        pairs = weight_of_kinds(kinds, expectation, visits, how, self.comparison, concurrency=concurrency)
        return None if pairs is None else (pairs, pairs)

    def _soon(self, pairs: int, weight: float, ratio: str, expectation: Expectation, visits: Sequence[Visit]) -> Finding:
        """The value; which calls are paired is found out when somebody asks."""
        wanted, made = len(expectation.calls), len(visits)
        value = _ratio(weight, wanted, made, ratio)  # of `exact` all fit, or nothing weighs anything
        value = self.weighed(value, wanted - pairs, made - pairs)
        return late(value, partial(self.explained, expectation, visits))

    def explained(self, expectation: Expectation, visits: Sequence[Visit]) -> Reasons:
        """Why calls got their value: explanation and details."""
        kinds, weigher = (self.kinds, self.weigher) if expectation is self.expected else (None, None)
        alignment = alignment_of_equals(expectation, visits) if kinds is not None and weigher is None else None
        how, _, concurrency, _ = self.manner
        try:
            alignment = alignment or align(expectation, visits, how, self.comparison, concurrency=concurrency, prepared=weigher)
        except TooMuch:
            assert kinds is not None, "else nothing was told where there is too much"
            alignment = alignment_of_kinds(kinds, visits, how)
        return explained(alignment, expectation, visits, content=self.include_content)

    def _found(self, how: str, expectation: Expectation, visits: Sequence[Visit], *, concurrency: bool) -> Finding | Skipped:
        wanted, made = len(expectation.calls), len(visits)
        try:
            alignment = align(expectation, visits, how, self.comparison, concurrency=concurrency)
            fits = how == "exact" and fits_exactly(expectation, visits, self.comparison, concurrency=concurrency)
        except Unrecorded as unrecorded:
            return Skipped(str(unrecorded), reason="not_recorded")
        except TooMuch:
            return Skipped(f"too many calls to be weighed: {wanted} expected, {made} made", reason="too_large")
        value = float(fits) if how == "exact" else _ratio(alignment.weight, wanted, made, self.ratio)
        value = self.weighed(value, wanted - len(alignment.pairs), made - len(alignment.pairs))
        return _new_finding(value, *explained(alignment, expectation, visits, content=self.include_content))

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
            return self.read_reference(found)
        except ConfigError as error:
            return _unusable(error, self.reference.place_of(trajectory))

    def read_reference(self, value: Any) -> Expectation:
        """A run's own expectation.

        Raises:
            ConfigError: the value is none.
        """
        assert self.reference is not None, "asked only where there is one"
        return self._read(self.reference.key if self.reference.records is None else self.reference.field, value)

    def _read(self, key: str, value: Any) -> Expectation:
        """As the inline expectation is read."""
        read: Callable[[str, Any], Expectation] = type(self).__dataclass_fields__["expected"].metadata["read"]
        return read(key, value)


def _unusable(error: ConfigError, place: Mapping[str, Any]) -> Failed:
    """A reference that cannot be read. Of a record in a file, which is the user's own, the details name key and remedy."""
    if not place:
        return Failed("InvalidReference", str(error))
    # Each problem is "key: what was found; remedy". What was found stays in the process: it may be content.
    problems = [{"key": each.partition(": ")[0], "remedy": each.rpartition("; ")[2]} for each in error.problems]
    details = {**place, "problems": problems[:_MOST_PROBLEMS]}
    return Failed("InvalidReference", f"{place['dataset']} line {place['line']}: {error}", details)


_MOST_PROBLEMS: Final = 10
_NAMES: Final = Comparison()
_HOUSE: Final = __name__.partition(".")[0]
_DECIDES: Final = ("__call__", "find", "judged", "kept", "skips", "visits", "weighed")  # what a class of others may do otherwise
_new_finding: Final = maker(Finding)


def _ratio(weight: float, expected: int, actual: int, measure: str) -> float:
    if not expected or not actual:
        return float(expected == actual)
    if measure == "recall":
        return weight / expected
    return weight / actual if measure == "precision" else 2 * weight / (expected + actual)
