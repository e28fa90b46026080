"""Gives the tests the scripted endpoint of `scripted.py`."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

collect_ignore = ["exit_program.py", "fork_program.py", "scripted.py"]  # programs, not tests


@pytest.fixture(scope="session")
def scripted() -> ModuleType:
    """The module `scripted`."""
    spec = importlib.util.spec_from_file_location("scripted_judge", Path(__file__).with_name("scripted.py"))
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules.setdefault("scripted_judge", importlib.util.module_from_spec(spec))
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def serve(scripted: ModuleType) -> Iterator[Callable[..., Any]]:
    """Starts endpoints, from a script or from replies given in turn, the last of them for ever; stops them in the end."""
    started: list[Any] = []

    def start(*script: Any) -> Any:
        replies = list(script)
        chosen = script[0] if callable(script[0]) else lambda _: replies.pop(0) if len(replies) > 1 else replies[0]
        started.append(scripted.Endpoint(chosen))
        return started[-1]

    yield start
    for endpoint in started:
        endpoint.stop()
