"""Random agent programs, traced with the real SDK, and the same spans in every wire form.

Times and structure come from a seed, so a program is the same wherever it runs; ids are the SDK's.
"""

from __future__ import annotations

import base64
import json
import random
from collections.abc import Sequence
from typing import Any

from google.protobuf.json_format import MessageToDict
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import (
    NonRecordingSpan,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    set_span_in_context,
)

CONFIG: dict[str, Any] = {
    "evaluations": [
        {
            "name": "policy",
            "match": {"runs": "all"},
            "scorers": [
                {"type": "tool_call_count", "criteria": {"search": "<= 2", "book": ["==", 1]}},
                {"type": "tool_call_order", "expected": ["search", "book"]},
                {"type": "execution_order", "expected": ["search", "search", "book"]},
                {"type": "time_cost", "max_ms": 5000, "of": "tools"},
                {"type": "trajectory_structure"},
                {"type": "tool_errors"},
                {
                    "type": "tool_call_args",
                    "expected": [{"name": "search", "arguments": {"q": "x1"}}],
                },
            ],
        },
        {"name": "half", "sample": 0.5, "scorers": [{"type": "tool_errors"}]},
    ]
}


class _Program:
    def __init__(self, seed: int, provider: TracerProvider) -> None:
        self.rng = random.Random(seed)
        self.tracer = provider.get_tracer("opentelemetry.instrumentation.random_agent")
        self.now = 1_700_000_000_000_000_000

    def tick(self) -> int:
        self.now += self.rng.randrange(1, 200) * 1_000_000
        return self.now

    def run(self) -> None:
        """One trace: perhaps behind a server span with a remote parent, one agent or two."""
        context = None
        if self.rng.random() < 0.4:
            far = SpanContext(
                self.rng.getrandbits(127) + 1, self.rng.getrandbits(63) + 1, True, TraceFlags(1)
            )
            context = set_span_in_context(NonRecordingSpan(far))
        with_server = self.rng.random() < 0.5
        if not with_server:
            self.agent(context, "root")
            return
        server = self.tracer.start_span(
            "POST /chat", context=context, kind=SpanKind.SERVER, start_time=self.tick()
        )
        for number in range(self.rng.randrange(1, 3)):
            self.agent(set_span_in_context(server), f"agent-{number}")
        server.end(self.tick())

    def agent(self, context: Any, name: str, depth: int = 0) -> None:
        span = self.start(
            context,
            f"invoke_agent {name}",
            {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": name},
        )
        below = set_span_in_context(span)
        for _ in range(self.rng.randrange(0, 4)):
            self.start(
                below, "chat m", {"gen_ai.operation.name": "chat", "gen_ai.request.model": "m"}
            ).end(self.tick())
            self.tools(below, depth)
        span.end(self.tick())

    def tools(self, context: Any, depth: int) -> None:
        """One tool, or several at once."""
        open_spans = [self.tool(context, depth) for _ in range(self.rng.choice((0, 1, 1, 2)))]
        for span in open_spans:
            span.end(self.tick())

    def tool(self, context: Any, depth: int) -> Any:
        name = self.rng.choice(("search", "book", "ask"))
        attributes: dict[str, Any] = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": name,
        }
        if self.rng.random() < 0.7:
            attributes["gen_ai.tool.call.arguments"] = json.dumps(
                {"q": f"x{self.rng.randrange(3)}", "n": [1, 2.5, None, "é"]}
            )
        if self.rng.random() < 0.7:
            attributes["gen_ai.tool.call.result"] = self.rng.choice(
                ('{"ok": true}', "plain text", "[1, 2]")
            )
        span = self.start(context, f"execute_tool {name}", attributes)
        if self.rng.random() < 0.2:
            span.set_status(Status(StatusCode.ERROR, "no"))
            span.set_attribute("error.type", "TimeoutError")
        if self.rng.random() < 0.2:
            method = {
                "mcp.method.name": "tools/call",
                "gen_ai.operation.name": "execute_tool",
                "gen_ai.tool.name": name,
            }
            self.start(set_span_in_context(span), f"tools/call {name}", method).end(self.tick())
        if name == "ask" and depth < 2:
            self.agent(set_span_in_context(span), f"helper-{depth}", depth + 1)
        return span

    def start(self, context: Any, name: str, attributes: dict[str, Any]) -> Any:
        return self.tracer.start_span(
            name, context=context, attributes=attributes, start_time=self.tick()
        )


def play(
    seed: int, processor: SpanProcessor | None = None, *, traces: int = 3
) -> list[ReadableSpan]:
    """Run the program of a seed; its spans. `processor` is added to the provider and shut down with
    it.
    """
    provider = TracerProvider(
        resource=Resource.create({"service.name": "random-agent"}), shutdown_on_exit=False
    )
    memory = InMemorySpanExporter()
    if processor is not None:
        provider.add_span_processor(processor)
    provider.add_span_processor(SimpleSpanProcessor(memory))
    program = _Program(seed, provider)
    for _ in range(traces):
        program.run()
    provider.shutdown()
    return [
        span
        for span in memory.get_finished_spans()
        if span.instrumentation_scope and span.instrumentation_scope.name != "otel_eval"
    ]


def protobuf(spans: Sequence[ReadableSpan]) -> bytes:
    """As the official exporters send them."""
    return encode_spans(list(spans)).SerializeToString()


def otlp_json(spans: Sequence[ReadableSpan]) -> bytes:
    """OTLP/JSON: ids in hexadecimal."""
    document = MessageToDict(encode_spans(list(spans)))
    for resource in document.get("resourceSpans", ()):
        for scope in resource["scopeSpans"]:
            for span in scope["spans"]:
                for key in ("traceId", "spanId", "parentSpanId"):
                    if key in span:
                        span[key] = base64.b64decode(span[key]).hex()
    return json.dumps(document).encode()


def rows(text: str) -> list[dict[str, Any]]:
    """JSON Lines in an order that does not depend on time, without who evaluated and when."""
    found = [json.loads(line) for line in text.splitlines()]
    stable_rows = [
        {key: value for key, value in row.items() if key not in ("evaluated_at", "evaluator")}
        for row in found
    ]
    return sorted(stable_rows, key=lambda row: row["result_id"])
