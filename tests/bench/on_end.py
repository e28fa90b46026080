"""What we cost the traced program's own threads beside `BatchSpanProcessor`, in one process.

Prints, in microseconds of the caller's thread CPU (medians over interleaved rounds):

* `on_end` of spans that are no root, and everything (`on_start` and `on_end`) per span over whole
  20-span traces, of a batch processor, of ours, and of a batch processor whose exporter is wrapped
  by ours (whose own work is on its thread);
* a whole span of a real program, made, put into context and ended, with a batch processor alone and
  with ours beside it.

Nothing is scored meanwhile: in_process.py measures that. Run: python tests/bench/on_end.py
"""

from __future__ import annotations

import gc
import random
import statistics
import sys
import time
from typing import Any

from opentelemetry import trace
from opentelemetry.sdk.trace import Span, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

from otel_eval import EvalSpanExporter
from otel_eval.sources.inprocess.processor import InProcessSource

TRACES, SPANS, ROUNDS = 150, 20, 31
QUEUE = {"max_queue_size": 100_000, "schedule_delay_millis": 50}


class Nowhere(SpanExporter):
    """Takes spans at once."""

    def export(self, spans: Any) -> SpanExportResult:
        return SpanExportResult.SUCCESS

    def shutdown(self) -> None:
        return


def started_trace(provider: TracerProvider) -> list[Span]:
    """Started spans, root first, each with eight attributes; the provider's processors are not
    called, so that they can be called by hand.
    """
    tracer, pipeline = provider.get_tracer("bench"), provider._active_span_processor
    processors, pipeline._span_processors = pipeline._span_processors, ()
    root = tracer.start_span("invoke_agent bench", attributes=attributes("invoke_agent"))
    fields: dict[str, Any] = {
        "context": trace.set_span_in_context(root),
        "attributes": attributes("execute_tool"),
    }
    children = [tracer.start_span("execute_tool search", **fields) for _ in range(SPANS - 1)]
    pipeline._span_processors = processors
    return [root, *children]


def attributes(operation: str) -> dict[str, Any]:
    return {"gen_ai.operation.name": operation, "gen_ai.tool.name": "search"} | {
        f"key.{n}": "value" for n in range(6)
    }


def measure(processor: Any, *, starts: bool) -> tuple[float, float]:
    """Microseconds: per non-root `on_end`, and per span over all calls. Each trace ends soon after
    it started, as in a program, so that its spans are in the caches.
    """
    inner = whole = 0
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(processor)
    for _ in range(TRACES):
        spans = started_trace(provider)
        ended = [span._readable_span() for span in spans]
        begin = time.thread_time_ns()
        if starts:
            for span in spans:
                processor.on_start(span, parent_context=None)
        middle = time.thread_time_ns()
        for span in ended[1:]:
            processor.on_end(span)
        end = time.thread_time_ns()
        processor.on_end(ended[0])
        inner += end - middle
        whole += time.thread_time_ns() - begin
    return inner / (TRACES * (SPANS - 1)) / 1e3, whole / (TRACES * SPANS) / 1e3


def program(provider: TracerProvider) -> float:
    """Microseconds of the caller's thread for a whole span."""
    tracer = provider.get_tracer("bench")
    begin = time.thread_time_ns()
    for _ in range(TRACES):
        with tracer.start_as_current_span(
            "invoke_agent bench", attributes=attributes("invoke_agent")
        ):
            for _ in range(SPANS - 1):
                with tracer.start_as_current_span(
                    "execute_tool search", attributes=attributes("execute_tool")
                ):
                    pass
    return (time.thread_time_ns() - begin) / (TRACES * SPANS) / 1e3


def callbacks() -> None:
    """The processors, called by hand."""
    processors: dict[str, Any] = {
        "batch": BatchSpanProcessor(Nowhere(), **QUEUE),
        "ours": InProcessSource(lambda *_: None),
        "wrapped": BatchSpanProcessor(EvalSpanExporter(Nowhere()), **QUEUE),
    }
    figures: dict[str, list[tuple[float, float]]] = {name: [] for name in processors}
    for _ in range(ROUNDS):
        for name in random.sample(list(processors), len(processors)):
            gc.collect()
            figures[name].append(measure(processors[name], starts=name == "ours"))
            processors[name].force_flush()
    middle = {
        name: [statistics.median(row[i] for row in rows) for i in (0, 1)]
        for name, rows in figures.items()
    }
    for name, (inner, whole) in middle.items():
        print(
            f"{name:8} on_end, no root: {inner:.3f} us, {inner / middle['batch'][0]:.2f} of batch"
            f"   per span of whole traces: {whole:.3f} us, {whole / middle['batch'][1]:.2f}"
        )
    for processor in processors.values():
        processor.shutdown()


def programs() -> None:
    """The same within a program."""
    providers = {
        "batch": TracerProvider(shutdown_on_exit=False),
        "batch + ours": TracerProvider(shutdown_on_exit=False),
    }
    for name, provider in providers.items():
        provider.add_span_processor(BatchSpanProcessor(Nowhere(), **QUEUE))
        if "ours" in name:
            provider.add_span_processor(InProcessSource(lambda *_: None))
    figures: dict[str, list[float]] = {name: [] for name in providers}
    for _ in range(ROUNDS):
        for name in random.sample(list(providers), len(providers)):
            gc.collect()
            figures[name].append(program(providers[name]))
            providers[name].force_flush()
    alone, both = (statistics.median(rows) for rows in figures.values())
    print(
        f"a program's span: {alone:.2f} us with batch, {both:.2f} us with ours beside it:"
        f" {both / alone:.2f} (wanted <= 1.15)"
    )
    for provider in providers.values():
        provider.shutdown()


def main() -> int:
    callbacks()
    programs()
    return 0


if __name__ == "__main__":
    sys.exit(main())
