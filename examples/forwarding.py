"""Agent → otel-eval → backend: everything is forwarded, and each run's own span carries its scores.

    python examples/forwarding.py

The backend is a part of this program that prints what arrives; any backend that accepts OTLP works.
"""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from google.protobuf.json_format import MessageToDict
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

from otel_eval.app.server import Server
from otel_eval.config import load

arrived: list[Span] = []
scored = threading.Event()


class Backend(BaseHTTPRequestHandler):
    """Accepts traces over OTLP/HTTP."""

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            arrived.extend(span for scope in resource.scope_spans for span in scope.spans)
        if any(span.events for span in arrived):
            scored.set()
        self.send_response(200)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Nothing, on stderr."""


def agent(endpoint: str) -> None:
    """An agent that is traced and exported like any other."""
    provider = TracerProvider(
        resource=Resource.create({"service.name": "shop"}), shutdown_on_exit=False
    )
    provider.add_span_processor(
        BatchSpanProcessor(OTLPSpanExporter(endpoint=f"http://{endpoint}/v1/traces"))
    )
    tracer = provider.get_tracer("examples.agent")
    run = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "clerk"}
    with tracer.start_as_current_span("invoke_agent clerk", attributes=run):
        for tool in ("search", "refund"):
            described = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": tool}
            with tracer.start_as_current_span(f"execute_tool {tool}", attributes=described):
                pass
    provider.shutdown()


def show(span: Span) -> None:
    """Print the span's name and the attributes of its events."""
    print(span.name)
    for event in span.events:
        print(f"  {event.name}")
        for attribute in event.attributes:
            (value,) = MessageToDict(attribute.value).values()
            print(f"    {attribute.key}: {value}")


backend = ThreadingHTTPServer(("127.0.0.1", 0), Backend)
threading.Thread(target=backend.serve_forever, args=(0.05,), daemon=True).start()
config = {
    "traces": {"decision_wait": "200ms"},
    "evaluations": [
        {
            "name": "support-policy",
            "scorers": [{"type": "tool_call_order", "expected": ["search", "refund"]}],
        }
    ],
    "receivers": {"otlp": {"protocols": {"http": {"endpoint": "127.0.0.1:0"}}}},
    "exporters": {
        "forward": {
            "endpoint": f"http://127.0.0.1:{backend.server_port}",
            "protocol": "http/protobuf",
        }
    },
}
server = Server(load(config))
try:
    agent(server.start().http or "")
    scored.wait(10)  # a run is evaluated and forwarded `decision_wait` after its last span
finally:
    server.stop(5.0)
    backend.shutdown()
    backend.server_close()
for each in sorted(arrived, key=lambda span: span.start_time_unix_nano):
    show(each)
