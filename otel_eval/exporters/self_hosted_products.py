"""Scores in Phoenix as annotations and in MLflow as assessments, on the run's span; in Phoenix optionally on its trace.

Sources:
Phoenix: the REST API of Phoenix 20.26, `POST /v1/span_annotations` and `/v1/trace_annotations`. Span, name and identifier
together are the key of an annotation: sent again, it is replaced. With `sync=false` Phoenix waits for spans that it does not have
yet.
MLflow: the REST API of MLflow 3.17, `/api/3.0/mlflow/traces/{trace}/assessments`. An assessment's id is chosen here, so that a
score is updated by PATCH and created by POST only where there is none. MLflow does not wait for traces: they have to be there.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, ClassVar, Final

from otel_eval.exporters.annotations import AnnotationExporter, response_result
from otel_eval.exporters.scores import KnownScorers, Score, clean
from otel_eval.model import Failed, Scored
from otel_eval.otlp.endpoint import Endpoint, HttpResponse
from otel_eval.retry import ExportResult

RESERVED = "note"
"""The name of annotations that Phoenix keeps for people's notes, and refuses here."""


class PhoenixExporter(AnnotationExporter):
    """Sends annotations to Phoenix.

    Args:
        to: Phoenix; the base of its URLs.
        known: the configuration's scorers.
        trace_annotations: annotate the trace of each outermost run as well.
        options: those of every such exporter.

    Raises:
        ConfigError: a TLS file cannot be used.
    """

    name = "phoenix"
    max_scores: ClassVar[int] = 100

    def __init__(self, to: Endpoint, known: KnownScorers, *, trace_annotations: bool = False, **options: Any) -> None:
        super().__init__(to, known, **options)
        self._on_traces = trace_annotations

    def send(self, scores: Sequence[Score]) -> ExportResult:
        """Send annotations of spans, and then of traces."""
        spans = [_annotation(score) | {"span_id": score.report.trajectory.span_id} for score in scores]
        result = self._post("span", spans)
        outer = [score for score in scores if score.report.trajectory.outermost] if self._on_traces else []
        if result.status != "ok" or not outer:
            return result
        return self._post("trace", [_annotation(score) | {"trace_id": score.report.trajectory.trace_id} for score in outer])

    def _post(self, kind: str, annotations: Sequence[dict[str, Any]]) -> ExportResult:
        return response_result(self.call("POST", f"/v1/{kind}_annotations?sync=false", {"data": annotations}))


def _annotation(score: Score) -> dict[str, Any]:
    return {
        "name": score.name,
        "annotator_kind": "LLM" if score.by_judge else "CODE",
        "result": {"score": score.value, "label": score.label, "explanation": score.explanation or None},
        "metadata": score.metadata,
        "identifier": clean(score.result.evaluation),
    }


_MASK: Final = "assessmentName,feedback,rationale,metadata"
_ABSENT: Final = "RESOURCE_DOES_NOT_EXIST"
_EXISTS: Final = b"constraint"


class MlflowExporter(AnnotationExporter):
    """Sends assessments to MLflow, one in a request.

    Args:
        to: MLflow; the base of its URLs.
        known: the configuration's scorers.
        experiment: id of the experiment, for servers and proxies that route by it.
        options: those of every such exporter.

    Raises:
        ConfigError: a TLS file cannot be used.
    """

    name = "mlflow"

    def __init__(self, to: Endpoint, known: KnownScorers, *, experiment: str | None = None, **options: Any) -> None:
        headers = {"x-mlflow-experiment-id": experiment} if experiment else {}
        super().__init__(replace(to, headers=headers | dict(to.headers)), known, **options)

    def send(self, scores: Sequence[Score]) -> ExportResult:
        """Update the assessment, or create it."""
        (score,) = scores
        run = score.report.trajectory
        path, key = f"/api/3.0/mlflow/traces/tr-{run.trace_id}/assessments", f"a-{score.digest}"
        assessment = _assessment(score)

        def update() -> HttpResponse:
            return self.call("PATCH", f"{path}/{key}", {"assessment": assessment, "update_mask": _MASK})

        response = update()
        if not _is_absent(response):
            return response_result(response)
        source = {"source_type": "LLM_JUDGE" if score.by_judge else "CODE", "source_id": "otel_eval"}
        made = {"assessment_id": key, "trace_id": f"tr-{run.trace_id}", "span_id": run.span_id, "source": source, "valid": True}
        return self._created(self.call("POST", path, {"assessment": assessment | made}), update)

    def _created(self, response: HttpResponse, update: Callable[[], HttpResponse]) -> ExportResult:
        if response.status == 500 and _EXISTS in response.content.lower():  # created meanwhile, by whom it was sent before
            response = update()
        return ExportResult("missing", "404, MLflow has no such trace") if _is_absent(response) else response_result(response)


def _is_absent(response: HttpResponse) -> bool:
    """Whether MLflow has no such trace or assessment; a 404 of something before it is about the endpoint."""
    if response.status != 404:
        return False
    with suppress(ValueError):
        answer = json.loads(response.content)
        return isinstance(answer, dict) and answer.get("error_code") == _ABSENT
    return False


def _assessment(score: Score) -> dict[str, Any]:
    """What a later revision may change."""
    metadata = {key: str(value) for key, value in score.metadata.items()}
    return {"assessment_name": score.name, "feedback": _feedback(score), "rationale": score.explanation, "metadata": metadata}


def _feedback(score: Score) -> dict[str, Any]:
    """A number, the recorded label, yes or no of a whole evaluation, or why there is none of these."""
    outcome = score.result.outcome
    if isinstance(outcome, Scored):
        return {"value": score.value if score.result.scorer else "yes" if outcome.passed else "no"}
    if score.has_label:
        return {"value": score.label}
    code = outcome.error_type if isinstance(outcome, Failed) else outcome.reason
    return {"error": {"error_code": code, "error_message": score.explanation}}
