"""Serve until told to stop.

Knows signals and the time that stopping may take; what is served is the application's.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from typing import Final

from otel_eval.config import EvalConfig

__all__ = ["run"]

STOP_S: Final = 10.0  # for taking no more, scoring what is pending and flushing
_MARGIN_S: Final = 2.0


def run(config: EvalConfig) -> int:
    """Serve until SIGTERM or SIGINT; 0 after everything pending was scored and flushed."""
    from otel_eval.app.server import Server

    told = threading.Event()
    # Before anything listens, so that a signal during the start is not lost.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda which, _: _asked_to_stop(told, which))
    server = Server(config)
    bound = server.start()
    try:
        parts = (f"{name}={place}" for name, place in (("grpc", bound.grpc), ("http", bound.http)) if place)
        sys.stderr.write(f"ready {' '.join(parts)}\n")
        sys.stderr.flush()
        told.wait()
    finally:
        watchdog = threading.Timer(STOP_S + _MARGIN_S, _give_up)
        watchdog.daemon = True
        watchdog.start()
        if not server.stop(STOP_S):
            sys.stderr.write(f"otel-eval: not every score could be delivered within {STOP_S:g} s; some are lost\n")
        watchdog.cancel()
    return 0


def _asked_to_stop(told: threading.Event, which: int) -> None:
    if told.is_set() and which == signal.SIGINT:  # a person who asks twice does not want to wait
        os._exit(130)
    told.set()


def _give_up() -> None:
    sys.stderr.write(f"otel-eval: stopping took longer than {STOP_S + _MARGIN_S:g} s; ended with scores unsent\n")
    sys.stderr.flush()
    os._exit(1)
