"""What the tests of the extensions share."""

from __future__ import annotations

import gc
import sys
import tracemalloc
from collections.abc import Callable

import pytest


@pytest.fixture
def kept() -> Callable[[Callable[[], None]], tuple[int, int]]:
    """How many bytes and how many objects more are there after something was done once more."""

    def of(many: Callable[[], None]) -> tuple[int, int]:
        many()
        gc.collect()
        tracemalloc.start()
        try:
            many()
            # The least of some: what is kept is kept each time, what the interpreter sets aside is
            # not.
            return min(_growth(many) for _ in range(3))
        finally:
            tracemalloc.stop()

    return of


def _growth(many: Callable[[], None]) -> tuple[int, int]:
    gc.collect()
    before, blocks = tracemalloc.get_traced_memory()[0], sys.getallocatedblocks()
    many()
    gc.collect()
    return tracemalloc.get_traced_memory()[0] - before, sys.getallocatedblocks() - blocks
