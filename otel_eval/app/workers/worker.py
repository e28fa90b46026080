"""One worker process: the server without listeners. The front calls methods of it over connections.

A worker gets its end of each connection as a descriptor over its control socket: there is no address that another process could
connect to.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from multiprocessing.connection import Connection
from typing import Any, Final

from otel_eval.admin import Readiness
from otel_eval.admin.metrics import Family
from otel_eval.app.server import Server
from otel_eval.config import EvalConfig
from otel_eval.diagnostics import expect_no_spans
from otel_eval.errors import ConfigError, OtelEvalError
from otel_eval.sources.receiver.export_handler import InternalError

_STOP_S: Final = 10.0  # to end in when the front is gone
_MARGIN_S: Final = 2.0


class Worker(Server):
    """A server without addresses; the front calls its methods by name."""

    def __init__(self, number: int, config: EvalConfig) -> None:
        super().__init__(config, listens=False)
        self._number: Final = number
        self._stop_once: Final = threading.Lock()  # the front, or the worker itself where the front is gone
        self._stopped: bool | None = None

    def look(self) -> tuple[dict[str, Any], Readiness]:
        """What was counted, and whether it works."""
        return self.counts(), self.readiness()

    def scores(self) -> list[Family]:
        """The metrics of results, with the number of this worker: averages of several cannot be added up."""
        label = {"worker": str(self._number)}
        return [
            replace(each, rows=[(suffix, {**labels, **label}, value) for suffix, labels, value in each.rows])
            for each in super().scores()
        ]

    def stop(self, timeout_s: float = _STOP_S) -> bool:
        """Stop, once; False if not everything was evaluated and delivered in time."""
        with self._stop_once:
            if self._stopped is None:
                self._stopped = super().stop(timeout_s)
            return self._stopped


def work(number: int, config: EvalConfig, instance: str, prepare: Callable[[int], None], control: socket.socket) -> None:
    """Run a worker to its end: until the front closes the control socket, or is gone.

    Args:
        number: of this worker, from 1.
        config: this worker's own.
        instance: `service.instance.id` of its metrics, which must not be those of another worker.
        prepare: called first with the number, to set up logging.
        control: where descriptors of connections come from. Over the first one the front gets what came of the start.
    """
    # The front stops its workers. Signals to the whole group of processes must not end them while it hands over requests.
    for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(each, lambda *_: None)
    given = os.environ.get("OTEL_RESOURCE_ATTRIBUTES", "")
    os.environ["OTEL_RESOURCE_ATTRIBUTES"] = f"{given}{',' if given else ''}service.instance.id={instance}"
    prepare(number)
    expect_no_spans()
    front = _accept(control)
    if front is not None and (worker := _started(number, config, front)) is not None:
        _run(worker, front, control)
    sys.stderr.flush()
    os._exit(0)  # a scorer that does not return must not keep the process


def _started(number: int, config: EvalConfig, front: Connection) -> Worker | None:
    try:
        worker = Worker(number, config)
        worker.start()
    except Exception as error:  # noqa: BLE001 - the front reports it
        front.send((False, error if isinstance(error, ConfigError) else ConfigError(f"{type(error).__name__}: {error}")))
        return None
    front.send((True, None))
    return worker


def _run(worker: Worker, front: Connection | None, control: socket.socket) -> None:
    while front is not None:
        threading.Thread(target=_serve, args=(worker, front), name="otel-eval-part", daemon=True).start()
        front = _accept(control)
    watchdog = threading.Timer(_STOP_S + _MARGIN_S, os._exit, (1,))
    watchdog.daemon = True
    watchdog.start()
    worker.stop(_STOP_S)


def _serve(worker: Worker, connection: Connection) -> None:
    """Answer the calls that come over one connection, until the front closes it."""
    with connection, suppress(OSError, EOFError):
        while True:
            connection.send(_answer(worker, *connection.recv()))


def _answer(worker: Worker, method: str, arguments: tuple[Any, ...]) -> tuple[bool, Any]:
    """Whether the method returned, and what it returned or raised."""
    try:
        return True, getattr(worker, method)(*arguments)
    except (OtelEvalError, InternalError) as error:
        return False, error
    except Exception as error:  # noqa: BLE001 - the front reports it; not every error can be sent
        return False, RuntimeError(type(error).__name__)


def _accept(control: socket.socket) -> Connection | None:
    """A connection from the front; None if the front closed the control socket, or is gone."""
    try:
        message, descriptors, _, _ = socket.recv_fds(control, 1, 1)
    except OSError:
        return None
    return Connection(descriptors[0]) if message else None
