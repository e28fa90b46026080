"""Score an agent in its own process with one span processor.

    python examples/processor.py

Scores are exported through the log pipeline of the process, here to the console.
"""

from __future__ import annotations

from opentelemetry import trace
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import BatchLogRecordProcessor, ConsoleLogRecordExporter
from opentelemetry.sdk.trace import TracerProvider

from otel_eval import EvalSpanProcessor

logs = LoggerProvider(shutdown_on_exit=False)
logs.add_log_record_processor(BatchLogRecordProcessor(ConsoleLogRecordExporter()))

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
spans.add_span_processor(EvalSpanProcessor(evaluation, logger_provider=logs))
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
logs.shutdown()
