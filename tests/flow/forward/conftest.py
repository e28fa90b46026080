"""Gives the tests the backend, and random agent programs."""

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


backends = _load("forward_backend", Path(__file__).with_name("backend.py"))
_load("programs", Path(__file__).parents[1] / "programs.py")


@pytest.fixture(params=["grpc", "http/protobuf"])
def protocol(request: pytest.FixtureRequest) -> str:
    """Each protocol to a backend."""
    return str(request.param)


@pytest.fixture
def backend(request: pytest.FixtureRequest):
    """A backend; of the test's protocol if it has one."""
    kind = request.getfixturevalue("protocol") if "protocol" in request.fixturenames else "grpc"
    with backends.BACKENDS[kind]() as running:
        yield running
