"""Receivers with storage, each in its own process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.fork_server import ForkServer
from tests.support.receiver_process import Served


@pytest.fixture
def served(tmp_path: Path, fork_server: ForkServer) -> Iterator[Callable[..., Any]]:
    """Returns a function that makes receivers, and stops those that still run at the end."""
    made: list[Any] = []

    def make(**config: Any) -> Any:
        made.append(Served(tmp_path, **config))
        made[-1].fork_server = fork_server
        return made[-1]

    yield make
    for each in made:
        if each.process is not None:
            each.end()
