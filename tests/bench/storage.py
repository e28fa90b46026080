"""What `storage` costs the receiver, how long a restart takes, and what other stores would cost.

    python tests/bench/storage.py [--rounds 3] [--batches 200] [--directory .]

Cost: the same 512-span batches go to `otel-eval serve` without storage, with storage whose
acknowledgements wait for the disk, and with storage that does not wait. CPU is the server process's
own, user and system, over everything. Restart: a receiver is killed with 100,000 acknowledged spans
on disk; from the start of the next one until it is ready and until its first result. Stores: whole
requests written by several threads, each waiting until its own is on the disk, by our journal,
SQLite and, where it is installed, LMDB; then all of it read again.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import re
import shutil
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from load import SPANS_PER_BATCH, batches
from receiver import OURS, config_of, cpu_seconds, run, send, started

from otel_eval.storage.directory import DirectoryLock
from otel_eval.storage.journal import Journal

WRITERS = 8


def cost(options: argparse.Namespace, folder: Path) -> None:
    """Spans per CPU-second with and without storage, in turn."""
    for fat in (False, True):
        bodies = list(batches(options.batches // (3 if fat else 1), fat=fat))
        rates: dict[str, list[float]] = {"without": [], "with": [], "without sync": []}
        for number in range(options.rounds):
            for name, values in rates.items():
                kept = {
                    "directory": str(folder / f"kept-{fat}-{number}-{name}"),
                    "sync": name == "with",
                }
                config = folder / "eval.json"
                more = {} if name == "without" else {"storage": kept}
                config.write_text(json.dumps(config_of("lean", f"{folder}/results.jsonl") | more))
                values.append(
                    run(
                        started([sys.executable, "-c", OURS, str(config)]),
                        bodies,
                        [SPANS_PER_BATCH] * len(bodies),
                        wait_s=2.5,
                    )
                )
                shutil.rmtree(kept["directory"], ignore_errors=True)
        print(f"{'fat' if fat else 'lean'}: k spans per CPU-second, medians of {options.rounds}")
        for name, values in rates.items():
            paid = statistics.median(
                without / each - 1 for without, each in zip(rates["without"], values, strict=True)
            )
            share = paid / (1 + paid)
            print(
                f"  {name:12} {statistics.median(values) / 1000:6.1f}  CPU per span {paid:+.0%},"
                f" {share:.0%} of the whole"
            )


def restart(options: argparse.Namespace, folder: Path) -> None:
    """Seconds to `ready` and to the first line of results with 100,000 spans on disk, and the share
    of reading.
    """
    config, results = folder / "restart.json", folder / "restarted.jsonl"
    storage = {"directory": str(folder / "restart"), "max_size": "20GiB"}
    common = config_of("lean", str(results))
    traces = {"decision_wait": "1h", "decision_wait_partial": "1h", "idle_timeout": "1h"}
    bodies = list(batches(-(-100_000 // SPANS_PER_BATCH), fat=False))
    config.write_text(json.dumps(common | {"storage": storage, "traces": traces}))
    first = _served(config)
    send(first[1], bodies)
    first[0].kill()
    first[0].wait()
    traces |= {"decision_wait": "1s", "decision_wait_partial": "6s"}
    config.write_text(json.dumps(common | {"storage": storage, "traces": traces}))
    empty = folder / "empty.json"
    empty.write_text(
        json.dumps(
            config_of("lean", str(folder / "empty.jsonl"))
            | {"storage": {"directory": str(folder / "empty")}}
        )
    )
    began = time.monotonic()
    none, _ = _served(empty)
    floor = time.monotonic() - began
    none.kill()
    none.wait()
    began = time.monotonic()
    again, _ = _served(config)
    ready = time.monotonic() - began
    while not results.stat().st_size:
        time.sleep(0.005)
    evaluated = time.monotonic() - began
    print(
        f"restart with {len(bodies) * SPANS_PER_BATCH} spans on disk ({sum(map(len, bodies)) >> 20}"
        " MiB), settle 1 s:"
    )
    print(f"  ready after {ready:.2f} s (with nothing on disk {floor:.2f} s)")
    print(f"  first result after {evaluated:.2f} s, CPU until then {cpu_seconds(again.pid):.2f} s")
    again.kill()
    again.wait()


def _served(config: Path) -> tuple[subprocess.Popen[str], str]:
    server = subprocess.Popen(
        [sys.executable, "-m", "otel_eval", "serve", "--config", str(config)],
        stderr=subprocess.PIPE,
        text=True,
    )
    assert server.stderr is not None
    found = re.search(r"grpc=(\S+)", server.stderr.readline())
    assert found
    return server, found[1]


Store = tuple[Callable[[bytes], None], Callable[[], int]]


def journal(folder: Path) -> Iterator[Store]:
    claim = DirectoryLock(folder)
    made = Journal(claim, max_bytes=2**40)

    def put(body: bytes) -> None:
        made.commit(made.append(1, [body])[0])

    yield (
        put,
        lambda: (
            made.close()
            or sum(len(body) for _, _, body, _ in Journal(claim, max_bytes=2**40).replay())
        ),
    )
    claim.release()


def sqlite(folder: Path, level: str) -> Iterator[Store]:
    base = sqlite3.connect(folder / "db", check_same_thread=False, isolation_level=None)
    base.execute("PRAGMA journal_mode=WAL")
    base.execute(f"PRAGMA synchronous={level}")
    base.execute("CREATE TABLE kept (number INTEGER PRIMARY KEY, body BLOB)")
    turn = threading.Lock()

    def put(body: bytes) -> None:
        with turn:
            base.execute("INSERT INTO kept (body) VALUES (?)", (body,))

    yield (
        put,
        lambda: sum(len(body) for (body,) in base.execute("SELECT body FROM kept ORDER BY number")),
    )
    base.close()


def lmdb(folder: Path) -> Iterator[Store]:
    import lmdb as library

    base = library.open(str(folder), map_size=2**36, writemap=False)
    number = itertools.count()

    def put(body: bytes) -> None:
        with base.begin(write=True) as change:
            change.put(next(number).to_bytes(8, "big"), body)

    def read() -> int:
        with base.begin() as view:
            return sum(len(body) for _, body in view.cursor())

    yield put, read
    base.close()


def stores(options: argparse.Namespace, folder: Path) -> None:
    """CPU and time of each request by store."""
    makers: dict[str, Callable[[Path], Iterator[Store]]] = {
        "journal": journal,
        "SQLite WAL FULL": lambda path: sqlite(path, "FULL"),
        "SQLite WAL NORMAL (no power loss)": lambda path: sqlite(path, "NORMAL"),
        "LMDB": lmdb,
    }
    for fat in (False, True):
        bodies = list(batches(300 if not fat else 100, fat=fat))
        print(
            f"stores, {len(bodies)} requests of {len(bodies[0]) >> 10} KiB, {WRITERS} writers: a"
            " request, then reading all"
        )
        for name, maker in makers.items():
            rows = [
                _timed(maker, bodies, folder / f"{name}-{fat}-{number}")
                for number in range(options.rounds)
            ]
            if any(row is None for row in rows):
                print(f"  {name:34} not installed")
                continue
            cpu, wall, read = (
                statistics.median(column) for column in zip(*filter(None, rows), strict=True)
            )
            print(
                f"  {name:34} {cpu * 1e6:7.0f} us CPU {wall * 1e6:7.0f} us   {read * 1e3:6.0f} ms"
            )


def _timed(maker: Any, bodies: list[bytes], folder: Path) -> tuple[float, float, float] | None:
    folder.mkdir()
    try:
        store = maker(folder)
        put, read = next(store)
    except ImportError:
        return None
    share = [bodies[number::WRITERS] for number in range(WRITERS)]
    threads = [
        threading.Thread(target=lambda mine=mine: [put(body) for body in mine]) for mine in share
    ]
    cpu, wall = time.process_time(), time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    began = time.perf_counter()
    assert read() == sum(map(len, bodies))
    reading = time.perf_counter() - began
    store.close()
    shutil.rmtree(folder)
    return cpu / len(bodies), wall / len(bodies), reading


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--batches", type=int, default=200)
    parser.add_argument(
        "--directory",
        default=None,
        help="on the disk to measure; the system's folder for such files if left out",
    )
    parser.add_argument("--part", choices=("stores", "restart", "cost"), default=None)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.directory) as folder:
        for part in (stores, restart, cost):
            if options.part in (None, part.__name__):
                part(options, Path(folder))


if __name__ == "__main__":
    os.environ.setdefault("PYTHONPATH", str(Path(__file__).parents[2]))
    main()
