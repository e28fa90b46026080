"""What our processor costs the traced program beside `BatchSpanProcessor`, in one process.

Prints, in microseconds of the caller's thread CPU (medians over interleaved rounds): `on_end` of spans that are no root,
and everything (`on_start` and `on_end`) per span over whole 20-span traces; and the ratios to `BatchSpanProcessor.on_end`.
Run: python tests/bench/on_end.py
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

from otel_eval.sources.inprocess import InProcessSource

TRACES, SPANS, ROUNDS = 150, 20, 31


class Nowhere(SpanExporter):
    """Takes spans at once."""

    def export(self, spans: Any) -> SpanExportResult:
        return SpanExportResult.SUCCESS

    def shutdown(self) -> None:
        return


def traces(processor: Any) -> list[list[Span]]:
    """Started spans, root first, each with eight attributes; the processor is added afterwards, to be called by hand."""
    provider = TracerProvider(shutdown_on_exit=False)
    tracer = provider.get_tracer("bench")
    made = []
    for _ in range(TRACES):
        root = tracer.start_span("invoke_agent bench", attributes=attributes("invoke_agent"))
        context = trace.set_span_in_context(root)
        fields: dict[str, Any] = {"context": context, "attributes": attributes("execute_tool")}
        children = [tracer.start_span("execute_tool search", **fields) for _ in range(SPANS - 1)]
        made.append([root, *children])
    provider.add_span_processor(processor)
    return made


def attributes(operation: str) -> dict[str, Any]:
    return {"gen_ai.operation.name": operation, "gen_ai.tool.name": "search"} | {f"key.{n}": "value" for n in range(6)}


def measure(processor: Any, *, starts: bool) -> tuple[float, float]:
    """Microseconds: per non-root `on_end`, and per span over all calls."""
    work = [(spans, [span._readable_span() for span in spans]) for spans in traces(processor)]
    inner = whole = 0
    for spans, ended in work:
        begin = time.thread_time_ns()
        if starts:
            for span in spans:
                processor.on_start(span, parent_context=None)
        middle = time.thread_time_ns()
        for span in ended[1:]:
            processor.on_end(span)
        end = time.thread_time_ns()
        processor.on_end(ended[0])
        last = time.thread_time_ns()
        inner += end - middle
        whole += last - begin
    return inner / (TRACES * (SPANS - 1)) / 1e3, whole / (TRACES * SPANS) / 1e3


def main() -> int:
    ours = InProcessSource(lambda *_: None)
    batch = BatchSpanProcessor(Nowhere(), max_queue_size=100_000, schedule_delay_millis=50)
    figures: dict[str, list[tuple[float, float]]] = {"batch": [], "ours": []}
    for _ in range(ROUNDS):
        order = [("batch", batch, False), ("ours", ours, True)]
        random.shuffle(order)
        for name, processor, starts in order:
            gc.collect()
            figures[name].append(measure(processor, starts=starts))
            processor.force_flush()
    middle = {name: [statistics.median(each[i] for each in rows) for i in (0, 1)] for name, rows in figures.items()}
    for name, (inner, whole) in middle.items():
        print(f"{name:6} on_end, no root: {inner:.3f} us   per span of whole traces: {whole:.3f} us")
    print(f"ratio  on_end, no root: {middle['ours'][0] / middle['batch'][0]:.2f} (wanted <= 1.3)", end="   ")
    print(f"per span of whole traces: {middle['ours'][1] / middle['batch'][1]:.2f} (wanted <= 2)")
    ours.shutdown()
    batch.shutdown()
    return 0


if __name__ == "__main__":
    sys.exit(main())
