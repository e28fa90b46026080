"""Receivers with several workers, each in processes of its own."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.request import ProxyHandler, build_opener

import pytest

from tests.support.fork_server import FORKS
from tests.support.receiver_process import Served


class ServedByWorkers(Served):
    """A receiver with two workers."""

    def __init__(self, folder: Path, **config: Any) -> None:
        super().__init__(
            folder, **{"workers": 2, "telemetry": {"endpoint": "127.0.0.1:0"}, **config}
        )
        self.fork_server = FORKS

    def page(self, path: str) -> str:
        """A page of the admin address."""
        address = self.said().split("telemetry=")[1].split()[0]
        with build_opener(ProxyHandler({})).open(f"http://{address}{path}", timeout=300) as answer:
            return str(answer.read().decode())

    def metric(self, name: str) -> float:
        """The sum of a metric over its labels; 0 while it is not there."""
        lines = [
            line
            for line in self.page("/metrics").splitlines()
            if line.split("{")[0].split(" ")[0] == f"otel_eval_{name}"
        ]
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines)

    def workers(self) -> list[int]:
        """Process ids of the workers, in ascending order."""
        assert self.process is not None
        tasks = Path(f"/proc/{self.process.pid}/task").glob("*/children")
        children = sorted(int(pid) for file in tasks for pid in file.read_text().split())
        return [
            pid for pid in children if b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes()
        ]


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Callable[..., ServedByWorkers]]:
    """Makes receivers, and ends what is left of them."""
    made: list[ServedByWorkers] = []

    def make(**config: Any) -> ServedByWorkers:
        made.append(ServedByWorkers(tmp_path, **config))
        return made[-1]

    yield make
    for each in made:
        if each.process is not None:
            workers = each.workers() if each.process.poll() is None else []
            each.end()
            for pid in workers:  # they end by themselves; a test that failed must not wait for that
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    continue
