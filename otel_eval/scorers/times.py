"""How long a run took, or its tools. Nanoseconds in, milliseconds out."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Final

from otel_eval.model import Outcome, Skipped, ToolCall, Trajectory
from otel_eval.scorers.alignment.parallel_calls import is_timed
from otel_eval.scorers.spec.base_scorer import BaseScorer, Finding
from otel_eval.scorers.spec.parameters import positive, reads, text
from otel_eval.scorers.spec.registry import scorer
from otel_eval.scorers.text import seen, tool
from otel_eval.scorers.tool_names import ToolNames

__all__ = ["TimeCost", "covered", "longest_chain"]

Interval = tuple[int, int]

_NS_PER_MS: Final = 1_000_000


def covered(intervals: Iterable[Interval]) -> int:
    """The length of the union of intervals.

    >>> covered([(0, 4), (2, 5), (7, 8)])
    6
    """
    total, until = 0, None
    for start, end in sorted(intervals):
        if until is None or start >= until:
            total, until = total + end - start, end
        elif end > until:
            total, until = total + end - until, end
    return total


def longest_chain(intervals: Iterable[Interval]) -> int:
    """The greatest total length of intervals each of which starts when the one before has ended, or later.

    >>> longest_chain([(0, 4), (2, 9), (4, 6)])
    7
    """
    ends, totals = [0], [0]
    ordered = sorted(intervals, key=lambda interval: (interval[1], interval[0]))
    if ordered:
        ends[0] = min(start for start, _ in ordered)
    for start, end in ordered:
        total = totals[bisect_right(ends, start) - 1] + end - start
        if total > totals[-1]:
            ends.append(end)
            totals.append(total)
    return totals[-1]


@scorer("time_cost")
@dataclass(frozen=True, slots=True, kw_only=True)
class TimeCost(BaseScorer):
    """How much of a time budget is left. 1 (no time at all) is best, range 0-1.

    clamp(1 - elapsed / max, 0, 1). Without a `threshold` it passes if elapsed ≤ max, whatever the value. `strict: true`: 1 if
    elapsed ≤ max, else 0. `run` is the duration of the run's own span; `tools` and a tool's name: length of the union of the
    intervals of these calls; `critical_path`: greatest total duration of calls that follow one another. Details: `elapsed_ms`,
    `max_ms`, `of`. Skipped: no time recorded, an end before its start, no such call.

    Attributes:
        max_ms: the budget in milliseconds, more than 0.
        of: `run`, `tools`, `critical_path` or the name of a tool.

    Example:
        {type: time_cost, max_ms: 20000}

    >>> from otel_eval.testing import call, trajectory
    >>> TimeCost(max_ms=10)(trajectory(start_ns=1_000_000, end_ns=5_000_000)).value
    0.6
    """

    type: ClassVar[str] = "time_cost"

    max_ms: float = field(default=30000, metadata=reads(positive("milliseconds", 30000)))
    of: str = field(default="run", metadata=reads(text))

    @property
    def named_tools(self) -> ToolNames:
        """The tool whose calls are timed."""
        return ToolNames() if self.of in _WHAT else ToolNames(optional=(self.of,))

    @property
    def default_threshold(self) -> None:
        """None: the elapsed time decides."""
        return

    def passes(self, value: float, found: Finding) -> bool:
        """By the threshold where one was given, else by the elapsed time."""
        if self.threshold is None:
            return bool(found.details["elapsed_ms"] <= self.max_ms)
        return value >= self.threshold

    @property
    def reads_calls(self) -> bool:
        """Unless it is about the run's own span."""
        return self.of != "run"

    def find(self, trajectory: Trajectory) -> Finding | Outcome:
        """Measure what `of` names."""
        elapsed = self._elapsed_ns(trajectory)
        if isinstance(elapsed, Skipped):
            return elapsed
        elapsed_ms = elapsed / _NS_PER_MS
        value = max(0.0, (self.max_ms - elapsed_ms) / self.max_ms)  # one rounding: a tenth left is 0.1
        if self.strict:
            value = float(elapsed_ms <= self.max_ms)
        said = f"{_WHAT.get(self.of, tool(self.of))} took {elapsed_ms:g} ms of {self.max_ms:g} ms"
        named = {} if self.of in _WHAT else {"seen": seen(trajectory.calls)}
        return Finding(value, said, {"elapsed_ms": elapsed_ms, "max_ms": self.max_ms, "of": self.of, **named})

    def _elapsed_ns(self, trajectory: Trajectory) -> int | Skipped:
        if self.of == "run":
            start, end = trajectory.start_ns, trajectory.end_ns
            if start is None or end is None:
                return Skipped("no time recorded for the run", reason="not_recorded")
            return end - start if end >= start else Skipped("the run ended before it started", reason="not_recorded")
        calls = [call for call in trajectory.calls if self.of in _WHAT or call.name == self.of]
        if not calls:
            return Skipped("no tool call") if self.of in _WHAT else _never_called(self.of, trajectory)
        intervals = _intervals(calls)
        if isinstance(intervals, Skipped):
            return intervals
        return longest_chain(intervals) if self.of == "critical_path" else covered(intervals)


_WHAT: Final = {"run": "the run", "tools": "tools", "critical_path": "the critical path"}


def _never_called(name: str, trajectory: Trajectory) -> Skipped:
    return Skipped(f"no call of {tool(name)}", {"seen": seen(trajectory.calls)})


def _intervals(calls: Sequence[ToolCall]) -> list[Interval] | Skipped:
    intervals = []
    for call in calls:
        if call.start_ns is None or call.end_ns is None or not is_timed(call):
            return Skipped(f"no time recorded for a call of {tool(call.name)}", reason="not_recorded")
        if call.end_ns < call.start_ns:
            return Skipped(f"a call of {tool(call.name)} ended before it started", reason="not_recorded")
        intervals.append((call.start_ns, call.end_ns))
    return intervals
