"""Endpoints of judges with scripted answers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import trustme

from tests.support.scripted_judge import Endpoint

collect_ignore = ["exit_program.py", "fork_program.py"]  # programs, not tests


@pytest.fixture(scope="session")
def few_authorities(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A file with one authority."""
    path = str(tmp_path_factory.mktemp("authorities") / "ca.pem")
    trustme.CA().cert_pem.write_to_path(path)
    return path


@pytest.fixture
def serve(few_authorities: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Any]]:
    """Start endpoints that reply by a function, or with given replies in order, repeating the last;
    stop them after the test.
    """
    # each client reads all authorities that it trusts, which takes longer than its requests
    monkeypatch.setenv("SSL_CERT_FILE", few_authorities)
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
