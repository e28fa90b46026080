"""Reloads of a server that is asked for them more often than it can do them."""

from __future__ import annotations

import threading

from otel_eval.app.server import Server
from otel_eval.cli.serving import _Reloads
from otel_eval.config import EvalConfig
from otel_eval.errors import ConfigError
from tests.support.waiting import LIMIT_S, wait_until


def test_any_number_of_waiting_requests_is_one_reload() -> None:
    """They came while another reload was under way."""
    loaded: list[int] = []
    may_end = threading.Event()

    def read() -> EvalConfig:
        loaded.append(len(loaded))
        assert may_end.wait(LIMIT_S)
        raise ConfigError("not valid")

    reloads = _Reloads(Server(EvalConfig(), listens=False), read)
    reloads.request()
    wait_until(lambda: loaded)
    for _ in range(100):
        reloads.request()
    may_end.set()
    wait_until(lambda: len(loaded) == 2)
    reloads.end()
    assert loaded == [0, 1]
