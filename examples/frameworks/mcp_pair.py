"""An agent that uses the tools of an MCP server: two processes, one trace, and the scores of the
run.

    python -m pip install . mcp
    python examples/frameworks/mcp_pair.py

The `mcp` package traces both ends through the tracer provider of each process, and passes the trace
on with each request. It records neither arguments nor results: the agent's own span around a call
does. Both processes export to a receiver, which takes the three spans of a call for the one call
that they are.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from typing import Any

from mcp import Client, StdioServerParameters
from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

from otel_eval import Trajectory, scorer
from otel_eval.app.server import Server
from otel_eval.config import load

config = {
    "evaluations": [
        {
            "name": "travel",
            "scorers": [
                {"type": "show"},
                {"type": "tool_call_order", "expected": ["get_weather", "book_flight"]},
                {
                    "type": "tool_call_args",
                    "expected": [{"name": "book_flight", "arguments": {"date": "2026-12-01"}}],
                },
                {"type": "tool_errors"},
                {"type": "error_recovery"},
            ],
        }
    ],
    "receivers": {"otlp": {"protocols": {"grpc": {"endpoint": "127.0.0.1:0"}}}},
    "exporters": {"jsonl": {"path": "-"}},
}
tools = MCPServer("travel", log_level="WARNING")


@tools.tool()
def get_weather(city: str) -> dict[str, str]:
    """Tell the weather of a city."""
    return {"city": city, "sky": "clear"}


@tools.tool()
def book_flight(city: str, date: str) -> str:
    """Book a flight."""
    if int(date[5:7]) > 12:
        raise ToolError(f"no such date: {date}")
    return "booking 4711"


@scorer("show", needs=["arguments", "results"])
def show(run: Trajectory) -> bool:
    """Print what is understood of a run."""
    for call in run.calls:
        print("call", call.name, call.arguments, "->", call.result, call.error or "")
    return True


def traced(service: str, endpoint: str) -> TracerProvider:
    """What each of the processes sets up."""
    provider = TracerProvider(resource=Resource.create({"service.name": service}))
    provider.add_span_processor(
        BatchSpanProcessor(OTLPSpanExporter(endpoint=endpoint, insecure=True))
    )
    trace.set_tracer_provider(provider)
    return provider


async def use(client: Client, tool: str, **arguments: str) -> None:
    """Call a tool as an instrumented agent does."""
    described = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": tool}
    with trace.get_tracer("agent").start_as_current_span(
        f"execute_tool {tool}", attributes=described
    ) as span:
        span.set_attribute("gen_ai.tool.call.arguments", json.dumps(arguments))
        answer: Any = await client.call_tool(tool, arguments)
        span.set_attribute(
            "gen_ai.tool.call.result", "".join(content.text for content in answer.content)
        )


async def agent(endpoint: str) -> None:
    """A run that follows a script."""
    server = StdioServerParameters(
        command=sys.executable, args=[__file__, endpoint], env=dict(os.environ)
    )
    run = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "travel"}
    async with Client(server) as client:
        with trace.get_tracer("agent").start_as_current_span("invoke_agent travel", attributes=run):
            await use(client, "get_weather", city="Oslo")
            await use(client, "book_flight", city="Oslo", date="2026-13-40")
            await use(client, "book_flight", city="Oslo", date="2026-12-01")


def main() -> None:
    """The receiver and the agent, which starts the server."""
    receiver = Server(load(config))
    provider = traced("agent", endpoint := receiver.start().grpc or "")
    try:
        asyncio.run(agent(endpoint))
        provider.shutdown()
    finally:
        receiver.stop(5.0)  # scores what is pending


if sys.argv[1:]:
    provider = traced("tools", sys.argv[1])
    tools.run("stdio")
    provider.shutdown()
else:
    main()
