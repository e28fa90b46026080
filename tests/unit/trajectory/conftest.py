"""The recorded traces, for the tests of this room."""

from __future__ import annotations

import importlib.util
import sys
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
