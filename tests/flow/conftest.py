"""What the tests of whole programs share."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest


@pytest.fixture
def until() -> Callable[[Callable[[], bool]], None]:
    """Waits until something holds, ten seconds at most; then it must."""

    def holds(condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 10
        while not condition() and time.monotonic() < deadline:
            time.sleep(0.01)
        assert condition()

    return holds
