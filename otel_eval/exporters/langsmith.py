"""Scores in LangSmith as feedback on the run, as its documentation has it; not tried against the live service.

Source: LangSmith's API reference, `POST /api/v1/feedback` and `PATCH /api/v1/feedback/{id}`, and the Python package langsmith
0.15.0, both read on 2026-11-22: the id of feedback is chosen by the client, feedback on a run that is not there yet is a 404, and
the id of a run that came by OTLP is that of its span, filled up with zeros in front.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from otel_eval.exporters.annotations import AnnotationExporter, response_result
from otel_eval.exporters.scores import Score
from otel_eval.retry import ExportResult

__all__ = ["LangsmithExporter"]


class LangsmithExporter(AnnotationExporter):
    """Sends feedback to LangSmith, one in a request."""

    name = "langsmith"

    def send(self, scores: Sequence[Score]) -> ExportResult:
        """Update the feedback, or create it."""
        (score,) = scores
        key, feedback = str(UUID(hex=score.digest)), _feedback(score)
        response = self.call("PATCH", f"/api/v1/feedback/{key}", feedback)
        if response.status != 404:
            return response_result(response)
        response = self.call("POST", "/api/v1/feedback", feedback | _target(score) | {"id": key})
        if response.status == 409:  # created meanwhile
            response = self.call("PATCH", f"/api/v1/feedback/{key}", feedback)
        return ExportResult("missing", "404, LangSmith has no such run") if response.status == 404 else response_result(response)


def _feedback(score: Score) -> dict[str, Any]:
    """What a later revision may change."""
    value = None if score.value is not None else score.label
    return {"score": score.value, "value": value, "comment": score.explanation or None}


def _target(score: Score) -> dict[str, Any]:
    source = {"type": "model" if score.by_judge else "api", "metadata": score.metadata}
    run_id = UUID(hex=score.report.trajectory.span_id.rjust(32, "0"))
    return {"run_id": str(run_id), "key": score.name, "feedback_source": source}
