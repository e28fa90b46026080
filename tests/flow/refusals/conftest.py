"""Gives the tests the endpoint and the matrix."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest


def _load(name: str, path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules.setdefault(name, importlib.util.module_from_spec(spec))
    spec.loader.exec_module(module)
    return module


_load("refusals_endpoint", Path(__file__).with_name("endpoint.py"))
_load("refusals_matrix", Path(__file__).with_name("matrix.py"))


@pytest.fixture(scope="session")
def authority():
    """A certificate authority of the tests' own."""
    import trustme

    return trustme.CA()
