"""Evaluations: scorers, the conditions that decide which runs they apply to, and their results."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import KW_ONLY, field
from functools import partial
from hashlib import blake2b
from typing import Any, Final, Literal, NamedTuple

from otel_eval.globs import glob_matcher
from otel_eval.interfaces import Scorer
from otel_eval.model import (
    UNRECORDED,
    Outcome,
    Pending,
    Report,
    Result,
    Scored,
    Skipped,
    Trajectory,
    verdict_of,
    with_remedy,
)
from otel_eval.records import record
from otel_eval.scorers.base_scorer import BaseScorer
from otel_eval.scorers.build import is_own_scorer
from otel_eval.scorers.kept_outcomes import KeptOutcomes, Outline, outline_of
from otel_eval.scorers.outcomes import checked_outcome, failed_from, too_large
from otel_eval.scorers.policy import policy_of, severity_of
from otel_eval.scorers.user_code import private_copy
from otel_eval.scorers.values import text_of


@record
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

    _: KW_ONLY
    service: str = "*"
    agent: str = "*"
    span: str = "*"
    runs: Literal["outermost", "all", "tools"] = "outermost"
    attributes: Mapping[str, Any] = field(default_factory=dict)


@record
class ScorerSet:
    """Scorers, the runs they apply to, and the share of traces that is scored (chosen by trace id).

    Attributes:
        at_once, later: the scorers that return an outcome when they are called, and the
            asynchronous ones, which are awaited.
        applies: tests the conditions.
    """

    _: KW_ONLY
    name: str
    scorers: tuple[Scorer, ...]
    match: RunFilter = field(default_factory=RunFilter)
    sample: float = 1.0
    at_once: tuple[Scorer, ...] = field(init=False, repr=False)
    later: tuple[Scorer, ...] = field(init=False, repr=False)
    applies: Matcher = field(init=False, repr=False, compare=False)
    _at_once: list[_ResultBuilder] = field(init=False, repr=False, compare=False)
    _later: list[_ResultBuilder] = field(init=False, repr=False, compare=False)
    _keeps_outcomes: bool = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        later = tuple([scorer for scorer in self.scorers if is_awaited(scorer)])
        at_once = tuple([scorer for scorer in self.scorers if not is_awaited(scorer)])
        builders = [_ResultBuilder(self.name, scorer) for scorer in at_once]
        computed = {
            "at_once": at_once,
            "later": later,
            "applies": Matcher(self.match, self.sample),
            "_at_once": builders,
            "_later": [_ResultBuilder(self.name, scorer) for scorer in later],
            "_keeps_outcomes": any(builder.kept_outcomes is not None for builder in builders),
        }
        for key, value in computed.items():
            object.__setattr__(self, key, value)

    def report(self, blank: Report, draw: float, instead: Outcome | None) -> Report:
        """Score a run.

        Args:
            blank: the report on the run, without what depends on the evaluation.
            draw: the trace's number in [0, 1) for sampling.
            instead: the outcome of each scorer; if it is given no scorer is called, as none is for
                a run that was too large to be read.
        """
        run = blank.trajectory
        if instead is None and run.too_large and not run.incomplete:
            instead = too_large(run.too_large)
        ids = _ResultIds(run.trace_id, run.span_id, self.name, blank.revision)
        later = [builder for builder in self._later if draw < builder.share]
        pending: list[Pending] = []
        if instead is None:
            outline = outline_of(run) if self._keeps_outcomes else None
            results = [builder.score(ids, run, outline) for builder in self._at_once]
            pending = [builder.pending(ids) for builder in later]
        else:
            results = [builder.result(ids, instead) for builder in (*self._at_once, *later)]
        return Report(
            run,
            self.name,
            blank.revision,
            tuple(results),
            tuple(pending),
            attributes=blank.attributes,
            case=blank.case,
            evidence=blank.evidence,
            stamp=blank.stamp,
            standing=verdict_of(results),
            awaited=len(pending),
        )


class RunMatch(NamedTuple):
    """A run, with the evaluations that match it."""

    trajectory: Trajectory
    evaluations: tuple[ScorerSet, ...]


@record
class FailedCondition:
    """A condition of an evaluation that a run does not meet.

    Attributes:
        condition: its key in the configuration, such as `match.agent`.
        required: what the configuration requires.
        actual: what the run has; `UNRECORDED` for an attribute that it does not have.
    """

    condition: str
    required: Any
    actual: Any

    def text(self, shown: Callable[[Any], str]) -> str:
        """What is required, and what the run has instead; `shown` returns a value as text."""
        required = shown(self.required)
        if self.condition == "sample":
            return f"sample is {required}, and the hash of the trace id is {shown(self.actual)}"
        if self.condition == "match.runs":
            return f"{self.condition} requires {required}, and this run is {self.actual}"
        actual = "none" if self.actual is UNRECORDED else shown(self.actual)
        return f"{self.condition} requires {required}, and the run has {actual}"


class Matcher:
    """The conditions of an evaluation, compiled once."""

    def __init__(self, match: RunFilter, sample: float = 1.0) -> None:
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
        self._sample: Final = sample
        self._match: Final = match

    def __call__(self, trajectory: Trajectory, draw: float) -> bool:
        """Whether every condition holds; `draw` is the trace's number in [0, 1) for sampling."""
        if draw >= self._sample or not selects(self._match.runs, trajectory):
            return False
        return not self._has_conditions or next(self.failed(trajectory, draw), None) is None

    def may_apply(
        self, draw: float, names: Mapping[str, str], attributes: Mapping[str, Any]
    ) -> bool:
        """Whether a run with these names and attributes can meet every condition; names that are
        not in `names` may match.
        """
        fitting = draw < self._sample and all(
            fits(names[name]) for name, fits in self._names if name in names
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


def condition(required: Any) -> Callable[[Any], bool]:
    """A test of one attribute's value: text as a glob over the value's text, anything else by
    equality.
    """
    if not isinstance(required, str):
        # The types are compared because `True == 1` in Python, and a user who writes true does not
        # mean the number 1.
        return lambda value: type(value) is type(required) and value == required
    fits = glob_matcher(required)
    return lambda value: bool(fits(text_of(value)))


def share_of(scorer: Scorer) -> float:
    """The share of traces for which an asynchronous scorer is called."""
    share: float = getattr(scorer, "sample", 1.0)
    return share


_PENDING: Final = Skipped("pending")


class _ResultBuilder:
    """Builds the results of a scorer of an evaluation; what they share is computed once.

    Attributes:
        share: the share of traces for which the scorer is called, if it is asynchronous.
        kept_outcomes: those that runs with the same outline share; None if the scorer reads more.
    """

    def __init__(self, evaluation: str, scorer: Scorer) -> None:
        self.share: Final = share_of(scorer)
        self._scorer, self._is_own = scorer, is_own_scorer(scorer)
        # a class derived from one of ours may read more
        keeps_outcomes = (
            self._is_own and isinstance(scorer, BaseScorer) and scorer.reads_outline_only
        )
        self.kept_outcomes: Final = KeptOutcomes() if keeps_outcomes else None
        self._score: Callable[[Trajectory], Outcome] = (
            scorer.__call__ if self._is_own else self._checked
        )
        self._threshold: Final[float | None] = getattr(scorer, "applied_threshold", None)
        policy = policy_of(scorer)
        self._result_of: Final = partial(
            Result,
            evaluation=evaluation,
            scorer=scorer.name,
            type=scorer.type,
            version=scorer.version,
            policy=policy,
            severity=severity_of(scorer),
        )
        self._id_part: Final = _bytes(f"{scorer.name}\0{policy}\0")

    def score(self, ids: _ResultIds, trajectory: Trajectory, outline: Outline | None) -> Result:
        """The result of a run. If the scorer raises or returns an invalid outcome, only its own
        result fails.

        Args:
            outline: the outline of the run, if it has one and some scorer reads no more.
        """
        kept_outcomes = self.kept_outcomes
        if outline is None or kept_outcomes is None:
            return self.result(ids, self._outcome_of(trajectory))
        outcome = kept_outcomes.get(outline)
        if outcome is None:
            outcome = self._outcome_of(trajectory)
            kept_outcomes.add(outline, outcome)
        return self.result(ids, outcome)

    def _outcome_of(self, trajectory: Trajectory) -> Outcome:
        try:
            return self._score(trajectory)
        except (Exception, SystemExit) as error:  # noqa: BLE001
            # from a user's scorer; SystemExit would end the thread
            return failed_from(error)

    def result(self, ids: _ResultIds, outcome: Outcome) -> Result:
        """The result of the scorer with this outcome."""
        return self._result_of(
            outcome=with_remedy(outcome),
            revision=ids.revision,
            result_id=ids.of(self._id_part),
            threshold=self._threshold if self._is_own else self._deciding(outcome),
        )

    def _deciding(self, outcome: Outcome) -> float | None:
        """The threshold that decided whether the outcome passed; None if a user-defined scorer
        decided otherwise.
        """
        threshold = self._threshold
        if threshold is None or not isinstance(outcome, Scored):
            return threshold
        return threshold if outcome.passed == (outcome.value >= threshold) else None

    def pending(self, ids: _ResultIds) -> Pending:
        """The pending result of an asynchronous scorer; a user-defined scorer gets a copy of the
        run.
        """
        scorer: Any = self._scorer
        evaluate = (
            scorer.evaluate
            if self._is_own
            else lambda trajectory: scorer.evaluate(private_copy(trajectory, scorer.needs))
        )
        return Pending(self.result(ids, _PENDING), evaluate)

    def _checked(self, trajectory: Trajectory) -> Outcome:
        return checked_outcome(self._scorer(private_copy(trajectory, self._scorer.needs)))


class _ResultIds:
    """The ids of the results of one report; the parts that they share are hashed once."""

    def __init__(self, trace_id: str, span_id: str, evaluation: str, revision: int) -> None:
        self.revision: Final = revision
        self._shared: Final = blake2b(
            _bytes(f"{trace_id}\0{span_id}\0{evaluation}\0"), digest_size=16
        )

    def of(self, scorer: bytes) -> str:
        """The id of the result of a scorer; `scorer` is its name and its policy, each followed by
        a zero byte.
        """
        digest = self._shared.copy()
        digest.update(b"%b%d" % (scorer, self.revision))
        return digest.hexdigest()


def result_id(
    trace_id: str, span_id: str, evaluation: str, scorer: str, policy: str, revision: int
) -> str:
    """A result id of 32 hex digits, determined by run, evaluation, scorer, policy and revision."""
    ids = _ResultIds(trace_id, span_id, evaluation, revision)
    return ids.of(_bytes(f"{scorer}\0{policy}\0"))


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
