"""A program whose agent runs before a fork, and on both sides of it.

Arguments: the judge's URL, and the file that results are written to.
"""

from __future__ import annotations

import os
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
    "evaluations": [{"name": "e", "scorers": [judge]}],
    "exporters": {"jsonl": {"path": path}},
}
provider.add_span_processor(EvalSpanProcessor(config))
tracer = provider.get_tracer("program")


def agent(name: str) -> None:
    described = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": name}
    tool = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "search"}
    root = tracer.start_as_current_span("invoke_agent", attributes=described)
    with root, tracer.start_as_current_span("execute_tool", attributes=tool):
        pass
    provider.force_flush()


agent("parent")
child = os.fork()
agent("parent again" if child else "child")
if not child:
    os._exit(0)
os.waitpid(child, 0)
