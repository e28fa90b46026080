"""Requests per CPU-second of the receiver when each holds one span, by gRPC and HTTP, against a
handler that only parses.

    python tests/bench/small_requests.py [--rounds 5] [--requests 4000]

The floor is the bare grpcio server of `receiver.py`. Ours is the receiver alone, in front of an
intake that drops what it is given, so that what differs is the receiver's own: its handler of
streams, which can end waiting, admission, framing, counting. CPU is the server process's own, user
and system.
"""

from __future__ import annotations

import argparse
import http.client
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable

import grpc
from load import batches
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from receiver import METHOD, PARSE_ONLY, cpu_seconds

CLIENTS = 4

RECEIVER = """
import sys
from otel_eval.sources.receiver.export_handler import DecodingHandler, ReceiverLimits
from otel_eval.heap import tune_gc, tune_malloc
from otel_eval.sources.receiver.server import OtlpServer
class Intake:
    forwards = False
    def spans(self, batch): pass
    def logs(self, batch): pass
receiver = OtlpServer(
    DecodingHandler(Intake(), ReceiverLimits()), grpc="127.0.0.1:0", http="127.0.0.1:0")
tune_malloc()
tune_gc()
bound = receiver.start()
print(f"ready grpc={bound.grpc} http={bound.http}", file=sys.stderr, flush=True)
sys.stdin.read()
receiver.stop(5)
"""


def one_span() -> bytes:
    """A request of one lean span, with its resource and scope."""
    request = ExportTraceServiceRequest.FromString(next(iter(batches(1, fat=False))))
    del request.resource_spans[0].scope_spans[0].spans[1:]
    return request.SerializeToString()


def by_grpc(address: str, body: bytes, count: int) -> None:
    """One call after the other on a connection."""
    with grpc.insecure_channel(address, options=[("grpc.use_local_subchannel_pool", 1)]) as channel:
        export = channel.unary_unary(METHOD)
        for _ in range(count):
            export(body, timeout=60)


def by_http(address: str, body: bytes, count: int) -> None:
    """One request after the other on a connection."""
    connection = http.client.HTTPConnection(address, timeout=60)
    for _ in range(count):
        connection.request("POST", "/v1/traces", body, {"Content-Type": "application/x-protobuf"})
        answer = connection.getresponse()
        assert answer.status == 200, answer.status
        answer.read()
    connection.close()


def run(
    program: str, protocol: str, send: Callable[[str, bytes, int], None], requests: int
) -> float:
    """Requests per CPU-second of one server."""
    body = one_span()
    server = subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert server.stderr
    assert server.stdin
    address = server.stderr.readline().split(f"{protocol}=")[1].split()[0]
    try:
        send(address, body, 200)
        before = cpu_seconds(server.pid)
        clients = [
            threading.Thread(target=send, args=(address, body, requests // CLIENTS))
            for _ in range(CLIENTS)
        ]
        for client in clients:
            client.start()
        for client in clients:
            client.join()
        time.sleep(0.1)
        return requests / (cpu_seconds(server.pid) - before)
    finally:
        server.stdin.close()
        server.stderr.read()
        server.wait(60)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--requests", type=int, default=4000)
    options = parser.parse_args()
    ways = {
        "gRPC, parse only": (PARSE_ONLY, "grpc", by_grpc),
        "gRPC, the receiver": (RECEIVER, "grpc", by_grpc),
        "HTTP, the receiver": (RECEIVER, "http", by_http),
    }
    rates: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(options.rounds):
        for name, (program, protocol, send) in ways.items():
            rates[name].append(run(program, protocol, send, options.requests))
    floor = rates["gRPC, parse only"]
    print(
        f"requests of one span, {len(one_span())} B, {options.requests} of them, {options.rounds}"
        " rounds"
    )
    for name, values in rates.items():
        ratio = statistics.median(a / b for a, b in zip(values, floor, strict=True))
        print(
            f"  {name:20} {statistics.median(values):7.0f} per CPU-second, {ratio:.2f} of the floor"
        )


if __name__ == "__main__":
    main()
