"""Measure CPU time in the tests of this package."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable

import pytest


@pytest.fixture(scope="session")
def cpu() -> Callable[[Callable[[], object]], float]:
    """Measures CPU seconds of this thread, the best of five; without garbage collection, which depends on all other tests."""

    def measured(work: Callable[[], object]) -> float:
        gc.disable()
        try:
            return min(_once(work) for _ in range(5))
        finally:
            gc.enable()

    return measured


def _once(work: Callable[[], object]) -> float:
    began = time.thread_time()
    work()
    return time.thread_time() - began
