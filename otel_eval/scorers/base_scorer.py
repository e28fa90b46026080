"""The base of all scorers: common parameters, reasons to skip, `strict`, `threshold`; and the base
of those that a run's own reference may tell what to expect.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, MISSING, Field, dataclass, field, fields, replace
from functools import cache
from itertools import combinations
from typing import Any, ClassVar, Final, Literal, TypeVar, cast, get_args, get_type_hints

from pydantic import TypeAdapter

from otel_eval.errors import ConfigError
from otel_eval.model import (
    UNRECORDED,
    Failed,
    Outcome,
    Scored,
    Severity,
    Skipped,
    ToolError,
    Trajectory,
)
from otel_eval.records import frozen_record, record
from otel_eval.scorers.outcomes import NoScore, too_large
from otel_eval.scorers.parameters import Selection, SelectionOfTools, Text
from otel_eval.scorers.references import Reference, RunReference
from otel_eval.scorers.tool_names import ToolNames, name_matcher, numbered, refused, tool
from otel_eval.validation import Flag, Share, validated

T = TypeVar("T")

_ROUNDING: Final = 1e-9  # rounding error of sums of weights


@dataclass(slots=True)  # not frozen: created for each run, at a third of the cost
class Finding:
    """What a scorer measured, before strict and threshold are applied. `value` is in [0, 1]."""

    value: float
    explanation: str
    details: Mapping[str, Any] = field(default_factory=dict)


@record
class Requirements:
    """What a scorer reads of a run, and which unknown parts of a run make it skip the run.

    Attributes:
        needs: what must be read beyond names, times and errors of the calls, see `Scorer`.
        attributes: keys of the attributes that must be in `Trajectory.attributes`, beside those of
            references.
        calls: whether a run is skipped if some of its tool calls are unknown.
        failures: whether a run is skipped if it is unknown whether one of its calls failed.
        outline_only: whether nothing else of a run is read than its outline (`kept_outcomes`), and
            what the common parameters and references ask for.
        tools: the tools that the scorer's own parameters name, beside the common `tools`.
    """

    _: KW_ONLY
    needs: frozenset[str] = frozenset()
    attributes: frozenset[str] = frozenset()
    calls: bool = True
    failures: bool = False
    outline_only: bool = False
    tools: ToolNames = field(default=ToolNames())


@frozen_record
class BaseScorer:
    """Base of the built-in scorers and of `FunctionScorer`.

    Attributes:
        name: the name in results; the type if left out.
        threshold: the least value that passes, from 0 to 1; `default_threshold` if left out.
        strict: `true` turns values below 1 into 0, and only 1 passes, whatever the threshold.
        tools: `{include: [patterns], exclude: [patterns]}` over tool names; other calls are removed
            before anything is measured.
    failed_calls: `include`, or `exclude` to leave out calls that failed; where it is unknown
            whether one failed, the run is skipped if that changes the score.
        severity: `error`, or `warn` to export results without their counting for the verdict of the
            run and for exit codes.
    """

    type: ClassVar[str] = ""
    version: ClassVar[str] = "1"

    name: Text = ""
    threshold: Share | None = None
    strict: Flag = False
    tools: SelectionOfTools = field(default=Selection())
    failed_calls: Literal["include", "exclude"] = "include"
    severity: Severity = "error"
    keeps: Callable[[str], bool] | None = field(init=False, repr=False, compare=False)
    _requires: Requirements = field(init=False, repr=False, compare=False)
    # `select_calls` removes no call
    _keeps_all: bool = field(init=False, repr=False, compare=False)
    # `applied_threshold`, computed once
    _least: float | None = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        self._set("keeps", self.tools.matcher())
        self._set("_keeps_all", self.keeps is None and self.failed_calls == "include")
        if self.threshold is None:
            self._set("threshold", self.default_threshold)
        self._set("_least", self.applied_threshold)
        if not self.name:
            self._set("name", self.type)
        self.prepare()
        self._set("_requires", self.requires())

    def _set(self, key: str, value: object) -> None:
        object.__setattr__(self, key, value)

    def prepare(self) -> None:
        """Check the combination of parameters, and compute once what does not depend on a run.

        Raises:
            ConfigError: the parameters cannot be combined.
        """

    @property
    def default_threshold(self) -> float | None:
        """The threshold if none is given: 1, since a partly broken policy did not pass; None if the
        value does not decide.
        """
        return 1.0

    @property
    def applied_threshold(self) -> float | None:
        """The least value that passes, 1 with `strict`; None if the value does not decide."""
        return 1.0 if self.strict else self.threshold

    @property
    def defaults(self) -> Mapping[str, Any]:
        """The values of parameters that were left out, where they differ from those of the
        fields.
        """
        return {"threshold": self.default_threshold}

    def parameters_given(self) -> Mapping[str, Any]:
        """The parameters that differ from their defaults, apart from those that change no score:
        they are what makes two policies of one type different.
        """
        defaults = {**{key.name: _default_of(key) for key in fields(self)}, **self.defaults}
        return {
            key: value
            for key in parameters_of(type(self))
            if key not in _SCORELESS and (value := getattr(self, key)) != defaults[key]
        }

    def requires(self) -> Requirements:
        """What the scorer reads; called once, after `prepare`."""
        return Requirements()

    @property
    def reads_calls(self) -> bool:
        """Whether a run is skipped if some of its tool calls are unknown."""
        return self._requires.calls

    @property
    def needs(self) -> frozenset[str]:
        """What must be read beyond names, times and errors of the calls."""
        return self._requires.needs

    @property
    def reads_outline_only(self) -> bool:
        """Whether runs with the same outline (`kept_outcomes`) have the same outcome."""
        return self._requires.outline_only and self._keeps_all and not self.references

    @property
    def references(self) -> tuple[Reference, ...]:
        """Where runs have what they are compared with."""
        return ()

    @property
    def attribute_keys(self) -> frozenset[str]:
        """The attributes that must be in `Trajectory.attributes`."""
        return self._requires.attributes.union([reference.key for reference in self.references])

    @property
    def tool_names(self) -> ToolNames:
        """The tools that the parameters name."""
        return (
            ToolNames(optional=self.tools.include, forbidden=self.tools.exclude)
            | self._requires.tools
        )

    @property
    def suggestions(self) -> tuple[str, ...]:
        """Hints at parameters that may not mean what the user intended; `otel-eval check` prints
        them.
        """
        return ()

    def find(self, trajectory: Trajectory) -> Finding | Outcome:
        """Measure a trajectory whose evidence is complete and whose calls are filtered.

        Raises:
            NoScore: there is nothing to measure, or it cannot be measured.
        """
        raise NotImplementedError

    def __call__(self, trajectory: Trajectory) -> Outcome:
        """The outcome for one run; equal trajectories give equal outcomes."""
        skipped = self.skip_common(trajectory)
        if skipped is not None:
            return skipped
        try:
            return self._measure(trajectory) if self._keeps_all else self._measure_some(trajectory)
        except NoScore as reason:
            return reason.outcome
        except RecursionError:
            return Failed("RecursionError", "values are nested too deeply to be compared")

    def _measure_some(self, trajectory: Trajectory) -> Outcome:
        """The outcome of a run of which calls are left out.

        Where failed calls are left out and it is unknown whether some failed, it is scored for each
        way in which they may have; it is skipped if the scores differ, or there are too many ways.

        Raises:
            NoScore: there is nothing to measure, or it cannot be measured.
        """
        outcome = self._measure(self.select_calls(trajectory))
        if self.failed_calls == "exclude":
            skipped = self.skip_unknown_failures(trajectory)
            unknown = [at for at, call in enumerate(trajectory.calls) if call.failure_unknown]
            if skipped is not None and (
                len(unknown) > _MOST_UNKNOWN
                or not all(
                    _same_score(outcome, self._measure(self.select_calls(other)))
                    for other in _ways_to_fail(trajectory, unknown)
                )
            ):
                return skipped
        return outcome

    def _measure(self, trajectory: Trajectory) -> Outcome:
        """Measure the calls that were selected, and name refused ones where the value is not the
        best.
        """
        finding = self.find(trajectory)
        if isinstance(finding, Finding) and finding.value < 1:
            finding.explanation += refused(trajectory.calls)
        return self.to_outcome(finding)

    def skip_common(self, trajectory: Trajectory) -> Skipped | None:
        """The outcome of a run that lacks what the scorer requires; None if it can be measured."""
        if trajectory.incomplete:
            return Skipped(f"incomplete: {trajectory.incomplete}", reason="incomplete")
        if trajectory.waiting:
            return Skipped(f"waiting: {trajectory.waiting}", reason="waiting")
        if trajectory.too_large:
            return too_large(trajectory.too_large)
        if trajectory.calls_unknown and self.reads_calls:
            return Skipped(f"calls unknown: {trajectory.calls_unknown}", reason="calls_unknown")
        if trajectory.unseen_tools and self.reads_calls:
            unseen = self._unseen(trajectory)
            if unseen is not None:
                return unseen
        return self.skip_unknown_failures(trajectory) if self._requires.failures else None

    def _unseen(self, trajectory: Trajectory) -> Skipped | None:
        """The outcome if a tool that the parameters name may have been called without a trace."""
        names = self.tool_names
        named = name_matcher(*names.required, *names.optional, *names.forbidden)
        hidden = next((name for name in sorted(trajectory.unseen_tools) if named(name)), None)
        if hidden is None:
            return None
        explanation = f"calls unknown: the instrumentation records no call of {tool(hidden)}"
        return Skipped(explanation, reason="calls_unknown")

    def skip_unknown_failures(self, trajectory: Trajectory) -> Skipped | None:
        """The outcome of a run with a call of which it is unknown whether it failed; None if there
        is no such call.
        """
        of_spans = "spans" in self.needs and not self.reads_calls
        for position, call in enumerate(trajectory.calls):
            # A scorer of spans only removes the spans of failed calls; a call read from messages
            # has no span.
            if (
                call.failure_unknown
                and (call.span_id or not of_spans)
                and (self.keeps is None or self.keeps(call.name))
            ):
                explanation = (
                    f"whether {numbered(call.name, position)} failed is unknown: its result was not"
                    " recorded"
                )
                return Skipped(explanation, reason="not_recorded")
        return None

    def select_calls(self, trajectory: Trajectory) -> Trajectory:
        """The trajectory without the calls that `tools` and `failed_calls` leave out, and without
        the spans of failed ones.
        """
        if self._keeps_all:
            return trajectory
        keeps, drop_failed = self.keeps, self.failed_calls == "exclude"
        calls = tuple(
            call
            for call in trajectory.calls
            if (keeps is None or keeps(call.name)) and not (drop_failed and call.error)
        )
        failed = {
            call.span_id for call in trajectory.calls if drop_failed and call.error and call.span_id
        }
        return replace(
            trajectory,
            calls=calls,
            spans=tuple(span for span in trajectory.spans if span.span_id not in failed),
        )

    def to_outcome(self, finding: Finding | Outcome) -> Outcome:
        """Convert a finding to an outcome, with `strict` and the threshold applied; an outcome is
        returned unchanged.
        """
        if not isinstance(finding, Finding):
            return finding
        value = finding.value
        if not 0 <= value <= 1:
            if not -_ROUNDING <= value <= 1 + _ROUNDING:  # also true of a NaN
                return Failed("ValueError", f"{value} is not in [0, 1]", finding.details)
            value = min(1.0, max(0.0, value))
        value += 0.0  # a float, and never -0.0
        if self.strict:
            value = 1.0 if value == 1 else 0.0
        threshold = self._least
        passed = self.passes(finding) if threshold is None else value >= threshold
        return Scored(value, passed, finding.explanation, finding.details)

    def passes(self, finding: Finding) -> bool:
        """Whether a run passes; called only if there is no threshold."""
        return False


_SCORELESS: Final = ("name", "include_content")


def parameters_of(scorer: type[BaseScorer]) -> dict[str, Field[Any]]:
    """The parameters of a built-in scorer by key."""
    return {key.name: key for key in fields(scorer) if key.init}


def _default_of(parameter: Field[Any]) -> object:
    if parameter.default_factory is not MISSING:
        return parameter.default_factory()
    return parameter.default


_MOST_UNKNOWN: Final = 5  # calls: there are two to the power of this ways in which they may fail


def _ways_to_fail(trajectory: Trajectory, unknown: Sequence[int]) -> Iterator[Trajectory]:
    """The trajectory for each way in which at least one of the calls at these positions may have
    failed.
    """
    for number in range(1, len(unknown) + 1):
        for failed in combinations(unknown, number):
            calls = list(trajectory.calls)
            for at in failed:
                calls[at] = replace(calls[at], error=ToolError("unknown"))
            yield replace(trajectory, calls=tuple(calls))


def _same_score(one: Outcome, other: Outcome) -> bool:
    return (
        isinstance(one, Scored)
        and isinstance(other, Scored)
        and (one.value, one.passed) == (other.value, other.passed)
    )


@cache
def _parameter_adapter(scorer: type, key: str) -> TypeAdapter[Any]:
    """Reads a value of an optional parameter; compiled when it is first used."""
    return TypeAdapter(get_args(get_type_hints(scorer, include_extras=True)[key])[0])


_NO_EXPECTATION: Final = Skipped("no expectation", reason="no_reference")


@frozen_record
class ReferencedScorer(BaseScorer):
    """Base of the scorers that read a run's own reference."""

    reference: RunReference | None = None

    @property
    def references(self) -> tuple[Reference, ...]:
        """The reference, if there is one."""
        return (self.reference,) if self.reference else ()

    def reference_of(self, trajectory: Trajectory) -> object:
        """The run's own reference; `Skipped` if the run has none, `UNRECORDED` if none is
        configured.
        """
        return self.reference.of(trajectory) if self.reference else UNRECORDED

    def expectation(
        self, key: str, trajectory: Trajectory, inline: T | None, prepare: Callable[[Any], T]
    ) -> T:
        """The run's own expectation, or the inline one if the run has none.

        Args:
            key: the parameter whose place the run's own takes, and as which it is read.
            prepare: makes the expectation of a valid value of the parameter; may raise
                `ConfigError`.

        Raises:
            NoScore: there is neither, or the run's own is invalid.
        """
        reference, scorer = self.reference, cast(type, self.__class__)
        value = _NO_EXPECTATION if reference is None else reference.of(trajectory)
        if reference is None or isinstance(value, Skipped):
            if inline is None:
                raise NoScore(value)
            return inline
        try:
            return prepare(validated(_parameter_adapter(scorer, key), value, reference.location))
        except ConfigError as error:
            raise NoScore(reference.invalid(error, trajectory)) from None


def references_of(scorer: object) -> Iterator[Reference]:
    """The references that a scorer may read, including those of the scorers it contains.

    >>> from otel_eval.scorers import create_scorer
    >>> [
    ...     reference.key
    ...     for reference in references_of(
    ...         create_scorer({"type": "tool_call_order", "reference": "my.expected"})
    ...     )
    ... ]
    ['my.expected']
    """
    # attributes of a user's object mean something else, and may raise
    if isinstance(scorer, BaseScorer):
        yield from scorer.references
        for further in getattr(scorer, "scorers", ()):
            yield from references_of(further)
