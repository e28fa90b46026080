"""The official Python exporters against the receiver."""

from __future__ import annotations

from typing import Any

import grpc
import pytest
from opentelemetry._logs import SeverityNumber
from opentelemetry.exporter.otlp.proto.grpc._log_exporter import OTLPLogExporter as GrpcLogs
from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter as GrpcMetrics
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as GrpcSpans
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter as HttpLogs
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter as HttpMetrics
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as HttpSpans
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import SimpleLogRecordProcessor
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

from otel_eval.interfaces import Wanted

WAYS = [
    pytest.param(lambda bound: GrpcSpans(endpoint=bound.grpc, insecure=True), "grpc", id="grpc"),
    pytest.param(
        lambda bound: GrpcSpans(
            endpoint=bound.grpc, insecure=True, compression=grpc.Compression.Gzip
        ),
        "grpc",
        id="grpc-gzip",
    ),
    pytest.param(
        lambda bound: HttpSpans(endpoint=f"http://{bound.http}/v1/traces"), "http", id="http"
    ),
    pytest.param(
        lambda bound: HttpSpans(
            endpoint=f"http://{bound.http}/v1/traces", compression=Compression.Gzip
        ),
        "http",
        id="http-gzip",
    ),
]


@pytest.mark.parametrize(("exporter", "transport"), WAYS)
def test_spans_of_the_sdk_arrive_whole(
    start: Any, intake: Any, exporter: Any, transport: str
) -> None:
    """Ids, parents, attributes, events and resource, over each transport and compression."""
    receiver, bound = start()
    provider = TracerProvider(resource=Resource({"service.name": "shop"}), shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(exporter(bound)))
    tracer = provider.get_tracer("agent")
    with (
        tracer.start_as_current_span("run") as run,
        tracer.start_as_current_span("execute_tool x") as call,
    ):
        call.set_attribute("cities", ["Paris", "Rome"])
        call.add_event("done", {"ok": True})
    provider.shutdown()
    [framed] = intake.taken
    child, root = framed.spans
    _, _, (parent_id, payload, resource_scope), _ = child
    view = resource_scope.reader(payload)
    assert int.from_bytes(parent_id, "big") == run.get_span_context().span_id
    assert root[2][0] == b""
    assert view.attributes(Wanted(frozenset({"cities"}))) == {"cities": ["Paris", "Rome"]}
    assert [(event.name, event.attributes) for event in view.events()] == [("done", {"ok": True})]
    assert (resource_scope.service, resource_scope.scope_name) == ("shop", "agent")
    assert receiver.counts()["accepted_spans"] == {transport: 2}


LOG_WAYS = [
    pytest.param(lambda bound: GrpcLogs(endpoint=bound.grpc, insecure=True), id="grpc"),
    pytest.param(lambda bound: HttpLogs(endpoint=f"http://{bound.http}/v1/logs"), id="http"),
]


@pytest.mark.parametrize("exporter", LOG_WAYS)
def test_events_of_the_sdk_arrive_and_other_logs_do_not(
    start: Any, intake: Any, exporter: Any
) -> None:
    """Content that an agent sends as log events is joined by span id; its own log lines are counted
    and dropped.
    """
    receiver, bound = start()
    tracer = TracerProvider(shutdown_on_exit=False).get_tracer("agent")
    provider = LoggerProvider(shutdown_on_exit=False)
    provider.add_log_record_processor(SimpleLogRecordProcessor(exporter(bound)))
    logger = provider.get_logger("agent")
    with tracer.start_as_current_span("chat") as span:
        logger.emit(
            event_name="gen_ai.client.inference.operation.details",
            attributes={"messages": [{"role": "user"}]},
        )
        logger.emit(severity_number=SeverityNumber.INFO, body="a line of the application")
    provider.shutdown()
    [framed] = intake.taken
    [(_, span_id, (payload, resource_scope), _)] = framed.logs
    assert int.from_bytes(span_id, "big") == span.get_span_context().span_id
    assert resource_scope.event(payload).attributes == {"messages": [{"role": "user"}]}
    assert receiver.counters.get("ignored_logs") == 1


METRIC_WAYS = [
    pytest.param(lambda bound: GrpcMetrics(endpoint=bound.grpc, insecure=True), id="grpc"),
    pytest.param(lambda bound: HttpMetrics(endpoint=f"http://{bound.http}/v1/metrics"), id="http"),
]


@pytest.mark.parametrize("exporter", METRIC_WAYS)
def test_metrics_are_taken_and_discarded(
    start: Any, intake: Any, exporter: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """So that an agent which sends everything logs no errors."""
    receiver, bound = start()
    provider = MeterProvider(
        [PeriodicExportingMetricReader(exporter(bound))], shutdown_on_exit=False
    )
    provider.get_meter("agent").create_counter("n").add(1)
    assert provider.force_flush(300_000)
    provider.shutdown()
    assert receiver.counters.get("discarded_metrics") >= 1
    assert intake.taken == []
    assert caplog.text == ""


@pytest.mark.parametrize(("exporter", "transport"), WAYS)
def test_exporters_retry_after_overload(
    start: Any, intake: Any, exporter: Any, transport: str, caplog: pytest.LogCaptureFixture
) -> None:
    """When they were told to, and nothing is lost: the way out of overload needs no restart."""
    receiver, bound = start()
    intake.full = True
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(exporter(bound), schedule_delay_millis=10))
    provider.get_tracer("agent").start_span("a").end()
    assert intake.entered.acquire(timeout=300)  # it was refused once
    intake.full = False
    provider.shutdown()
    assert intake.names() == ["a"]
    counts = receiver.counts()
    assert (counts["refused_spans"][transport] >= 1, counts["accepted_spans"]) == (
        True,
        {transport: 1},
    )


@pytest.mark.parametrize(("exporter", "transport"), WAYS)
def test_exporters_give_up_what_is_too_great(
    start: Any, intake: Any, exporter: Any, transport: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As sent, or as it unpacks, and the next batch is taken.

    By HTTP at once. Python's gRPC exporter retries after RESOURCE_EXHAUSTED until its own timeout,
    with RetryInfo or without.
    """
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")
    receiver, bound = start(max_body_bytes=10_000)
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(exporter(bound)))
    tracer = provider.get_tracer("agent")
    tracer.start_span("great", attributes={"x": "y" * 20_000}).end()
    provider.force_flush()
    tracer.start_span("small").end()
    provider.shutdown()
    assert intake.names() == ["small"]
    assert receiver.counters.get("refused_requests") == 0
    if transport == "http":
        assert receiver.counters.get("requests") == 2
