"""Exporters of scores to Phoenix, MLflow, Langfuse, LangSmith, Datadog and Logfire, on the run's
span, by the API of each.

Sources:
Phoenix: the REST API of Phoenix 20.26, `POST /v1/span_annotations` and `/v1/trace_annotations`.
Span, name and identifier together are the key of an annotation: sent again, it is replaced. With
`sync=false` Phoenix waits for spans that it does not have yet.
MLflow: the REST API of MLflow 3.17, `/api/3.0/mlflow/traces/{trace}/assessments`. The client
chooses the id of an assessment, so that a score is updated by PATCH and created by POST only if
there is none. The trace has to be in MLflow before its scores. The others follow their
documentation, read on 2026-11-22 and 2026-11-23, and were not tried against the live services:
Langfuse: API reference, `POST /api/public/scores`: a score is updated by its id, and may come
before its trace. Traces that it receives by OTLP have the ids of OpenTelemetry.
LangSmith: API reference, `POST /api/v1/feedback` and `PATCH /api/v1/feedback/{id}`, and the Python
package langsmith 0.15.0: the id of feedback is chosen by the client, feedback on a missing run is a
404, and the id of a run that came by OTLP is that of its span, padded with zeros in front.
Datadog: documentation of `POST /api/intake/llm-obs/v2/eval-metric`, of external evaluations and of
OpenTelemetry spans (tag `source:otel`, ids in decimal). It names no key by which an evaluation
would be replaced.
Logfire: documentation of human review (`record_feedback`) and of alternative clients (OTLP over
HTTP, protobuf), and the span that the Python package logfire-sdk 5.4.0 creates for feedback. A
second span about the same score is not documented to replace the first.
"""

from __future__ import annotations

import json
import logging
import re
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from hashlib import sha256
from http.client import HTTPException
from typing import Any, ClassVar, Final
from urllib.parse import quote
from uuid import UUID

from otel_eval.exporters import attributes as names
from otel_eval.exporters.annotations import AnnotationExporter, response_result
from otel_eval.exporters.result_requests import request_of, span_below
from otel_eval.exporters.scores import KnownScorers, Score, clean, is_verdict
from otel_eval.model import Failed, Scored, Verdict
from otel_eval.otlp.client import http_result
from otel_eval.otlp.endpoint import Endpoint, HttpResponse
from otel_eval.retry import ExportResult, reason_of


class PhoenixExporter(AnnotationExporter):
    """Sends annotations to Phoenix.

    Args:
        to: Phoenix; the base of its URLs.
        known: the configuration's scorers.
        trace_annotations: annotate the trace of each outermost run as well.
        annotation_configs: create a configuration of each annotation that has none, so that
            Phoenix colours it, and assign it to the project of the runs.
        options: those of every such exporter.

    Raises:
        ConfigError: a TLS file cannot be used.
    """

    name = "phoenix"
    max_scores: ClassVar[int] = 100

    def __init__(
        self,
        to: Endpoint,
        known: KnownScorers,
        *,
        trace_annotations: bool = False,
        annotation_configs: bool = False,
        **options: Any,
    ) -> None:
        super().__init__(to, known, **options)
        self._on_traces = trace_annotations
        self._configs: Final = _AnnotationConfigs(self.call) if annotation_configs else None

    def send(self, scores: Sequence[Score]) -> ExportResult:
        """Send annotations of spans, and then of traces."""
        spans = [
            _annotation(score) | {"span_id": score.report.trajectory.span_id} for score in scores
        ]
        result = self._post("span", spans)
        if result.status != "ok":
            return result
        if self._configs is not None:
            self._configs.ensure_for(scores)
        traces = [
            _annotation(score) | {"trace_id": score.report.trajectory.trace_id}
            for score in scores
            if self._on_traces and score.report.trajectory.outermost
        ]
        return self._post("trace", traces) if traces else result

    def _post(self, kind: str, annotations: Sequence[dict[str, Any]]) -> ExportResult:
        return response_result(
            self.call("POST", f"/v1/{kind}_annotations?sync=false", {"data": annotations})
        )


def _annotation(score: Score) -> dict[str, Any]:
    return {
        "name": score.name,
        "annotator_kind": "LLM" if score.by_judge else "CODE",
        "result": {
            "score": score.value,
            "label": score.label,
            "explanation": score.explanation or None,
        },
        "metadata": score.metadata,
        "identifier": clean(score.result.evaluation),
    }


_log = logging.getLogger("otel_eval")
_MOST_CONFIGS: Final = 1000  # annotations of projects whose configuration is remembered
_CONFIGS_AGAIN_S: Final = 30.0  # a project exists once Phoenix has stored a span of it


class _ConfigurationRefused(Exception):
    """Phoenix refused a request about configurations."""


class _AnnotationConfigs:
    """Creates the configurations of Phoenix's annotations, which give them colour and direction,
    where there are none, and assigns them to the projects of runs. What fails is logged once:
    scores are shown without it.

    Args:
        call: makes a request: method, path and body.
    """

    def __init__(self, call: Callable[..., HttpResponse]) -> None:
        self._call: Final = call
        self._assigned: Final[set[tuple[str, str]]] = set()  # project and name
        self._ids: Final[dict[str, str]] = {}  # by name
        self._again_at = 0.0
        self._failed = False

    def ensure_for(self, scores: Sequence[Score]) -> None:
        """Create the configurations that Phoenix lacks for these scores, and assign them to the
        projects of the scores' runs. Only annotations that are verdicts or have a value get one.

        An assignment to a project that Phoenix does not know yet is tried again, with scores that
        come 30 seconds later or more. After any other error, which is logged and not raised,
        nothing is tried any more.
        """
        missing = {
            (_project_of(score), score.name): score
            for score in scores
            if score.value is not None or is_verdict(score.result)
        }
        for key in missing.keys() & self._assigned:
            del missing[key]
        is_due = time.monotonic() >= self._again_at and len(self._assigned) < _MOST_CONFIGS
        if not missing or self._failed or not is_due:
            return
        self._again_at = time.monotonic() + _CONFIGS_AGAIN_S
        try:
            for config in self._answer("GET", "/v1/annotation_configs?limit=1000"):
                self._ids[config["name"]] = config["id"]
            for (project, name), score in missing.items():
                if name not in self._ids:
                    body = _config_of(score)
                    self._ids[name] = self._answer("POST", "/v1/annotation_configs", body)["id"]
                path = f"/v1/projects/{quote(project, safe='')}/annotation_configs"
                if self._answer("PUT", f"{path}/{quote(self._ids[name], safe='')}") is not None:
                    self._assigned.add((project, name))
        except _ConfigurationRefused as refused:
            self._give_up(str(refused))
        except (OSError, HTTPException, ValueError, KeyError, TypeError) as error:
            self._give_up(reason_of(error))

    def _give_up(self, reason: str) -> None:
        """Configure nothing any more, and log why."""
        self._failed = True
        _log.warning("phoenix: annotations have no colours, which is tried no more: %s", reason)

    def _answer(self, method: str, path: str, body: Any = None) -> Any:
        """Make a request, and return the `data` of the response; None if the project to which a
        configuration is assigned does not exist yet.

        Raises:
            _ConfigurationRefused: the status is another one than 200.
        """
        response = self._call(method, path, body)
        if method == "PUT" and response.status == 404:
            return None
        if response.status != 200:
            raise _ConfigurationRefused(
                f"{method} of an annotation configuration answered {response.status}"
            )
        return json.loads(response.content)["data"]


def _project_of(score: Score) -> str:
    """The name of the Phoenix project in which the run of a score is."""
    return str(score.report.trajectory.resource.get("openinference.project.name") or "default")


def _config_of(score: Score) -> dict[str, Any]:
    """The configuration of an annotation: categories for a verdict, else a value from 0 to 1."""
    shared = {"name": score.name, "optimization_direction": "MAXIMIZE"}
    if not is_verdict(score.result):
        return shared | {"type": "CONTINUOUS", "lower_bound": 0.0, "upper_bound": 1.0}
    values = {Verdict.PASS: 1.0, Verdict.NOT_PASSED: 0.0, Verdict.NOT_EVALUATED: None}
    labels = [{"label": verdict.value, "score": value} for verdict, value in values.items()]
    return shared | {"type": "CATEGORICAL", "values": labels}


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

    def __init__(
        self, to: Endpoint, known: KnownScorers, *, experiment: str | None = None, **options: Any
    ) -> None:
        headers = {"x-mlflow-experiment-id": experiment} if experiment else {}
        super().__init__(replace(to, headers=headers | dict(to.headers)), known, **options)

    def send(self, scores: Sequence[Score]) -> ExportResult:
        """Update the assessment, or create it."""
        (score,) = scores
        run = score.report.trajectory
        path, key = f"/api/3.0/mlflow/traces/tr-{run.trace_id}/assessments", f"a-{score.digest}"
        assessment = _assessment(score)

        def update() -> HttpResponse:
            return self.call(
                "PATCH", f"{path}/{key}", {"assessment": assessment, "update_mask": _MASK}
            )

        response = update()
        if not _is_absent(response):
            return response_result(response)
        fixed = {
            "assessment_id": key,
            "trace_id": f"tr-{run.trace_id}",
            "span_id": run.span_id,
            "source": {
                "source_type": "LLM_JUDGE" if score.by_judge else "CODE",
                "source_id": "otel_eval",
            },
            "valid": True,
        }
        response = self.call("POST", path, {"assessment": assessment | fixed})
        # an earlier attempt has created it meanwhile
        if response.status == 500 and _EXISTS in response.content.lower():
            response = update()
        return (
            ExportResult("missing", "404, MLflow has no such trace")
            if _is_absent(response)
            else response_result(response)
        )


def _is_absent(response: HttpResponse) -> bool:
    """Whether MLflow has no such trace or assessment; a 404 of a proxy in front of it is about the
    endpoint.
    """
    if response.status != 404:
        return False
    with suppress(ValueError):
        answer = json.loads(response.content)
        return isinstance(answer, dict) and answer.get("error_code") == _ABSENT
    return False


def _assessment(score: Score) -> dict[str, Any]:
    """The fields of an assessment that a later revision may change."""
    return {
        "assessment_name": score.name,
        "feedback": _feedback(score),
        "rationale": score.explanation,
        "metadata": {key: str(value) for key, value in score.metadata.items()},
    }


def _feedback(score: Score) -> dict[str, Any]:
    """The score, pass or fail for a verdict, the recorded label, or else the reason why there is
    none.
    """
    outcome = score.result.outcome
    if isinstance(outcome, Scored):
        return {"value": names.label_of(score.result) if is_verdict(score.result) else score.value}
    if score.has_label:
        return {"value": score.label}
    code = outcome.error_type if isinstance(outcome, Failed) else outcome.reason
    return {"error": {"error_code": code, "error_message": score.explanation}}


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
        # a revision may change these
        feedback = {"score": score.value, "value": value, "comment": score.explanation or None}
        response = self.call("PATCH", f"/api/v1/feedback/{key}", feedback)
        if response.status != 404:
            return response_result(response)
        source = {"type": "model" if score.by_judge else "api", "metadata": score.metadata}
        run_id = str(UUID(hex=score.report.trajectory.span_id.rjust(32, "0")))
        target = {"id": key, "run_id": run_id, "key": score.name, "feedback_source": source}
        response = self.call("POST", "/api/v1/feedback", feedback | target)
        if response.status == 409:  # created meanwhile
            response = self.call("PATCH", f"/api/v1/feedback/{key}", feedback)
        return (
            ExportResult("missing", "404, LangSmith has no such run")
            if response.status == 404
            else response_result(response)
        )


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
        "join_on": {
            "span": {"span_id": str(int(run.span_id, 16)), "trace_id": str(int(run.trace_id, 16))}
        },
        "label": _label(score.name),
        "timestamp_ms": names.evaluated_ns(score.report) // 1_000_000,
        "reasoning": score.explanation,
        "tags": ["source:otel", *(f"{key}:{metadata[key]}" for key in _TAGS)],
    }
    if score.value is None:
        return metric | {"metric_type": "categorical", "categorical_value": score.label}
    return metric | {"metric_type": "score", "score_value": score.value, "assessment": score.label}


def _label(name: str) -> str:
    """The name in the form that Datadog accepts: ASCII letters, digits and underscores, a letter
    first.

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
        """Send a span for each score. A partial success counts as refused, so that the rejected
        scores are found by halving.
        """
        spans = ((score.report.trajectory, [_feedback_span(score)]) for score in scores)
        response = self.call("POST", "/v1/traces", request_of(spans))
        if (result := http_result(response)).rejected:
            return ExportResult("permanent", result.reason or "a span was rejected")
        return response_result(response)


def _feedback_span(score: Score) -> bytes:
    """Encode a span whose id is a hash of the result's, so that a repeated request does not add
    another span.
    """
    value = score.label if score.value is None else score.value
    facts = {"label": score.label} | score.metadata
    attributes = {f"{names.SCOPE}.{key}": fact for key, fact in facts.items()} | {
        score.name: value,
        "logfire.span_type": "annotation",
        "logfire.level_num": 9,  # info
        "logfire.msg_template": f"feedback: {score.name}",
        "logfire.msg": f"feedback: {score.name} = {value!r}",
        "logfire.feedback.name": score.name,
        "logfire.feedback.comment": score.explanation,
    }
    span_id = sha256(f"{score.digest} {score.result.result_id}".encode()).digest()[:8]
    return span_below(
        score.report, span_id, f"feedback: {score.name}", attributes
    ).SerializeToString()


PRODUCTS: Final[Mapping[str, type[AnnotationExporter]]] = {
    kind.name: kind
    for kind in (
        PhoenixExporter,
        MlflowExporter,
        LangfuseExporter,
        LangsmithExporter,
        DatadogExporter,
        LogfireExporter,
    )
}
"""The exporter to each product, by its name in the configuration."""
