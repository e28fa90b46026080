"""What scoring costs a traced program as a whole: caller's thread and process CPU, with and without
us.

Five pipelines in one process, interleaved: nothing, a batch processor, our processor, both, and a
batch processor whose exporter is wrapped by ours. Ours is the real `EvalSpanProcessor` with three
scorers that sends log events through a batching `LoggerProvider` to an exporter that takes
everything at once; the wrapper is the real `EvalSpanExporter` around one that does.

Prints microseconds a span (medians of rounds of 20-span traces with eight attributes), of the
caller's thread and of the process, traces back to back, so that the caller shares the interpreter
with the worker that scores; what the caller pays where it does not is what on_end.py prints. And
what one run's scoring and emission costs: process CPU less that of the pipeline without us, less
the callbacks.
Run: python tests/bench/in_process.py
"""

from __future__ import annotations

import gc
import random
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

from opentelemetry import trace
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import BatchLogRecordProcessor
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExportResult

from otel_eval import EvalSpanExporter, EvalSpanProcessor

TRACES, SPANS, ROUNDS = 100, 20, 15
SCORERS = [
    {"type": "tool_call_count", "criteria": {"search": "<= 30"}},
    {"type": "tool_call_order", "expected": ["search", "search"]},
    {"type": "time_cost"},
]


class Nowhere:
    """Takes anything at once."""

    def export(self, batch: Any) -> Any:
        del batch
        return SpanExportResult.SUCCESS

    def shutdown(self) -> None:
        return

    def force_flush(self, timeout_millis: int = 0) -> bool:
        return True


def attributes(operation: str) -> dict[str, Any]:
    return {"gen_ai.operation.name": operation, "gen_ai.tool.name": "search"} | {
        f"key.{n}": "value" for n in range(6)
    }


def play(tracer: trace.Tracer) -> None:
    with tracer.start_as_current_span("invoke_agent bench", attributes=attributes("invoke_agent")):
        for number in range(SPANS - 1):
            operation = "execute_tool" if number % 2 else "chat"
            with tracer.start_as_current_span(operation, attributes=attributes(operation)):
                pass


def measure(tracer: trace.Tracer, deliver: Callable[[], object]) -> tuple[float, float]:
    """Microseconds a span: caller's thread CPU, and process CPU until everything is delivered."""
    gc.collect()
    process, thread = time.process_time_ns(), time.thread_time_ns()
    for _ in range(TRACES):
        play(tracer)
    caller = time.thread_time_ns() - thread
    deliver()
    return (
        caller / (TRACES * SPANS) / 1e3,
        (time.process_time_ns() - process) / (TRACES * SPANS) / 1e3,
    )


def pipelines(loggers: LoggerProvider) -> dict[str, tuple[TracerProvider, Callable[[], object]]]:
    """Providers by name, and how to have each deliver what it holds."""
    nowhere: Any = Nowhere()
    config = {"evaluations": [{"name": "bench", "scorers": SCORERS}], "signals": ["logs"]}
    made: dict[str, tuple[TracerProvider, Callable[[], object]]] = {}
    for name in ("nothing", "batch", "ours", "batch + ours", "wrapped"):
        provider = TracerProvider(shutdown_on_exit=False)
        wrapper = EvalSpanExporter(nowhere, config)
        if "batch" in name:
            provider.add_span_processor(BatchSpanProcessor(nowhere, max_queue_size=100_000))
        if "ours" in name:
            provider.add_span_processor(EvalSpanProcessor(config, logger_provider=loggers))
        if name == "wrapped":
            provider.add_span_processor(BatchSpanProcessor(wrapper, max_queue_size=100_000))
            made[name] = (
                provider,
                lambda provider=provider, wrapper=wrapper: (
                    provider.force_flush(),
                    wrapper.force_flush(),
                ),
            )
        else:
            made[name] = provider, provider.force_flush
    return made


def main() -> int:
    loggers = LoggerProvider(shutdown_on_exit=False)
    nowhere: Any = Nowhere()
    loggers.add_log_record_processor(BatchLogRecordProcessor(nowhere, max_queue_size=100_000))
    providers = pipelines(loggers)
    figures: dict[str, list[tuple[float, float]]] = {name: [] for name in providers}
    for _ in range(ROUNDS):
        for name in random.sample(list(providers), len(providers)):
            provider, deliver = providers[name]
            figures[name].append(measure(provider.get_tracer("bench"), deliver))
    middle = {
        name: [statistics.median(row[i] for row in rows) for i in (0, 1)]
        for name, rows in figures.items()
    }
    for name, (caller, process) in middle.items():
        print(f"{name:13} caller {caller:6.2f} us a span, process {process:6.2f} us a span")
    for name in ("batch + ours", "wrapped"):
        caller, process = (
            mine / theirs for mine, theirs in zip(middle[name], middle["batch"], strict=True)
        )
        print(f"{name} / batch: caller {caller:.2f}, process {process:.2f}")
    callbacks = middle["ours"][0] - middle["nothing"][0]
    run = (middle["ours"][1] - middle["nothing"][1] - callbacks) * SPANS
    print(
        f"one run of {SPANS} spans, read, scored by {len(SCORERS)} scorers and emitted: {run:.0f}"
        " us of a worker thread"
    )
    held = (middle["wrapped"][1] - middle["batch"][1]) * SPANS
    print(
        "the same through the wrapper, its root held, evaluated and exported with its scores:"
        f" {held:.0f} us of its threads"
    )
    for provider, _ in providers.values():
        provider.shutdown()
    loggers.shutdown()
    return 0


if __name__ == "__main__":
    sys.exit(main())
