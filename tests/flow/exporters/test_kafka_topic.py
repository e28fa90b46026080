"""Results in a topic of Kafka, from an agent's process and from the receiver: all that readers need
to merge them.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor

from otel_eval import EvalSpanProcessor
from otel_eval.app.server import Server
from otel_eval.config import load
from tests.support.mock_kafka import consumed, mock_cluster


def no_run(config: dict[str, Any], way: str) -> None:
    """A trace without an agent run."""
    provider = TracerProvider(shutdown_on_exit=False)
    if way == "processor":
        provider.add_span_processor(EvalSpanProcessor(config))
        provider.get_tracer("t").start_span("GET /").end()
        provider.shutdown()
        return
    server = Server(
        load(config | {"receivers": {"otlp": {"protocols": {"grpc": {"endpoint": "127.0.0.1:0"}}}}})
    )
    try:
        exporter = OTLPSpanExporter(endpoint=f"http://{server.start().grpc}", insecure=True)
        provider.add_span_processor(SimpleSpanProcessor(exporter))
        provider.get_tracer("t").start_span("GET /").end()
        provider.shutdown()
    finally:
        server.stop(60.0)


@pytest.mark.parametrize("way", ["processor", "serve"])
def test_a_trace_without_a_run_has_a_record_where_there_is_no_file(way: str) -> None:
    """Without it `merge_results` would not see a trace of which another evaluator has the rest."""
    with mock_cluster() as servers:
        no_run({"exporters": {"kafka": {"brokers": servers.split(","), "topic": "rows"}}}, way)
        (record,) = consumed(servers, "rows", 1)
    row = json.loads(record.value())
    assert (row["outcome"], row["spans"]) == ("no_run", 1)
    assert json.loads(record.key()) == [row["trace_id"], "", "", "", row["spans_digest"]]
