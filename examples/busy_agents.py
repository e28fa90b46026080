"""Three traced agents whose tools fail now and then: something to see on a dashboard.

    OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:4318 python examples/busy_agents.py [RUNS
    [SECONDS]]

RUNS (30) are spread over the last hour; or, with SECONDS, over that time from now on. Every fourth
refund skips the look-up that the policy demands, every fifth search is repeated, every third
payment fails, and the agent `archive` never succeeds. Waits for the receiver for 10 s; exits with 1
if not all spans were accepted.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import time
import urllib.parse
from collections.abc import Iterator, Sequence
from socket import create_connection

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExportResult
from opentelemetry.trace import Span, Status, StatusCode, Tracer, set_span_in_context

MS = 1_000_000
START_S = 10  # of a receiver
AGENTS = ("refunds", "search", "archive")
Call = tuple[str, dict[str, object], bool]  # tool, arguments, whether it succeeds


def calls(agent: str, number: int) -> Iterator[Call]:
    """What an agent does in its run with this number."""
    order: dict[str, object] = {"order": 1000 + number}
    if agent == "refunds":
        if number % 4:
            yield "look_up_order", order, True
        yield "pay_back", order, number % 3 > 0
    elif agent == "search":
        for _ in range(1 + (number % 5 == 0)):
            yield "search", {"text": f"order {order['order']}"}, True
        yield "look_up_order", order, True
    else:
        yield "move_to_archive", order, False


def run(tracer: Tracer, agent: str, number: int, end_ns: int) -> None:
    """One run that ends at this time: a model call, then each tool."""
    steps = list(calls(agent, number))
    at = end_ns - (len(steps) + 1) * (150 + number % 7 * 20) * MS
    question = [
        {
            "role": "user",
            "parts": [{"type": "text", "content": f"What about order {1000 + number}?"}],
        }
    ]
    asked = {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.name": agent,
        "gen_ai.input.messages": json.dumps(question),
    }
    own = tracer.start_span(f"invoke_agent {agent}", start_time=at, attributes=asked)
    context = set_span_in_context(own)
    model: dict[str, str | int] = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "none"}
    model |= {"gen_ai.usage.input_tokens": 40 + number, "gen_ai.usage.output_tokens": 20}
    tracer.start_span("chat none", context=context, start_time=at, attributes=model).end(
        end_time=(at := at + 120 * MS)
    )
    for name, arguments, succeeds in steps:
        described = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": name}
        described |= {
            "gen_ai.tool.call.id": f"{number}-{at}",
            "gen_ai.tool.call.arguments": json.dumps(arguments),
        }
        tool = tracer.start_span(
            f"execute_tool {name}", context=context, start_time=at, attributes=described
        )
        finish(tool, succeeds, at := at + (100 + number % 7 * 20) * MS)
    own.end(end_time=end_ns)


def finish(tool: Span, succeeds: bool, end_ns: int) -> None:
    """End a tool's span, with its result or its error."""
    if succeeds:
        tool.set_attribute("gen_ai.tool.call.result", '{"done": true}')
    else:
        tool.set_attribute("error.type", "TimeoutError")
        tool.set_status(Status(StatusCode.ERROR, "the service did not answer"))
    tool.end(end_time=end_ns)


class CountingExporter(OTLPSpanExporter):
    """Counts the spans that were accepted and those that were not."""

    accepted = lost = 0

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        result = super().export(spans)
        if result is SpanExportResult.SUCCESS:
            self.accepted += len(spans)
        else:
            self.lost += len(spans)
        return result


def awaited(host: str, port: int) -> OSError | None:
    """Wait for a receiver that is being started; why there is none."""
    deadline = time.monotonic() + START_S
    while True:
        try:
            create_connection((host, port), timeout=START_S).close()
        except OSError as error:
            if time.monotonic() >= deadline:
                return error
            time.sleep(0.2)
        else:
            return None


def main(runs: int = 30, seconds: int = 0) -> None:
    """All runs, agent after agent in turn."""
    endpoint = os.environ.get("OTEL_EXPORTER_OTLP_ENDPOINT", "http://localhost:4318")
    address = urllib.parse.urlsplit(endpoint)
    if problem := awaited(address.hostname or "", address.port or 4318):
        sys.exit(
            f"nothing was sent: {endpoint} does not answer ({problem}); start a receiver first"
        )
    logging.getLogger("opentelemetry").setLevel(
        logging.CRITICAL
    )  # the last line says what was lost
    exporter = CountingExporter(timeout=60)
    resource = Resource.create({"service.name": "shop", "openinference.project.name": "shop"})
    provider = TracerProvider(resource=resource)
    provider.add_span_processor(BatchSpanProcessor(exporter, schedule_delay_millis=1000))
    tracer = provider.get_tracer("examples.busy_agents")
    for number in range(runs):
        if seconds:
            time.sleep(seconds / runs)
        ago_s = 0 if seconds else (runs - 1 - number) * 3600 // runs
        run(tracer, AGENTS[number % 3], number // 3, time.time_ns() - ago_s * 1000 * MS)
    provider.shutdown()
    if exporter.lost or not exporter.accepted:
        sys.exit(f"{exporter.lost} spans were not accepted by {endpoint}, {exporter.accepted} were")
    print(f"{runs} runs sent to {endpoint}")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
