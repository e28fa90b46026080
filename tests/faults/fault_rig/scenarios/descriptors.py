"""Connections that say nothing, more than the process may have files open, and a scorer that leaks
files.
"""

from __future__ import annotations

import os
import socket
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from otel_eval.descriptors import raise_limit
from tests.faults.fault_rig.books import Books
from tests.faults.fault_rig.outcome import Outcome, scored, settled
from tests.faults.fault_rig.sender import Sender, requests_of
from tests.faults.fault_rig.service import Service, configuration
from tests.faults.fault_rig.traffic import run_of

__all__ = ["idle", "leaking"]

_PREFACE: Final = {"grpc": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0", "http": b""}
_OTHER: Final = {"grpc": "http", "http": "grpc"}
_PAGE_S: Final = 1.0
_BUSY: Final = 0.3  # of a core; a loop that spins takes all of one


def idle(folder: Path, *, limit: int, connections: int, runs: int) -> Outcome:
    """On one protocol at a time, while the other one is used; then on the same one, when they are
    gone.
    """
    books, open_files = Books(), []
    raise_limit()  # of this process, which has the other ends
    sent = [run_of(number) for number in range(2 * runs)]
    for protocol, other in _OTHER.items():
        place = folder / protocol
        place.mkdir()
        config = configuration(place, storage={"directory": str(place / "kept")})
        with Service(config, limits={"RLIMIT_NOFILE": limit}) as service:
            during = Sender(sent[:runs], lambda: (service.grpc, service.http), protocol=other)
            after = Sender(sent[runs:], lambda: (service.grpc, service.http), protocol=protocol)
            with _silent(getattr(service, protocol), connections, _PREFACE[protocol]):
                _assert_reachable(service)
                open_files.append(service.metric("process_open_fds"))
                assert open_files[-1] < limit - 16, open_files
                during.send(requests_of(sent[:runs]), within_s=30)
                assert scored(service, during.acknowledged, 30)
            after.send(requests_of(sent[runs:]), within_s=30)
            after.acknowledged |= during.acknowledged
            assert len(after.acknowledged) == 2 * runs, (during.answers, after.answers)
            books.add(settled(service, sent, after, within_s=30))
    figures = (
        f"at most {max(open_files)} files open; /healthz and /metrics within {_PAGE_S:g} s, all"
        f" {4 * runs} runs accepted"
    )
    return Outcome(
        f"{connections} idle connections, gRPC then HTTP, at a limit of {limit} files",
        2,
        books,
        figures,
    )


def leaking(folder: Path, *, limit: int, runs: int) -> Outcome:
    """The connection that is open goes on, and the pages are answered."""
    sent = [run_of(number) for number in range(runs)]
    scorers = ({"type": "fault_rig.broken:leaks", "name": "leaks"},)
    with Service(
        configuration(folder, scorers=scorers), limits={"RLIMIT_NOFILE": limit}
    ) as service:
        sender = Sender(sent, lambda: (service.grpc, service.http))
        sender.send(requests_of(sent), within_s=60, threads=1)
        assert scored(service, sender.acknowledged, 30)
        assert len(os.listdir(f"/proc/{service.running.pid}/fd")) == limit
        with _silent(service.http, 5, b""):  # which cannot be accepted
            _assert_reachable(service)
        books = settled(service, sent, sender, within_s=60)
    assert len(sender.acknowledged) == runs
    return Outcome(
        "a scorer that opens files until none is left",
        1,
        books,
        "/healthz and /metrics are answered; nothing spins",
    )


@contextmanager
def _silent(address: str, many: int, preface: bytes) -> Iterator[None]:
    """Connections that say nothing after the preface; those that the receiver closes are not opened
    again.
    """
    host, port = address.rsplit(":", 1)
    held = []
    try:
        for _ in range(many):
            held.append(socket.create_connection((host, int(port)), timeout=10))
            held[-1].sendall(preface)
        yield
    finally:
        for each in held:
            each.close()


def _assert_reachable(service: Service) -> None:
    """The pages answer in time, and the process does nothing meanwhile."""
    for page in ("healthz", "metrics"):
        assert min(_seconds(service, page) for _ in range(3)) < _PAGE_S, page
    before, began = _cpu_s(service), time.monotonic()
    time.sleep(1)
    share = (_cpu_s(service) - before) / (time.monotonic() - began)
    assert share < _BUSY, f"{share:.0%} of a core while nothing is asked"


def _seconds(service: Service, page: str) -> float:
    began = time.monotonic()
    with urllib.request.urlopen(f"http://{service.telemetry}/{page}", timeout=10) as answer:
        answer.read()
    return time.monotonic() - began


def _cpu_s(service: Service) -> float:
    fields = Path(f"/proc/{service.running.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
