"""Scores as annotations in Phoenix, on the run's span and optionally on its trace.

Source: the REST API of Phoenix 20.26, `POST /v1/span_annotations` and `/v1/trace_annotations`. Span, name and identifier together
are the key of an annotation: sent again, it is replaced. With `sync=false` Phoenix waits for spans that it does not have yet.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from otel_eval.exporters.annotations import AnnotationExporter, response_result
from otel_eval.exporters.scores import KnownScorers, Score, clean
from otel_eval.otlp.endpoint import Endpoint
from otel_eval.retry import ExportResult

__all__ = ["RESERVED", "PhoenixExporter"]

RESERVED = "note"
"""The name of annotations that Phoenix keeps for people's notes, and refuses here."""


class PhoenixExporter(AnnotationExporter):
    """Sends annotations to Phoenix.

    Args:
        to: Phoenix; the base of its URLs.
        known: the configuration's scorers.
        unscored: send skipped and failed results of the first revision, too.
        trace_annotations: annotate the trace of each outermost run as well.

    Raises:
        ConfigError: a TLS file cannot be used.
    """

    name = "phoenix"
    max_scores: ClassVar[int] = 100

    def __init__(self, to: Endpoint, known: KnownScorers, *, unscored: bool = False, trace_annotations: bool = False) -> None:
        super().__init__(to, known, unscored=unscored)
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
