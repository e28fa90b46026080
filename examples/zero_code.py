r"""A traced agent without any code for scores.

    OTEL_EVAL_CONFIG=eval.yaml OTEL_TRACES_EXPORTER=console OTEL_LOGS_EXPORTER=console
        OTEL_METRICS_EXPORTER=none \ opentelemetry-instrument python examples/zero_code.py

Needs opentelemetry-instrumentation and opentelemetry-distro.
"""

from __future__ import annotations

from opentelemetry import trace

tracer = trace.get_tracer("examples.agent")
with tracer.start_as_current_span(
    "invoke_agent support", attributes={"gen_ai.operation.name": "invoke_agent"}
):
    for tool in ("search", "refund"):
        described = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": tool}
        with tracer.start_as_current_span(f"execute_tool {tool}", attributes=described):
            pass
print("the agent is done")
