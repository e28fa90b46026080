"""The recorded traces, for the tests of this room."""

from __future__ import annotations

import gc
import importlib.util
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture(scope="session")
def recorded() -> ModuleType:
    """The loader of `tests/traces`."""
    path = Path(__file__).parents[2] / "traces" / "loader.py"
    spec = importlib.util.spec_from_file_location("recorded_traces_loader", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


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
