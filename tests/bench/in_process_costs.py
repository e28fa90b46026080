"""Single measurements of a traced program, each in a process of its own; `table.py` takes their
medians.

    python tests/bench/in_process_costs.py start
    python tests/bench/in_process_costs.py held attributes|ours
    python tests/bench/in_process_costs.py worker|caller nothing|batch|ours
    python tests/bench/in_process_costs.py lateness nothing|batch|ours RUNS_A_SECOND
    python tests/bench/in_process_costs.py peer ours|evaluators|dataset

A run has 20 spans: an agent, ten model calls and nine tool calls with the attributes of the
receiver's `fat` traces. The last line printed is the figure.
"""

from __future__ import annotations

import asyncio
import gc
import statistics
import sys
import tempfile
import threading
import time
import tracemalloc
from collections.abc import Callable
from concurrent import futures
from pathlib import Path
from typing import Any

import pydantic
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import (
    BatchSpanProcessor,
    SpanExporter,
    SpanExportResult,
)

SCORERS: list[dict[str, Any]] = [
    {"type": "tool_call_count", "criteria": {"search": "<= 3"}},
    {"type": "tool_call_order", "expected": ["search", "fetch", "refund"]},
    {"type": "tool_errors"},
    {"type": "time_cost", "max_ms": 20000},
]
TOOLS = ("search", "fetch", "refund")
TEXT = "weather flight refund order please check " * 40


def config_of(folder: str) -> dict[str, Any]:
    """Four scorers, results in a file."""
    return {
        "evaluations": [{"name": "bench", "scorers": SCORERS}],
        "exporters": {"jsonl": {"path": f"{folder}/results.jsonl"}},
    }


def start() -> float:
    """Milliseconds of CPU to make a processor, in a program that has the SDK and pydantic. Pydantic
    loads most of itself for the first model, which the programs that it is in have.
    """
    pydantic.create_model("First", name=(str, ...))
    with tempfile.TemporaryDirectory() as folder:
        began = time.process_time()
        from otel_eval import EvalSpanProcessor

        processor = EvalSpanProcessor(config_of(folder))
        cost = time.process_time() - began
        processor.shutdown()
    return cost * 1e3


def attributes_of(number: int, run: int) -> dict[str, Any]:
    """Of the model call or tool call at this position; text that no other span shares."""
    common = {
        "gen_ai.provider.name": "openai",
        "gen_ai.agent.name": "support",
        "gen_ai.conversation.id": f"conversation-{run}",
    }
    if number % 2:
        name = TOOLS[number % 3]
        return common | {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": name,
            "gen_ai.tool.call.id": f"call_{run}_{number}",
            "gen_ai.tool.call.arguments": f'{{"query": "{run} {TEXT[:600]}", "limit": {number}}}',
            "gen_ai.tool.call.result": f'{{"found": "{run} {TEXT[:600]}"}}',
        }
    return common | {
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": "gpt-4o",
        "gen_ai.usage.input_tokens": 310 + number,
        "gen_ai.usage.output_tokens": 42,
        "gen_ai.input.messages": f'[{{"role": "user", "content": "{run} {TEXT}"}}]',
    }


def play(tracer: trace.Tracer, run: int) -> None:
    """One run of 20 spans."""
    with tracer.start_as_current_span(
        "invoke_agent support",
        attributes={"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "support"},
    ):
        for number in range(19):
            attributes = attributes_of(number, run)
            with tracer.start_as_current_span(
                f"{attributes['gen_ai.operation.name']} {number}", attributes=attributes
            ):
                pass


class TakesSpans(SpanExporter):
    """Takes spans at once."""

    def export(self, spans: Any) -> SpanExportResult:
        return SpanExportResult.SUCCESS


class KeepsAttributes(SpanProcessor):
    """Keeps the attributes of each span and nothing else."""

    def __init__(self) -> None:
        self.attributes: list[Any] = []

    def on_end(self, span: ReadableSpan) -> None:
        self.attributes.append(span._attributes)


def held(kind: str) -> float:
    """Bytes that stay allocated for each ended span of open runs.

    The roots are open. Texts are counted in both kinds, so that the difference is what is held
    beyond the attributes.
    """
    runs = 300
    with tempfile.TemporaryDirectory() as folder:
        provider = TracerProvider(shutdown_on_exit=False)
        processor = processor_of(kind, folder)
        provider.add_span_processor(processor)
        tracer = provider.get_tracer("bench")
        play(tracer, -1)
        provider.force_flush()
        roots = []
        tracemalloc.start()
        for run in range(runs):
            root = tracer.start_span("invoke_agent support")
            roots.append(root)
            context = trace.set_span_in_context(root)
            for number in range(19):
                attributes = attributes_of(number, run)
                tracer.start_span(f"step {number}", context=context, attributes=attributes).end()
        time.sleep(3)  # for the worker to take over what callbacks left
        gc.collect()
        size = tracemalloc.get_traced_memory()[0]
        tracemalloc.stop()
        for root in roots:
            root.end()
        provider.shutdown()
    return size / (runs * 19)


def processor_of(kind: str, folder: str) -> SpanProcessor:
    if kind == "batch":
        return BatchSpanProcessor(TakesSpans(), max_queue_size=100_000)
    if kind == "attributes":
        return KeepsAttributes()
    if kind == "nothing":
        return SpanProcessor()
    from otel_eval import EvalSpanProcessor

    return EvalSpanProcessor(config_of(folder))


def worker(kind: str) -> float:
    """Microseconds of CPU a run of all threads but the caller's."""
    runs = 400
    with tempfile.TemporaryDirectory() as folder:
        provider = TracerProvider(shutdown_on_exit=False)
        provider.add_span_processor(processor_of(kind, folder))
        tracer = provider.get_tracer("bench")
        play_runs(tracer, range(100))
        provider.force_flush()
        gc.collect()
        process, caller = time.process_time_ns(), time.thread_time_ns()
        play_runs(tracer, range(runs))
        provider.force_flush()
        cost = time.process_time_ns() - process - (time.thread_time_ns() - caller)
        provider.shutdown()
        if kind == "ours":
            written = Path(folder, "results.jsonl").read_bytes().count(b"\n")
            assert written == (runs + 100) * len(SCORERS), written
    return cost / runs / 1e3


def caller(kind: str) -> float:
    """Microseconds of CPU a run of the caller's thread, beyond the same runs without a processor.

    Both take turns in one process, because processes differ by as much as the processor costs.
    """
    runs, rounds = 20, 41
    costs: dict[str, list[int]] = {"nothing": [], kind: []}
    with tempfile.TemporaryDirectory() as folder:
        providers = {name: TracerProvider(shutdown_on_exit=False) for name in costs}
        for name, provider in providers.items():
            provider.add_span_processor(processor_of(name, folder))
        for _ in range(rounds):
            for name, provider in providers.items():
                tracer = provider.get_tracer("bench")
                gc.collect()
                begin = time.thread_time_ns()
                play_runs(tracer, range(runs))
                costs[name].append(time.thread_time_ns() - begin)
                provider.force_flush()
        for provider in providers.values():
            provider.shutdown()
    beyond = statistics.median(costs[kind]) - statistics.median(costs["nothing"])
    return beyond / runs / 1e3


def otlp_sink() -> tuple[Any, int]:
    """A gRPC server in this machine's loopback that takes every export."""
    import grpc
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

    answer = ExportTraceServiceResponse().SerializeToString()

    def export(body: bytes, context: Any) -> bytes:
        return answer

    server = grpc.server(futures.ThreadPoolExecutor(1))
    handlers = {"Export": grpc.unary_unary_rpc_method_handler(export)}
    service = "opentelemetry.proto.collector.trace.v1.TraceService"
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, handlers),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    return server, port


SINK = """
import sys
sys.path.insert(0, {folder!r})
from in_process_costs import otlp_sink
server, port = otlp_sink()
print(port, flush=True)
sys.stdin.read()
"""


def lateness(kind: str, rate: str, seconds: float = 12.0) -> float:
    """The 99th percentile of how many milliseconds late a timer of 1 ms fires in an asyncio
    program that plays so many runs a second.
    """
    import subprocess

    with (
        tempfile.TemporaryDirectory() as folder,
        subprocess.Popen(
            [sys.executable, "-c", SINK.format(folder=str(Path(__file__).parent))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as sink,
    ):
        assert sink.stdout is not None
        port = int(sink.stdout.readline())
        provider = TracerProvider(shutdown_on_exit=False)
        if kind == "batch":
            from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter

            exporter = OTLPSpanExporter(endpoint=f"http://127.0.0.1:{port}", insecure=True)
            provider.add_span_processor(BatchSpanProcessor(exporter))
        else:
            provider.add_span_processor(processor_of(kind, folder))
        late = asyncio.run(_timed(provider.get_tracer("bench"), 1 / float(rate), seconds))
        provider.shutdown()
        assert sink.stdin is not None
        sink.stdin.close()
    return sorted(late)[int(len(late) * 0.99)] * 1e3


async def _timed(tracer: trace.Tracer, interval: float, seconds: float) -> list[float]:
    """How late each timer fired, in seconds."""
    late: list[float] = []

    async def agent() -> None:
        run = 0
        while time.monotonic() < end:
            play(tracer, run)
            run += 1
            await asyncio.sleep(interval)

    end = time.monotonic() + seconds
    task = asyncio.create_task(agent())
    while time.monotonic() < end:
        due = time.monotonic() + 0.001
        await asyncio.sleep(0.001)
        late.append(time.monotonic() - due)
    await task
    return late


def peer(kind: str) -> float:
    """Microseconds of CPU of the whole process a run, beyond the same runs unevaluated.

    `evaluators` calls those of pydantic_evals on the tree of each run; `dataset` is its public way,
    `Dataset.evaluate`, with a case for each run.
    """
    return _evaluated(kind) - _evaluated("nothing")


def _evaluated(kind: str) -> float:
    runs = 300
    with tempfile.TemporaryDirectory() as folder:
        provider = TracerProvider(shutdown_on_exit=False)
        tracer = provider.get_tracer("bench")
        if kind in ("evaluators", "dataset"):
            trace.set_tracer_provider(provider)
            evaluate = evaluate_trees if kind == "evaluators" else evaluate_cases
        else:
            provider.add_span_processor(processor_of(kind, folder))
            evaluate = play_runs
        evaluate(tracer, range(50))
        provider.force_flush()
        gc.collect()
        process = time.process_time_ns()
        evaluate(tracer, range(runs))
        provider.force_flush()
        cost = time.process_time_ns() - process
        provider.shutdown()
    return cost / runs / 1e3


def play_runs(tracer: trace.Tracer, numbers: range) -> None:
    for number in numbers:
        play(tracer, number)


def _evaluators() -> list[Any]:
    """Four of pydantic_evals that ask of a run what our four scorers ask."""
    from pydantic_evals.evaluators import (
        HasMatchingSpan,
        MaxDuration,
        ToolCorrectness,
        TrajectoryMatch,
    )

    return [
        ToolCorrectness(expected_tools=list(TOOLS)),
        TrajectoryMatch(expected_trajectory=list(TOOLS)),
        HasMatchingSpan(query={"has_attributes": {"gen_ai.tool.name": "search"}}),
        MaxDuration(seconds=20),
    ]


def evaluate_trees(tracer: trace.Tracer, numbers: range) -> None:
    from pydantic_evals.evaluators import EvaluatorContext
    from pydantic_evals.otel._context_subtree import context_subtree

    evaluators = _evaluators()
    for number in numbers:
        with context_subtree() as tree:
            play(tracer, number)
        context: Any = EvaluatorContext(
            name="bench",
            inputs=None,
            metadata=None,
            expected_output=None,
            output=None,
            duration=0.02,
            _span_tree=tree,
            attributes={},
            metrics={},
        )
        assert len([evaluator.evaluate(context) for evaluator in evaluators]) == 4


def evaluate_cases(tracer: trace.Tracer, numbers: range) -> None:
    from pydantic_evals import Case, Dataset

    dataset: Any = Dataset(
        name="bench",
        cases=[Case(name=str(number), inputs=number) for number in numbers],
        evaluators=_evaluators(),
    )

    async def task(number: int) -> None:
        play(tracer, number)

    report = dataset.evaluate_sync(task, progress=False, max_concurrency=1)
    assert len(report.cases) == len(numbers), report.failures


MEASUREMENTS: dict[str, Callable[..., float]] = {
    measure.__name__: measure for measure in (start, held, worker, caller, lateness, peer)
}

if __name__ == "__main__":
    print(MEASUREMENTS[sys.argv[1]](*sys.argv[2:]))
    assert threading.active_count() < 50
