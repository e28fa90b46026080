"""Receivers with a page."""

from __future__ import annotations

import http.client
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.fork_server import ForkServer
from tests.support.receiver_process import Served


class ServedWithPage(Served):
    """A receiver that serves the page."""

    def __init__(self, folder: Path, **config: Any) -> None:
        super().__init__(folder, **{"storage": None, "ui": {"endpoint": "127.0.0.1:0"}} | config)

    @property
    def place(self) -> tuple[str, int]:
        """Host and port of the page."""
        host, _, port = self.said().split(" ui=")[1].split()[0].rpartition(":")
        return host, int(port)

    def ask(
        self, path: str, method: str = "GET", body: str | None = None, **headers: str
    ) -> tuple[int, dict[str, str], str]:
        """Status, headers and body of an answer; `_` in the name of a header is `-`."""
        connection = http.client.HTTPConnection(*self.place, timeout=300)
        try:
            named = {name.replace("_", "-"): value for name, value in headers.items()}
            connection.request(method, path, body, named)
            answer = connection.getresponse()
            return answer.status, dict(answer.getheaders()), answer.read().decode()
        finally:
            connection.close()

    @contextmanager
    def events(self, **headers: str) -> Iterator[Iterator[tuple[str, str]]]:
        """The events of a page that is open, as name and data."""
        connection = http.client.HTTPConnection(*self.place, timeout=300)
        connection.request("GET", "/events", headers=headers)
        answer = connection.getresponse()
        assert answer.status == 200, answer.read()
        try:
            yield _events(answer)
        finally:
            answer.close()
            connection.close()


def _events(answer: http.client.HTTPResponse) -> Iterator[tuple[str, str]]:
    name = ""
    for line in answer:
        text = line.decode().rstrip("\n")
        if text.startswith("event: "):
            name = text.removeprefix("event: ")
        elif text.startswith("data: "):
            yield name, text.removeprefix("data: ")


@pytest.fixture
def served(tmp_path: Path, fork_server: ForkServer) -> Iterator[Callable[..., ServedWithPage]]:
    """Makes receivers, and ends what is left of them."""
    made: list[ServedWithPage] = []

    def make(**config: Any) -> ServedWithPage:
        made.append(ServedWithPage(tmp_path, **config))
        if config.get("workers", 1) == 1:
            made[-1].fork_server = fork_server
        return made[-1]

    yield make
    for each in made:
        if each.process is not None:
            each.end()
