"""A program whose spans hold much; prints by how many MiB its memory grew at most, and what was
counted.

    python memory_program.py WAY RESULTS

WAY: `processor`, `threads`, `asyncio`, `detached`, `unended`, `slow` (a scorer that takes ten
seconds) or `exporter`.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import sys
import threading
import time
from typing import Any

from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

from otel_eval import EvalSpanExporter, EvalSpanProcessor, scorer

SPANS, BYTES, PARTS = 9000, 60_000, 6
AGENT = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "a"}
TOOL = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "search"}
KEY = "gen_ai.tool.call.arguments"


class Nowhere(SpanExporter):
    def export(self, spans: Any) -> SpanExportResult:
        return SpanExportResult.SUCCESS


@scorer("test.ten_seconds", version="1", needs=())
def ten_seconds(trajectory: Any) -> float:
    """Takes longer than the program."""
    time.sleep(10)
    return 1.0


def text() -> str:
    """Another text each time."""
    return f"{time.perf_counter_ns()} ".ljust(BYTES, "x")


def tools(tracer: Any, parent: Any, count: int) -> None:
    for _ in range(count):
        tracer.start_span(
            "execute_tool search", context=parent, attributes={**TOOL, KEY: text()}
        ).end()


def run(tracer: Any, count: int) -> None:
    with tracer.start_as_current_span("invoke_agent a", attributes=AGENT) as root:
        tools(tracer, trace.set_span_in_context(root), count)


def threads(tracer: Any) -> None:
    with tracer.start_as_current_span("invoke_agent a", attributes=AGENT) as root:
        parent = trace.set_span_in_context(root)
        working = [
            threading.Thread(target=tools, args=(tracer, parent, SPANS // PARTS))
            for _ in range(PARTS)
        ]
        for each in working:
            each.start()
        for each in working:
            each.join()


def tasks(tracer: Any) -> None:
    async def some(parent: Any) -> None:
        for _ in range(SPANS // PARTS):
            tools(tracer, parent, 1)
            await asyncio.sleep(0)

    async def main() -> None:
        with tracer.start_as_current_span("invoke_agent a", attributes=AGENT) as root:
            await asyncio.gather(*(some(trace.set_span_in_context(root)) for _ in range(PARTS)))

    asyncio.run(main())


def detached(tracer: Any) -> None:
    """Run after run below a span that stays open."""
    with tracer.start_as_current_span("websocket"):
        for _ in range(SPANS // 30):
            run(tracer, 30)


def unended(tracer: Any) -> None:
    """Spans that are never ended and not kept."""
    with tracer.start_as_current_span("invoke_agent a", attributes=AGENT) as root:
        for _ in range(SPANS):
            tracer.start_span(
                "leak", context=trace.set_span_in_context(root), attributes={KEY: text()}
            )


def short_runs(tracer: Any) -> None:
    for _ in range(SPANS // 30):
        run(tracer, 30)


WAYS: dict[str, Any] = {
    "processor": lambda tracer: run(tracer, SPANS),
    "exporter": lambda tracer: run(tracer, SPANS),
    "slow": short_runs,
    "threads": threads,
    "asyncio": tasks,
    "detached": detached,
    "unended": unended,
}


def peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


def main(way: str, results: str) -> None:
    kind = (
        {"type": "test.ten_seconds"}
        if way == "slow"
        else {"type": "tool_call_count", "criteria": {"search": ">= 1"}}
    )
    config = {
        "traces": {"max_bytes": "32MiB", "max_bytes_per_trace": "32MiB"},
        "evaluations": [{"name": "e", "scorers": [kind]}],
        "exporters": {"jsonl": {"path": results}},
    }
    provider = TracerProvider(shutdown_on_exit=False)
    if way == "exporter":
        ours: Any = EvalSpanExporter(Nowhere(), config)
        provider.add_span_processor(
            BatchSpanProcessor(ours, max_queue_size=64, max_export_batch_size=32)
        )
    else:
        ours = EvalSpanProcessor(config)
        provider.add_span_processor(ours)
    tracer = provider.get_tracer("app")
    if way != "slow":
        run(tracer, 1)
        ours.force_flush(300_000)
    before = peak()
    WAYS[way](tracer)
    print(json.dumps({"grew_mib": peak() - before, "counts": ours.counts()}))
    sys.stdout.flush()
    if way == "slow":
        os._exit(0)
    provider.shutdown()


if __name__ == "__main__":
    main(*sys.argv[1:])
