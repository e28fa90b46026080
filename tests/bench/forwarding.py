"""What passing on costs the receiver: CPU per span with and without `exporters: forward`, every
trace scored.

Both servers take the same 512-span batches over gRPC and score each trace; one also passes
everything on to a gRPC backend in a process of its own, with the scores on the runs' spans. CPU is
the server process's own, user and system.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from load import SPANS_PER_BATCH, batches
from receiver import OURS, config_of, run, started

BACKEND = """
import sys
from concurrent.futures import ThreadPoolExecutor
import grpc
handler = grpc.method_handlers_generic_handler(
    "opentelemetry.proto.collector.trace.v1.TraceService",
    {"Export": grpc.unary_unary_rpc_method_handler(lambda body, context: b"")})
server = grpc.server(ThreadPoolExecutor(4), options=[("grpc.max_receive_message_length", 64 << 20)])
server.add_generic_rpc_handlers((handler,))
print(server.add_insecure_port("127.0.0.1:0"), flush=True)
server.start()
sys.stdin.read()
"""


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--batches", type=int, default=200)
    options = parser.parse_args()
    backend = subprocess.Popen(
        [sys.executable, "-c", BACKEND], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert backend.stdin
    assert backend.stdout
    try:
        with tempfile.TemporaryDirectory() as folder:
            forward = {
                "endpoint": f"http://127.0.0.1:{backend.stdout.readline().strip()}",
                "max_queue_size": "512MiB",
            }
            commands = {
                "scoring alone": command(folder, "alone", {}),
                "scoring and forwarding": command(folder, "forward", {"forward": forward}),
            }
            for fat in (False, True):
                measure(
                    commands,
                    list(batches(options.batches // (3 if fat else 1), fat=fat)),
                    options.rounds,
                    fat,
                )
    finally:
        backend.stdin.close()
        backend.wait(10)


def command(folder: str, name: str, exporters: dict[str, Any]) -> list[str]:
    """A server with these exporters beside a file of results."""
    path = Path(folder) / f"{name}.json"
    path.write_text(json.dumps(config_of("lean", f"{folder}/{name}.jsonl", **exporters)))
    return [sys.executable, "-c", OURS, str(path)]


def measure(commands: dict[str, list[str]], bodies: list[bytes], rounds: int, fat: bool) -> None:
    """Print microseconds a span, and the ratio."""
    costs: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(rounds):
        for name, each in commands.items():
            costs[name].append(
                1e6 / run(started(each), bodies, [SPANS_PER_BATCH] * len(bodies), wait_s=2.5)
            )
    size = sum(map(len, bodies)) / len(bodies) / SPANS_PER_BATCH
    print(
        f"{'fat' if fat else 'lean'}: {size:.0f} B a span, {len(bodies) - 10} batches, {rounds}"
        " rounds"
    )
    for name, values in costs.items():
        print(f"  {name:24} {statistics.median(values):6.1f} us CPU a span")
    alone, both = costs.values()
    print(f"  ratio: {statistics.median(b / a for a, b in zip(alone, both, strict=True)):.2f}")


if __name__ == "__main__":
    main()
