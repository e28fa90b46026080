"""Spans per CPU-second of the receiver with every trace scored, against a handler that only parses.

    python tests/bench/receiver.py [--rounds 3] [--batches 300]

Two server processes take the same 512-span batches over gRPC from this process, in turn: one is a bare grpcio server
that parses each request with protobuf (upb) and answers, the other `otel_eval`'s receiver with three scorers, results
written as JSON Lines. CPU is the server process's own, user and system. Both run with default and with tuned malloc.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import grpc
from load import SPANS_PER_BATCH, batches

STREAMS = 4
METHOD = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"

PARSE_ONLY = """
import sys, threading
from concurrent.futures import ThreadPoolExecutor
import grpc
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest, ExportTraceServiceResponse
if "tuned" in sys.argv:
    from otel_eval.sources.receiver import tune_malloc
    tune_malloc()
empty = ExportTraceServiceResponse().SerializeToString()
def export(body, context):
    ExportTraceServiceRequest.FromString(body)
    return empty
handler = grpc.method_handlers_generic_handler("opentelemetry.proto.collector.trace.v1.TraceService",
    {"Export": grpc.unary_unary_rpc_method_handler(export)})
server = grpc.server(ThreadPoolExecutor(4), options=[("grpc.max_receive_message_length", 64 << 20)])
server.add_generic_rpc_handlers((handler,))
port = server.add_insecure_port("127.0.0.1:0")
server.start()
print(f"ready grpc=127.0.0.1:{port}", file=sys.stderr, flush=True)
sys.stdin.read()
server.stop(1).wait()
"""

OURS = """
import sys
from otel_eval.app.server import Server
from otel_eval.config import load
server = Server(load(sys.argv[1]))
bound = server.start()
print(f"ready grpc={bound.grpc}", file=sys.stderr, flush=True)
sys.stdin.read()
server.stop(30)
print(server.counts(), file=sys.stderr, flush=True)
"""

CONFIG = {
    "traces": {"settle": "500ms", "late": "1s", "max_bytes": "2GiB"},
    "evaluations": [
        {
            "name": "bench",
            "scorers": [
                {"type": "tool_call_count", "criteria": {"search": "<= 3", "refund": [">=", 1]}},
                {"type": "tool_call_order", "expected": ["search", "fetch", "refund"]},
                {"type": "time_cost", "max_ms": 20000},
            ],
        }
    ],
    "receivers": {"otlp": {"protocols": {"grpc": {"endpoint": "127.0.0.1:0"}}}},
}


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def send(address: str, bodies: list[bytes]) -> None:
    """Every body once, over a few channels."""
    turns = [bodies[number::STREAMS] for number in range(STREAMS)]

    def stream(mine: list[bytes]) -> None:
        with grpc.insecure_channel(address, options=[("grpc.use_local_subchannel_pool", 1)]) as channel:
            export = channel.unary_unary(METHOD)
            for body in mine:
                export(body, timeout=60)

    threads = [threading.Thread(target=stream, args=(mine,)) for mine in turns]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def run(command: list[str], bodies: list[bytes], *, settle: float) -> float:
    """Spans per CPU-second of one server, from its ready line to the last verdict."""
    server = subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert server.stderr and server.stdin
    address = server.stderr.readline().split("grpc=")[1].split()[0]
    try:
        send(address, bodies[:10])
        time.sleep(settle)
        before = cpu_seconds(server.pid)
        send(address, bodies[10:])
        time.sleep(settle)
        return (len(bodies) - 10) * SPANS_PER_BATCH / (cpu_seconds(server.pid) - before)
    finally:
        server.stdin.close()
        server.wait(60)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--batches", type=int, default=300)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "eval.json"
        config.write_text(json.dumps(CONFIG | {"exporters": {"jsonl": {"path": f"{folder}/results.jsonl"}}}))
        commands = {
            "parse only": [sys.executable, "-c", PARSE_ONLY],
            "parse only, tuned malloc": [sys.executable, "-c", PARSE_ONLY, "tuned"],
            "otel-eval serve": [sys.executable, "-c", OURS, str(config)],
        }
        for fat in (False, True):
            count = options.batches // (3 if fat else 1)
            bodies = list(batches(count, fat=fat))
            size = sum(map(len, bodies)) / len(bodies) / SPANS_PER_BATCH
            rates: dict[str, list[float]] = {name: [] for name in commands}
            for _ in range(options.rounds):
                for name, command in commands.items():
                    rates[name].append(run(command, bodies, settle=2.5 if "serve" in name else 0.2))
            print(f"{'fat' if fat else 'lean'}: {size:.0f} B a span, {count - 10} batches, {options.rounds} rounds")
            for name, values in rates.items():
                print(f"  {name:26} {statistics.median(values) / 1000:7.0f} k spans per CPU-second")
            ours = rates["otel-eval serve"]
            for name in ("parse only", "parse only, tuned malloc"):
                ratio = statistics.median(a / b for a, b in zip(ours, rates[name], strict=True))
                print(f"  otel-eval serve / {name}: {ratio:.2f}")


if __name__ == "__main__":
    main()
