"""Scorers of what a run recorded: durations of the run or its tools, required fields of calls or
steps, and labels.

Recorded times are in nanoseconds, results in milliseconds. The distribution of labels is computed
over runs, in a window that the caller chooses.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from typing import Annotated, Any, Final

from pydantic import AfterValidator

from otel_eval.errors import ConfigError, did_you_mean
from otel_eval.model import UNRECORDED, Outcome, Skipped, ToolCall, Trajectory
from otel_eval.records import frozen_record
from otel_eval.scorers.base_scorer import BaseScorer, Finding, ReferencedScorer, Requirements
from otel_eval.scorers.outcomes import NoScore
from otel_eval.scorers.parameters import Milliseconds, Name, Text, literal_name
from otel_eval.scorers.registry import scorer
from otel_eval.scorers.tool_names import ToolNames, numbered, seen, tool
from otel_eval.scorers.values import decode_json, recorded_field
from otel_eval.validation import Count, Items, Words

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
    """The greatest total length of intervals each of which starts when the one before has ended, or
    later.

    >>> longest_chain([(0, 4), (2, 9), (4, 6)])
    7
    """
    # Weighted interval scheduling: both lists are ascending, so bisection finds the best chain that
    # ended before a start.
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


_DEFAULT_MS: Final = 30000


@scorer("time_cost")
@frozen_record
class TimeCost(ReferencedScorer):
    """How much of a time budget is left. 1 (no time at all) is best, range 0-1.

    clamp(1 - elapsed / max, 0, 1). Without a `threshold` it passes if elapsed ≤ max, whatever the
    value. `strict: true`: 1 if elapsed ≤ max, else 0. `run` is the duration of the run's own span;
    `tools` and a tool's name: length of the union of the intervals of these calls; `critical_path`:
    greatest total duration of calls that follow one another. Details: `elapsed_ms`, `max_ms`, `of`.
    Skipped: no time recorded, an end before its start, no such call; with a `reference`, a run
    without a budget.

    Attributes:
        max_ms: the budget in milliseconds, more than 0; 30000 if left out, unless there is a
            `reference`.
        reference: a run's own budget in milliseconds, see [References](#references); it replaces
            `max_ms`.
        of: `run`, `tools`, `critical_path` or the name of a tool.

    Example:
        {type: time_cost, max_ms: 20000}

    >>> from otel_eval.testing import call, trajectory
    >>> TimeCost(max_ms=10)(trajectory(start_ns=1_000_000, end_ns=5_000_000)).value
    0.6
    """

    max_ms: Milliseconds | None = None
    of: Annotated[Text, AfterValidator(literal_name)] = "run"

    def prepare(self) -> None:
        """Set the default budget."""
        if self.max_ms is None and self.reference is None:
            self._set("max_ms", _DEFAULT_MS)

    @property
    def defaults(self) -> Mapping[str, Any]:
        """The budget, unless runs have their own."""
        budget = None if self.reference else _DEFAULT_MS
        return {"threshold": self.default_threshold, "max_ms": budget}

    def requires(self) -> Requirements:
        """Calls, unless `of` is `run`; a tool that `of` names is optional."""
        return Requirements(
            calls=self.of != "run",
            tools=ToolNames(optional=() if self.of in _MEASURED_PARTS else (self.of,)),
        )

    @property
    def default_threshold(self) -> None:
        """None: the elapsed time decides whether a run passes."""
        return

    def passes(self, finding: Finding) -> bool:
        """Whether the elapsed time is within the budget."""
        return bool(finding.details["elapsed_ms"] <= finding.details["max_ms"])

    def find(self, trajectory: Trajectory) -> Finding:
        """Measure what `of` names."""
        max_ms = self.expectation("max_ms", trajectory, self.max_ms, lambda budget: budget)
        elapsed_ms = self._elapsed_ns(trajectory) / _NS_PER_MS
        # rounded once: a tenth left is 0.1
        value = max(0.0, (max_ms - elapsed_ms) / max_ms)
        if self.strict:
            value = float(elapsed_ms <= max_ms)
        explained = (
            f"{_MEASURED_PARTS.get(self.of) or tool(self.of)} took"
            f" {_ms_text(elapsed_ms, max_ms)} ms of {max_ms:g} ms"
        )
        named = {} if self.of in _MEASURED_PARTS else {"seen": seen(trajectory.calls)}
        return Finding(
            value,
            explained,
            {"elapsed_ms": elapsed_ms, "max_ms": max_ms, "of": self.of, **named},
        )

    def _elapsed_ns(self, trajectory: Trajectory) -> int:
        """The time that `of` names; raises `NoScore` if it was not recorded or there is no such
        call.
        """
        if self.of == "run":
            start, end = _interval(trajectory, "the run")
            return end - start
        calls = [
            call for call in trajectory.calls if self.of in _MEASURED_PARTS or call.name == self.of
        ]
        if not calls:
            raise NoScore(
                Skipped("no tool call")
                if self.of in _MEASURED_PARTS
                else Skipped(
                    f"no call of {tool(self.of)}", details={"seen": seen(trajectory.calls)}
                )
            )
        intervals = [_interval(call, f"a call of {tool(call.name)}") for call in calls]
        return longest_chain(intervals) if self.of == "critical_path" else covered(intervals)


_MEASURED_PARTS: Final = {"run": "the run", "tools": "tools", "critical_path": "the critical path"}


def _ms_text(elapsed_ms: float, max_ms: float) -> str:
    """Three significant digits, or whole milliseconds; exact where rounding would turn what
    exceeds the budget into what does not, or the reverse.
    """
    text = f"{elapsed_ms:.0f}" if elapsed_ms >= 100 else f"{elapsed_ms:.3g}"
    return text if (float(text) <= max_ms) == (elapsed_ms <= max_ms) else str(elapsed_ms)


def _interval(timed: ToolCall | Trajectory, subject: str) -> Interval:
    """Start and end; raises `NoScore` if they were not recorded or are in the wrong order.

    Args:
        subject: the subject of the text that says so.
    """
    start, end = timed.start_ns, timed.end_ns
    if start is None or end is None or start == end == 0:
        raise NoScore(Skipped(f"no time recorded for {subject}", reason="not_recorded"))
    if end < start:
        raise NoScore(Skipped(f"{subject} ended before it started", reason="not_recorded"))
    return start, end


_CALL_FIELDS: Final = (
    "name",
    "arguments",
    "result",
    "error",
    "call_id",
    "span_id",
    "start_ns",
    "end_ns",
    "agent_path",
)
_MOST_LISTED: Final = 5


_Keys = Annotated[Items[Name], Words("is not a list of keys; write e.g. [arguments, result]")]


@scorer("trajectory_structure")
@frozen_record
class TrajectoryStructure(BaseScorer):
    """Share of calls, or of recorded steps, that have every required field. 1 is best, range 0-1.

    Valid / total. Of calls: a field counts if it was recorded, even as null; a failed call needs no
    result. Of steps: each needs `step` or `id` and every required key; entries that are no objects
    are invalid; an empty list, or anything that is no list, scores 0. Details: `valid`, `total`,
    `errors` with positions. Skipped: no calls; a key that no call recorded; no steps recorded.

    Attributes:
        required_keys: fields that must be there; by default `arguments`, `result` of calls and
            `action` of steps.
        steps: an attribute, or a field of the run's output, that holds a list of steps, or an
            object with one under `trajectory`; left out, calls are checked.

    Example:
        {type: trajectory_structure, required_keys: [arguments]}

    >>> from otel_eval.testing import call, trajectory
    >>> TrajectoryStructure()(
    ...     trajectory(call("a", arguments={}, result=None), call("b", arguments={}))
    ... ).explanation
    '1 of 2 valid; call 2 (b): missing result'
    """

    required_keys: _Keys | None = None
    steps: Text | None = None
    required: tuple[str, ...] = field(init=False, repr=False, compare=False)

    def requires(self) -> Requirements:
        """What is required of calls; for steps the run's output, and the attribute that may hold
        them.
        """
        if self.steps is not None:
            return Requirements(
                needs=frozenset({"content"}), attributes=frozenset({self.steps}), calls=False
            )
        needs = {"result": "results", "arguments": "arguments", "call_id": "arguments"}
        return Requirements(needs=frozenset(needs[key] for key in self.required if key in needs))

    def prepare(self) -> None:
        """Set the default keys, and reject keys that no call can have."""
        default = ("arguments", "result") if self.steps is None else ("action",)
        self._set("required", default if self.required_keys is None else self.required_keys)
        if self.steps is not None:
            return
        unknown = [key for key in self.required if key not in _CALL_FIELDS]
        if unknown:
            raise ConfigError(
                *(
                    f"required_keys: no call can have {key!r}; {did_you_mean(key, _CALL_FIELDS)}"
                    for key in unknown
                )
            )
        if not self.required:
            raise ConfigError(
                "required_keys: an empty list asks for nothing; name a field such as result or"
                " leave it out"
            )

    def find(self, trajectory: Trajectory) -> Finding | Outcome:
        """Check calls or steps."""
        if self.steps is not None:
            return self._check_steps(recorded_field(trajectory, self.steps))
        if not trajectory.calls:
            return Skipped("no tool call")
        unrecorded = next(
            (key for key in self.required if _never_recorded(trajectory.calls, key)), None
        )
        if unrecorded is not None:
            return Skipped(f"no call recorded {unrecorded}", reason="not_recorded")
        errors = [
            {"tool": call.name, "actual": position, "missing": missing}
            for position, call in enumerate(trajectory.calls)
            if (missing := [key for key in self.required if not _has_field(call, key)])
        ]
        return _share_of_valid(len(trajectory.calls), errors)

    def _check_steps(self, steps: object) -> Finding | Outcome:
        """Score the list of steps that the run itself recorded: the share that are valid.

        Args:
            steps: the value of the attribute or output field `steps`, or `UNRECORDED`.
        """
        if steps is UNRECORDED:
            return Skipped(f"{self.steps} not recorded", reason="not_recorded")
        steps = decode_json(steps)
        if isinstance(steps, Mapping) and "trajectory" in steps:
            steps = decode_json(steps["trajectory"])
        if not isinstance(steps, list | tuple):
            return Finding(
                0.0,
                f"{self.steps} holds no list of steps",
                {"valid": 0, "total": 0, "errors": ["no list"]},
            )
        if not steps:
            return Finding(0.0, "no steps", {"valid": 0, "total": 0, "errors": ["no steps"]})
        errors = [
            {"step": position, "missing": missing}
            for position, step in enumerate(steps)
            if (missing := self._missing_of_step(step))
        ]
        return _share_of_valid(len(steps), errors)

    def _missing_of_step(self, step: object) -> list[str]:
        """What a recorded step lacks to be valid, such as a required key; [] if it is valid."""
        if not isinstance(step, Mapping):
            return ["an object"]
        unnumbered = [] if "step" in step or "id" in step else ["step or id"]
        return unnumbered + [key for key in self.required if key not in step]


def _never_recorded(calls: Sequence[ToolCall], key: str) -> bool:
    """Whether no call recorded a field that some call should have."""
    return not any(_is_recorded(call, key) for call in calls) and not all(
        _has_field(call, key) for call in calls
    )


def _has_field(call: ToolCall, key: str) -> bool:
    """Whether a call has what is required: a failed call needs no result."""
    # a failed call needs no result
    return _is_recorded(call, key) or bool(key == "result" and call.error)


def _is_recorded(call: ToolCall, key: str) -> bool:
    value = getattr(call, key)
    if key in ("arguments", "result"):
        return value is not UNRECORDED
    return value is not None and value not in ("", ())


def _share_of_valid(total: int, errors: list[dict[str, Any]]) -> Finding:
    """The share of calls or steps without an error; an error has `missing`, and `step`, or `tool`
    and `actual`.
    """
    valid = total - len(errors)
    explained = [f"{valid} of {total} valid"]
    for error in errors[:_MOST_LISTED]:
        at = error.get("step")
        where = numbered(error["tool"], error["actual"]) if at is None else f"step {at + 1}"
        explained.append(f"{where}: missing {', '.join(error['missing'])}")
    if len(errors) > _MOST_LISTED:
        explained.append(f"and {len(errors) - _MOST_LISTED} more")
    details = {"valid": valid, "total": total, "errors": errors}
    return Finding(valid / total, "; ".join(explained), details)


RECORDED: Final = "recorded for the distribution"


@scorer("label_distribution")
@frozen_record
class LabelDistribution(BaseScorer):
    """Records a label of each run, so that `summarize` can count how often each label occurs in
    many runs.

    Always skipped (*recorded for the distribution*), which never counts as a failure;
    `details.label` is the label as text, missing where none was recorded.
    `otel_eval.scorers.summarize(results)` gives `labels` (sorted), `counts`, `fractions` and
    `skew`, the largest fraction minus the smallest.

    Attributes:
        label: an attribute, or a field of the run's output or input.
        window: how many runs the [metrics over a window](signals.md#metrics-over-a-sliding-window)
            look at together.

    Example:
        {type: label_distribution, label: intent}

    >>> from otel_eval.testing import trajectory
    >>> LabelDistribution(label="intent")(trajectory(attributes={"intent": "refund"})).details
    {'label': 'refund'}
    """

    label: Text
    window: Count = 1000

    def requires(self) -> Requirements:
        """The attribute that may hold the label, the run's input and output."""
        return Requirements(
            needs=frozenset({"content"}), attributes=frozenset({self.label}), calls=False
        )

    def find(self, trajectory: Trajectory) -> Finding | Outcome:
        """Record the label."""
        value = recorded_field(trajectory, self.label, within=("output", "input"))
        if value is UNRECORDED or value is None:
            return Skipped(RECORDED, reason="recorded")
        if not isinstance(value, str):
            value = json.dumps(value, ensure_ascii=False, sort_keys=True, default=str)
        return Skipped(RECORDED, "recorded", {"label": value})


def summarize(results: Iterable[Any]) -> dict[str, Any]:
    """The distribution of the labels that `label_distribution` recorded.

    Args:
        results: outcomes, or results that have an `outcome`; those without a label are not counted.

    Returns:
        `labels` sorted, `counts` by label, `fractions` in the order of `labels`, and `skew`, the
        largest fraction minus the smallest. Without labels the first three are empty and `skew` is
        0.

    >>> labels = ("yes", "no", "yes", "yes")
    >>> summarize([Skipped(RECORDED, "recorded", {"label": label}) for label in labels])
    {'labels': ['no', 'yes'], 'counts': {'no': 1, 'yes': 3}, 'fractions': [0.25, 0.75], 'skew': 0.5}
    """
    outcomes = (getattr(result, "outcome", result) for result in results)
    return distribution(
        outcome.details["label"]
        for outcome in outcomes
        if isinstance(outcome, Skipped) and "label" in outcome.details
    )


def distribution(labels: Iterable[str]) -> dict[str, Any]:
    """Count how often each label occurs: `labels`, `counts`, `fractions` and `skew`, as `summarize`
    returns them.
    """
    counts = dict(sorted(Counter(labels).items()))
    total = sum(counts.values())
    fractions = [number / total for number in counts.values()]
    skew = max(fractions) - min(fractions) if fractions else 0.0
    return {"labels": list(counts), "counts": counts, "fractions": fractions, "skew": skew}
