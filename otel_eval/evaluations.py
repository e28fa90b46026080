"""Evaluations: scorers, and the conditions that decide which runs they apply to."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple

from otel_eval.globs import glob_matcher
from otel_eval.interfaces import Scorer
from otel_eval.model import UNRECORDED, Trajectory
from otel_eval.scorers.values import text_of


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFilter:
    """Which runs an evaluation applies to; all conditions must hold.

    Attributes:
        service, agent, span: case-sensitive globs over the names of the service, of the agent and
            of the run's span.
        runs: "outermost", or "all" for runs inside other runs as well, or "tools" for the tool
            calls that belong to no agent run, each by itself.
        attributes: attribute of the run's span, its resource or its scope → value, text values as
            globs.
    """

    service: str = "*"
    agent: str = "*"
    span: str = "*"
    runs: Literal["outermost", "all", "tools"] = "outermost"
    attributes: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScorerSet:
    """Scorers, the runs they apply to, and the share of traces that is scored (chosen by trace id).

    Attributes:
        at_once, later: the scorers that return an outcome when they are called, and the
            asynchronous ones, which are awaited.
    """

    name: str
    scorers: tuple[Scorer, ...]
    match: RunFilter = field(default_factory=RunFilter)
    sample: float = 1.0
    at_once: tuple[Scorer, ...] = field(init=False, repr=False)
    later: tuple[Scorer, ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        # Divided here once and not for each run.
        object.__setattr__(
            self, "at_once", tuple(scorer for scorer in self.scorers if not is_awaited(scorer))
        )
        object.__setattr__(
            self, "later", tuple(scorer for scorer in self.scorers if is_awaited(scorer))
        )


class RunMatch(NamedTuple):
    """A run, with the evaluations that match it."""

    trajectory: Trajectory
    evaluations: tuple[ScorerSet, ...]


@dataclass(frozen=True, slots=True)
class FailedCondition:
    """A condition of an evaluation that a run does not meet.

    Attributes:
        condition: its key in the configuration, such as `match.agent`.
        wanted: what the configuration requires.
        actual: what the run has; `UNRECORDED` for an attribute that it does not have.
    """

    condition: str
    wanted: Any
    actual: Any

    def text(self, shown: Callable[[Any], str]) -> str:
        """What is required, and what the run has instead; `shown` returns a value as text."""
        wanted = shown(self.wanted)
        if self.condition == "sample":
            return f"sample is {wanted}, and the hash of the trace id is {shown(self.actual)}"
        if self.condition == "match.runs":
            return f"{self.condition} requires {wanted}, and this run is {self.actual}"
        actual = "none" if self.actual is UNRECORDED else shown(self.actual)
        return f"{self.condition} requires {wanted}, and the run has {actual}"


class Matcher:
    """One evaluation's conditions, compiled once."""

    def __init__(self, evaluation: ScorerSet) -> None:
        match = evaluation.match
        self._names: Final = [
            (name, glob_matcher(pattern))
            for name, pattern in (
                ("service", match.service),
                ("agent", match.agent),
                ("name", match.span),
            )
            if pattern != "*"
        ]
        self._attributes: Final = [
            (key, condition(value)) for key, value in match.attributes.items()
        ]
        # conditions beside `runs` and the sample
        self._has_conditions: Final = bool(self._names or self._attributes)
        self._sample: Final = evaluation.sample
        self._match: Final = match

    def __call__(self, trajectory: Trajectory, draw: float) -> bool:
        """Whether every condition holds; `draw` is the trace's number in [0, 1) for sampling."""
        if draw >= self._sample or not selects(self._match.runs, trajectory):
            return False
        return not self._has_conditions or next(self.failed(trajectory, draw), None) is None

    def may_apply(
        self, draw: float, known: Mapping[str, str], attributes: Mapping[str, Any]
    ) -> bool:
        """Whether a run with these names and attributes can meet every condition; names that are
        not in `known` may match.
        """
        fitting = draw < self._sample and all(
            fits(known[name]) for name, fits in self._names if name in known
        )
        return fitting and all(
            key in attributes and fits(attributes[key]) for key, fits in self._attributes
        )

    def failed(self, trajectory: Trajectory, draw: float) -> Iterator[FailedCondition]:
        """The conditions that do not hold, cheap ones first."""
        match = self._match
        if draw >= self._sample:
            yield FailedCondition("sample", self._sample, draw)
        if not selects(match.runs, trajectory):
            actual = (
                "a tool call of no agent run"
                if trajectory.is_tool_call
                else "an agent run"
                if match.runs == "tools"
                else "inside another one"
            )
            yield FailedCondition("match.runs", match.runs, actual)
        for name, fits in self._names:
            if not fits(getattr(trajectory, name)):
                key = _KEYS.get(name, name)
                yield FailedCondition(
                    f"match.{key}", getattr(match, key), getattr(trajectory, name)
                )
        for key, fits in self._attributes:
            actual = trajectory.attributes.get(key, UNRECORDED)
            if actual is UNRECORDED or not fits(actual):
                yield FailedCondition(f"match.attributes.{key}", match.attributes[key], actual)


def selects(runs: str, run: Trajectory) -> bool:
    """Whether `runs` of a filter selects the run, or the tool call by itself."""
    if run.is_tool_call or runs == "tools":
        return run.is_tool_call and runs == "tools"
    return run.outermost or runs == "all"


_KEYS: Final = {"name": "span"}  # the field of a run → the key of `match`


def is_awaited(scorer: Scorer) -> bool:
    """Whether a scorer is asynchronous, so that its outcome is awaited from `evaluate`."""
    return bool(getattr(scorer, "asynchronous", False))


def condition(wanted: Any) -> Callable[[Any], bool]:
    """A test of one attribute's value: text as a glob over the value's text, anything else by
    equality.
    """
    if not isinstance(wanted, str):
        # The types are compared because `True == 1` in Python, and a user who writes true does not
        # mean the number 1.
        return lambda value: type(value) is type(wanted) and value == wanted
    fits = glob_matcher(wanted)
    return lambda value: bool(fits(text_of(value)))
