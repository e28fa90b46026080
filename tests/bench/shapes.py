"""What a span costs by the shape of its trace: framed, assembled, read, scored and written as JSON
Lines, in one thread.

    python tests/bench/shapes.py [--spans 20000] [--rounds 5]

Shapes: the lean and fat synthetic traces of the other benchmarks, the same with failed calls, with
several agents and with other calls in every trace, and every recorded trace of tests/traces. Each
copy of a trace has fresh trace, span and call ids, as real ones have. Four scorers that read no
content; the last column adds one that reads arguments. Prints microseconds of CPU a span, the
medians of the rounds.
"""

from __future__ import annotations

import argparse
import gc
import json
import random
import re
import statistics
import time
import uuid
from collections.abc import Callable
from pathlib import Path

from load import TOOLS, synthetic
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from otel_eval.app.build import build_engine
from otel_eval.assembly import Limits, TraceBuffer
from otel_eval.config import load
from otel_eval.exporters.result_rows import lines_of
from otel_eval.otlp.otlp_json import read_json
from otel_eval.otlp.protobuf import read_traces, reserialize_traces

TRACES = Path(__file__).parents[1] / "traces"
SCORERS = [
    {"type": "tool_call_count", "criteria": {"search": "<= 3"}},
    {"type": "tool_call_order", "expected": list(TOOLS)},
    {"type": "tool_errors"},
    {"type": "time_cost", "max_ms": 20000},
]
ARGUMENTS = {
    "type": "tool_correctness",
    "expected": [{"name": name, "arguments": {"limit": 1}} for name in TOOLS],
}
ID = re.compile(
    r"(?<=\")(?:[0-9a-f]{32}|[0-9a-f]{16}|(?:call|toolu|tooluse|fc)_\w*\d\w*)(?=\\*\")"
    r"|(?<=thread_id\\\": \\\")[^\\]+"
    r"|[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
)
BATCH = 20  # traces in a request


def body_of(spans: list[Span]) -> bytes:
    request = ExportTraceServiceRequest()
    resource = request.resource_spans.add()
    resource.resource.attributes.add(key="service.name").value.string_value = "support-bot"
    scope = resource.scope_spans.add()
    scope.scope.name = "opentelemetry.instrumentation.openai"
    scope.spans.extend(spans)
    return request.SerializeToString()


def failed(spans: list[Span]) -> list[Span]:
    """Every second call fails."""
    for span in [each for each in spans if each.name.startswith("execute_tool")][::2]:
        span.status.code = Status.STATUS_CODE_ERROR
        span.attributes.add(key="error.type").value.string_value = "TimeoutError"
    return spans


def different(rng: random.Random, spans: list[Span]) -> list[Span]:
    """Each tool call is of one of a hundred tools, so that no two traces have the same calls."""
    for span in spans:
        if span.name.startswith("execute_tool"):
            name = f"tool_{rng.randrange(100)}"
            span.name = f"execute_tool {name}"
            for attribute in span.attributes:
                if attribute.key == "gen_ai.tool.name":
                    attribute.value.string_value = name
    return spans


def agents(spans: list[Span]) -> list[Span]:
    """The spans are divided among three agents below the root."""
    root, inner = spans[-1], []
    for number in range(3):
        agent = Span()
        agent.CopyFrom(root)
        agent.span_id, agent.parent_span_id, agent.name = (
            bytes([0xA0 + number]) * 8,
            root.span_id,
            f"invoke_agent part_{number}",
        )
        agent.attributes[1].value.string_value = f"part_{number}"
        inner.append(agent)
    for number, span in enumerate(spans[:-1]):
        span.parent_span_id = inner[number % 3].span_id
    return [*spans[:-1], *inner, root]


def shapes() -> dict[str, Callable[[random.Random], bytes]]:
    """For each shape what makes a request of one trace of it, with ids that no other has."""
    made: dict[str, Callable[[random.Random], bytes]] = {
        "lean": lambda rng: body_of(synthetic(rng, fat=False)),
        "fat": lambda rng: body_of(synthetic(rng, fat=True)),
        "failed calls": lambda rng: body_of(failed(synthetic(rng, fat=False))),
        "several agents": lambda rng: body_of(agents(synthetic(rng, fat=False))),
        "different calls": lambda rng: body_of(different(rng, synthetic(rng, fat=False))),
    }
    return made | {
        file.stem: recorded(file.read_text())
        for file in sorted(TRACES.glob("*.json"))
        if file.name != "truth.json"
    }


def recorded(text: str) -> Callable[[random.Random], bytes]:
    """Copies of a recorded document in which every id of a trace, span or call is another; a
    resource is of one process.
    """
    of_process = {
        found
        for each in json.loads(text)["resourceSpans"]
        for found in ID.findall(json.dumps(each["resource"]))
    }

    def copy(rng: random.Random) -> bytes:
        fresh = {old: old for old in of_process}

        def of(match: re.Match[str]) -> str:
            old = match[0]
            letters = (
                str(uuid.UUID(bytes=rng.randbytes(16)))
                if "-" in old
                else rng.randbytes(len(old) // 2).hex()
            )
            letters = f"call_{rng.randbytes(12).hex()}" if "_" in old else letters
            return fresh.setdefault(old, letters)

        framed = read_json("traces", ID.sub(of, text).encode()).spans
        return reserialize_traces(frame for _, _, frame, _ in framed)

    return copy


def evaluate(requests: list[bytes], config: dict[str, object]) -> Callable[[], int]:
    engine = build_engine(load(config))

    def work() -> int:
        written = 0
        for body in requests:
            buffer = TraceBuffer(Limits())
            buffer.push_many(read_traces(body).spans, 0.0)
            for trace in buffer.drain(0.0):
                written += sum(len(lines_of(report)) for report in engine.evaluate(trace))
        return written

    return work


def requests_and_size(
    copy: Callable[[random.Random], bytes], spans: int
) -> tuple[list[bytes], int, int]:
    """Requests with about so many spans in copies of a trace; spans of one copy; copies."""
    rng = random.Random(11)
    size = len(read_traces(copy(rng)).spans)
    bodies = [copy(rng) for _ in range(max(2, spans // size))]
    requests = [b"".join(bodies[at : at + BATCH]) for at in range(0, len(bodies), BATCH)]
    return requests, size, len(bodies)


def cpu(work: Callable[[], int], rounds: int) -> float:
    """Seconds of CPU, the median of the rounds after one that warms up."""
    assert work(), "nothing was scored"
    seconds = []
    for _ in range(rounds):
        gc.collect()
        began = time.process_time()
        work()
        seconds.append(time.process_time() - began)
    return statistics.median(seconds)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--spans", type=int, default=20000)  # more than readers remember
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("names", nargs="*", help="shapes; all if none is given")
    options = parser.parse_args()
    print(f"{'shape':45} spans  no content  with arguments   (us a span)")
    for name, make in shapes().items():
        if options.names and name not in options.names:
            continue
        requests, size, copies = requests_and_size(make, options.spans)
        costs = []
        for scorers in (SCORERS, [*SCORERS, ARGUMENTS]):
            work = evaluate(requests, {"evaluations": [{"name": "bench", "scorers": scorers}]})
            costs.append(cpu(work, options.rounds) / (size * copies) * 1e6)
        print(f"{name:45} {size:5} {costs[0]:11.1f} {costs[1]:15.1f}", flush=True)


if __name__ == "__main__":
    main()
