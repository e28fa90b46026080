"""What scoring costs a traced program as a whole: caller's thread and process CPU, with and without our processor.

Four pipelines in one process, interleaved: nothing, a batch processor, ours, both. Ours is the real `EvalSpanProcessor` with
three scorers that sends log events through a batching `LoggerProvider` to an exporter that takes everything at once.
Prints microseconds a span (medians of rounds of 20-span traces with eight attributes), and what one run's scoring and
emission costs: process CPU of ours less that of nothing, less its two callbacks.
Run: python tests/bench/in_process.py
"""

from __future__ import annotations

import gc
import random
import statistics
import sys
import time
from typing import Any

from opentelemetry import trace
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import BatchLogRecordProcessor
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

from otel_eval import EvalSpanProcessor

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

    def shutdown(self) -> None:
        return

    def force_flush(self, timeout_millis: int = 0) -> bool:
        return True


def attributes(operation: str) -> dict[str, Any]:
    return {"gen_ai.operation.name": operation, "gen_ai.tool.name": "search"} | {f"key.{n}": "value" for n in range(6)}


def play(tracer: trace.Tracer) -> None:
    with tracer.start_as_current_span("invoke_agent bench", attributes=attributes("invoke_agent")):
        for number in range(SPANS - 1):
            operation = "execute_tool" if number % 2 else "chat"
            with tracer.start_as_current_span(operation, attributes=attributes(operation)):
                pass


def measure(provider: TracerProvider) -> tuple[float, float]:
    """Microseconds a span: caller's thread CPU, and process CPU until everything is delivered."""
    tracer = provider.get_tracer("bench")
    gc.collect()
    process, thread = time.process_time_ns(), time.thread_time_ns()
    for _ in range(TRACES):
        play(tracer)
    caller = time.thread_time_ns() - thread
    provider.force_flush()
    return caller / (TRACES * SPANS) / 1e3, (time.process_time_ns() - process) / (TRACES * SPANS) / 1e3


def main() -> int:
    loggers = LoggerProvider(shutdown_on_exit=False)
    nowhere: Any = Nowhere()
    loggers.add_log_record_processor(BatchLogRecordProcessor(nowhere, max_queue_size=100_000))
    config = {"evaluations": [{"name": "bench", "scorers": SCORERS}], "signals": ["logs"]}
    providers = {name: TracerProvider(shutdown_on_exit=False) for name in ("nothing", "batch", "ours", "batch + ours")}
    for name, provider in providers.items():
        if "batch" in name:
            provider.add_span_processor(BatchSpanProcessor(nowhere, max_queue_size=100_000))
        if "ours" in name:
            provider.add_span_processor(EvalSpanProcessor(config, logger_provider=loggers))
    figures: dict[str, list[tuple[float, float]]] = {name: [] for name in providers}
    for _ in range(ROUNDS):
        for name in random.sample(list(providers), len(providers)):
            figures[name].append(measure(providers[name]))
    middle = {name: [statistics.median(row[i] for row in rows) for i in (0, 1)] for name, rows in figures.items()}
    for name, (caller, process) in middle.items():
        print(f"{name:13} caller {caller:6.2f} us a span, process {process:6.2f} us a span")
    print(f"batch + ours / batch: caller {middle['batch + ours'][0] / middle['batch'][0]:.2f}", end=", ")
    print(f"process {middle['batch + ours'][1] / middle['batch'][1]:.2f}")
    callbacks = middle["ours"][0] - middle["nothing"][0]
    run = (middle["ours"][1] - middle["nothing"][1] - callbacks) * SPANS
    print(f"one run of {SPANS} spans, read, scored by {len(SCORERS)} scorers and emitted: {run:.0f} us of a worker thread")
    for provider in providers.values():
        provider.shutdown()
    loggers.shutdown()
    return 0


if __name__ == "__main__":
    sys.exit(main())
