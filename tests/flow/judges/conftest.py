"""Endpoints of judges with scripted answers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.support.scripted_judge import Endpoint

collect_ignore = ["exit_program.py", "fork_program.py"]  # programs, not tests


@pytest.fixture
def serve() -> Iterator[Callable[..., Any]]:
    """Start endpoints that reply by a function, or with given replies in order, repeating the last;
    stop them after the test.
    """
    started: list[Any] = []

    def start(*script: Any) -> Any:
        replies = list(script)
        chosen = (
            script[0]
            if callable(script[0])
            else lambda _: replies.pop(0) if len(replies) > 1 else replies[0]
        )
        started.append(Endpoint(chosen))
        return started[-1]

    yield start
    for endpoint in started:
        endpoint.stop()
