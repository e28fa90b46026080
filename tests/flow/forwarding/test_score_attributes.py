"""Scores as attributes of the runs' own spans, for backends that filter spans by attributes
only.
"""

from __future__ import annotations

import urllib.request
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.support import otlp_backend as backends
from tests.support.receiver_process import whole


@pytest.mark.parametrize("asked", [True, False])
def test_each_score_is_an_attribute_beside_the_events_where_asked(
    backend: Any, asked: bool
) -> None:
    """The verdict, and value, label and reason of each score; and the events as ever."""
    with backends.forwarding(backend, results={"score_attributes": asked}) as (_, bound):
        headers = {"Content-Type": "application/x-protobuf"}
        sent = urllib.request.Request(
            f"http://{bound.http}/v1/traces", data=whole(1), headers=headers
        )
        urllib.request.build_opener(urllib.request.ProxyHandler({})).open(sent, timeout=300).close()
        assert backend.wait(lambda: len(spans(backend)) == 4)
    (run,) = [span for span in spans(backend) if span.events]
    scores = {
        each.key: getattr(each.value, str(each.value.WhichOneof("value")))
        for each in run.attributes
        if each.key.startswith("otel_eval.")
    }
    expected = {
        "otel_eval.verdict.policy": "pass",
        "otel_eval.score.tool_errors": 1.0,
        "otel_eval.label.tool_errors": "pass",
        "otel_eval.explanation.tool_errors": "0 of 3 calls failed",
    }
    assert scores == (expected if asked else {})
    assert [event.name for event in run.events] == ["gen_ai.evaluation.result"]


def spans(backend: Any) -> list[Any]:
    requests = [ExportTraceServiceRequest.FromString(body) for body in backend.got["traces"]]
    return [
        span
        for each in requests
        for group in each.resource_spans
        for scope in group.scope_spans
        for span in scope.spans
    ]
