"""Score an agent in its own process with one span processor.

    python examples/processor.py

Scores are printed: a line for each run, and below it what did not pass. Without `exporters` they go
to the log pipeline of the process if it has one, else to the trace as an evaluation span.
"""

from __future__ import annotations

from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider

from otel_eval import EvalSpanProcessor

evaluation = {
    "evaluations": [
        {
            "name": "support",
            "scorers": [
                {"type": "tool_call_count", "criteria": {"search": "<= 3", "refund": ["==", 1]}},
                {"type": "tool_call_order", "expected": ["search", "refund", "notify"]},
            ],
        }
    ],
    "exporters": {"console": {}},
}
spans = TracerProvider(shutdown_on_exit=False)
spans.add_span_processor(EvalSpanProcessor(evaluation))
trace.set_tracer_provider(spans)


def agent(tools: tuple[str, ...]) -> None:
    """The spans that an instrumentation would record for a run."""
    tracer = trace.get_tracer("examples.agent")
    run = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "support"}
    with tracer.start_as_current_span("invoke_agent support", attributes=run):
        for tool in tools:
            described = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": tool}
            with tracer.start_as_current_span(f"execute_tool {tool}", attributes=described):
                pass


agent(("search", "refund", "notify"))
agent(("search", "search", "refund"))
spans.shutdown()
