"""The agent whose run is teed to every way in, what it is asked, and itself as a program that a
loader starts.

    opentelemetry-instrument python shop_agent.py RESULTS ENDPOINT

As a program it adds to the provider that the loader made: a processor that writes RESULTS, and a
wrapped exporter to ENDPOINT.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import SpanKind, Status, StatusCode

from otel_eval import EvalSpanExporter, EvalSpanProcessor

CASES = str(Path(__file__).with_name("shop_cases.csv"))
EVALUATIONS: list[dict[str, Any]] = [
    {
        "name": "of everything",
        "match": {
            "attributes": {"tenant": "a*", "deployment.environment.name": "prod", "team": "travel"}
        },
        "scorers": [
            {"type": "tool_call_count", "criteria": {"search": "<= 1"}},
            {"type": "tool_call_order", "expected": ["search", "book"]},
            {"type": "tool_call_args", "expected": [{"name": "book", "arguments": {"seat": 3}}]},
            {"type": "tool_errors"},
            {"type": "tool_call_order", "name": "by-span", "reference": "expected.by.span"},
            {"type": "execution_order", "name": "by-resource", "reference": "expected.by.resource"},
            {"type": "tool_call_args", "name": "by-scope", "reference": "expected.by.scope"},
            {"type": "tool_call_order", "name": "by-nobody", "reference": "expected.by.nobody"},
            {
                "type": "tool_call_order",
                "name": "by-file",
                "reference": {"dataset": CASES, "key": "tenant"},
            },
            {"type": "label_distribution", "name": "of-span", "label": "tenant"},
            {
                "type": "label_distribution",
                "name": "of-resource",
                "label": "deployment.environment.name",
            },
            {"type": "label_distribution", "name": "of-scope", "label": "team"},
        ],
    },
    {
        "name": "of others",
        "match": {"attributes": {"tenant": "b*"}},
        "scorers": [{"type": "tool_errors"}],
    },
]
CONFIG: dict[str, Any] = {
    "evaluations": EVALUATIONS,
    "traces": {"decision_wait": "300ms", "decision_wait_partial": "400ms"},
}
RESOURCE = {
    "service.name": "shop",
    "deployment.environment.name": "prod",
    "expected.by.resource": '["search", "search", "ask", "book"]',
}
SCOPE = {"team": "travel", "expected.by.scope": '[{"name": "book", "arguments": {"seat": 4}}]'}
VALUES = {
    "tool_call_count": 0.0,
    "tool_call_order": 1.0,
    "tool_call_args": 1.0,
    "tool_errors": 2 / 3,
    "by-span": 0.5,
    "by-resource": 0.75,
    "by-scope": 0.0,
    "by-file": 2 / 3,
}
LABELS = {"of-span": "acme", "of-resource": "prod", "of-scope": "travel"}


def agent(provider: TracerProvider) -> None:
    """Behind a web server: two searches, and a booking that fails."""
    tracer = provider.get_tracer("shop", attributes=SCOPE)
    run = {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.name": "clerk",
        "tenant": "acme",
        "expected.by.span": ("search", "refund"),
    }
    with (
        tracer.start_as_current_span("POST /chat", kind=SpanKind.SERVER),
        tracer.start_as_current_span("invoke_agent clerk", attributes=run),
    ):
        for name in ("search", "search", "book"):
            tool_attributes = {
                "gen_ai.operation.name": "execute_tool",
                "gen_ai.tool.name": name,
                "gen_ai.tool.call.arguments": '{"seat": 3}',
            }
            with tracer.start_as_current_span(
                f"execute_tool {name}", attributes=tool_attributes
            ) as call:
                if name == "book":
                    call.set_status(Status(StatusCode.ERROR))


def main(results: str, endpoint: str) -> None:
    """The run, within what a loader set up; the loader's provider ends with the program."""
    provider = trace.get_tracer_provider()
    assert isinstance(provider, TracerProvider)
    settings = {**CONFIG, "signals": ["logs"], "exporters": {"jsonl": {"path": results}}}
    # its events go nowhere
    provider.add_span_processor(EvalSpanProcessor(settings, logger_provider=LoggerProvider()))
    provider.add_span_processor(
        BatchSpanProcessor(EvalSpanExporter(OTLPSpanExporter(endpoint=endpoint), CONFIG))
    )
    agent(provider)


if __name__ == "__main__":
    main(*sys.argv[1:])
