"""What a policy decides on stored runs: each rule with the runs that pass it, do not pass it and
are skipped, and whether anything could break it.

Whether a rule can be broken is tried, with runs like those that were observed: with a call fewer,
more or elsewhere, a failed call, and more time and tokens.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, count
from typing import Any, Final

from otel_eval.app.build import build_engine, build_limits
from otel_eval.app.replay_coverage import attempt
from otel_eval.app.stored_traces import Paths
from otel_eval.config import EvalConfig
from otel_eval.engine import Engine
from otel_eval.evaluations import RunMatch
from otel_eval.interfaces import ClosedTrace, Scorer
from otel_eval.model import Scored, Skipped, ToolCall, ToolError, Trajectory
from otel_eval.scorers.outcomes import checked_outcome, failed_from
from otel_eval.sources.files import ReadingListener
from otel_eval.sources.files.whole_traces import read_whole_traces

_MOST_TRIED: Final = 10  # runs that are changed, for each rule
_MOST_CALLS: Final = 100  # of a run that is changed
_MOST_NAMES: Final = 50  # tools of which a call is added
_REPEATED: Final = 20
_LONGER: Final = 10**6


@dataclass(slots=True)
class RuleCoverage:
    """What one rule decides.

    Attributes:
        evaluation, rule: the name of the evaluation; that of the scorer, with the rule where a
            scorer has several.
        passed, not_passed, failed: numbers of runs.
        skipped: numbers of runs, by the explanation.
        can_break: whether a run like these could fail to pass it; None if that is not known,
            because no run was scored or the scorer is awaited, as a judge is.
    """

    evaluation: str
    rule: str
    passed: int = 0
    not_passed: int = 0
    failed: int = 0
    skipped: Counter[str] = field(default_factory=Counter)
    can_break: bool | None = None

    @property
    def note(self) -> str:
        """What to know of the rule beside the numbers, or ""."""
        if not (self.passed or self.not_passed or self.failed):
            if not self.skipped:
                return "matches no run" if self.can_break is None else ""
            return f"never decides here: {self.skipped.most_common(1)[0][0]}"
        if self.not_passed and not self.passed:
            return "no run passes"
        return "nothing breaks it" if self.can_break is False else ""


@dataclass(slots=True)
class _Rule:
    scorer: Scorer
    coverage: RuleCoverage
    passing: list[Trajectory] = field(default_factory=list)


def rule_coverage(
    paths: Paths, config: EvalConfig, listener: ReadingListener
) -> list[RuleCoverage]:
    """Return what each rule of the configuration decides on the runs of stored traces.

    Awaited scorers, such as judges, are not called.

    Args:
        paths: files of traces.
        config: its evaluations, conventions and limits; `sample` is ignored.
        listener: told of problems, notices and progress.
    """
    everything = config.model_copy(
        update={
            "evaluations": tuple(
                evaluation.model_copy(update={"sample": 1.0}) for evaluation in config.evaluations
            )
        }
    )
    engine = build_engine(everything)
    rules = {
        evaluation.name: [
            _Rule(scorer, RuleCoverage(evaluation.name, name))
            for scorer in evaluation.at_once
            for scorer, name in _parts_of(scorer)
        ]
        for evaluation in engine.evaluations
    }
    names: Counter[str] = Counter()
    for trace in read_whole_traces(paths, build_limits(config), listener):
        for run, matching in attempt(trace, partial(_matches, engine), listener):
            names.update({call.name for call in run.calls})
            for evaluation in matching:
                for rule in rules[evaluation.name]:
                    _apply(rule, run)
    tool_names = [name for name, _ in names.most_common(_MOST_NAMES)]
    all_rules = [*chain.from_iterable(rules.values())]
    for rule in all_rules:
        if rule.coverage.not_passed:
            rule.coverage.can_break = True
        elif rule.passing:
            rule.coverage.can_break = _can_break(rule, tool_names)
    return [rule.coverage for rule in all_rules]


def _matches(engine: Engine, trace: ClosedTrace) -> list[RunMatch]:
    built = engine.build(trace)
    # of a trace that is evaluated in parts, later parts have only new runs
    trace.history.record(engine.score(built, Skipped("not called")).evaluations)
    return built.matches


def _parts_of(scorer: Scorer) -> Iterator[tuple[Scorer, str]]:
    """The scorer, or a scorer for each of its rules if it has several."""
    rules: Any = getattr(scorer, "rules", ())
    if len(rules) < 2 or not hasattr(scorer, "__dataclass_fields__"):
        yield scorer, scorer.name
        return
    copied: Callable[..., Any] = replace
    for rule in rules:
        yield copied(scorer, rules=(rule,)), f"{scorer.name}: {getattr(rule, 'written', rule)}"


def _outcome(scorer: Scorer, run: Trajectory) -> Any:
    try:
        return checked_outcome(scorer(run))
    except Exception as error:  # noqa: BLE001 - from a user's scorer
        return failed_from(error)


def _apply(rule: _Rule, run: Trajectory) -> None:
    outcome, coverage = _outcome(rule.scorer, run), rule.coverage
    if isinstance(outcome, Scored):
        coverage.passed += outcome.passed
        coverage.not_passed += not outcome.passed
        if outcome.passed and len(rule.passing) < _MOST_TRIED and len(run.calls) <= _MOST_CALLS:
            rule.passing.append(run)
    elif isinstance(outcome, Skipped):
        coverage.skipped[outcome.explanation] += 1
    else:
        coverage.failed += 1


def _can_break(rule: _Rule, observed: Sequence[str]) -> bool:
    """Whether a changed run does not pass."""
    stated: Any = getattr(rule.scorer, "tool_names", None)
    named = [*stated.required, *stated.optional, *stated.forbidden] if stated else []
    named = named[:_MOST_NAMES]
    names = dict.fromkeys([*named, *observed, "never_seen_before"])
    return any(
        isinstance(outcome := _outcome(rule.scorer, changed), Scored) and not outcome.passed
        for run in rule.passing
        for changed in _changes(run, named, list(names))
    )


def _changes(run: Trajectory, named: Sequence[str], names: Sequence[str]) -> Iterator[Trajectory]:
    """Runs like this one: with a further call of each tool that the rule names, and with a change
    in one place.
    """
    for calls in chain(_with_all(run, named), _with_other_calls(run, names)):
        yield replace(run, calls=tuple(calls))
    if run.start_ns is not None and run.end_ns is not None:
        yield replace(run, end_ns=run.start_ns + _LONGER * max(1, run.end_ns - run.start_ns))
    many = _LONGER * max(1, run.input_tokens or 0)
    yield replace(run, input_tokens=many, output_tokens=many, model_calls=run.model_calls + 1000)
    yield replace(run, input="", output="")


def _call(name: str, at_ns: int) -> ToolCall:
    return ToolCall(name=name, arguments={}, result="", start_ns=at_ns, end_ns=at_ns)


def _with_all(run: Trajectory, names: Sequence[str]) -> Iterator[list[ToolCall]]:
    """The calls of the run, and one of each tool at its end, in the order of the names and in
    reverse.
    """
    for order in (names, names[::-1]):
        yield [*run.calls, *map(_call, order, count(run.end_ns or 1))]


def _with_other_calls(run: Trajectory, names: Sequence[str]) -> Iterator[Sequence[ToolCall]]:
    """The calls of the run, each time with one fewer, more or elsewhere, a failed one, or none."""
    calls, start = run.calls, run.start_ns or 1
    for at, call in enumerate(calls):
        yield calls[:at] + calls[at + 1 :]
        yield (*calls[:at], _failed(call), *calls[at + 1 :])
    for at in range(len(calls) - 1):
        yield _swapped(calls, at)
    for name in names:
        last = _call(name, run.end_ns or start)
        yield (_call(name, start), *calls)
        yield (*calls, last)
        yield (*calls, *[last] * _REPEATED)
    yield ()


def _failed(call: ToolCall) -> ToolCall:
    return replace(call, error=ToolError("_OTHER"), failure_unknown=False)


def _swapped(calls: tuple[ToolCall, ...], at: int) -> tuple[ToolCall, ...]:
    """Two calls in each other's place, and at each other's time."""
    one, other = calls[at], calls[at + 1]
    earlier = replace(other, start_ns=one.start_ns, end_ns=one.end_ns, message="")
    later = replace(one, start_ns=other.start_ns, end_ns=other.end_ns, message="")
    return (*calls[:at], earlier, later, *calls[at + 2 :])
