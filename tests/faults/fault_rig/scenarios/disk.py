"""The disk is full, gives back what was not written, or keeps a process waiting for a hundred
thousand spans.
"""

from __future__ import annotations

import random
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import pytest

from tests.faults.fault_rig.books import Books, balance, rows_of, until
from tests.faults.fault_rig.outcome import Outcome, scored, settled
from tests.faults.fault_rig.sender import Sender, requests_of
from tests.faults.fault_rig.service import Service, configuration
from tests.faults.fault_rig.traffic import run_of, trace_id

__all__ = ["corrupt", "full", "removed", "restart", "storage_limit", "torn"]

KIB, MIB = 2**10, 2**20


def _segments(folder: Path) -> list[Path]:
    """Files of the journal with records in them, oldest first."""
    return sorted(each for each in (folder / "kept").glob("*.journal") if each.stat().st_size > KIB)


def _undecided(folder: Path, service: Service, first: int, runs: int) -> Sender:
    """Acknowledge so many runs and die before they are evaluated."""
    sent = [run_of(number) for number in range(first, first + runs)]
    sender = Sender(sent, lambda: (service.grpc, service.http))
    sender.send(requests_of(sent, at_once=1), within_s=60)
    assert len(sender.acknowledged) == runs
    service.kill()
    assert _segments(folder)
    return sender


def torn(folder: Path, *, times: int, runs: int) -> Outcome:
    """A record that a crash left half written, at the end of the last segment, cut at any byte."""
    rng = random.Random(times)
    config = configuration(
        folder,
        traces={"decision_wait": "800ms", "decision_wait_partial": "1s"},
        storage={"directory": str(folder / "kept")},
    )
    acknowledged: set[int] = set()
    with Service(config) as service:
        for turn in range(times):
            acknowledged |= _undecided(folder, service, turn * runs, runs).acknowledged
            data = _segments(folder)[-1].read_bytes()
            start = rng.randrange(len(data) // 2)
            # the beginning of something that looks like a record
            with _segments(folder)[-1].open("ab") as file:
                file.write(
                    data[start : start + rng.randrange(1, 2000)]
                    if turn % 2
                    else rng.randbytes(rng.randrange(1, 2000))
                )
            service.start()
            assert scored(service, acknowledged, 30)
        assert service.terminate() == 0
    books = balance(
        [run_of(number) for number in range(times * runs)], acknowledged, rows_of(service.results)
    )
    return Outcome(
        "kill, then a torn record at the end of the journal",
        times,
        books,
        f"{len(acknowledged)} runs acknowledged before",
    )


def corrupt(folder: Path, *, times: int, runs: int) -> Outcome:
    """A byte somewhere in the journal is not what was written."""
    rng = random.Random(times)
    config = configuration(
        folder,
        traces={"decision_wait": "800ms", "decision_wait_partial": "1s"},
        storage={"directory": str(folder / "kept")},
    )
    missing, whole = 0, Books()
    with Service(config) as service:
        for turn in range(times):
            sender = _undecided(folder, service, turn * runs, runs)
            segment = _segments(folder)[-1]
            data = bytearray(segment.read_bytes())
            # The newest runs lie at the end: what is hit is one of theirs.
            data[rng.randrange(len(data) - runs * 100, len(data))] ^= 1 << rng.randrange(8)
            segment.write_bytes(data)
            service.start()
            assert until(
                lambda sender=sender: len(_judged(service) & sender.acknowledged) >= runs - 1, 30
            )
            scored(service, sender.acknowledged, 1.5)
            gone = sender.acknowledged - _judged(service)
            assert len(gone) <= 1, f"one byte cost {len(gone)} runs"
            missing += len(gone)
            whole.add(
                balance(
                    [run_of(n) for n in sorted(sender.acknowledged)],
                    sender.acknowledged - gone,
                    rows_of(service.results),
                )
            )
        assert service.terminate() == 0
    figures = (
        f"{missing} runs were in the damaged records, each alone in its request, and are lost;"
        " nothing else is"
    )
    return Outcome("kill, then one bit flipped in the journal", times, whole, figures)


def removed(folder: Path, *, times: int, runs: int) -> Outcome:
    """The storage directory is removed under load; the process is ended and started again."""
    sent = [run_of(number) for number in range(times * runs)]
    config = configuration(folder, storage={"directory": str(folder / "kept")})
    acknowledged: set[int] = set()
    refused = 0
    with Service(config) as service:
        for turn in range(times):
            part = sent[turn * runs : (turn + 1) * runs]
            sender = Sender(part, lambda: (service.grpc, service.http))
            load = threading.Thread(
                target=sender.send,
                args=(requests_of(part, at_once=1),),
                kwargs={"within_s": 300, "pace_s": 0.01},
            )
            load.start()
            assert until(lambda sender=sender: len(sender.acknowledged) > runs // 4, 60)
            shutil.rmtree(folder / "kept")
            assert until(lambda sender=sender: sender.answers["refused"] > 0, 60), service.said()
            assert service.terminate() == 0
            service.start()
            load.join()
            acknowledged |= sender.acknowledged
            refused += sender.answers["refused"]
        assert len(acknowledged) == len(sent)
        scored(service, acknowledged, 60)
        assert service.terminate() == 0
        books = balance(sent, acknowledged, rows_of(service.results))
    return Outcome(
        "storage directory removed under load, then SIGTERM and a new start",
        times,
        books,
        f"{refused} requests refused meanwhile, none acknowledged; it is logged",
    )


def _judged(service: Service) -> set[int]:
    return {
        _numbers()[row["trace_id"]]
        for row in rows_of(service.results)
        if row["evaluation"] == "rig"
    }


@cache
def _numbers() -> dict[str, int]:
    return {trace_id(number).hex(): number for number in range(100_000)}


@contextmanager
def _small_disk(place: Path, mib: int) -> Iterator[None]:
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={mib}m", "none", str(place)],
        capture_output=True,
        check=False,
    )
    if mounted.returncode != 0:
        pytest.skip("a small file system cannot be mounted here")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


def full(folder: Path, *, times: int, runs: int) -> Outcome:
    """Something else fills the disk under the journal, and goes away again."""
    sent = [run_of(number) for number in range(runs)]
    with _small_disk(folder / "disk", 24):
        config = configuration(folder, storage={"directory": str(folder / "disk" / "kept")})
        refused = 0
        with Service(config) as service:
            sender = Sender(sent, lambda: (service.grpc, service.http))
            load = threading.Thread(
                target=sender.send,
                args=(requests_of(sent),),
                kwargs={"within_s": 120, "pace_s": times * 20 / runs},
            )
            load.start()
            for _ in range(times):
                _fill(folder / "disk" / "ballast")
                before = sender.answers["refused"]
                until(
                    lambda before=before: (
                        sender.answers["refused"] > before + 5 or not load.is_alive()
                    ),
                    10,
                )
                refused += sender.answers["refused"] - before
                assert service.alive
                (folder / "disk" / "ballast").unlink()
                time.sleep(0.3)
            load.join()
            assert len(sender.acknowledged) == runs, sender.answers
            books = settled(service, sent, sender, within_s=60)
    assert refused > 0
    return Outcome(
        "disk filled under the journal, then freed",
        times,
        books,
        f"{refused} requests refused meanwhile; it went on without a restart",
    )


def _fill(ballast: Path) -> None:
    piece = bytes(64 * KIB)
    with ballast.open("wb", buffering=0) as file:
        try:
            while True:
                if file.write(piece) < len(piece):
                    return
        except OSError:
            return


def storage_limit(folder: Path, *, runs: int) -> Outcome:
    """More than `storage.max_size` is undecided."""
    sent = [run_of(number, calls=60) for number in range(runs)]
    traces = {"decision_wait": "500ms", "decision_wait_partial": "1s", "grace_period": "0s"}
    config = configuration(
        folder, traces=traces, storage={"directory": str(folder / "kept"), "max_size": "1MiB"}
    )
    with Service(config) as service:
        sender = Sender(sent, lambda: (service.grpc, service.http))
        load = threading.Thread(
            target=sender.send, args=(requests_of(sent),), kwargs={"within_s": 60 + runs * 0.05}
        )
        load.start()
        assert until(lambda: sender.answers["refused"] > 20, 15), sender.answers
        size = sum(each.stat().st_size for each in _segments(folder))
        load.join()
        assert len(sender.acknowledged) == runs, f"{len(sender.acknowledged)} of {runs} taken"
        books = settled(service, sent, sender, within_s=60)
    assert size < 2 * MIB, size
    figures = (
        f"max_size 1 MiB: {size // KIB} KiB on disk while it refused; all {runs} runs accepted in"
        " the end"
    )
    return Outcome("more pending than storage.max_size", sender.answers["refused"], books, figures)


def restart(folder: Path, *, runs: int) -> Outcome:
    """Kill with so many undecided runs of ten spans on disk, and start again."""
    traces = {"decision_wait": "60s", "decision_wait_partial": "60s"}
    config = configuration(folder, traces=traces, storage={"directory": str(folder / "kept")})
    sent = [run_of(number, calls=9) for number in range(runs)]
    service = Service(config)
    try:
        service.start()
        sender = Sender(sent, lambda: (service.grpc, service.http))
        sender.send(requests_of(sent, at_once=50), within_s=120)
        assert len(sender.acknowledged) == runs
        service.kill()
        size = sum(each.stat().st_size for each in _segments(folder))
        # so that only reading is waited for
        config.write_text(config.read_text().replace('"60s"', '"0s"', 2))
        began = time.monotonic()
        service.start()
        ready = time.monotonic() - began
        assert until(lambda: bool(rows_of(service.results)), 60, every_s=0.01)
        first = time.monotonic() - began
        assert scored(service, sender.acknowledged, 60 + runs / 100)
        last = time.monotonic() - began
        assert service.terminate() == 0
    finally:
        service.__exit__(None, None, None)
    books = balance(sent, sender.acknowledged, rows_of(service.results))
    figures = (
        f"{size // MIB} MiB; ready after {ready:.1f} s, first result after {first:.1f} s, all"
        f" {runs} runs after {last:.1f} s"
    )
    return Outcome(
        f"SIGKILL with {runs * 10:,} pending spans on disk".replace(",", " "), 1, books, figures
    )
