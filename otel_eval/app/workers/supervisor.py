"""Keeps one worker process running: starts it, looks at it each second, and starts it again when it ended."""

from __future__ import annotations

import logging
import multiprocessing
import pickle
import signal
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from multiprocessing.connection import wait
from typing import Any, Final

from otel_eval.admin import Readiness
from otel_eval.admin.metrics import GAUGES, Family
from otel_eval.app.workers.worker import MessageKind, limit_waits, receive, send, work
from otel_eval.config import EvalConfig
from otel_eval.counters import named_count, total_counts
from otel_eval.errors import Overloaded
from otel_eval.retry import Backoff, RetryPolicy
from otel_eval.sources.receiver.export_handler import ExportResponse, ExportStatus

__all__ = ["SupervisedWorker", "WorkerProcess"]

_log = logging.getLogger("otel_eval")

_LOOK_S: Final = 1.0
_ANSWER_S: Final = 2.0  # for a worker to report its state
_PART_S: Final = 30.0  # for a worker to take a part of a request, its disk included
_HEALTHY_S: Final = 10.0  # a worker that lived longer is started again without delay
_ACCEPTED: Final = ExportResponse(ExportStatus.ACCEPTED)
_POLICY: Final = RetryPolicy(first_s=0.2, factor=2.0, longest_s=10.0)


class WorkerProcess:
    """One life of a worker, and the connections to it.

    Args:
        arguments: of `work`, without the control socket.
    """

    def __init__(self, *arguments: Any) -> None:
        self._control, theirs = socket.socketpair()
        context = multiprocessing.get_context("spawn")  # gRPC and threads do not survive a fork
        name = f"otel-eval-worker-{arguments[0]}"
        self.process: Final = context.Process(target=work, args=(*arguments, theirs), name=name)
        self._idle: Final[deque[socket.socket]] = deque()
        self.began: Final = time.monotonic()
        with theirs:
            self.process.start()

    def await_ready(self) -> None:
        """Wait until it takes requests.

        Raises:
            ConfigError: it cannot start with this configuration.
            OSError: it ended.
        """
        kind, payload = receive(self._control)
        if kind == MessageKind.FAILED:
            raise pickle.loads(payload)

    def _connect(self, limit_s: float) -> socket.socket:
        ours, theirs = socket.socketpair()
        limit_waits(ours, limit_s)
        with theirs:
            try:
                socket.send_fds(self._control, [b"c"], [theirs.fileno()])
            except OSError:
                ours.close()
                raise
        return ours

    def begin(self, kind: int, body: bytes) -> socket.socket:
        """Send a part of a request; what is returned is for `finish`.

        Raises:
            OSError: the worker ended or hangs.
        """
        try:
            connection = self._idle.pop()
        except IndexError:
            connection = self._connect(_PART_S)
        try:
            send(connection, kind, body)
        except OSError:
            connection.close()
            raise
        return connection

    def finish(self, connection: socket.socket) -> tuple[int, bytes]:
        """The answer; raises as `begin` does. The connection must not be used after that."""
        try:
            answer = receive(connection)
        except OSError:
            connection.close()
            raise
        self._idle.append(connection)
        return answer

    def ask(self, kind: MessageKind, limit_s: float, what: object = None) -> Any:
        """Have something done.

        Raises:
            OSError: the worker ended or hangs.
            Exception: what it raised.
        """
        with self._connect(limit_s) as connection:
            send(connection, kind, pickle.dumps(what))
            answer, payload = receive(connection)
        found = pickle.loads(payload)
        if answer == MessageKind.FAILED:
            raise found
        return found

    def leave(self) -> None:
        """Close the control socket: the worker stops. Safe to repeat."""
        self._control.close()
        while self._idle:
            self._idle.pop().close()

    def end(self, timeout_s: float) -> None:
        """Wait for its end, and kill it if that takes longer."""
        self.leave()
        self.process.join(timeout_s)
        if self.process.is_alive():
            _log.warning("%s did not stop in time and is killed", self.process.name)
            self.process.kill()
            self.process.join()


class SupervisedWorker:
    """One place of a worker, and the process that fills it.

    Args:
        number: from 1.
        config: this worker's own.
        instance: `service.instance.id` of its metrics.
        prepare: sets up logging in the process.
    """

    def __init__(self, number: int, config: EvalConfig, instance: str, prepare: Callable[[int], None]) -> None:
        self.number: Final = number
        self.finished = False
        self._config = config
        self._instance, self._prepare = instance, prepare
        self._process: WorkerProcess | None = None
        self._ready: WorkerProcess | None = None  # it, while it takes requests
        self._stopping: Final = threading.Event()
        self._backoff = Backoff(_POLICY, self._stopping)
        self._thread: Final = threading.Thread(target=self._keep, name=f"otel-eval-worker-{number}", daemon=True)
        self._restarts = 0
        self._counts: Mapping[str, Any] = {}  # of the process, as last reported
        self._ended: Mapping[str, Any] = {}  # what processes counted that have ended
        self._readiness = Readiness(False, "it starts")

    # ------------------------------------------------------------------ for requests

    def begin_part(self, kind: int, body: bytes) -> Callable[[], ExportResponse]:
        """Send a part of a request; what is returned waits for the answer, and raises the same.

        Raises:
            Overloaded: there is no process that takes it now.
        """
        process = self._running()
        try:
            connection = process.begin(kind, body)
        except OSError:
            raise Overloaded(f"worker {self.number} does not take requests now; retry later") from None
        return partial(self._finish_part, process, connection)

    def _finish_part(self, process: WorkerProcess, connection: socket.socket) -> ExportResponse:
        try:
            _, payload = process.finish(connection)
        except OSError:
            raise Overloaded(f"worker {self.number} ended while it took a request; retry later") from None
        return pickle.loads(payload) if payload else _ACCEPTED

    def _running(self) -> WorkerProcess:
        if self._ready is None:
            raise Overloaded(f"worker {self.number} does not run now; retry later")
        return self._ready

    # ------------------------------------------------------------------ life

    def begin(self) -> WorkerProcess:
        """Start the process, without waiting for it."""
        self._process = WorkerProcess(self.number, self._config, self._instance, self._prepare)
        return self._process

    def await_ready(self) -> None:
        """Wait until it takes requests, and keep it running from then on.

        Raises:
            ConfigError: it cannot start with this configuration.
            OSError: it ended.
        """
        assert self._process is not None
        self._process.await_ready()
        self._open(self._process)
        self._thread.start()

    def _open(self, process: WorkerProcess) -> None:
        self._ready = process
        self._look(process)

    def _keep(self) -> None:
        while not self._stopping.is_set():
            assert self._process is not None
            if not wait([self._process.process.sentinel], _LOOK_S):
                self._look(self._process)
            elif not self._stopping.is_set():
                self._restart(self._process)

    def _look(self, process: WorkerProcess) -> None:
        try:
            self._counts, self._readiness = process.ask(MessageKind.LOOK, _ANSWER_S)
        except Exception as error:  # noqa: BLE001 - it may be ending, or hang
            self._readiness = Readiness(False, f"it does not answer ({type(error).__name__})")

    def _restart(self, process: WorkerProcess) -> None:
        self._ready = None
        self._readiness = Readiness(False, "it ended and is started again")
        process.end(0.0)
        self._keep_counts()
        _log.warning("worker %d ended (%s) and is started again", self.number, _reason(process.process.exitcode))
        if time.monotonic() - process.began > _HEALTHY_S:
            self._backoff = Backoff(_POLICY, self._stopping)
        self._backoff.wait()
        if self._stopping.is_set():
            return
        self._restarts += 1
        given = self._config
        fresh = self.begin()
        if self._stopping.is_set():  # after `stop` looked for the process
            fresh.end(_ANSWER_S)
            return
        try:
            fresh.await_ready()
        except Exception as error:  # noqa: BLE001 - it is started again until it runs
            self._readiness = Readiness(False, f"it cannot start: {error}")
            _log.warning("worker %d cannot start: %s", self.number, error)
            fresh.leave()
            fresh.process.join()
        else:
            self._open(fresh)
            if self._config is not given:
                self.reload(self._config)

    def _keep_counts(self) -> None:
        """Counters of the service must not fall because a process that counted ended."""
        counted = {key: value for key, value in self._counts.items() if key.partition("{")[0] not in GAUGES}
        self._ended = total_counts([self._ended, counted])
        self._counts = {}

    def reload(self, config: EvalConfig) -> None:
        """Use another configuration now, or if no process answers now, after the next start."""
        self._config, process = config, self._ready
        if process is None:
            return
        try:
            process.ask(MessageKind.RELOAD, _PART_S, config)
        except Exception as error:  # noqa: BLE001 - it is ending, or hangs; the configuration was checked
            _log.warning("reload: worker %d keeps its configuration until it is started again (%s)", self.number, error)

    def stop(self, timeout_s: float) -> None:
        """Have it stop, and end it if it does not; `finished` is then whether everything was evaluated and delivered."""
        self._stopping.set()
        process, self._ready = self._process, None
        if process is None:  # it was never begun
            return
        try:
            self.finished, (self._counts, self._readiness) = process.ask(MessageKind.STOP, timeout_s + _ANSWER_S, timeout_s)
        except Exception as error:  # noqa: BLE001 - it is ended in any case
            _log.warning("worker %d could not be stopped: %s", self.number, type(error).__name__)
        process.end(_ANSWER_S)

    def leave(self) -> None:
        """Have the process stop by itself, without waiting."""
        self._stopping.set()
        if self._process is not None:
            self._process.leave()

    # ------------------------------------------------------------------ for the operator

    @property
    def readiness(self) -> Readiness:
        """Whether it works, as it reported a second ago."""
        return self._readiness

    def scores(self) -> list[Family]:
        """The metrics of results in its process; none if it does not answer."""
        try:
            found: list[Family] = self._running().ask(MessageKind.SCORES, _ANSWER_S)
        except (OSError, RuntimeError, Overloaded):
            return []
        return found

    def counts(self) -> dict[str, Any]:
        """What its processes counted, as they reported a second ago."""
        label = {"worker": str(self.number)}
        own = {named_count("workers.up", label): int(self._ready is not None)}
        own[named_count("workers.restarts", label)] = self._restarts
        return total_counts([self._ended, self._counts]) | own


def _reason(code: int | None) -> str:
    if code is not None and code < 0:
        return signal.Signals(-code).name
    return f"exit code {code}"
