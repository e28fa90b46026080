"""Score agents from a separate process: run the receiver, send spans to it over OTLP, read the
scores.

    python examples/receiver.py

The agent exports its spans as usual and contains no code for scores. Scores are printed; without
`exporters` they are JSON Lines on stdout.
"""

from __future__ import annotations

from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

from otel_eval.app.server import Server
from otel_eval.config import load

config = load(
    {
        "traces": {"decision_wait": "200ms"},
        "evaluations": [
            {
                "name": "support",
                "scorers": [{"type": "tool_errors"}, {"type": "time_cost", "max_ms": 1000}],
            }
        ],
        "receivers": {"otlp": {"protocols": {"grpc": {"endpoint": "127.0.0.1:0"}}}},
        "exporters": {"console": {}},
    }
)


def agent(endpoint: str) -> None:
    """An agent that is traced and exported like any other."""
    provider = TracerProvider(
        resource=Resource.create({"service.name": "support"}), shutdown_on_exit=False
    )
    provider.add_span_processor(
        BatchSpanProcessor(OTLPSpanExporter(endpoint=endpoint, insecure=True))
    )
    tracer = provider.get_tracer("examples.agent")
    with tracer.start_as_current_span(
        "invoke_agent support", attributes={"gen_ai.operation.name": "invoke_agent"}
    ):
        described = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "search"}
        with tracer.start_as_current_span("execute_tool search", attributes=described):
            pass
    provider.shutdown()


server = Server(config)
bound = server.start()
try:
    agent(bound.grpc or "")
finally:
    server.stop(5.0)  # scores what is pending, delivers it and ends
