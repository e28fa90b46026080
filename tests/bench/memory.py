"""Resident memory of 10,000 open traces of 20 spans, as the receiver holds them.

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


if __name__ == "__main__":
    if len(sys.argv) > 1:
        hold(sys.argv[1] == "fat")
    else:
        for profile in ("lean", "fat"):
            subprocess.run([sys.executable, __file__, profile], check=True)
