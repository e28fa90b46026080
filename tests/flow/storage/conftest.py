"""Gives the tests receivers with storage."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest


def _load(name: str, path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules.setdefault(name, importlib.util.module_from_spec(spec))
    spec.loader.exec_module(module)
    return module


_load("storage_backend", Path(__file__).parents[1] / "forward" / "backend.py")
lives = _load("storage_served", Path(__file__).with_name("served.py"))
_load("storage_lives", Path(__file__).with_name("lives.py"))


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Callable[..., Any]]:
    """Makes receivers, and ends what is left of them."""
    made: list[Any] = []

    def make(**config: Any) -> Any:
        made.append(lives.Served(tmp_path, **config))
        return made[-1]

    yield make
    for each in made:
        if each.process is not None:
            each.end()
