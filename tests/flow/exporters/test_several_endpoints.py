"""Scores sent to several OTLP endpoints, each with signals, headers and counters of its own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor

from otel_eval import EvalSpanProcessor
from otel_eval.app.server import Server
from otel_eval.config import EvalConfig, Exporters, load
from otel_eval.config.exporters import OtlpExporter
from otel_eval.counters import counts_as_text
from otel_eval.errors import ConfigError
from tests.support.otlp_backend import Backend, grpc_backend, http_backend
from tests.support.waiting import wait_until

AGENT = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "helpdesk"}


@pytest.fixture
def backends() -> Iterator[tuple[Backend, Backend]]:
    with ExitStack() as stack:
        yield stack.enter_context(grpc_backend()), stack.enter_context(http_backend())


def endpoints(backends: tuple[Backend, Backend]) -> list[dict[str, Any]]:
    """Log events to one, metrics to the other."""
    logs, metrics = backends
    return [
        {"name": "events", "endpoint": logs.url, "signals": ["logs"]},
        {
            "name": "numbers",
            "endpoint": metrics.url,
            "protocol": "http/protobuf",
            "compression": "none",
            "signals": ["metrics"],
        },
    ]


def run_agent(provider: TracerProvider) -> None:
    provider.get_tracer("t").start_span("invoke_agent helpdesk", attributes=AGENT).end()
    provider.shutdown()


def assert_divided(backends: tuple[Backend, Backend], counts: dict[str, Any]) -> None:
    logs, metrics = backends
    assert {signal: bool(found) for signal, found in logs.got.items()} == {
        "logs": True,
        "metrics": False,
        "traces": False,
    }
    assert {signal: bool(found) for signal, found in metrics.got.items()} == {
        "logs": False,
        "metrics": True,
        "traces": False,
    }
    assert counts["results.exported{exporter=events.logs}"] == 2
    assert counts["exports.sent{exporter=numbers.metrics}"] >= 1


def test_the_receiver_sends_to_each_the_signals_it_accepts(
    backends: tuple[Backend, Backend],
) -> None:
    receivers = {"otlp": {"protocols": {"grpc": {"endpoint": "127.0.0.1:0"}}}}
    given = {
        "receivers": receivers,
        "exporters": {"otlp": endpoints(backends)},
        "telemetry": {"service_instance_id": "i-7"},
    }
    server = Server(load(given | {"traces": {"decision_wait": 0, "decision_wait_partial": 0}}))
    try:
        provider = TracerProvider(shutdown_on_exit=False)
        exporter = OTLPSpanExporter(endpoint=f"http://{server.start().grpc}", insecure=True)
        provider.add_span_processor(SimpleSpanProcessor(exporter))
        run_agent(provider)
        wait_until(lambda: bool(backends[0].got["logs"]))
    finally:
        server.stop(60.0)
    assert_divided(backends, counts_as_text(server.counts()))
    sent = ExportMetricsServiceRequest.FromString(backends[1].got["metrics"][-1])
    resource = {
        each.key: each.value.string_value for each in sent.resource_metrics[0].resource.attributes
    }
    assert (resource["service.name"], resource["service.instance.id"]) == ("otel-eval", "i-7")


def test_a_program_sends_to_each_the_signals_it_accepts(backends: tuple[Backend, Backend]) -> None:
    """Configured in Python, as objects."""
    named = tuple(OtlpExporter(**each) for each in endpoints(backends))
    processor = EvalSpanProcessor(EvalConfig(exporters=Exporters(otlp=named)))
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(processor)
    run_agent(provider)
    assert_divided(backends, processor.counts())


TWICE = [{"endpoint": "http://a"}, {"endpoint": "http://b"}]


@pytest.mark.parametrize(
    ("otlp", "problem"),
    [
        (TWICE, ": the name 'otlp' is used twice; give one of them another name"),
        (
            [{"name": "a", "endpoint": "a"}],
            "[0].endpoint: 'a' is not a URL with a host; write e.g. http://127.0.0.1:5317",
        ),
        (
            [{"name": "a b", "endpoint": "http://a"}],
            "[0].name: 'a b' does not match ^[A-Za-z0-9_-]{1,100}$; write text that does",
        ),
        ([], ": [] is empty; name at least one"),
    ],
)
def test_a_list_that_cannot_be_used_is_refused_in_one_line(
    otlp: list[dict[str, str]], problem: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        load({"exporters": {"otlp": otlp}})
    assert str(refused.value) == f"exporters.otlp{problem}"
