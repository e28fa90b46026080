"""Something does not return: the lock of a file, a worker, a reload."""

from __future__ import annotations

import fcntl
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.faults.fault_rig.books import balance, rows_of, until
from tests.faults.fault_rig.outcome import Outcome, scored
from tests.faults.fault_rig.sender import Sender, requests_of
from tests.faults.fault_rig.service import Service, configuration
from tests.faults.fault_rig.traffic import Run, run_of

__all__ = ["locked_file", "reload_storm", "stopped_worker"]


@contextmanager
def _under_load(service: Service, sent: list[Run], seconds: float) -> Iterator[Sender]:
    """A sender that needs at least this long; the block ends when everything is acknowledged."""
    sender = Sender(sent, lambda: (service.grpc, service.http))
    requests = requests_of(sent)
    load = threading.Thread(
        target=sender.send,
        args=(requests,),
        kwargs={"within_s": 600, "pace_s": seconds * 4 / len(requests)},
    )
    load.start()
    try:
        yield sender
        load.join()
        assert len(sender.acknowledged) == len(sent), service.said()
    finally:
        sender.stopped.set()
        load.join()


def locked_file(folder: Path, *, times: int, seconds: float, runs: int) -> Outcome:
    """Another process holds the lock of the file of results, also while the receiver ends."""
    sent = [run_of(number) for number in range(runs)]
    config = configuration(folder, storage={"directory": str(folder / "kept")})
    slowest_s = 0.0
    with Service(config) as service:
        with _under_load(service, sent, times * seconds * 2) as sender:
            for _ in range(times):
                time.sleep(seconds)
                with service.results.open("ab") as file:
                    fcntl.flock(file, fcntl.LOCK_EX)
                    assert until(
                        lambda: service.metric("exporter_current_export_duration") >= 1, 60
                    )
                    began = time.monotonic()
                    assert service.terminate() == 0, service.said()
                    slowest_s = max(slowest_s, time.monotonic() - began)
                service.start()
        assert scored(service, sender.acknowledged, 60), service.said()
        assert service.terminate() == 0
    books = balance(sent, sender.acknowledged, rows_of(service.results))
    return Outcome(
        "lock of the file of results held under load, then SIGTERM",
        times,
        books,
        f"the age of the export shows; ends within {slowest_s:.1f} s",
    )


def stopped_worker(folder: Path, *, times: int, seconds: float, runs: int) -> Outcome:
    """SIGSTOP of one of two workers under load, and SIGCONT."""
    sent = [run_of(number) for number in range(runs)]
    config = configuration(folder, storage={"directory": str(folder / "kept")}, workers=2)
    with Service(config) as service:
        with _under_load(service, sent, times * seconds * 2) as sender:
            for turn in range(times):
                time.sleep(seconds)
                worker = sorted(service.workers())[turn % 2]
                os.kill(worker, signal.SIGSTOP)
                assert until(lambda: service.metric("workers_up") == 1, 60), service.said()
                time.sleep(seconds)
                os.kill(worker, signal.SIGCONT)
        assert scored(service, sender.acknowledged, 60), service.said()
        assert service.terminate() == 0
    books = balance(sent, sender.acknowledged, rows_of(service.results))
    refused = sender.answers["refused"]
    return Outcome(
        "SIGSTOP of one of two workers under load, then SIGCONT",
        times,
        books,
        f"{refused} requests refused meanwhile",
    )


def reload_storm(folder: Path, *, times: int, signals: int, runs: int) -> Outcome:
    """Many SIGHUPs under load, and SIGTERM right after them."""
    sent = [run_of(number) for number in range(runs)]
    config = configuration(folder, storage={"directory": str(folder / "kept")})
    slowest_s = 0.0
    with Service(config) as service:
        with _under_load(service, sent, times * 2.0) as sender:
            for _ in range(times):
                time.sleep(1.0)
                for _ in range(signals):
                    service.running.send_signal(signal.SIGHUP)
                began = time.monotonic()
                assert service.terminate() == 0, service.said()
                slowest_s = max(slowest_s, time.monotonic() - began)
                service.start()
        assert scored(service, sender.acknowledged, 60), service.said()
        assert service.terminate() == 0
    books = balance(sent, sender.acknowledged, rows_of(service.results))
    return Outcome(
        f"{signals} SIGHUPs under load, then SIGTERM",
        times,
        books,
        f"ends within {slowest_s:.1f} s",
    )
