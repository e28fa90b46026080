"""Scores in Logfire as feedback on the run's span, as documented; not tried against the live service.

Source: Logfire's documentation of human review (`record_feedback`) and of alternative clients (OTLP over HTTP, protobuf), and the
span that the Python package logfire-sdk 5.4.0 makes of feedback, all read on 2026-11-23. A second span about the same score is
not documented to replace the first.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from typing import Any, ClassVar, Final

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from otel_eval.exporters import attributes as names
from otel_eval.exporters.annotations import AnnotationExporter, response_result
from otel_eval.exporters.otlp import own_resource
from otel_eval.exporters.scores import Score
from otel_eval.otlp.client import http_result
from otel_eval.otlp.schema import encode_attributes
from otel_eval.retry import ExportResult

__all__ = ["LogfireExporter"]

_INFO: Final = 9
_SPAN_ATTRIBUTES: Final = 9  # the field of a span that holds them


class LogfireExporter(AnnotationExporter):
    """Sends feedback to Logfire."""

    name = "logfire"
    media_type: ClassVar[str] = "application/x-protobuf"
    max_scores: ClassVar[int] = 100
    replaces: ClassVar[bool] = False

    def send(self, scores: Sequence[Score]) -> ExportResult:
        """Send a span for each score; a request of which some are rejected is refused, so that those are found."""
        response = self.call("POST", "/v1/traces", _request(scores))
        if (taken := http_result(response)).rejected:
            return ExportResult("permanent", taken.reason or "a span was rejected")
        return response_result(response)


def _request(scores: Sequence[Score]) -> bytes:
    request = ExportTraceServiceRequest()
    for score in scores:
        run = score.report.trajectory
        group = request.resource_spans.add()
        group.resource.ParseFromString(encode_attributes(1, run.resource or own_resource().attributes))
        scope = group.scope_spans.add()
        scope.scope.name, scope.scope.version, _ = names.INSTRUMENTATION_SCOPE
        scope.spans.append(_span(score))
    return request.SerializeToString()


def _span(score: Score) -> Span:
    """A child of the run at the run's end. Its id is that of the result, so that a request that is repeated makes no other."""
    run, ended = score.report.trajectory, names.run_ended_ns(score.report)
    span = Span(
        trace_id=bytes.fromhex(run.trace_id),
        span_id=sha256(f"{score.digest} {score.result.result_id}".encode()).digest()[:8],
        parent_span_id=bytes.fromhex(run.span_id),
        name=f"feedback: {score.name}",
        kind=Span.SPAN_KIND_INTERNAL,
        start_time_unix_nano=ended,
        end_time_unix_nano=ended,
    )
    span.MergeFromString(encode_attributes(_SPAN_ATTRIBUTES, _attributes(score)))
    return span


def _attributes(score: Score) -> dict[str, Any]:
    value = score.label if score.value is None else score.value
    about = {f"{names.SCOPE}.{key}": each for key, each in ({"label": score.label} | score.metadata).items()}
    return about | {
        score.name: value,
        "logfire.span_type": "annotation",
        "logfire.level_num": _INFO,
        "logfire.msg_template": f"feedback: {score.name}",
        "logfire.msg": f"feedback: {score.name} = {value!r}",
        "logfire.feedback.name": score.name,
        "logfire.feedback.comment": score.explanation,
    }
