"""What every scorer that compares calls with expected ones shares: per-run references, values and explanations."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from otel_eval.errors import ConfigError, nearest
from otel_eval.interfaces import constructor
from otel_eval.model import Failed, Outcome, Skipped, Trajectory
from otel_eval.scorers.alignment.align import Aligner, NotRecorded, TooManySteps, explained
from otel_eval.scorers.alignment.expected import Comparison, Criterion, Expectation, criterion_of
from otel_eval.scorers.alignment.parallel_calls import TimedCall
from otel_eval.scorers.references import Reference, reference
from otel_eval.scorers.spec.base_scorer import BaseScorer, Finding
from otel_eval.scorers.spec.parameters import STRINGS, flag, invalid_value, one_of, optional, reads, with_schema
from otel_eval.scorers.tool_names import ToolNames
from otel_eval.scorers.values import MODES

__all__ = ["MATCHES", "MEASURES", "Matching", "arguments_mode"]

MATCHES: Final = ("exact", "in_order", "any_order")
MEASURES: Final = ("recall", "precision", "f1")


@with_schema({"anyOf": [{"enum": [*MODES]}, STRINGS]})
def arguments_mode(key: str, value: Any) -> str | tuple[str, ...]:
    """How arguments are compared: one of the modes, or the dotted keys to compare."""
    if isinstance(value, str) and value in MODES:
        return value
    if isinstance(value, list | tuple) and value and all(isinstance(each, str) and each for each in value):
        return tuple(value)
    near = nearest(value, MODES)
    remedy = f"did you mean {near!r}?" if near else f"write e.g. {key}: subset or {key}: [user.id]"
    raise invalid_value(key, value, f"one of {', '.join(MODES)} or a list of keys", remedy)


@dataclass(frozen=True, slots=True, kw_only=True)
class Matching(BaseScorer):
    """Base of the scorers that compare calls with expected ones.

    Attributes:
        expected: what should have been called, see [Expectations](#expectations); required unless there is a `reference`.
        reference: a run's own expectation, see [References](#references); it replaces `expected`.
        concurrency: `respect` lets parallel calls come in any order; `ignore` takes them in order of start.
        include_content: `true` lets arguments and results into explanation and details.
    """

    expected: Expectation | None = None
    reference: Reference | None = field(default=None, metadata=reads(optional(reference)))
    concurrency: str = field(default="respect", metadata=reads(one_of("respect", "ignore")))
    include_content: bool = field(default=False, metadata=reads(flag))
    criterion: Criterion | None = field(init=False, repr=False, compare=False)  # of the inline expectation

    @property
    def match(self) -> str:
        """One of `MATCHES`."""
        raise NotImplementedError

    @property
    def measure(self) -> str:
        """One of `MEASURES`."""
        return "recall"

    @property
    def compared(self) -> Comparison:
        """What is compared beside names."""
        return Comparison()

    @property
    def attribute_keys(self) -> frozenset[str]:
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
        self._set("criterion", criterion_of(self.expected, self.compared) if self.expected else None)

    def compared_calls(self, trajectory: Trajectory) -> Sequence[TimedCall]:
        """What is compared with the expectation."""
        return trajectory.calls

    def find(self, trajectory: Trajectory) -> Finding | Outcome:
        """Align, weigh and explain."""
        criterion = self._criterion(trajectory) if self.reference else self.criterion
        if not isinstance(criterion, Criterion):
            assert criterion is not None, "there is one or the other"
            return criterion
        expectation, visits, exact = criterion.expectation, self.compared_calls(trajectory), self.match == "exact"
        wanted, made = len(expectation.calls), len(visits)
        matcher = Aligner(criterion, visits, concurrency=self.concurrency == "respect")
        try:
            alignment = matcher.heaviest(any_order=self.match == "any_order")
            value = float(matcher.fits()) if exact else _ratio(alignment.weight, wanted, made, self.measure)
        except NotRecorded as unrecorded:
            return Skipped(str(unrecorded), reason="not_recorded")
        except TooManySteps:
            return Skipped(f"too many calls to be weighed: {wanted} expected, {made} made", reason="too_large")
        value = self.weighed(value, wanted - len(alignment.pairs), made - len(alignment.pairs))
        return _new_finding(value, *explained(alignment, expectation, visits, content=self.include_content))

    def weighed(self, value: float, missing: int, extra: int) -> float:
        """The value, once it is known how many calls are missing and extra."""
        return value

    def _criterion(self, trajectory: Trajectory) -> Criterion | Skipped | Failed:
        assert self.reference is not None, "asked only where there is one"
        found = self.reference.of(trajectory)
        if isinstance(found, Failed):
            return found
        if isinstance(found, Skipped):
            return found if self.criterion is None else self.criterion
        try:
            return criterion_of(self.read_reference(found), self.compared)
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
_new_finding: Final = constructor(Finding)


def _ratio(weight: float, expected: int, actual: int, measure: str) -> float:
    if not expected or not actual:
        return float(expected == actual)
    if measure == "recall":
        return weight / expected
    return weight / actual if measure == "precision" else 2 * weight / (expected + actual)
