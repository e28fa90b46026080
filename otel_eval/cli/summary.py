"""What the scores of many runs amount to: for each scorer and for each agent."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from math import ceil
from typing import Final

from otel_eval.cli.markdown import Table
from otel_eval.exporters.result_rows import duration_ms
from otel_eval.model import Failed, Report, Result, Scored, Skipped, Trajectory

_MOST_AGENTS: Final = 1000


@dataclass(slots=True)
class ScorerSummary:
    """The results of one scorer.

    Attributes:
        name: evaluation and scorer.
        counts: False for a scorer with the severity `warn`.
        scored, passed: how many scores, and how many of them pass.
        total: the sum of the scores.
        skipped: skipped results by reason; `recorded` is not among them.
        recorded: recorded labels.
        failed: how often the scorer failed.
    """

    name: str
    counts: bool
    scored: int = 0
    passed: int = 0
    total: float = 0.0
    skipped: Counter[str] = field(default_factory=Counter)
    recorded: int = 0
    failed: int = 0

    def add(self, result: Result) -> None:
        """Count a result."""
        match result.outcome:
            case Scored() as scored:
                self.scored += 1
                self.passed += scored.passed
                self.total += scored.value
            case Skipped(reason="recorded"):
                self.recorded += 1
            case Skipped() as skipped:
                self.skipped[skipped.reason] += 1
            case Failed():
                self.failed += 1

    @property
    def pass_rate(self) -> float | None:
        """The share of the scores that pass; None without any."""
        return self.passed / self.scored if self.scored else None

    @property
    def mean(self) -> float | None:
        """The mean score; None without any."""
        return self.total / self.scored if self.scored else None


@dataclass(slots=True)
class AgentSummary:
    """The runs of one agent.

    Attributes:
        name: the agent, or "".
        runs: how many.
        calls: their tool calls, as far as known.
        calls_unknown: runs whose calls are unknown.
        durations_ms: of the runs whose duration is known.
        tokens: input and output tokens together, of the runs that have them.
        with_tokens: how many runs have them.
    """

    name: str
    runs: int = 0
    calls: int = 0
    calls_unknown: int = 0
    durations_ms: array[float] = field(default_factory=lambda: array("d"))
    tokens: int = 0
    with_tokens: int = 0

    def add(self, run: Trajectory) -> None:
        """Count a run."""
        self.runs += 1
        self.calls += len(run.calls)
        self.calls_unknown += bool(run.calls_unknown)
        if (duration := duration_ms(run)) is not None:
            self.durations_ms.append(duration)
        counts = [count for count in (run.input_tokens, run.output_tokens) if count is not None]
        if counts:
            self.tokens += sum(counts)
            self.with_tokens += 1

    def duration_ms(self, share: float) -> float | None:
        """The duration within which this share of the runs ended; None if none is known."""
        return percentile(sorted(self.durations_ms), share)


def percentile(ordered: Sequence[float], share: float) -> float | None:
    """The least of the values that is at least as large as this share of them.

    >>> percentile([1.0, 2.0, 3.0, 4.0], 0.5), percentile([], 0.5)
    (2.0, None)
    """
    return ordered[max(0, ceil(share * len(ordered)) - 1)] if ordered else None


class Summary:
    """Counts results by scorer, and runs by agent.

    Attributes:
        scorers: by evaluation and scorer, in the order in which they were seen.
        runs: ids of trace and span of the runs.
        other_agents: runs of further agents, after the first thousand.
    """

    def __init__(self) -> None:
        self.scorers: Final[dict[tuple[str, str], ScorerSummary]] = {}
        self.runs: Final[set[tuple[str, str]]] = set()
        self.other_agents = 0
        self._agents: Final[dict[str, AgentSummary]] = {}

    def add(self, report: Report) -> None:
        """Count the results of a report, and its run if it is new."""
        if report.no_run is not None:
            return
        for result in report.results:
            key = (result.evaluation, result.scorer)
            if key not in self.scorers:
                name = f"{result.evaluation}/{result.scorer}"
                self.scorers[key] = ScorerSummary(name, result.severity != "warn")
            self.scorers[key].add(result)
        run = report.trajectory
        if (run.trace_id, run.span_id) in self.runs:
            return
        self.runs.add((run.trace_id, run.span_id))
        if run.agent in self._agents or len(self._agents) < _MOST_AGENTS:
            self._agents.setdefault(run.agent, AgentSummary(run.agent)).add(run)
        else:
            self.other_agents += 1

    def agents(self) -> list[AgentSummary]:
        """The agents, those with the most runs first."""
        return sorted(self._agents.values(), key=lambda agent: (-agent.runs, agent.name))

    def tables(self) -> list[Table]:
        """A table of the scorers, and one of the agents with the most runs."""
        return [
            Table(
                ("scorer", "pass rate", "mean", "failed", "skipped"),
                [_scorer_row(scorer) for scorer in self.scorers.values()],
            ),
            Table(("agent", "runs", "calls", "p50", "p95", "tokens"), [*self._agent_rows()]),
        ]

    def _agent_rows(self) -> Iterator[tuple[str, ...]]:
        agents = self.agents()
        yield from map(_agent_row, agents[:_MOST_SHOWN])
        if runs := sum(agent.runs for agent in agents[_MOST_SHOWN:]) + self.other_agents:
            yield ("(other agents)", f"{runs:,}", "", "", "", "")


_MOST_SHOWN: Final = 30  # agents


def _scorer_row(scorer: ScorerSummary) -> tuple[str, ...]:
    """The cells of a scorer in the table."""
    return (
        f"{scorer.name}{'' if scorer.counts else ' (warn)'}",
        percent(scorer.pass_rate) + (f" of {scorer.scored:,}" if scorer.scored else ""),
        "-" if scorer.mean is None else f"{scorer.mean:.3f}",
        f"{scorer.failed:,}" if scorer.failed else "-",
        _skipped_text(scorer),
    )


def _agent_row(agent: AgentSummary) -> tuple[str, ...]:
    """The cells of an agent in the table."""
    unknown = f" ({agent.calls_unknown:,} unknown)" if agent.calls_unknown else ""
    some = f" of {agent.with_tokens:,} runs" if 0 < agent.with_tokens < agent.runs else ""
    return (
        agent.name or "(unnamed)",
        f"{agent.runs:,}",
        f"{agent.calls:,}{unknown}",
        duration_text(agent.duration_ms(0.5)) or "-",
        duration_text(agent.duration_ms(0.95)) or "-",
        f"{agent.tokens:,}{some}" if agent.with_tokens else "-",
    )


def _skipped_text(scorer: ScorerSummary) -> str:
    """How many results were skipped, with the most frequent reason."""
    labels = f"{scorer.recorded:,} labels recorded" if scorer.recorded else ""
    if not scorer.skipped:
        return labels or "-"
    (reason, count), *further = scorer.skipped.most_common()
    skipped = (
        f"{scorer.skipped.total():,}, mostly {reason} ({count:,})"
        if further
        else f"{count:,} {reason}"
    )
    return "; ".join(filter(None, (skipped, labels)))


def percent(share: float | None) -> str:
    """A share as a percentage; rounded never to 0 or 100 that it is not.

    >>> percent(0.5), percent(0.99999), percent(None)
    ('50.0 %', '99.9 %', '-')
    """
    if share is None:
        return "-"
    rounded = round(100 * share, 1)
    if (rounded == 100) != (share == 1):
        rounded = 99.9
    if (rounded == 0) != (share == 0):
        rounded = 0.1
    return f"{rounded:.1f} %"


def duration_text(milliseconds: float | None) -> str:
    """A duration in s or ms; "" if it is unknown."""
    if milliseconds is None:
        return ""
    return f"{milliseconds / 1000:.2f} s" if milliseconds >= 1000 else f"{milliseconds:.1f} ms"
