"""Scores in Langfuse, on the run's observation, as its documentation has it; not tried against the live service.

Source: Langfuse's API reference, `POST /api/public/scores`, read 2026-11-22: a score is updated by its id, and may come before
its trace. Traces that Langfuse gets by OTLP have the ids of OpenTelemetry.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from otel_eval.exporters.annotations import AnnotationExporter, response_result
from otel_eval.exporters.scores import Score
from otel_eval.retry import ExportResult

__all__ = ["LangfuseExporter"]


class LangfuseExporter(AnnotationExporter):
    """Sends scores to Langfuse, one in a request."""

    name = "langfuse"

    def send(self, scores: Sequence[Score]) -> ExportResult:
        """Create or update the score."""
        (score,) = scores
        return response_result(self.call("POST", "/api/public/scores", _body(score)))


def _body(score: Score) -> dict[str, Any]:
    run, is_number = score.report.trajectory, score.value is not None
    return {
        "id": f"otel-eval-{score.digest}",
        "traceId": run.trace_id,
        "observationId": run.span_id,
        "name": score.name,
        "value": score.value if is_number else score.label,
        "dataType": "NUMERIC" if is_number else "CATEGORICAL",
        "comment": score.explanation or None,
        "metadata": score.metadata,
    }
