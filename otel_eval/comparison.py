"""Compare the results of two sets of runs: which scorers pass less often than before, and where.

A scorer of one agent is compared in the strongest way that the data allow:

* *cases*: the runs carry the key of a declared case, and each case ran once on each side. One case
  that passed and does not pass now is a regression.
* *pairs*: runs of the same case or input on both sides, whose outcome may vary. McNemar's exact
  test over the cases whose pass rate differs; where each case has the same number of runs on both
  sides, several, Fisher's exact test over the runs.
* *groups*: nothing pairs the runs. Fisher's exact test over the runs.

The level of the tests, 5 %, is shared equally among all of them, so that comparing many scorers and
agents does not find differences by chance. The tests are two-sided.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from math import exp, fsum, lgamma, log
from statistics import median
from typing import Any, Final, Literal, NamedTuple, TypeVar

from otel_eval.errors import InputError

LEVEL: Final = 0.05
"""The probability of finding any difference where there is none."""

_TOLERANCE: Final = 1e-7  # relative, between probabilities that are equal but for rounding


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedRun:
    """What a comparison looks at in one run.

    Attributes:
        trace_id, span_id, agent: the run.
        case: the key of its case, or the digest of its input; "" if it has neither.
        duration_ms: its duration; None if unknown.
        tokens: input and output tokens together; None if unknown.
        calls: the names of its tool calls in order; None if unknown, or if the input holds results
            without calls.
    """

    trace_id: str
    span_id: str
    agent: str
    case: str = ""
    duration_ms: float | None = None
    tokens: int | None = None
    calls: tuple[str, ...] | None = None


class ComparedScorer(NamedTuple):
    """A scorer of one agent; results of different policies are never compared."""

    agent: str
    evaluation: str
    scorer: str
    policy: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedResult:
    """One result of one run.

    Attributes:
        scorer: whose result it is.
        run: the run.
        outcome: `scored`, `skipped` or `failed`.
        passed: whether it is a score that passes.
        value: the score; None unless scored.
        explanation: the explanation of the score or skip.
        counts: False for a scorer with the severity `warn`.
    """

    scorer: ComparedScorer
    run: ComparedRun
    outcome: str
    passed: bool
    value: float | None
    explanation: str
    counts: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class SideSummary:
    """The results of a scorer on one side.

    Attributes:
        runs: all runs.
        scored, passed: runs with a score, and with one that passes.
        mean: the mean score; None without any.
    """

    runs: int
    scored: int
    passed: int
    mean: float | None

    @property
    def pass_rate(self) -> float | None:
        """The share of scored runs that pass; None if no run was scored."""
        return self.passed / self.scored if self.scored else None


@dataclass(frozen=True, slots=True, kw_only=True)
class WorseRun:
    """A case that passed before and does not pass, or is not scored, now.

    Attributes:
        case: its key or digest.
        before, after: the runs; None where that side has several.
        explanation: of the result after.
        parting: at which call the two trajectories part; "" if they do not, or calls are unknown.
    """

    case: str
    before: ComparedRun | None
    after: ComparedRun | None
    explanation: str
    parting: str = ""


Way = Literal["cases", "pairs", "groups"]
Finding = Literal["regression", "loss", "improvement", "within noise", "unchanged"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScorerComparison:
    """How a scorer's results changed.

    Attributes:
        scorer: the scorer.
        way: how runs were compared.
        before, after: the results of both sides.
        finding: `regression`: fewer pass; `loss`: fewer are scored.
        p_value: of the test that decided, None where none was needed.
        worse: the cases that got worse, the first of them first; empty for groups.
        lost: cases that were scored before and are not now.
        counts: False for a scorer with the severity `warn`.
    """

    scorer: ComparedScorer
    way: Way
    before: SideSummary
    after: SideSummary
    finding: Finding
    p_value: float | None = None
    worse: Sequence[WorseRun] = ()
    lost: Sequence[WorseRun] = ()
    counts: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentComparison:
    """How the runs of an agent changed, beside their scores.

    Attributes:
        agent: its name.
        runs: the number of runs before and after.
        duration_ms, tokens: the medians before and after; None if unknown.
        appeared, vanished: tools that were called in no run before, or are in none after, each with
            the number of runs that called it; empty where the calls of a side are unknown.
    """

    agent: str
    runs: tuple[int, int]
    duration_ms: tuple[float | None, float | None]
    tokens: tuple[float | None, float | None]
    appeared: Mapping[str, int] = field(default_factory=dict)
    vanished: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultComparison:
    """The result of `compare`.

    Attributes:
        scorers: the scorers that have results on both sides.
        agents: the agents that have runs on both sides.
        not_compared: a sentence for each scorer that has results on one side only, or whose policy
            changed.
        missing_cases: declared cases that ran before and did not run after.
    """

    scorers: Sequence[ScorerComparison]
    agents: Sequence[AgentComparison]
    not_compared: Sequence[str]
    missing_cases: Sequence[str]

    @property
    def regressed(self) -> bool:
        """Whether a scorer that counts passes less often."""
        return any(scorer.finding == "regression" and scorer.counts for scorer in self.scorers)

    @property
    def lost(self) -> bool:
        """Whether a scorer that counts scores less, or a declared case did not run."""
        return bool(self.missing_cases) or any(
            (scorer.finding == "loss" or scorer.lost) and scorer.counts for scorer in self.scorers
        )


def fisher_exact(passed: int, failed: int, other_passed: int, other_failed: int) -> float:
    """The two-sided p-value of Fisher's exact test of a table of two by two counts: the probability
    of all tables with the same margins that are at most as likely.

    >>> round(fisher_exact(3, 1, 1, 3), 4)
    0.4857
    """
    row, column = passed + failed, passed + other_passed
    total = row + other_passed + other_failed
    # of all ways to place the passes among all runs
    constant = _log_choose(total, column) if total else 0.0

    def log_probability(count: int) -> float:
        return _log_choose(row, count) + _log_choose(total - row, column - count) - constant

    observed = log_probability(passed)
    possible = range(max(0, column - (total - row)), min(row, column) + 1)
    likely = map(log_probability, possible)
    return min(1.0, fsum(exp(value) for value in likely if value <= observed + _TOLERANCE))


def mcnemar_exact(worse: int, better: int) -> float:
    """The two-sided p-value of McNemar's exact test: how likely so uneven a split of the pairs that
    differ is if both directions are equally likely.

    >>> round(mcnemar_exact(6, 0), 5)
    0.03125
    """
    differing = worse + better
    tail = fsum(
        exp(_log_choose(differing, count) - differing * log(2))
        for count in range(min(worse, better) + 1)
    )
    return min(1.0, 2 * tail)


def _log_choose(total: int, count: int) -> float:
    return lgamma(total + 1) - lgamma(count + 1) - lgamma(total - count + 1)


def results_of_rows(rows: Iterable[Mapping[str, Any]], *, case: str = "") -> list[ComparedResult]:
    """Read results from rows of JSON Lines and from run documents, in any mixture.

    Of one run, evaluation, scorer and policy the highest revision counts. Rows of traces without a
    run are left out.

    Args:
        rows: the JSON objects.
        case: the field or attribute that holds the key of a run's case; "" for the field `case`.

    Raises:
        InputError: an object is neither a row nor a run document.
    """
    latest: dict[tuple[str, str, ComparedScorer], tuple[int, ComparedResult]] = {}
    for row in rows:
        for revision, result in _results_of(row, case):
            key = (result.run.trace_id, result.run.span_id, result.scorer)
            if key not in latest or revision >= latest[key][0]:
                latest[key] = (revision, result)
    return [result for _, result in latest.values()]


def _results_of(row: Mapping[str, Any], case: str) -> Iterator[tuple[int, ComparedResult]]:
    """Yield the results of a row or run document, each with its revision."""
    if row.get("outcome") == "no_run":
        return
    try:
        run = _run_of(row, case)
        results = row["results"] if "document" in row else [row]
        for result in results:
            yield (
                int(row["revision"]),
                ComparedResult(
                    scorer=ComparedScorer(
                        agent=run.agent,
                        evaluation=row["evaluation"],
                        scorer=result["scorer"],
                        policy=result["policy"],
                    ),
                    run=run,
                    outcome=result["outcome"],
                    passed=result["passed"] is True,
                    value=result["value"],
                    explanation=result["explanation"],
                    counts=result["severity"] != "warn",
                ),
            )
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"neither a row of results nor a run: {error!r}") from None


def _run_of(row: Mapping[str, Any], case: str) -> ComparedRun:
    """The run of a row or run document."""
    tokens = [row.get(name) for name in ("input_tokens", "output_tokens")]
    calls = row.get("calls")
    return ComparedRun(
        trace_id=row["trace_id"],
        span_id=row["span_id"],
        agent=row["agent"],
        case=field_text(row, case or "case"),
        duration_ms=row.get("duration_ms"),
        tokens=None if None in tokens else sum(count for count in tokens if count is not None),
        calls=None if calls is None else tuple(call["name"] for call in calls),
    )


def field_text(row: Mapping[str, Any], name: str) -> str:
    """A field of a row, or an attribute among its `attributes`, as text; "" if it has neither.

    Names of attributes that are fields of their own (`service.version`) are found as well.
    """
    attributes = row.get("attributes") or {}
    value = attributes.get(name, row.get(_FIELDS.get(name, name)))
    return value if isinstance(value, str) else "" if value is None else str(value)


_FIELDS: Final = {
    "service.name": "service",
    "service.version": "service_version",
    "deployment.environment.name": "environment",
    "gen_ai.agent.name": "agent",
    "gen_ai.conversation.id": "conversation_id",
}


def compare(
    before: Sequence[ComparedResult], after: Sequence[ComparedResult], *, declared: bool
) -> ResultComparison:
    """Compare two sets of results.

    Args:
        before: the results to compare with.
        after: the results to look for regressions in.
        declared: whether `case` of a run is the key of a declared case, so that a single run of it
            decides; otherwise it is a digest of the run's input.
    """
    sides = [_group_by(results, lambda result: result.scorer) for results in (before, after)]
    common = [scorer for scorer in sides[0] if scorer in sides[1]]
    plans = [
        _Plan(scorer, sides[0][scorer], sides[1][scorer], declared=declared) for scorer in common
    ]
    level = LEVEL / max(1, sum(plan.number_of_tests for plan in plans))
    return ResultComparison(
        scorers=[plan.decide(level) for plan in plans],
        agents=list(_compare_agents(before, after)),
        not_compared=list(_not_compared(sides[0].keys(), sides[1].keys())),
        missing_cases=_missing_cases(before, after) if declared else [],
    )


_Key = TypeVar("_Key", str, ComparedScorer)


def _group_by(
    results: Iterable[ComparedResult], key_of: Callable[[ComparedResult], _Key]
) -> dict[_Key, list[ComparedResult]]:
    """The results by their key, in order of the keys."""
    return {key: list(group) for key, group in groupby(sorted(results, key=key_of), key=key_of)}


def _not_compared(
    before: Iterable[ComparedScorer], after: Iterable[ComparedScorer]
) -> Iterator[str]:
    """Yield a sentence for each scorer without results of one policy on both sides."""
    policies: defaultdict[tuple[str, str, str], tuple[list[str], list[str]]]
    policies = defaultdict(lambda: ([], []))
    for side, scorers in enumerate((before, after)):
        for scorer in scorers:
            policies[scorer[:3]][side].append(scorer.policy)
    for (agent, evaluation, name), (old, new) in sorted(policies.items()):
        subject = f"{agent or '(unnamed)'}: {evaluation}/{name}"
        if old == new:
            continue
        if old and new:
            yield f"{subject}: the policy differs ({', '.join(old)}; {', '.join(new)})"
        else:
            yield f"{subject}: has results {'before' if old else 'after'} only"


def _missing_cases(before: Sequence[ComparedResult], after: Sequence[ComparedResult]) -> list[str]:
    """The cases that ran before and did not run after, each with its agent."""
    ran = {(result.run.agent, result.run.case) for result in after}
    missing = {(result.run.agent, result.run.case) for result in before if result.run.case} - ran
    return [f"{agent or '(unnamed)'}: {case}" for agent, case in sorted(missing)]


def _count_side(results: Sequence[ComparedResult]) -> SideSummary:
    """The numbers of one side."""
    values = [result.value for result in results if result.value is not None]
    return SideSummary(
        runs=len(results),
        scored=sum(result.outcome == "scored" for result in results),
        passed=sum(result.passed for result in results),
        mean=fsum(values) / len(values) if values else None,
    )


class _Sides(NamedTuple):
    """Results of a scorer on both sides: of one case, or with the case "" of all runs."""

    case: str
    before: list[ComparedResult]
    after: list[ComparedResult]

    @property
    def scored(self) -> _Sides:
        """The results with a score."""
        before, after = (list(filter(_is_scored, side)) for side in self[1:])
        return _Sides(self.case, before, after)

    @property
    def is_single(self) -> bool:
        return len(self.before) == len(self.after) == 1

    def change(self, holds: Callable[[ComparedResult], bool]) -> float:
        """By how much the share of results for which `holds` rose."""
        before, after = (sum(map(holds, side)) / len(side) for side in self[1:])
        return after - before

    def worse(self, holds: Callable[[ComparedResult], bool]) -> WorseRun:
        """The case as one that got worse; the first result after for which `holds` is False says
        why.
        """
        after = next(result for result in self.after if not holds(result))
        before = self.before[0]
        return WorseRun(
            case=self.case,
            before=before.run if self.is_single else None,
            after=after.run if self.is_single else None,
            explanation=after.explanation,
            parting=parting(before.run.calls, after.run.calls) if self.is_single else "",
        )


def _is_scored(result: ComparedResult) -> bool:
    return result.outcome == "scored"


def _passes(result: ComparedResult) -> bool:
    return result.passed


class _Plan:
    """How one scorer is compared, which is settled before any result is looked at.

    Attributes:
        number_of_tests: the statistical tests that it takes.
    """

    def __init__(
        self,
        scorer: ComparedScorer,
        before: list[ComparedResult],
        after: list[ComparedResult],
        *,
        declared: bool,
    ) -> None:
        self._scorer = scorer
        self._all = _Sides("", before, after)
        old, new = (
            _group_by(
                [result for result in side if result.run.case], lambda result: result.run.case
            )
            for side in (before, after)
        )
        self._cases = [_Sides(case, old[case], new[case]) for case in old if case in new]
        self._way = self._way_to_compare(declared=declared)
        # one for the rate of passes and one for the rate of scores
        self.number_of_tests = 0 if self._way == "cases" else 2

    def _way_to_compare(self, *, declared: bool) -> Way:
        """The strongest way that the cases allow."""
        if declared and self._cases:
            return "cases" if all(case.is_single for case in self._cases) else "pairs"
        # Inputs that happen to recur do not stand for the runs if most runs have no counterpart.
        paired = _join_sides(self._cases)
        enough = 2 * len(paired.before) >= len(self._all.before) and 2 * len(paired.after) >= len(
            self._all.after
        )
        return "pairs" if self._cases and enough else "groups"

    def decide(self, level: float) -> ScorerComparison:
        """Return the comparison, for tests at this level."""
        change, p_scores = self._test(_is_scored, self._cases, self._all, level)
        scored_cases = [
            scored for case in self._cases if (scored := case.scored).before and scored.after
        ]
        finding, p_passes = self._test(_passes, scored_cases, self._all.scored, level)
        if change == "regression" and finding != "regression":
            finding = "loss"
        return ScorerComparison(
            scorer=self._scorer,
            way=self._way,
            before=_count_side(self._all.before),
            after=_count_side(self._all.after),
            finding=finding,
            p_value=p_scores if finding == "loss" else p_passes,
            worse=[case.worse(_passes) for case in scored_cases if case.change(_passes) < 0],
            lost=[
                case.worse(_is_scored)
                for case in self._cases
                if case.change(_is_scored) < 0 and (self._way == "cases" or finding == "loss")
            ],
            counts=self._all.before[0].counts and self._all.after[0].counts,
        )

    def _test(
        self,
        holds: Callable[[ComparedResult], bool],
        cases: Sequence[_Sides],
        sides: _Sides,
        level: float,
    ) -> tuple[Finding, float | None]:
        """Whether the share of results for which `holds` rose or fell, in a word, and the p-value
        of the test. Declared cases need no test: one that got worse is a regression.

        Args:
            holds: what is compared, such as whether a result passed.
            cases: the cases, each with its results before and after.
            sides: all results before and after.
            level: with a greater p-value the difference is noise.
        """
        changes = [case.change(holds) for case in cases]
        worse = sum(change < 0 for change in changes)
        better = sum(change > 0 for change in changes)
        if self._way == "cases":
            return ("regression" if worse else "improvement" if better else "unchanged"), None
        if self._way == "pairs" and not _are_balanced(cases):
            rise, p_value = better - worse, mcnemar_exact(worse, better)
        else:
            _, before, after = _join_sides(cases) if self._way == "pairs" else sides
            old, new = sum(map(holds, before)), sum(map(holds, after))
            # the difference of the two shares, times both numbers of runs
            rise = new * len(before) - old * len(after)
            p_value = fisher_exact(old, len(before) - old, new, len(after) - new)
        if not rise:
            return "unchanged", p_value
        if p_value > level:
            return "within noise", p_value
        return ("improvement" if rise > 0 else "regression"), p_value


def _join_sides(cases: Sequence[_Sides]) -> _Sides:
    """The results of all the cases."""
    return _Sides(
        "",
        [result for case in cases for result in case.before],
        [result for case in cases for result in case.after],
    )


def _are_balanced(cases: Sequence[_Sides]) -> bool:
    """Whether each case has as many runs on both sides, and some have several: then the runs can be
    put together, and what differs between cases only makes the test more careful.
    """
    return any(len(case.before) > 1 for case in cases) and all(
        len(case.before) == len(case.after) for case in cases
    )


def parting(before: Sequence[str] | None, after: Sequence[str] | None) -> str:
    """At which call two trajectories part, counted from 1; "" if they do not or one is unknown.

    >>> parting(["search", "refund"], ["search", "notify", "refund"])
    'call 2: refund before, notify after'
    """
    if before is None or after is None or list(before) == list(after):
        return ""
    shared = min(len(before), len(after))
    at = next((at for at in range(shared) if before[at] != after[at]), shared)
    old, new = (calls[at] if at < len(calls) else "no further call" for calls in (before, after))
    return f"call {at + 1}: {old} before, {new} after"


def _compare_agents(
    before: Sequence[ComparedResult], after: Sequence[ComparedResult]
) -> Iterator[AgentComparison]:
    """Yield how runs changed, for each agent that has runs on both sides."""
    old, new = _runs_by_agent(before), _runs_by_agent(after)
    for agent in sorted(old.keys() & new.keys()):
        sides = old[agent], new[agent]
        tools = [_tools_of(runs) for runs in sides]
        yield AgentComparison(
            agent=agent,
            runs=(len(sides[0]), len(sides[1])),
            duration_ms=(
                _median_known(run.duration_ms for run in sides[0]),
                _median_known(run.duration_ms for run in sides[1]),
            ),
            tokens=(
                _median_known(run.tokens for run in sides[0]),
                _median_known(run.tokens for run in sides[1]),
            ),
            appeared=_only_in(tools[1], tools[0]),
            vanished=_only_in(tools[0], tools[1]),
        )


def _runs_by_agent(results: Sequence[ComparedResult]) -> dict[str, list[ComparedRun]]:
    runs: defaultdict[str, dict[tuple[str, str], ComparedRun]] = defaultdict(dict)
    for result in results:
        runs[result.run.agent][result.run.trace_id, result.run.span_id] = result.run
    return {agent: list(of_agent.values()) for agent, of_agent in runs.items()}


def _tools_of(runs: Sequence[ComparedRun]) -> Counter[str] | None:
    """How many runs called each tool; None if the calls of a run are unknown."""
    tools: Counter[str] = Counter()
    for run in runs:
        if run.calls is None:
            return None
        tools.update(set(run.calls))
    return tools


def _only_in(tools: Counter[str] | None, other_tools: Counter[str] | None) -> dict[str, int]:
    """The tools that are not among the other ones; {} if either are unknown."""
    if tools is None or other_tools is None:
        return {}
    return {name: count for name, count in sorted(tools.items()) if name not in other_tools}


def _median_known(values: Iterable[float | None]) -> float | None:
    """The median of the known values; None without any."""
    numbers = [value for value in values if value is not None]
    return median(numbers) if numbers else None
