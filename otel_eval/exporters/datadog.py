"""Scores in Datadog as external evaluations of the run's span, as documented; not tried against the live service.

Source: Datadog's documentation of `POST /api/intake/llm-obs/v2/eval-metric`, of external evaluations and of OpenTelemetry spans
(tag `source:otel`, ids in decimal), read on 2026-11-22. It names no key by which an evaluation would be replaced.
"""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from typing import Any, ClassVar, Final

from otel_eval.exporters.annotations import AnnotationExporter, response_result
from otel_eval.exporters.scores import KnownScorers, Score
from otel_eval.otlp.endpoint import Endpoint
from otel_eval.retry import ExportResult

__all__ = ["DatadogExporter"]

_PATH: Final = "/api/intake/llm-obs/v2/eval-metric"
_NOT_IN_A_LABEL: Final = re.compile("[^A-Za-z0-9_]")


class DatadogExporter(AnnotationExporter):
    """Sends evaluations to Datadog.

    Args:
        to: Datadog's API; the base of its URLs.
        known: the configuration's scorers.
        ml_app: the name of the LLM application to which the spans belong.

    Raises:
        ConfigError: a TLS file cannot be used.
    """

    name = "datadog"
    max_scores: ClassVar[int] = 100
    replaces: ClassVar[bool] = False

    def __init__(self, to: Endpoint, known: KnownScorers, *, ml_app: str) -> None:
        super().__init__(to, known)
        self._ml_app: Final = ml_app

    def send(self, scores: Sequence[Score]) -> ExportResult:
        """Send evaluations."""
        attributes = {"metrics": [_metric(score) | {"ml_app": self._ml_app} for score in scores]}
        return response_result(self.call("POST", _PATH, {"data": {"type": "evaluation_metric", "attributes": attributes}}))


def _metric(score: Score) -> dict[str, Any]:
    run, metadata = score.report.trajectory, score.metadata
    evaluated_ns = score.report.stamp.at_ns or time.time_ns()
    kept = ("evaluation", "type", "version", "completeness", "revision", "result_id")
    metric: dict[str, Any] = {
        "join_on": {"span": {"span_id": str(int(run.span_id, 16)), "trace_id": str(int(run.trace_id, 16))}},
        "label": _label(score.name),
        "timestamp_ms": evaluated_ns // 1_000_000,
        "reasoning": score.explanation,
        "tags": ["source:otel", *(f"{key}:{metadata[key]}" for key in kept)],
    }
    if score.value is None:
        return metric | {"metric_type": "categorical", "categorical_value": score.label}
    return metric | {"metric_type": "score", "score_value": score.value, "assessment": score.label}


def _label(name: str) -> str:
    """The name as Datadog takes it: ASCII letters, digits and underscores, a letter first.

    >>> _label("policy.tool errors"), _label("2nd")
    ('policy_tool_errors', 's_2nd')
    """
    label = _NOT_IN_A_LABEL.sub("_", name)
    return label if label[:1].isalpha() else f"s_{label}"
