"""What every scorer shares: the common parameters, the common reasons to skip, `strict` and `threshold`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Final

from otel_eval.interfaces import constructor
from otel_eval.model import Failed, Outcome, Scored, Skipped, Trajectory
from otel_eval.scorers.outcomes import too_large
from otel_eval.scorers.spec.parameters import Selection, flag, one_of, reads, selection, share, text
from otel_eval.scorers.text import tool
from otel_eval.scorers.tool_names import ToolNames

__all__ = ["BaseScorer", "Finding"]

_new_scored: Final = constructor(Scored)
_SLACK: Final = 1e-9  # what sums of weights may be off by


@dataclass(frozen=True, slots=True)
class Finding:
    """What a scorer measured, before strict and threshold are applied. `value` is in [0, 1]."""

    value: float
    explanation: str
    details: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class BaseScorer:
    """Base of the built-in scorers and of `FunctionScorer`.

    Attributes:
        name: the name that results carry; the type if left out.
        threshold: the least value that passes, from 0 to 1; left out, `default_threshold`.
        strict: `true` turns values below 1 into 0, and only 1 passes, whatever the threshold.
        tools: `{include: [patterns], exclude: [patterns]}` over tool names; other calls are left out before anything is measured.
        failed_calls: `include`, or `exclude` to leave out calls that failed.
    """

    type: ClassVar[str]
    version: ClassVar[str] = "1"

    name: str = field(default="", metadata=reads(text))
    threshold: float | None = field(default=None, metadata=reads(share))
    strict: bool = field(default=False, metadata=reads(flag))
    tools: Selection = field(default=Selection(), metadata=reads(selection))
    failed_calls: str = field(default="include", metadata=reads(one_of("include", "exclude")))
    keeps: Callable[[str], bool] | None = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        self._set("keeps", self.tools.matcher())
        if self.threshold is None:
            self._set("threshold", self.default_threshold)
        if not self.name:
            self._set("name", self.type)
        self.prepare()

    def _set(self, key: str, value: Any) -> None:
        object.__setattr__(self, key, value)

    def prepare(self) -> None:
        """Check parameters against one another and derive what every run would derive again.

        Raises:
            ConfigError: the parameters do not go together.
        """

    @property
    def default_threshold(self) -> float | None:
        """1: a policy that is partly broken did not pass. None where something else than the value decides."""
        return 1.0

    @property
    def applied_threshold(self) -> float | None:
        """The least value that passes, `strict` considered; None where something else decides."""
        return 1.0 if self.strict else self.threshold

    @property
    def reads_calls(self) -> bool:
        """Whether it cannot tell anything where the instrumentation records no tool calls."""
        return True

    @property
    def reads_failures(self) -> bool:
        """Whether it cannot tell anything where it is unknown whether a call failed."""
        return False

    @property
    def needs(self) -> frozenset[str]:
        """What must be read beyond names, times and errors of the calls."""
        return frozenset()

    @property
    def attribute_keys(self) -> frozenset[str]:
        """The attributes that must be in `Trajectory.attributes`."""
        return frozenset()

    @property
    def tool_names(self) -> ToolNames:
        """The tools that the parameters name."""
        return ToolNames(optional=self.tools.include.patterns, forbidden=self.tools.exclude.patterns) | self.named_tools

    @property
    def named_tools(self) -> ToolNames:
        """The tools that the scorer's own parameters name."""
        return ToolNames()

    @property
    def suggestions(self) -> tuple[str, ...]:
        """What may be meant otherwise than it is written; `otel-eval check` prints it."""
        return ()

    def find(self, trajectory: Trajectory) -> Finding | Outcome:
        """Measure a trajectory whose evidence is complete and whose calls are filtered."""
        raise NotImplementedError

    def __call__(self, trajectory: Trajectory) -> Outcome:
        """The outcome for one run; equal trajectories give equal outcomes."""
        skipped = self.skip_common(trajectory)
        if skipped is not None:
            return skipped
        try:
            return self.to_outcome(self.find(self.select_calls(trajectory)))
        except RecursionError:
            return Failed("RecursionError", "values are nested too deeply to be compared")

    def skip_common(self, trajectory: Trajectory) -> Skipped | None:
        """Why a run cannot be measured at all, if so."""
        if trajectory.incomplete:
            return Skipped(f"incomplete: {trajectory.incomplete}", reason="incomplete")
        if trajectory.too_large:
            return too_large(trajectory.too_large)
        if trajectory.calls_unknown and self.reads_calls:
            return Skipped(f"calls unknown: {trajectory.calls_unknown}", reason="calls_unknown")
        return self._unsure(trajectory) if self.reads_failures or self.failed_calls == "exclude" else None

    def _unsure(self, trajectory: Trajectory) -> Skipped | None:
        """Skips a run with a call of which it is unknown whether it failed."""
        for position, call in enumerate(trajectory.calls):
            if call.failure_unknown and (self.keeps is None or self.keeps(call.name)):
                why = f"whether {tool(call.name)} ({position}) failed is unknown: its result was not recorded"
                return Skipped(why, reason="not_recorded")
        return None

    def select_calls(self, trajectory: Trajectory) -> Trajectory:
        """The trajectory without the calls that `tools` and `failed_calls` leave out."""
        keeps, drop_failed = self.keeps, self.failed_calls == "exclude"
        if keeps is None and not drop_failed:
            return trajectory
        calls = tuple(
            call for call in trajectory.calls if (keeps is None or keeps(call.name)) and not (drop_failed and call.error)
        )
        return replace(trajectory, calls=calls)

    def to_outcome(self, found: Finding | Outcome) -> Outcome:
        """A finding as an outcome: its value in [0, 1], strict and threshold applied."""
        if not isinstance(found, Finding):
            return found
        value = found.value
        if not 0 <= value <= 1:
            if not -_SLACK <= value <= 1 + _SLACK:  # also true of a NaN
                return Failed("ValueError", f"{value} is not in [0, 1]", found.details)
            value = min(1.0, max(0.0, value))
        value += 0.0  # a float, and never -0.0
        if self.strict:
            value = 1.0 if value == 1 else 0.0
            passed = value == 1
        else:
            passed = self.passes(value, found)
        return _new_scored(value, passed, found.explanation, found.details)

    def passes(self, value: float, found: Finding) -> bool:
        """Whether a value passes where the scorer is not `strict`."""
        del found
        return self.threshold is not None and value >= self.threshold
