"""A web application whose every request is a run of an agent: gunicorn loads it once, and its
workers serve.

RESULTS=results.jsonl gunicorn --preload --workers 2 web:application
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Any

from opentelemetry.sdk.trace import TracerProvider

from otel_eval import EvalSpanProcessor

provider = TracerProvider()
provider.add_span_processor(
    EvalSpanProcessor(
        {
            "evaluations": [{"name": "e", "scorers": [{"type": "tool_errors"}]}],
            "exporters": {"jsonl": {"path": os.environ["RESULTS"]}},
        }
    )
)
tracer = provider.get_tracer("agent")


def application(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
    """Runs the agent that the path names; answers with the worker's process id."""
    run = {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.name": environ["PATH_INFO"].strip("/"),
    }
    with tracer.start_as_current_span("invoke_agent", attributes=run):
        call = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "search"}
        with tracer.start_as_current_span("execute_tool search", attributes=call):
            pass
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [str(os.getpid()).encode()]
