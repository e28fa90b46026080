"""Synthetic agent traffic: 20-span traces in 512-span OTLP batches, lean (about 510 B a span) or
fat (about 2.9 KB).

A trace is a root `invoke_agent`, ten `chat` and nine `execute_tool` spans, root last; eight traces
are interleaved. Ten batches hold 256 whole traces; each further cycle is the same bytes under new
trace ids.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

SPANS_PER_BATCH = 512
BATCHES_PER_CYCLE = 10
SPANS_PER_TRACE = 20
TOOLS = ("search", "fetch", "refund")


def _attributes(span: Span, values: dict[str, object]) -> None:
    for key, value in values.items():
        item = span.attributes.add()
        item.key = key
        if isinstance(value, int):
            item.value.int_value = value
        else:
            item.value.string_value = str(value)


def synthetic(rng: random.Random, fat: bool) -> list[Span]:
    """One trace, its root last; each call has an id of its own."""
    trace_id, root_id, start = rng.randbytes(16), rng.randbytes(8), 1_700_000_000_000_000_000
    filler = " ".join(
        rng.choice(("weather", "flight", "refund", "order", "please", "check")) for _ in range(300)
    )
    spans = []
    for number in range(19):
        tool = number % 2 == 1
        span = Span(
            trace_id=trace_id, span_id=rng.randbytes(8), parent_span_id=root_id, kind=1, flags=256
        )
        span.start_time_unix_nano = start + number * 1_000_000
        span.end_time_unix_nano = span.start_time_unix_nano + 900_000
        common = {
            "gen_ai.provider.name": "openai",
            "gen_ai.agent.name": "support",
            "gen_ai.conversation.id": "conversation-0001",
        }
        if tool:
            name = TOOLS[number % 3]
            span.name = f"execute_tool {name}"
            values = {
                "gen_ai.operation.name": "execute_tool",
                **common,
                "gen_ai.tool.name": name,
                "gen_ai.tool.type": "function",
            }
            values |= {
                "gen_ai.tool.call.id": f"call_{rng.randbytes(12).hex()}",
                "gen_ai.tool.description": "Looks something up for the customer.",
            }
            values |= {
                "gen_ai.tool.call.arguments": json.dumps(
                    {"query": filler[: 1500 if fat else 60], "limit": number}
                )
            }
            values |= {
                "gen_ai.tool.call.result": json.dumps({"found": filler[: 600 if fat else 60]})
            }
        else:
            span.name, span.kind = "chat gpt-4o", 3
            values = {
                "gen_ai.operation.name": "chat",
                **common,
                "gen_ai.request.model": "gpt-4o",
                "gen_ai.response.model": "gpt-4o",
            }
            values |= {
                "gen_ai.usage.input_tokens": 310 + number,
                "gen_ai.usage.output_tokens": 42,
                "gen_ai.response.id": f"r-{number}",
            }
            if fat:
                message = [{"role": "user", "parts": [{"type": "text", "content": filler[:2000]}]}]
                values |= {
                    "gen_ai.input.messages": json.dumps(message),
                    "gen_ai.output.messages": json.dumps(message)[:1200],
                }
        _attributes(span, values)
        spans.append(span)
    root = Span(trace_id=trace_id, span_id=root_id, name="invoke_agent support", kind=1, flags=256)
    root.start_time_unix_nano, root.end_time_unix_nano = start, start + 20_000_000
    _attributes(
        root,
        {
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.agent.name": "support",
            "gen_ai.provider.name": "openai",
        },
    )
    return [*spans, root]


def _cycle(fat: bool) -> list[bytes]:
    """Ten batches of whole traces, eight interleaved."""
    rng = random.Random(7)
    stream: list[Span] = []
    for _ in range(32):
        group = [synthetic(rng, fat) for _ in range(8)]
        stream += [trace[number] for number in range(SPANS_PER_TRACE) for trace in group]
    batches = []
    for first in range(0, len(stream), SPANS_PER_BATCH):
        request = ExportTraceServiceRequest()
        resource = request.resource_spans.add()
        item = resource.resource.attributes.add()
        item.key, item.value.string_value = "service.name", "support-bot"
        scope = resource.scope_spans.add()
        scope.scope.name = "opentelemetry.instrumentation.openai"
        scope.spans.extend(stream[first : first + SPANS_PER_BATCH])
        batches.append(request.SerializeToString())
    return batches


def batches(count: int, *, fat: bool) -> Iterator[bytes]:
    """`count` batches; every trace id occurs in one cycle only."""
    template = _cycle(fat)
    places = [_places(batch) for batch in template]
    rng = random.Random(11)
    fresh: dict[bytes, bytes] = {}
    for number in range(count):
        turn = number % BATCHES_PER_CYCLE
        if turn == 0:
            fresh = {}
        batch = bytearray(template[turn])
        for at, trace_id in places[turn]:
            if trace_id not in fresh:
                fresh[trace_id] = rng.randbytes(16)
            batch[at : at + 16] = fresh[trace_id]
        yield bytes(batch)


def _places(batch: bytes) -> list[tuple[int, bytes]]:
    """Where each span's trace id stands in a batch."""
    request = ExportTraceServiceRequest.FromString(batch)
    places, at = [], 0
    for span in request.resource_spans[0].scope_spans[0].spans:
        at = batch.index(b"\n\x10" + span.trace_id, at) + 2
        places.append((at, span.trace_id))
        at += 16
    return places
