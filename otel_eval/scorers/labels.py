"""How labels are distributed over runs. The caller decides over which window they are counted."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

from otel_eval.model import UNRECORDED, Outcome, Skipped, Trajectory
from otel_eval.scorers.spec.base_scorer import BaseScorer, Finding
from otel_eval.scorers.spec.parameters import count, reads, text
from otel_eval.scorers.spec.registry import scorer
from otel_eval.scorers.values import recorded_field

__all__ = ["RECORDED", "LabelDistribution", "distribution", "summarize"]

RECORDED: Final = "recorded for the distribution"


@scorer("label_distribution")
@dataclass(frozen=True, slots=True, kw_only=True)
class LabelDistribution(BaseScorer):
    """Records each run's label; what counts is the distribution over many runs, see `summarize`.

    Always skipped (*recorded for the distribution*), which never counts as a failure; `details.label` is the label as text,
    missing where none was recorded. `otel_eval.scorers.summarize(results)` gives `labels` (sorted), `counts`, `fractions` and
    `skew`, the largest fraction minus the smallest.

    Attributes:
        label: an attribute, or a field of the run's output or input.
        window: how many runs the [metrics over a window](signals.md#metrics-over-a-sliding-window) look at together.

    Example:
        {type: label_distribution, label: intent}

    >>> from otel_eval.testing import trajectory
    >>> LabelDistribution(label="intent")(trajectory(attributes={"intent": "refund"})).details
    {'label': 'refund'}
    """

    type: ClassVar[str] = "label_distribution"

    label: str = field(metadata=reads(text))
    window: int = field(default=1000, metadata=reads(count("runs", 1000)))

    @property
    def reads_calls(self) -> bool:
        """It does not."""
        return False

    @property
    def needs(self) -> frozenset[str]:
        """The run's input and output."""
        return frozenset({"content"})

    @property
    def attribute_keys(self) -> frozenset[str]:
        """The attribute that may hold the label."""
        return frozenset({self.label})

    def find(self, trajectory: Trajectory) -> Finding | Outcome:
        """Record the label."""
        value = recorded_field(trajectory, self.label, within=("output", "input"))
        if value is UNRECORDED or value is None:
            return Skipped(RECORDED, reason="recorded")
        return Skipped(RECORDED, {"label": _as_text(value)}, "recorded")


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, sort_keys=True, default=str)


def summarize(results: Iterable[Any]) -> dict[str, Any]:
    """The distribution of the labels that `label_distribution` recorded.

    Args:
        results: outcomes, or results that have an `outcome`; those without a label are not counted.

    Returns:
        `labels` sorted, `counts` by label, `fractions` in the order of `labels`, and `skew`, the largest fraction
        minus the smallest. Nothing recorded: empty, skew 0.

    >>> summarize([Skipped(RECORDED, {"label": label}) for label in ("yes", "no", "yes", "yes")])
    {'labels': ['no', 'yes'], 'counts': {'no': 1, 'yes': 3}, 'fractions': [0.25, 0.75], 'skew': 0.5}
    """
    outcomes = (getattr(result, "outcome", result) for result in results)
    return distribution(
        outcome.details["label"] for outcome in outcomes if isinstance(outcome, Skipped) and "label" in outcome.details
    )


def distribution(labels: Iterable[str]) -> dict[str, Any]:
    """How often each label occurs: `labels`, `counts`, `fractions` and `skew`, as `summarize` gives them."""
    counts = dict(sorted(Counter(labels).items()))
    total = sum(counts.values())
    fractions = [number / total for number in counts.values()]
    skew = max(fractions) - min(fractions) if fractions else 0.0
    return {"labels": list(counts), "counts": counts, "fractions": fractions, "skew": skew}
