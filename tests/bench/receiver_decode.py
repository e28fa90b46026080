"""What it costs to frame and to read spans, against protobuf's own parse of the same batch in the
same process.

Run it by hand: ``python tests/bench/receiver_decode.py``. Medians of CPU time; the ratios travel
between machines, the microseconds do not.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from otel_eval.heap import tune_malloc
from otel_eval.interfaces import Wanted
from otel_eval.otlp.protobuf import read_traces

SPANS = 512
ROUNDS = 15
KIND = Wanted(
    frozenset(
        {
            "gen_ai.operation.name",
            "openinference.span.kind",
            "traceloop.span.kind",
            "ai.operationId",
        }
    )
)
CALL = Wanted(
    frozenset(
        {
            "gen_ai.tool.name",
            "gen_ai.tool.call.id",
            "gen_ai.tool.call.arguments",
            "error.type",
            "tool.name",
            "input.value",
        }
    ),
    ("llm.output_messages.", "gen_ai.completion."),
)


def batch(fat: bool) -> bytes:
    """512 spans of agent runs, 20 a run: about 510 bytes a span lean, 2.9 KB fat, as chats carry
    their messages.
    """
    request = ExportTraceServiceRequest()
    group = request.resource_spans.add()
    group.resource.attributes.add(key="service.name").value.string_value = "bench"
    scope = group.scope_spans.add()
    scope.scope.name = "bench"
    for index in range(SPANS):
        _add(scope, index, fat)
    return request.SerializeToString()


def _add(scope: object, index: int, fat: bool) -> None:
    place = index % 20
    kind = "invoke_agent" if place == 0 else "chat" if place % 2 else "execute_tool"
    span = scope.spans.add(  # type: ignore[attr-defined]
        trace_id=(index // 20 + 1).to_bytes(16, "big"),
        span_id=(index + 1).to_bytes(8, "big"),
        parent_span_id=b"" if place == 0 else (index - place + 1).to_bytes(8, "big"),
        name=f"{kind} search",
        kind=1,
        start_time_unix_nano=1_700_000_000_000_000_000 + index,
        end_time_unix_nano=1_700_000_001_000_000_000 + index,
        flags=0x100,
    )
    content = "x" * (5200 if fat and kind == "chat" else 300 if fat else 40)
    texts = {
        "gen_ai.operation.name": kind,
        "gen_ai.provider.name": "openai",
        "gen_ai.agent.name": "support",
        "gen_ai.conversation.id": f"conversation-{index // 20}",
        "gen_ai.request.model": "gpt-4o-mini",
        "gen_ai.tool.name": "search",
        "gen_ai.tool.call.id": f"call_{index:08d}",
        (
            "gen_ai.input.messages" if kind == "chat" else "gen_ai.tool.call.arguments"
        ): f'{{"query": "{content}"}}',
    }
    for key, value in texts.items():
        span.attributes.add(key=key).value.string_value = value
    span.attributes.add(key="gen_ai.usage.input_tokens").value.int_value = 1234
    span.status.code = 1


def _read(body: bytes) -> int:
    found = 0
    for _, _, (_, payload, resource_scope), _ in read_traces(body).spans:
        view = resource_scope.reader(payload)
        kind = view.attributes(KIND).get("gen_ai.operation.name")
        if kind == "execute_tool":
            found += len(view.attributes(CALL)) + view.end_ns - view.start_ns
    return found


def _touch(body: bytes) -> int:
    """What a generated servicer that wants ids and names does."""
    found = 0
    for group in ExportTraceServiceRequest.FromString(body).resource_spans:
        for scope in group.scope_spans:
            for span in scope.spans:
                found += len(span.trace_id) + len(span.span_id) + len(span.name)
    return found


def main() -> None:
    """Print the table."""
    tune_malloc()
    cases: dict[str, Callable[[bytes], object]] = {
        "protobuf parse": ExportTraceServiceRequest.FromString,
        "parse, ids and names": _touch,
        "frame": read_traces,
        "frame, view, attributes": _read,
    }
    for label, body in (("lean", batch(False)), ("fat", batch(True))):
        times: dict[str, list[float]] = {name: [] for name in cases}
        for _ in range(ROUNDS):
            for name, run in cases.items():
                start = time.thread_time_ns()
                for _ in range(5):
                    run(body)
                times[name].append((time.thread_time_ns() - start) / 5 / SPANS / 1000)
        base = statistics.median(times["protobuf parse"])
        print(f"{label}: {len(body) // SPANS} B/span")
        for name, values in times.items():
            print(
                f"  {name:26} {statistics.median(values):6.3f} us/span "
                f" {statistics.median(values) / base:5.2f}x"
            )


if __name__ == "__main__":
    main()
