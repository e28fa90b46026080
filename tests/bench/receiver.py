"""Spans per CPU-second of the receiver with every trace scored, against a handler that only parses.

    python tests/bench/receiver.py [--rounds 3] [--spans 100000] [--unscored] [profiles]

Server processes take the same requests of about 512 spans over gRPC from this process, in turn. The
floor is a bare grpcio server that parses each request with protobuf (upb) and answers, with default
malloc. Against it stands `otel-eval serve` with four scorers that read no content, and results
written as JSON Lines. Where make collector built one, the Collector takes the same requests: its
tail_sampling processor assembles traces and applies two policies that read each span. CPU is the
server process's own, user and system, over everything: receiving, assembling and evaluating. With
`--unscored` a third server of this project takes them, which closes traces as usual and does not
evaluate them: what is left for evaluation in a ratio.

Profiles: `lean` and `fat` synthetic traces, `failed` calls, several `agents`, `different` calls in
every trace, the `recorded` traces of tests/traces in turn, and `arguments`: these with a scorer of
arguments as well. Every trace has trace, span and call ids of its own.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from itertools import cycle
from pathlib import Path

import grpc
from shapes import ARGUMENTS, SCORERS, shapes

from otel_eval.otlp.protobuf import read_traces
from tests.faults.fault_rig.service import free_port
from tests.support.collector_build import built
from tests.support.collector_process import CollectorProcess

STREAMS = 4
METHOD = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"

PARSE_ONLY = """
import sys, threading
from concurrent.futures import ThreadPoolExecutor
import grpc
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest, ExportTraceServiceResponse)
empty = ExportTraceServiceResponse().SerializeToString()
def export(body, context):
    ExportTraceServiceRequest.FromString(body)
    return empty
handler = grpc.method_handlers_generic_handler(
    "opentelemetry.proto.collector.trace.v1.TraceService",
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

UNSCORED = (
    f"from otel_eval.engine import Engine\nEngine.evaluate = lambda *trace, **more: []\n{OURS}"
)

TAIL_SAMPLING = {
    "decision_wait": "1s",
    "num_traces": 200_000,
    "policies": [
        {"name": "failed", "type": "status_code", "status_code": {"status_codes": ["ERROR"]}},
        {
            "name": "tool",
            "type": "string_attribute",
            "string_attribute": {"key": "gen_ai.tool.name", "values": ["search"]},
        },
    ],
}

SPANS_PER_REQUEST = 512
WARM_UP = 10  # requests
IDLE_SHARE = 0.02  # of a core: timers and threads that wait
PROFILES: dict[str, list[str]] = {
    "lean": ["lean"],
    "fat": ["fat"],
    "failed": ["failed calls"],
    "agents": ["several agents"],
    "different": ["different calls"],
    "recorded": [],
    "arguments": [],
}


def config_of(profile: str, results: str, **exporters: object) -> dict[str, object]:
    scorers = [*SCORERS, ARGUMENTS] if profile == "arguments" else SCORERS
    return {
        "traces": {"decision_wait": "500ms", "grace_period": "1s", "max_bytes": "2GiB"},
        "evaluations": [{"name": "bench", "scorers": scorers}],
        "receivers": {"otlp": {"protocols": {"grpc": {"endpoint": "127.0.0.1:0"}}}},
        "exporters": {"jsonl": {"path": results}, **exporters},
    }


def requests_of(profile: str, spans: int, seed: int = 7) -> tuple[list[bytes], list[int]]:
    """Requests with so many spans in all, and the number of spans in each."""
    made, rng = shapes(), random.Random(seed)
    synthetic = {name for names in PROFILES.values() for name in names}
    kinds = cycle(PROFILES[profile] or [name for name in made if name not in synthetic])
    requests: list[bytes] = []
    counts: list[int] = []
    while sum(counts) < spans:
        traces, count = [], 0
        while count < SPANS_PER_REQUEST:
            traces.append(made[next(kinds)](rng))
            count += len(read_traces(traces[-1]).spans)
        requests.append(b"".join(traces))
        counts.append(count)
    return requests, counts


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def send(address: str, bodies: list[bytes]) -> None:
    """Every body once, over a few channels."""
    turns = [bodies[number::STREAMS] for number in range(STREAMS)]

    def stream(mine: list[bytes]) -> None:
        with grpc.insecure_channel(
            address, options=[("grpc.use_local_subchannel_pool", 1)]
        ) as channel:
            export = channel.unary_unary(METHOD)
            for body in mine:
                export(body, timeout=60)

    threads = [threading.Thread(target=stream, args=(mine,)) for mine in turns]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


@contextmanager
def started(command: list[str]) -> Iterator[tuple[str, int]]:
    """Address and process id of a server of this project."""
    server = subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert server.stderr
    assert server.stdin
    try:
        yield server.stderr.readline().split("grpc=")[1].split()[0], server.pid
    finally:
        server.stdin.close()
        server.stderr.read()
        server.wait(60)


@contextmanager
def tail_sampling(folder: Path) -> Iterator[tuple[str, int]]:
    """Address and process id of the Collector."""
    address = f"127.0.0.1:{free_port()}"
    pipeline = {"receivers": ["otlp"], "processors": ["tail_sampling"], "exporters": ["nop"]}
    config = {
        "receivers": {
            "otlp": {"protocols": {"grpc": {"endpoint": address, "max_recv_msg_size_mib": 64}}}
        },
        "processors": {"tail_sampling": TAIL_SAMPLING},
        "exporters": {"nop": {}},
        "service": {"pipelines": {"traces": pipeline}},
    }
    path = folder / "collector.yaml"
    path.write_text(json.dumps(config))
    with CollectorProcess(path) as collector:
        yield address, collector.running.pid


def run(
    server: AbstractContextManager[tuple[str, int]],
    requests: list[bytes],
    counts: list[int],
    *,
    wait_s: float,
) -> float:
    """Spans per CPU-second of one server, from its ready line to the last result."""
    with server as (address, pid):
        send(address, requests[:WARM_UP])
        before = when_idle(pid, wait_s)
        send(address, requests[WARM_UP:])
        return sum(counts[WARM_UP:]) / (when_idle(pid, wait_s) - before)


def when_idle(pid: int, wait_s: float) -> float:
    """The CPU seconds of a process, once it has used hardly any for so long: scoring goes on after
    the last response.
    """
    used, before = cpu_seconds(pid), -1.0
    while used - before > IDLE_SHARE * wait_s:
        time.sleep(wait_s)
        used, before = cpu_seconds(pid), used
    return used


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--spans", type=int, default=100_000)
    parser.add_argument(
        "--unscored", action="store_true", help="measure receiving without evaluation, too"
    )
    parser.add_argument("profiles", nargs="*", help="all if none is given")
    options = parser.parse_args()
    for profile in options.profiles or PROFILES:
        requests, counts = requests_of(profile, options.spans)
        with tempfile.TemporaryDirectory() as folder:
            results, config = Path(folder) / "results.jsonl", Path(folder) / "eval.json"
            config.write_text(json.dumps(config_of(profile, str(results))))
            floor, ours, unscored = (
                [sys.executable, "-c", program, str(config)]
                for program in (PARSE_ONLY, OURS, UNSCORED)
            )
            rates: list[tuple[float, float, float, float]] = []
            for _ in range(options.rounds):
                least = run(started(floor), requests, counts, wait_s=0.2)
                own = run(started(ours), requests, counts, wait_s=3.0)
                assert results.stat().st_size, "nothing was scored"
                sampled = (
                    run(tail_sampling(Path(folder)), requests, counts, wait_s=3.0)
                    if built()
                    else 0.0
                )
                received = (
                    run(started(unscored), requests, counts, wait_s=3.0)
                    if options.unscored
                    else 0.0
                )
                rates.append((least, own, sampled, received))
        size = sum(map(len, requests)) / sum(counts)
        middle = [statistics.median(each) / 1000 for each in zip(*rates, strict=True)]
        ratio = statistics.median(own / least for least, own, _, _ in rates)
        sampling = "not run: make collector builds the Collector"
        if middle[2]:
            beside = statistics.median(own / sampled for _, own, sampled, _ in rates)
            sampling = f"{middle[2]:.0f} k, ratio {beside:.2f}"
        received_only = f", received only {middle[3]:.0f} k" if middle[3] else ""
        print(
            f"{profile:9} {size:6.0f} B a span, {sum(counts)} spans, {options.rounds} rounds: parse"
            f" only {middle[0]:4.0f} k, scored {middle[1]:4.0f} k spans per CPU-second, ratio"
            f" {ratio:.2f}{received_only}; tail_sampling {sampling}",
            flush=True,
        )


if __name__ == "__main__":
    main()
