"""A run of which one tool span is late: it failed, and did not record its arguments."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import Status, StatusCode

from otel_eval.app.server import Server
from otel_eval.config import load
from tests.support.otlp_backend import ANYWHERE

from .recorded_runs import send

TOOL = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "search"}
SCORERS = [{"type": "tool_errors"}, {"type": "redundant_calls"}]


def spans(project: str) -> tuple[list[ReadableSpan], ReadableSpan]:
    """Those that are there in time, the run's own last; and the late one. With it `redundant_calls`
    is skipped.
    """
    provider = TracerProvider(
        resource=Resource({"service.name": "shop", "openinference.project.name": project})
    )
    provider.add_span_processor(SimpleSpanProcessor(memory := InMemorySpanExporter()))
    tracer = provider.get_tracer("shop")
    run = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "clerk"}
    with tracer.start_as_current_span("invoke_agent clerk", attributes=run):
        tracer.start_span(
            "execute_tool search", attributes=TOOL | {"gen_ai.tool.call.arguments": '{"text": "a"}'}
        ).end()
        late = tracer.start_span("execute_tool search", attributes=TOOL)
        late.set_status(Status(StatusCode.ERROR))
        late.end()
    first, second, own = memory.get_finished_spans()
    return [first, own], second


@contextmanager
def served(exporters: dict[str, Any]) -> Iterator[Callable[[list[ReadableSpan]], None]]:
    """A receiver with these exporters, as a function that sends spans to it."""
    evaluations = [{"name": "policy", "scorers": SCORERS}]
    config = {
        "evaluations": evaluations,
        "traces": {"decision_wait": "300ms"},
        "receivers": ANYWHERE,
        "exporters": exporters,
    }
    server = Server(load(config))
    address = server.start().http
    try:
        yield lambda spans: send(spans, f"http://{address}/v1/traces")
    finally:
        server.stop(60)
