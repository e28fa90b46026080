"""Gives the tests the traced program of `harness.py`, which the programs run as processes import too."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

collect_ignore = ["exit_program.py", "harness.py", "living.py", "memory_program.py"]  # programs, not tests


@pytest.fixture(scope="session")
def harness() -> ModuleType:
    """The module `harness`."""
    spec = importlib.util.spec_from_file_location("inprocess_harness", Path(__file__).with_name("harness.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
