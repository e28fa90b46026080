"""A program that runs an agent and ends at once, without a word to the processor that scores it.

Arguments: the judge's URL, and the file that results are written to.
"""

from __future__ import annotations

import sys

from opentelemetry.sdk.trace import TracerProvider

from otel_eval import EvalSpanProcessor

url, path = sys.argv[1:]
judge = {
    "type": "llm_judge",
    "judge": {"base_url": url, "model": "m"},
    "criteria": "It looks things up.",
}
provider = TracerProvider()
config = {
    "evaluations": [{"name": "e", "scorers": [{"type": "tool_errors"}, judge]}],
    "exporters": {"jsonl": {"path": path}},
}
provider.add_span_processor(EvalSpanProcessor(config))
tracer = provider.get_tracer("program")
with tracer.start_as_current_span(
    "invoke_agent", attributes={"gen_ai.operation.name": "invoke_agent"}
):
    tool = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "search"}
    with tracer.start_as_current_span("execute_tool", attributes=tool):
        pass
