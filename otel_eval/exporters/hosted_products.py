"""Scores in Langfuse, LangSmith, Datadog and Logfire, as each documents its API; not tried against the live services.

Sources, read on 2026-11-22 and 2026-11-23:
Langfuse: API reference, `POST /api/public/scores`: a score is updated by its id, and may come before its trace. Traces that it
gets by OTLP have the ids of OpenTelemetry.
LangSmith: API reference, `POST /api/v1/feedback` and `PATCH /api/v1/feedback/{id}`, and the Python package langsmith 0.15.0: the
id of feedback is chosen by the client, feedback on a run that is not there yet is a 404, and the id of a run that came by OTLP is
that of its span, filled up with zeros in front.
Datadog: documentation of `POST /api/intake/llm-obs/v2/eval-metric`, of external evaluations and of OpenTelemetry spans (tag
`source:otel`, ids in decimal). It names no key by which an evaluation would be replaced.
Logfire: documentation of human review (`record_feedback`) and of alternative clients (OTLP over HTTP, protobuf), and the span
that the Python package logfire-sdk 5.4.0 makes of feedback. A second span about the same score is not documented to replace the
first.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from hashlib import sha256
from typing import Any, ClassVar, Final
from uuid import UUID

from otel_eval.exporters import attributes as names
from otel_eval.exporters.annotations import AnnotationExporter, response_result
from otel_eval.exporters.result_requests import request_of, span_below
from otel_eval.exporters.scores import KnownScorers, Score
from otel_eval.otlp.client import http_result
from otel_eval.otlp.endpoint import Endpoint
from otel_eval.retry import ExportResult


class LangfuseExporter(AnnotationExporter):
    """Sends scores to Langfuse, one in a request."""

    name = "langfuse"

    def send(self, scores: Sequence[Score]) -> ExportResult:
        """Create or update the score."""
        (score,) = scores
        run, is_number = score.report.trajectory, score.value is not None
        body = {
            "id": f"otel-eval-{score.digest}",
            "traceId": run.trace_id,
            "observationId": run.span_id,
            "name": score.name,
            "value": score.value if is_number else score.label,
            "dataType": "NUMERIC" if is_number else "CATEGORICAL",
            "comment": score.explanation or None,
            "metadata": score.metadata,
        }
        return response_result(self.call("POST", "/api/public/scores", body))


class LangsmithExporter(AnnotationExporter):
    """Sends feedback to LangSmith, one in a request."""

    name = "langsmith"

    def send(self, scores: Sequence[Score]) -> ExportResult:
        """Update the feedback, or create it."""
        (score,) = scores
        key, value = str(UUID(hex=score.digest)), None if score.value is not None else score.label
        feedback = {"score": score.value, "value": value, "comment": score.explanation or None}  # what a revision may change
        response = self.call("PATCH", f"/api/v1/feedback/{key}", feedback)
        if response.status != 404:
            return response_result(response)
        source = {"type": "model" if score.by_judge else "api", "metadata": score.metadata}
        run_id = str(UUID(hex=score.report.trajectory.span_id.rjust(32, "0")))
        target = {"id": key, "run_id": run_id, "key": score.name, "feedback_source": source}
        response = self.call("POST", "/api/v1/feedback", feedback | target)
        if response.status == 409:  # created meanwhile
            response = self.call("PATCH", f"/api/v1/feedback/{key}", feedback)
        return ExportResult("missing", "404, LangSmith has no such run") if response.status == 404 else response_result(response)


_NOT_IN_A_LABEL: Final = re.compile("[^A-Za-z0-9_]")
_TAGS: Final = ("evaluation", "type", "version", "completeness", "revision", "result_id")


class DatadogExporter(AnnotationExporter):
    """Sends evaluations to Datadog.

    Args:
        to: Datadog's API; the base of its URLs.
        known: the configuration's scorers.
        ml_app: the name of the LLM application to which the spans belong.
        options: those of every such exporter.

    Raises:
        ConfigError: a TLS file cannot be used.
    """

    name = "datadog"
    max_scores: ClassVar[int] = 100
    replaces: ClassVar[bool] = False

    def __init__(self, to: Endpoint, known: KnownScorers, *, ml_app: str, **options: Any) -> None:
        super().__init__(to, known, **options)
        self._ml_app: Final = ml_app

    def send(self, scores: Sequence[Score]) -> ExportResult:
        """Send evaluations."""
        attributes = {"metrics": [_metric(score) | {"ml_app": self._ml_app} for score in scores]}
        body = {"data": {"type": "evaluation_metric", "attributes": attributes}}
        return response_result(self.call("POST", "/api/intake/llm-obs/v2/eval-metric", body))


def _metric(score: Score) -> dict[str, Any]:
    run, metadata = score.report.trajectory, score.metadata
    metric: dict[str, Any] = {
        "join_on": {"span": {"span_id": str(int(run.span_id, 16)), "trace_id": str(int(run.trace_id, 16))}},
        "label": _label(score.name),
        "timestamp_ms": names.evaluated_ns(score.report) // 1_000_000,
        "reasoning": score.explanation,
        "tags": ["source:otel", *(f"{key}:{metadata[key]}" for key in _TAGS)],
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


class LogfireExporter(AnnotationExporter):
    """Sends feedback to Logfire."""

    name = "logfire"
    media_type: ClassVar[str] = "application/x-protobuf"
    max_scores: ClassVar[int] = 100
    replaces: ClassVar[bool] = False

    def send(self, scores: Sequence[Score]) -> ExportResult:
        """Send a span for each score; a request of which some are rejected is refused, so that those are found."""
        response = self.call("POST", "/v1/traces", request_of((each.report.trajectory, [_feedback(each)]) for each in scores))
        if (taken := http_result(response)).rejected:
            return ExportResult("permanent", taken.reason or "a span was rejected")
        return response_result(response)


def _feedback(score: Score) -> bytes:
    """A span with the result's id, so that a request that is repeated makes no other."""
    value = score.label if score.value is None else score.value
    about = {f"{names.SCOPE}.{key}": each for key, each in ({"label": score.label} | score.metadata).items()}
    attributes = about | {
        score.name: value,
        "logfire.span_type": "annotation",
        "logfire.level_num": 9,  # info
        "logfire.msg_template": f"feedback: {score.name}",
        "logfire.msg": f"feedback: {score.name} = {value!r}",
        "logfire.feedback.name": score.name,
        "logfire.feedback.comment": score.explanation,
    }
    span_id = sha256(f"{score.digest} {score.result.result_id}".encode()).digest()[:8]
    return span_below(score.report, span_id, f"feedback: {score.name}", attributes).SerializeToString()
