"""CPU a span of `otel-eval serve` with several workers: everything of all processes, user and
system.

    python tests/bench/workers.py [--rounds 3] [--spans 200000] [--workers 1 2] [--pin] [profiles]

Load, profiles and configuration are those of `receiver.py`. First what handing over costs by
itself. Then, in turn in each round, one process, N workers, and N independent servers of which each
gets an Nth of the requests. Processes that share CPUs take more time for the same work, because
they share caches: N workers against N independent servers is what the split costs, against one
process what the split and the sharing cost. Wanted against one process are at most 25 % for `lean`
and 10 % for `recorded`.

Workers are by default as many as CPUs. With `--pin` all processes of a server run on one CPU and
the sender on the others: nothing moves between CPUs, and caches are shared most. The least of the
rounds is shown, since other load only adds; excesses are medians of the rounds' own.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path

from receiver import IDLE_SHARE, WARM_UP, config_of, cpu_seconds, requests_of, send

from otel_eval.app.workers.front import split_request
from otel_eval.heap import tune_malloc
from otel_eval.otlp import Signal
from otel_eval.sources.receiver.export_handler import ExportResponse, ExportStatus

WAIT_S = 1.0


def processes_of(pid: int) -> list[int]:
    """The process and its children."""
    children = Path(f"/proc/{pid}/task").glob("*/children")
    return [pid, *(int(each) for file in children for each in file.read_text().split())]


def when_all_idle(pids: list[int]) -> list[float]:
    """The CPU seconds of processes, once all have been idle for a moment: scoring goes on after the
    last response.
    """
    used, before = [cpu_seconds(pid) for pid in pids], [-1.0] * len(pids)
    while max(now - then for now, then in zip(used, before, strict=True)) > IDLE_SHARE * WAIT_S:
        time.sleep(WAIT_S)
        used, before = [cpu_seconds(pid) for pid in pids], used
    return used


@contextmanager
def started(config: Path) -> Iterator[tuple[str, list[int]]]:
    """Address of a server, and its processes: the one that receives comes first."""
    server = subprocess.Popen(
        [sys.executable, "-m", "otel_eval", "serve", "--config", str(config)],
        stderr=subprocess.PIPE,
        text=True,
    )
    assert server.stderr
    try:
        found = None
        while not (found := re.match(r"ready grpc=(\S+)", line := server.stderr.readline())):
            assert line, "it did not start"
        yield found[1], processes_of(server.pid)
    finally:
        server.terminate()
        server.communicate(timeout=60)


def send_to_each(addresses: list[str], requests: list[list[bytes]]) -> None:
    """Each server's own requests, at the same time."""
    threads = [
        threading.Thread(target=send, args=each) for each in zip(addresses, requests, strict=True)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def measured(
    configs: list[Path], requests: list[bytes], spans: int, *, pin: bool
) -> tuple[float, float]:
    """Microseconds of CPU a span: of all processes of these servers, and of the first alone."""
    cpus, count = os.sched_getaffinity(0), len(configs)
    with ExitStack() as stack:
        if pin:
            os.sched_setaffinity(0, {min(cpus)})  # servers inherit it
            stack.callback(os.sched_setaffinity, 0, cpus)
        servers = [stack.enter_context(started(each)) for each in configs]
        if pin:
            os.sched_setaffinity(0, cpus - {min(cpus)} or cpus)
        addresses, pids = (
            [address for address, _ in servers],
            [pid for _, each in servers for pid in each],
        )
        send_to_each(addresses, [requests[:WARM_UP]] * count)
        before = when_all_idle(pids)
        send_to_each(addresses, [requests[WARM_UP + number :: count] for number in range(count)])
        used = [now - then for now, then in zip(when_all_idle(pids), before, strict=True)]
        return sum(used) / spans * 1e6, used[0] / spans * 1e6


def handing_over(requests: list[bytes], workers: int) -> float:
    """CPU seconds of both sides for splitting requests, sending parts and answering them, not for
    what workers do with them.
    """
    tune_malloc()  # as the front and workers have it
    ends = [Pipe() for _ in range(workers)]
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
        used = [
            (ours, part)
            for (ours, _), part in zip(
                ends, split_request(body, Signal.TRACES, workers), strict=True
            )
            if part
        ]
        for ours, part in used:
            ours.send(("take", ("grpc", Signal.TRACES, part)))
        for ours, _ in used:
            ours.recv()
    spent = time.process_time() - before
    for pair in ends:
        for each in pair:
            each.close()
    _, _, usage = os.wait4(child, 0)
    return spent + usage.ru_utime + usage.ru_stime


def answering(connection: Connection) -> None:
    """Answer each part as a worker does that takes it."""
    with connection, suppress(OSError, EOFError):
        while connection.recv():
            connection.send((True, ExportResponse(ExportStatus.ACCEPTED)))


def rounds_of(
    profile: str, options: argparse.Namespace
) -> Iterator[dict[str, tuple[float, float]]]:
    """What each way of serving takes, by its name, once for each round: on a machine that is not
    always equally fast.
    """
    requests, counts = requests_of(profile, options.spans)
    spans = sum(counts[WARM_UP:])
    for workers in options.workers:
        least = min(handing_over(requests, workers) for _ in range(9)) / sum(counts) * 1e6
        print(
            f"{profile:9} {workers} workers: handing over a span takes {least:.2f} µs of CPU",
            flush=True,
        )
    ways = {
        f"{count} {kind}": (count, kind)
        for count in options.workers
        if count > 1
        for kind in ("workers", "servers")
    }
    for _ in range(options.rounds):
        found = {}
        for name, (count, kind) in {"1 server": (1, "servers"), **ways}.items():
            with tempfile.TemporaryDirectory() as folder:
                configs = [
                    Path(folder) / f"{number}.json"
                    for number in range(count if kind == "servers" else 1)
                ]
                for each in configs:
                    given = {
                        **config_of(profile, str(each.with_suffix(".jsonl"))),
                        "workers": count if kind == "workers" else 1,
                    }
                    each.write_text(json.dumps(given))
                found[name] = measured(configs, requests, spans, pin=options.pin)
                assert all(each.with_suffix(".jsonl").stat().st_size for each in configs), (
                    "nothing was scored"
                )
        yield found


def excess(rounds: list[dict[str, tuple[float, float]]], name: str, other: str) -> str:
    """How much more one way takes than another, in the middle one of the rounds."""
    return f"{statistics.median(each[name][0] / each[other][0] for each in rounds) - 1:+.0%}"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--spans", type=int, default=200_000)
    parser.add_argument(
        "--workers", type=int, nargs="+", default=range(1, len(os.sched_getaffinity(0)) + 1)
    )
    parser.add_argument("--pin", action="store_true", help="run each server on one CPU")
    parser.add_argument("profiles", nargs="*", default=["lean", "recorded"])
    options = parser.parse_args()
    for profile in options.profiles:
        rounds = list(rounds_of(profile, options))
        for name in rounds[0]:
            whole, first = min(each[name] for each in rounds)
            found = (
                f"{profile:9} {name}: {whole:5.1f} µs of CPU a span,"
                f" {excess(rounds, name, '1 server')} against 1 server"
            )
            if name.endswith("workers"):
                found += (
                    f", {excess(rounds, name, name.replace('workers', 'servers'))} against as many"
                    " servers"
                )
                found += f"; of which the receiving process {first:.1f}"
            print(found, flush=True)


if __name__ == "__main__":
    main()
