"""Export scores on each run's own span: wrap the existing exporter.

    python examples/exporter.py

Here the spans go to the console; any exporter works.
"""

from __future__ import annotations

from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter

from otel_eval import EvalSpanExporter

evaluation = {
    "evaluations": [
        {
            "name": "support",
            "scorers": [
                {"type": "tool_call_count", "criteria": {"search": "<= 3", "refund": ["==", 1]}},
                {"type": "tool_call_order", "expected": ["search", "refund"]},
            ],
        }
    ]
}
spans = TracerProvider(shutdown_on_exit=False)
spans.add_span_processor(BatchSpanProcessor(EvalSpanExporter(ConsoleSpanExporter(), evaluation)))
trace.set_tracer_provider(spans)


def agent() -> None:
    """The spans that an instrumentation would record for a run."""
    tracer = trace.get_tracer("examples.agent")
    with tracer.start_as_current_span(
        "invoke_agent support", attributes={"gen_ai.operation.name": "invoke_agent"}
    ):
        for tool in ("search", "refund"):
            described = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": tool}
            with tracer.start_as_current_span(f"execute_tool {tool}", attributes=described):
                pass


agent()
spans.shutdown()
