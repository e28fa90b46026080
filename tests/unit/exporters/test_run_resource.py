"""A request has the results of each run under the run's resource."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from otel_eval.exporters.attributes import PLAIN
from otel_eval.exporters.result_requests import REQUESTS, logs_request, spans_request
from otel_eval.model import Report
from tests.support.exported_results import attributes_of

Reports = Callable[..., Report]
SHOP: dict[str, Any] = {"service.name": "shop", "process.command_args": ["shop", "-v"]}
DESK: dict[str, Any] = {"service.name": "desk"}


def services_of(request: Any) -> list[tuple[str, int]]:
    """The service of each group, and the number of spans or records in it."""
    groups = getattr(request, "resource_spans", None) or request.resource_logs
    scopes = [
        group.scope_spans if hasattr(group, "scope_spans") else group.scope_logs for group in groups
    ]
    counts = [
        sum(len(getattr(each, "spans", ())) + len(getattr(each, "log_records", ())) for each in one)
        for one in scopes
    ]
    names = [attributes_of(group.resource)["service.name"]["stringValue"] for group in groups]
    return list(zip(names, counts, strict=True))


@pytest.mark.parametrize(
    ("signal", "request_class", "results"),
    [("logs", ExportLogsServiceRequest, 2), ("spans", ExportTraceServiceRequest, 1)],
)
def test_a_batch_is_one_request_with_a_group_for_each_resource(
    report: Reports, signal: str, request_class: Any, results: int
) -> None:
    """Equal resources of several objects are one group, and batches do not mix."""
    batch = [report("scored", "failed", resource=dict(each)) for each in (SHOP, DESK, SHOP)]
    for _ in range(2):
        request = request_class.FromString(REQUESTS[signal](batch, PLAIN))
        assert services_of(request) == [("shop", 2 * results), ("desk", results)]
    found = attributes_of((getattr(request, f"resource_{signal}"))[0].resource)
    assert found["process.command_args"] == {
        "arrayValue": {"values": [{"stringValue": "shop"}, {"stringValue": "-v"}]}
    }


def test_a_run_without_a_resource_has_our_own(report: Reports) -> None:
    """As one that was made by hand."""
    request = ExportTraceServiceRequest.FromString(spans_request([report("scored")]))
    assert services_of(request) == [("otel-eval", 1)]


def test_a_batch_without_results_is_an_empty_request(report: Reports) -> None:
    """No group without content."""
    assert logs_request([report(resource=SHOP)]) == b""
