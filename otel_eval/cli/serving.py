"""Serve until told to stop.

Knows signals and the time that stopping may take; what is served is the application's.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import TYPE_CHECKING, Final

from otel_eval.cli.lines import dress
from otel_eval.config import EvalConfig
from otel_eval.errors import OtelEvalError

if TYPE_CHECKING:
    from otel_eval.app.server import Server

__all__ = ["run"]

_log = logging.getLogger("otel_eval")

STOP_S: Final = 10.0  # for taking no more, scoring what is pending and flushing
_MARGIN_S: Final = 2.0


def run(read: Callable[[], EvalConfig]) -> int:
    """Serve until SIGTERM or SIGINT; 0 after everything pending was scored and flushed.

    Args:
        read: reads the configuration; once more at each SIGHUP.
    """
    from otel_eval.app.server import Server

    config = read()
    dress(config.telemetry.log_format)
    told = threading.Event()
    orders: SimpleQueue[Callable[[Server], bool]] = SimpleQueue()  # its put is safe in a signal's handler
    # Before anything listens, so that a signal during the start is not lost.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda which, _: orders.put(_asked_to_stop(told, which)))
    if hasattr(signal, "SIGHUP"):  # not on Windows
        signal.signal(signal.SIGHUP, lambda *_: orders.put(lambda server: _reload(server, read)))
    server = Server(config)
    bound = server.start()
    try:
        places = (("grpc", bound.grpc), ("http", bound.http), ("telemetry", server.operating.address))
        sys.stderr.write(f"ready {' '.join(f'{name}={place}' for name, place in places if place)}\n")
        sys.stderr.flush()
        while orders.get()(server):
            pass
    finally:
        watchdog = threading.Timer(STOP_S + _MARGIN_S, _give_up)
        watchdog.daemon = True
        watchdog.start()
        if not server.stop(STOP_S):
            sys.stderr.write(f"otel-eval: not every score could be delivered within {STOP_S:g} s; some are lost\n")
        watchdog.cancel()
    return 0


def _reload(server: Server, read: Callable[[], EvalConfig]) -> bool:
    """Go on with what the configuration says now; with what it said before if that cannot be used."""
    try:
        kept = server.reload(read())
    except OtelEvalError as error:
        _log.warning("reload: %s; what was read before stays", " ".join(str(error).split()))
        return True
    except Exception as error:  # noqa: BLE001 - a new configuration must not end what runs by the old one
        _log.warning("reload: unexpected %s; what was read before stays", type(error).__name__)
        return True
    for key in kept:
        _log.warning("reload: %s changed; that needs a restart", key)
    _log.warning("reload: done")
    return True


def _asked_to_stop(told: threading.Event, which: int) -> Callable[[Server], bool]:
    if told.is_set() and which == signal.SIGINT:  # a person who asks twice does not want to wait
        os._exit(130)
    told.set()
    return lambda _: False


def _give_up() -> None:
    sys.stderr.write(f"otel-eval: stopping took longer than {STOP_S + _MARGIN_S:g} s; ended with scores unsent\n")
    sys.stderr.flush()
    os._exit(1)
