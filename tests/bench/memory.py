"""Resident memory of 10,000 open traces of 20 spans, as the receiver holds them; and of a million
spans of web servers whose callers are missing, while they are open and while they wait.

    python tests/bench/memory.py

Each profile runs in a process of its own; the figure is the growth of resident memory after framing
and assembly, with the request bytes released, and the floor beside it: the payload bytes alone.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

TRACES, SPANS = 10_000, 20


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def hold(fat: bool) -> None:
    from load import SPANS_PER_BATCH, batches

    from otel_eval.assembly import Limits, TraceBuffer
    from otel_eval.otlp.protobuf import read_traces

    buffer = TraceBuffer(Limits(max_bytes=8 * 2**30))
    for body in batches(20, fat=fat):  # warm up what grows once
        read_traces(body)
    before, payload = resident(), 0
    for body in batches(TRACES * SPANS // SPANS_PER_BATCH, fat=fat):
        spans = read_traces(body).spans
        payload += sum(size for *_, size in spans)
        buffer.push_many(spans, 0.0)
    grown, count = resident() - before, TRACES * SPANS // SPANS_PER_BATCH * SPANS_PER_BATCH
    print(
        f"{'fat' if fat else 'lean'}: {len(buffer)} open traces, {count} spans: {grown / 2**20:.0f}"
        f" MiB resident, {grown / count:.0f} B a span, of which payload {payload / count:.0f} B;"
        f" the buffer's own count: {buffer.held_bytes / count:.0f} B"
    )


def server_spans(trace: int, spans: int) -> bytes:
    """A request with one trace: a server span with a parent elsewhere, and clients' spans below."""
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    request = ExportTraceServiceRequest()
    scope = request.resource_spans.add().scope_spans.add()
    for number in range(spans):
        span = scope.spans.add(trace_id=trace.to_bytes(16, "big"), span_id=bytes([number + 1] * 8))
        span.parent_span_id, span.flags = (
            bytes([1 if number else 99] * 8),
            0x100 if number else 0x300,
        )
        span.name, span.kind = "GET /orders/{id}", 3 if number else 2
        span.start_time_unix_nano, span.end_time_unix_nano = 10**18, 10**18 + 10**9
        for key in range(10):
            span.attributes.add(key=f"http.request.{key}").value.string_value = "v" * 40
    return request.SerializeToString()


def hold_server_spans(*, waits: bool) -> None:
    from otel_eval.assembly import Limits, TraceBuffer
    from otel_eval.engine import Engine
    from otel_eval.otlp.protobuf import read_traces

    engine, traces, spans = Engine(()), 100_000, 10
    limits = Limits(max_bytes=8 * 2**30, max_traces=2 * traces)
    buffer = TraceBuffer(limits, engine)
    read_traces(server_spans(0, spans))
    before, now = resident(), 0.0
    for trace in range(1, traces + 1):
        buffer.push_many(read_traces(server_spans(trace, spans)).spans, now)
        if waits and trace % 1000 == 0:
            now += 10
            assert buffer.due(now) == []
    grown, count = resident() - before, traces * spans
    print(
        f"servers' spans, {'waiting' if waits else 'open'}: {count} spans of {traces} traces:"
        f" {grown / 2**20:.0f} MiB resident, {grown / count:.0f} B a span; the buffer's own count:"
        f" {buffer.held_bytes / count:.0f} B"
    )


if __name__ == "__main__":
    if len(sys.argv) > 1 and sys.argv[1] in ("open", "waiting"):
        hold_server_spans(waits=sys.argv[1] == "waiting")
    elif len(sys.argv) > 1:
        hold(sys.argv[1] == "fat")
    else:
        for profile in ("lean", "fat", "open", "waiting"):
            subprocess.run([sys.executable, __file__, profile], check=True)
