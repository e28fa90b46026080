"""What the tests of whole programs share."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.support.fork_server import ForkServer
from tests.support.waiting import wait_until


@pytest.fixture(scope="session")
def fork_server() -> Iterator[ForkServer]:
    """Runs commands without the time for imports."""
    server = ForkServer()
    yield server
    server.close()


@pytest.fixture
def until() -> Callable[[Callable[[], object]], None]:
    """Waits until a condition holds; fails after thirty seconds."""
    return wait_until
