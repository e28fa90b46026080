"""CPU a span of `otel-eval serve` with several workers, against one process: everything of all processes, user and system.

    python tests/bench/workers.py [--rounds 3] [--spans 200000] [--workers 1 2 3] [profiles]

First what handing over costs by itself, then all of it.

Load, profiles and configuration are those of `receiver.py`. Wanted are at most 25 % more than with one process for `lean` and
10 % for `recorded`. All processes run on one CPU, the sender on the others: on CPUs that share a core, the same work takes more
time when both are busy, which is no cost of ours. The least of the rounds is compared: other load only adds.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path

from receiver import WARM_UP, config_of, requests_of, send, when_idle

from otel_eval.app.workers import channel
from otel_eval.app.workers.splitting import split_request
from otel_eval.otlp import Signal

WAIT_S = 1.0


def processes_of(pid: int) -> list[int]:
    """The process and its children."""
    children = Path(f"/proc/{pid}/task").glob("*/children")
    return [pid, *(int(each) for file in children for each in file.read_text().split())]


def measured(config: Path, requests: list[bytes], spans: int) -> tuple[float, float]:
    """Microseconds of CPU a span: of all processes, and of the first alone."""
    cpus = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cpus)})  # the server inherits it
    server = subprocess.Popen(
        [sys.executable, "-m", "otel_eval", "serve", "--config", str(config)], stderr=subprocess.PIPE, text=True
    )
    os.sched_setaffinity(0, cpus - {min(cpus)} or cpus)
    assert server.stderr
    try:
        found = None
        while not (found := re.match(r"ready grpc=(\S+)", line := server.stderr.readline())):
            assert line, "it did not start"
        pids = processes_of(server.pid)
        send(found[1], requests[:WARM_UP])
        before = [when_idle(pid, WAIT_S) for pid in pids]
        send(found[1], requests[WARM_UP:])
        used = [when_idle(pid, WAIT_S) - start for pid, start in zip(pids, before, strict=True)]
        os.sched_setaffinity(0, cpus)
        return sum(used) / spans * 1e6, used[0] / spans * 1e6
    finally:
        server.terminate()
        server.communicate(timeout=60)


def handing_over(requests: list[bytes], workers: int) -> float:
    """CPU seconds of both sides for splitting requests, sending parts and answering them, not for what workers do with them."""
    ends = [socket.socketpair() for _ in range(workers)]
    child = os.fork()
    if child == 0:
        for ours, theirs in ends:
            ours.close()
            threading.Thread(target=answering, args=(theirs,)).start()
        for thread in threading.enumerate()[1:]:
            thread.join()
        os._exit(0)
    before = time.process_time()
    for body in requests:
        used = [(ours, part) for (ours, _), part in zip(ends, split_request(body, Signal.TRACES, workers), strict=True) if part]
        for ours, part in used:
            channel.send(ours, 0, part)
        for ours, _ in used:
            channel.receive(ours)
    spent = time.process_time() - before
    for pair in ends:
        for each in pair:
            each.close()
    _, _, usage = os.wait4(child, 0)
    return spent + usage.ru_utime + usage.ru_stime


def answering(connection: socket.socket) -> None:
    """Answer each part as a worker does that takes it."""
    with connection, suppress(OSError):
        while channel.receive(connection):
            channel.send(connection, channel.MessageKind.DONE)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--spans", type=int, default=200_000)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("profiles", nargs="*", default=["lean", "recorded"])
    options = parser.parse_args()
    for profile in options.profiles:
        requests, counts = requests_of(profile, options.spans)
        spans = sum(counts[WARM_UP:])
        for workers in options.workers:
            least = min(handing_over(requests, workers) for _ in range(9)) / sum(counts) * 1e6
            print(f"{profile:9} workers {workers}: handing over a span takes {least:.2f} µs of CPU", flush=True)
        found: dict[int, list[tuple[float, float]]] = {each: [] for each in options.workers}
        with tempfile.TemporaryDirectory() as folder:
            config = Path(folder) / "eval.json"
            for _ in range(options.rounds):
                for workers in options.workers:  # in turn, because the machine is not always equally fast
                    results = Path(folder) / "results.jsonl"
                    config.write_text(json.dumps({**config_of(profile, str(results)), "workers": workers}))
                    found[workers].append(measured(config, requests, spans))
                    assert results.stat().st_size, "nothing was scored"
                    results.unlink()
        least = min(whole for whole, _ in found[options.workers[0]])
        for workers, rounds in found.items():
            whole, front = min(rounds)
            middle = statistics.median(each for each, _ in rounds)
            print(
                f"{profile:9} workers {workers}: {whole:5.1f} µs of CPU a span ({whole / least - 1:+.0%}; median {middle:.1f}), "
                f"of which the receiving process {front:.1f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
