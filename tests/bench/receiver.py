"""Spans per CPU-second of the receiver with every trace scored, against a handler that only parses.

    python tests/bench/receiver.py [--rounds 3] [--batches 300]

Server processes take the same 512-span batches over gRPC from this process, in turn. The floor is a bare grpcio server
that parses each request with protobuf (upb) and answers, with default and with tuned malloc. Against it stand the parts
of `otel-eval serve` with one scorer and a sink that only counts (as the Collector is measured: exporting to nowhere),
and the whole of it with three scorers and results written as JSON Lines. CPU is the server process's own, user and
system, over everything: receiving, assembling and judging. It is an error if a trace is not scored.
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
from load import SPANS_PER_BATCH, SPANS_PER_TRACE, batches

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

COUNTING = """
import sys, time
from otel_eval.app.wiring import engine_of, limits_of
from otel_eval.config import load
from otel_eval.pipeline import Pipeline
from otel_eval.sources.receiver import OtlpReceiver, tune_gc, tune_malloc
scored = 0
def emit(report):
    global scored
    scored += len(report.results)
class Intake:
    def spans(self, framed): pipeline.spans(framed.spans)
    def logs(self, framed): pipeline.logs(framed.logs)
config = load(sys.argv[1])
pipeline = Pipeline(engine_of(config), emit, limits_of(config))
receiver = OtlpReceiver(grpc="127.0.0.1:0", http=None, intake=Intake())
tune_malloc()
tune_gc()
pipeline.start()
print(f"ready grpc={receiver.start().grpc}", file=sys.stderr, flush=True)
sys.stdin.read()
receiver.stop(5)
pipeline.stop()
print(f"scored={scored}", file=sys.stderr, flush=True)
"""

ONE_SCORER = {"type": "tool_call_order", "expected": ["search", "fetch", "refund"]}
CONFIG = {
    "traces": {"decision_wait": "500ms", "grace_period": "1s", "max_bytes": "2GiB"},
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
    assert server.stderr
    assert server.stdin
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
        _check(server.stderr.read(), len(bodies))
        server.wait(60)


def _check(said: str, count: int) -> None:
    """Every trace has as many results as there are scorers, where the server counts them."""
    if "scored=" in said:
        scored, traces = int(said.split("scored=")[1]), count * SPANS_PER_BATCH // SPANS_PER_TRACE
        # A batch cuts traces in two; the last cycle may end within some.
        assert abs(scored - traces) <= 16, f"{scored} of {traces} traces were scored"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--batches", type=int, default=300)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "eval.json"
        config.write_text(json.dumps(CONFIG | {"exporters": {"jsonl": {"path": f"{folder}/results.jsonl"}}}))
        single = Path(folder) / "single.json"
        single.write_text(json.dumps(CONFIG | {"evaluations": [{"name": "bench", "scorers": [ONE_SCORER]}]}))
        commands = {
            "parse only": [sys.executable, "-c", PARSE_ONLY],
            "parse only, tuned malloc": [sys.executable, "-c", PARSE_ONLY, "tuned"],
            "one scorer, counted": [sys.executable, "-c", COUNTING, str(single)],
            "three scorers, JSON Lines": [sys.executable, "-c", OURS, str(config)],
        }
        for fat in (False, True):
            count = options.batches // (3 if fat else 1)
            bodies = list(batches(count, fat=fat))
            size = sum(map(len, bodies)) / len(bodies) / SPANS_PER_BATCH
            rates: dict[str, list[float]] = {name: [] for name in commands}
            for _ in range(options.rounds):
                for name, command in commands.items():
                    rates[name].append(run(command, bodies, settle=0.2 if "parse" in name else 2.5))
            print(f"{'fat' if fat else 'lean'}: {size:.0f} B a span, {count - 10} batches, {options.rounds} rounds")
            for name, values in rates.items():
                print(f"  {name:26} {statistics.median(values) / 1000:7.0f} k spans per CPU-second")
            for ours in ("one scorer, counted", "three scorers, JSON Lines"):
                for floor in ("parse only", "parse only, tuned malloc"):
                    ratio = statistics.median(a / b for a, b in zip(rates[ours], rates[floor], strict=True))
                    print(f"  {ours} / {floor}: {ratio:.2f}")


if __name__ == "__main__":
    main()
