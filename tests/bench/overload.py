"""A receiver under twice the load it can sustain: the fate of every trace, and the memory it takes.

    python tests/bench/overload.py [--max-bytes 128MiB] [--seconds 30] [--fat] [--scorers 3]

`otel-eval serve` runs as its own process and gets 512-span batches over gRPC from a few senders,
each of which repeats a batch after the delay it is given until it is acknowledged, as an OTLP
exporter does. First as fast as it takes them, which is the sustainable rate; then at twice that
rate. The figures: batches refused, closing reasons of all results, acknowledged traces without a
result, resident memory before the load, at its peak, and after it.
"""

from __future__ import annotations

import argparse
import json
import queue
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import grpc
from load import BATCHES_PER_CYCLE, SPANS_PER_BATCH, batches
from receiver import METHOD, config_of
from shapes import SCORERS

TRACES_PER_CYCLE = 256
REST_S = 45.0  # `grace_period` is 30 s
QUIET_S, MOST_S = 5.0, 300.0


class Sender:
    """Sends batches at a rate, each until it is acknowledged; so many attempts at one time at most.

    Args:
        rate: batches offered a second, repetitions not counted.
    """

    def __init__(self, address: str, streams: int, rate: float) -> None:
        self.acknowledged = self.refused = 0
        self._rate = rate
        self._lock = threading.Lock()
        self._queue: queue.Queue[bytes | None] = queue.Queue(streams)
        self._threads = [
            threading.Thread(target=self._stream, args=(address,)) for _ in range(streams)
        ]
        for thread in self._threads:
            thread.start()

    def send(self, bodies: Iterator[bytes], seconds: float) -> float:
        """Offer whole cycles of batches for so long; acknowledged batches a second."""
        begun, number = time.monotonic(), 0
        while time.monotonic() - begun < seconds:
            for body in islice(bodies, BATCHES_PER_CYCLE):
                time.sleep(max(0.0, begun + number / self._rate - time.monotonic()))
                self._queue.put(body)
                number += 1
        for _ in self._threads:
            self._queue.put(None)
        for thread in self._threads:
            thread.join()
        return self.acknowledged / (time.monotonic() - begun)

    def _stream(self, address: str) -> None:
        with grpc.insecure_channel(
            address, options=[("grpc.use_local_subchannel_pool", 1)]
        ) as channel:
            export = channel.unary_unary(METHOD)
            while (body := self._queue.get()) is not None:
                while not self._taken(export, body):
                    time.sleep(1.0)  # the delay that the receiver asks for

    def _taken(self, export: grpc.UnaryUnaryMultiCallable, body: bytes) -> bool:
        try:
            export(body, timeout=10)
        except grpc.RpcError as error:
            if error.code() is not grpc.StatusCode.UNAVAILABLE:
                raise
            with self._lock:
                self.refused += 1
            return False
        with self._lock:
            self.acknowledged += 1
        return True


def resident(pid: int, name: str = "VmRSS") -> float:
    """MiB."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name + ":")) / 1024


def _quiet(results: Path) -> float:
    """Wait until no more results are written; how long that took."""
    begun = time.monotonic()
    size, since = -1, begun
    while time.monotonic() - since < QUIET_S and time.monotonic() - begun < MOST_S:
        if results.stat().st_size != size:
            size, since = results.stat().st_size, time.monotonic()
        time.sleep(0.2)
    return since - begun


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--max-bytes", default="128MiB")
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--fat", action="store_true")
    parser.add_argument(
        "--scorers", type=int, default=3, help="how many scorers, which makes evaluation slower"
    )
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        results = Path(folder) / "results.jsonl"
        scorers = [
            SCORERS[n % len(SCORERS)] | {"name": f"scorer_{n}"} for n in range(options.scorers)
        ]
        config = config_of("lean", str(results)) | {
            "traces": {"max_bytes": options.max_bytes},
            "evaluations": [{"name": "bench", "scorers": scorers}],
        }
        path = Path(folder) / "eval.json"
        path.write_text(json.dumps(config))
        server = subprocess.Popen(
            [sys.executable, "-m", "otel_eval", "serve", "--config", str(path)],
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            assert server.stderr
            ready = next(line for line in server.stderr if line.startswith("ready"))
            threading.Thread(target=server.stderr.read, daemon=True).start()
            measure(server.pid, ready.split("grpc=")[1].split()[0], results, options)
        finally:
            server.terminate()
            server.wait(60)


def measure(pid: int, address: str, results: Path, options: argparse.Namespace) -> None:
    idle, sent = resident(pid), 0
    print(
        f"max_bytes {options.max_bytes}, {'fat' if options.fat else 'lean'}, {options.scorers}"
        f" scorers; idle {idle:.0f} MiB"
    )
    rate, bodies = 1e9, batches(10**9, fat=options.fat)
    for what, streams in (("as fast as it is taken", 4), ("at twice that rate", 16)):
        sender = Sender(address, streams, rate)
        rate = 2 * sender.send(bodies, options.seconds)
        sent += sender.acknowledged
        print(
            f"  {what}: {sender.acknowledged} batches acknowledged,"
            f" {rate / 2 * SPANS_PER_BATCH:.0f} spans/s, {sender.refused} refused, now"
            f" {resident(pid):.0f} MiB, peak {resident(pid, 'VmHWM'):.0f} MiB"
        )
    drained = _quiet(results)
    time.sleep(REST_S)
    found, reasons = set(), Counter()
    with results.open() as lines:
        for row in map(json.loads, lines):
            found.add(row["trace_id"])
            reasons[row["completeness"]] += 1
    traces = sent // BATCHES_PER_CYCLE * TRACES_PER_CYCLE
    print(
        f"  {traces} traces acknowledged, {traces - len(found)} without a result; results by"
        f" closing reason: {dict(reasons)}"
    )
    print(
        f"  last result {drained:.0f} s after the load; {REST_S:.0f} s later {resident(pid):.0f}"
        f" MiB (idle: {idle:.0f} MiB)"
    )


if __name__ == "__main__":
    main()
