"""A start that fails half-way logs one line, and everything that was begun is ended."""

from __future__ import annotations

import re
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from otel_eval.app.server import Server
from otel_eval.config import load
from otel_eval.errors import ConfigError
from tests.support.free_port import free_port
from tests.support.waiting import wait_until

UNREACHABLE = "http://127.0.0.1:9"  # the port `discard`, where nothing listens


@pytest.fixture
def taken() -> Iterator[str]:
    """An address that another socket has."""
    with socket.create_server(("127.0.0.1", 0)) as held:
        yield f"127.0.0.1:{held.getsockname()[1]}"


def threads() -> set[threading.Thread]:
    """Those that run, but for the timer of a receiver, which ends a minute after it was made."""
    return {each for each in threading.enumerate() if each.name != "otel-eval-check"}


def free() -> str:
    """An address at which nothing listens."""
    return f"127.0.0.1:{free_port()}"


def configured(folder: Path, grpc: str, http: str, site: str, **more: Any) -> dict[str, Any]:
    """Every part that begins something: pages, metrics, exporters, forwarding, storage."""
    return {
        "receivers": {
            "otlp": {"protocols": {"grpc": {"endpoint": grpc}, "http": {"endpoint": http}}}
        },
        "telemetry": {"endpoint": site, "otlp": {"endpoint": UNREACHABLE, "timeout": "100ms"}},
        "exporters": {
            "jsonl": {"path": str(folder / "out.jsonl")},
            "forward": {"endpoint": UNREACHABLE},
        },
        **more,
    }


@pytest.mark.parametrize("place", ["grpc", "http", "telemetry"])
@pytest.mark.parametrize("stored", [False, True])
def test_nothing_is_left_of_a_start_that_failed(
    tmp_path: Path, taken: str, place: str, stored: bool
) -> None:
    """No thread, no port, no lock on the storage: the same with another address starts at once."""
    addresses = {name: taken if name == place else free() for name in ("grpc", "http", "telemetry")}
    storage: dict[str, Any] = {"storage": {"directory": str(tmp_path / "kept")}} if stored else {}
    before = threads()
    with pytest.raises(ConfigError, match=re.escape(repr(taken))) as caught:
        Server(load(configured(tmp_path, *addresses.values(), **storage))).start()
    assert "\n" not in str(caught.value)
    wait_until(lambda: not threads() - before)
    addresses[place] = free()
    again = Server(load(configured(tmp_path, *addresses.values(), **storage)))
    try:
        bound = again.start()
        assert (bound.grpc, bound.http) == (addresses["grpc"], addresses["http"])
    finally:
        again.stop(2.0)
