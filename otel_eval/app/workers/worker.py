"""A worker process: the server without listeners that runs in it, and the supervisor in the front
that restarts it.

The front calls methods of the `Server` in a worker over connections. A worker gets its end of each
connection as a descriptor over its control socket, so that there is no address to which another
process could connect.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import socket
import struct
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from multiprocessing.connection import Connection, wait
from typing import Any, Final

from otel_eval.admin import Readiness
from otel_eval.admin.metrics import GAUGES, Family
from otel_eval.app.page import HeldByWorker
from otel_eval.app.server import Server
from otel_eval.config import EvalConfig
from otel_eval.counters import Counters, CountName, Counts, count_name, total_counts, without_labels
from otel_eval.diagnostics import expect_no_spans
from otel_eval.errors import ConfigError, OtelEvalError, Overloaded
from otel_eval.otlp import Signal
from otel_eval.retry import Backoff, RetryPolicy
from otel_eval.scorers.tool_names import plural
from otel_eval.sources.receiver.export_handler import ExportResponse, InternalError

_log = logging.getLogger("otel_eval")

_STOP_S: Final = 10.0  # for a worker to stop by itself when the front has ended
_MARGIN_S: Final = 2.0
_POLL_S: Final = 1.0
_ANSWER_S: Final = 2.0  # for a worker to report its state
_HANGS_S: Final = 60.0  # without an answer, until a worker is killed and started again
_BEAT_S: Final = 1.0  # between two signs of life of a worker that starts
_SILENT_START_S: Final = 60.0  # without one, until a worker that starts is killed
_FIRST_STARTS: Final = 3  # attempts to start a worker for the first time
# for a worker to accept a part of a request, including the write to its journal
_PART_S: Final = 30.0
_HEALTHY_S: Final = 10.0  # after a worker that ran longer than this the backoff starts anew
_LIMIT: Final = struct.pack("ll", int(_PART_S), 0)  # struct timeval
_POLICY: Final = RetryPolicy(first_s=0.2, factor=2.0, longest_s=10.0)


def work(
    number: int,
    config: EvalConfig,
    instance: str,
    prepare: Callable[[int], None],
    control: socket.socket,
) -> None:
    """Run a worker until the front closes the control socket or ends; the main function of the
    process.

    Args:
        number: the number of this worker, from 1.
        config: the configuration of this worker.
        instance: `service.instance.id` of its metrics, different for each worker.
        prepare: called first with the number, to set up logging.
        control: the socket that receives the descriptors of connections. Over the first connection
            the worker reports whether it started.
    """
    # The front stops its workers. A signal to the whole process group must not end them while the
    # front sends requests.
    for signal_number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(signal_number, lambda *_: None)
    attributes = os.environ.get("OTEL_RESOURCE_ATTRIBUTES", "")
    os.environ["OTEL_RESOURCE_ATTRIBUTES"] = (
        f"{attributes}{',' if attributes else ''}service.instance.id={instance}"
    )
    prepare(number)
    expect_no_spans()
    if (front := _accept(control)) is not None:
        _run(config, front, control)
    sys.stderr.flush()
    os._exit(0)  # a scorer that does not return must not keep the process alive


def _run(config: EvalConfig, front: Connection, control: socket.socket) -> None:
    try:
        with _signs_of_life(front):
            worker = Server(config, listens=False)
            worker.start()
    except Exception as error:  # noqa: BLE001 - the front reports it
        return front.send(
            (
                False,
                error
                if isinstance(error, ConfigError)
                else ConfigError(f"{type(error).__name__}: {error}"),
            )
        )
    front.send((True, None))
    connection: Connection | None = front
    while connection is not None:
        try:
            threading.Thread(
                target=_serve, args=(worker, connection), name="otel-eval-part", daemon=True
            ).start()
        except RuntimeError:
            # the system allows no more threads: clients retry, and the worker keeps its traces
            connection.close()
        connection = _accept(control)
    watchdog = threading.Timer(_STOP_S + _MARGIN_S, os._exit, (1,))
    watchdog.daemon = True
    watchdog.start()
    worker.stop(_STOP_S)
    return None


@contextmanager
def _signs_of_life(front: Connection) -> Iterator[None]:
    """A context in which the front is told every second that the process runs: to read a large
    journal takes long.
    """
    has_started = threading.Event()

    def beat() -> None:
        with suppress(OSError):  # the front has ended
            while not has_started.wait(_BEAT_S):
                front.send(None)

    thread = threading.Thread(target=beat, name="otel-eval-start", daemon=True)
    thread.start()
    try:
        yield
    finally:
        has_started.set()
        thread.join()


def _serve(worker: Server, connection: Connection) -> None:
    """Answer the calls from one connection until the front closes it."""
    with connection, suppress(OSError, EOFError):
        while True:
            connection.send(_call_method(worker, *connection.recv()))


def _call_method(worker: Server, method: str, arguments: tuple[Any, ...]) -> tuple[bool, Any]:
    """Call the method: (True, its result), or (False, its exception)."""
    try:
        return True, getattr(worker, method)(*arguments)
    except (OtelEvalError, InternalError) as error:
        return False, error
    except Exception as error:  # noqa: BLE001
        # the front reports it; not every exception can be pickled
        return False, RuntimeError(type(error).__name__)


def _accept(control: socket.socket) -> Connection | None:
    """Wait for a connection from the front; None if the front closed the control socket or
    ended.
    """
    try:
        message, descriptors, _, _ = socket.recv_fds(control, 1, 1)
    except OSError:
        return None
    return Connection(descriptors[0]) if message else None


class WorkerProcess:
    """One process of a worker, and the connections to it.

    Args:
        arguments: the arguments of `work` without the control socket.
    """

    def __init__(self, *arguments: Any) -> None:
        self._control, theirs = socket.socketpair()
        context = multiprocessing.get_context("spawn")  # gRPC and threads do not survive a fork
        name = f"otel-eval-worker-{arguments[0]}"
        self.process: Final = context.Process(target=work, args=(*arguments, theirs), name=name)
        self._idle: Final[deque[Connection]] = deque()
        self._lock: Final = threading.Lock()  # guards _in_use
        # connections on which an answer is awaited
        self._in_use: Final[set[Connection]] = set()
        with theirs:
            self.process.start()

    def await_ready(self) -> None:
        """Wait until the process accepts requests; kill it if it shows no sign of life.

        Raises:
            ConfigError: it cannot start with this configuration.
            Overloaded: it ended.
        """
        connection = self._connect()
        report = None
        with self._communication(connection):
            while report is None:
                if not connection.poll(_SILENT_START_S):
                    self.process.kill()
                    raise TimeoutError
                report = connection.recv()
        self._result(connection, report)

    def begin_call(self, limit_s: float, method: str, *arguments: Any) -> Callable[[], Any]:
        """Begin a call of a method of the `Server`, and return a function that waits for the
        result.

        That function raises what the method raises, or `Overloaded`, too.

        Args:
            limit_s: how long to wait for the result, in seconds.

        Raises:
            Overloaded: the worker ended or hangs.
        """
        try:
            connection = self._idle.pop()
        except IndexError:
            connection = self._connect()
        with self._lock:
            self._in_use.add(connection)
        with self._communication(connection):
            connection.send((method, arguments))
        return partial(self._finish, connection, limit_s)

    def call(self, limit_s: float, method: str, *arguments: Any) -> Any:
        """Call a method of the `Server` and wait for its result; raises as `begin_call` does."""
        return self.begin_call(limit_s, method, *arguments)()

    def _connect(self) -> Connection:
        ours, theirs = socket.socketpair()
        # A send or receive that takes longer fails. A timeout set by Python would make the socket
        # non-blocking.
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, _LIMIT)
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, _LIMIT)
        with ours, theirs, self._communication():
            socket.send_fds(self._control, [b"c"], [theirs.fileno()])
            return Connection(ours.detach())

    def _finish(self, connection: Connection, limit_s: float) -> Any:
        with self._communication(connection):
            # `_PART_S` is the socket's own limit
            if limit_s != _PART_S and not connection.poll(limit_s):
                raise TimeoutError  # which is an OSError
            report = connection.recv()
        return self._result(connection, report)

    def _result(self, connection: Connection, report: tuple[bool, Any]) -> Any:
        """Return or raise what the process reported over a connection, which is idle now."""
        returned, result = report
        with self._lock:
            self._in_use.discard(connection)
        self._idle.append(connection)
        if not returned:
            raise result
        return result

    @contextmanager
    def _communication(self, connection: Connection | None = None) -> Iterator[None]:
        """A context for communication with the process: an I/O error closes the connection and is
        raised as `Overloaded`.
        """
        try:
            yield
        except (OSError, EOFError) as error:
            if connection is not None:
                self._close(connection)
            raise Overloaded(f"{self.process.name} ended or hangs; retry later") from error

    def _close(self, connection: Connection) -> None:
        with self._lock:
            self._in_use.discard(connection)
            connection.close()

    def abandon_calls(self) -> None:
        """Let every call that waits for the process fail now."""
        with self._lock:  # none of them is closed meanwhile
            for connection in self._in_use:
                with suppress(OSError), socket.socket(fileno=os.dup(connection.fileno())) as ours:
                    ours.shutdown(socket.SHUT_RDWR)

    def disconnect(self) -> None:
        """Close the control socket, so that the worker stops by itself. Safe to repeat."""
        self._control.close()
        while self._idle:
            self._idle.pop().close()

    def end(self, timeout_s: float) -> None:
        """Wait for the end of the process, and kill it if that takes longer than `timeout_s`."""
        self.disconnect()
        self.process.join(timeout_s)
        if self.process.is_alive():
            _log.warning("%s did not stop in time and is killed", self.process.name)
            self.process.kill()
            self.process.join()


class SupervisedWorker:
    """Keeps one worker process running: starts it, and starts it again when it ends.

    Args:
        number: of the worker, from 1.
        config: of this worker, with its share of the limits.
        instance: `service.instance.id` of its metrics.
        prepare: sets up logging in the process.
    """

    def __init__(
        self, number: int, config: EvalConfig, instance: str, prepare: Callable[[int], None]
    ) -> None:
        self.number: Final = number
        self.finished = False
        self._config = config
        self._instance, self._prepare = instance, prepare
        self._process: WorkerProcess | None = None
        self._ready: WorkerProcess | None = None  # the process while it accepts requests
        self._stopping: Final = threading.Event()
        self._backoff = Backoff(_POLICY, self._stopping)
        # done when the first process accepts requests or cannot start
        self.first_ready: Final[Future[None]] = Future()
        self._thread: Final = threading.Thread(
            target=self._supervise, name=f"otel-eval-worker-{number}", daemon=True
        )
        self._restarts = 0
        self._counts: Counts = {}  # counters of the process, as last reported
        self._former_counts: Counts = {}  # summed counters of earlier processes
        self.readiness = Readiness(False, "it starts")  # as last reported
        # the monotonic time of the first check that the process did not answer; None: it answers
        self._silent_since: float | None = None
        self._lost: Final = Counters()

    # ------------------------------------------------------------------ for requests

    def begin_part(
        self, transport: str, signal: Signal, body: bytes
    ) -> Callable[[], ExportResponse]:
        """Send a part of a request, and return a function that waits for the response.

        That function raises what `ExportHandler.take` raises, or `Overloaded`.

        Raises:
            Overloaded: no process accepts requests now.
        """
        process = self._ready
        if process is None:
            raise Overloaded(f"worker {self.number} is not running; retry later")
        if self._silent_since is not None:
            raise Overloaded(f"worker {self.number} does not answer; retry later")
        return process.begin_call(_PART_S, "take", transport, signal, body)

    # ------------------------------------------------------------------ life

    def start(self) -> None:
        """Start the process and keep it running, without waiting for it."""
        self._thread.start()

    def await_ready(self) -> None:
        """Wait until the first process accepts requests.

        Raises:
            ConfigError: it cannot start.
        """
        try:
            self.first_ready.result()
        except Overloaded:
            raise ConfigError(
                f"workers: worker {self.number} ended {_FIRST_STARTS} times while it started; its"
                " log lines show why"
            ) from None

    def _supervise(self) -> None:
        while not self._stopping.is_set():
            began = time.monotonic()
            try:
                self._run_process()
            except Exception as error:  # noqa: BLE001
                # it could not start; if an earlier process did, this is retried
                # one that ended, for instance by a signal, is said to be started again
                has_ended = isinstance(error, Overloaded)
                is_last = not has_ended or self._restarts + 1 >= _FIRST_STARTS
                if is_last and not self.first_ready.done():
                    self.first_ready.set_exception(error)
                    return
                if not (self._stopping.is_set() or has_ended):
                    _log.warning("worker %d cannot start: %s", self.number, error)
            if not self._stopping.is_set():
                self._prepare_restart(time.monotonic() - began)

    def _run_process(self) -> None:
        """Start a process, and poll its state until it ends."""
        config = self._config
        process = self._process = WorkerProcess(self.number, config, self._instance, self._prepare)
        if self._stopping.is_set():  # `stop` was called before there was a process
            return process.end(_ANSWER_S)
        process.await_ready()
        self._ready = process
        self._poll_state(process)
        if not self.first_ready.done():
            self.first_ready.set_result(None)
        if self._config is not config:
            self.reload(self._config)
        while not wait([process.process.sentinel], _POLL_S) and not self._stopping.is_set():
            was_silent = self._silent_since is not None
            self._poll_state(process)
            if was_silent and self._silent_since is None and not self._stopping.is_set():
                _log.info("worker %d answers again", self.number)
                self.reload(self._config)  # one may have been missed
        return None

    def _poll_state(self, process: WorkerProcess) -> None:
        try:
            self._counts, self.readiness = process.call(_ANSWER_S, "state")
            self._silent_since = None
        except Exception as error:  # noqa: BLE001 - the process may be ending or hang
            self.readiness = Readiness(False, f"it does not answer ({type(error).__name__})")
            self._note_silence(process)

    def _note_silence(self, process: WorkerProcess) -> None:
        """Refuse parts of requests from now on, and kill the process if it is silent for long."""
        if self._stopping.is_set() or wait([process.process.sentinel], 0):
            return  # it ends or ended
        process.abandon_calls()
        now = time.monotonic()
        if self._silent_since is None:
            self._silent_since = now
            _log.warning(
                "worker %d does not answer: requests for it are refused as retryable; if it stays"
                " so for %d s it is killed and started again",
                self.number,
                _HANGS_S,
            )
        elif now - self._silent_since >= _HANGS_S:
            process.process.kill()

    def _prepare_restart(self, lived_s: float) -> None:
        process, self._ready = self._process, None
        self._silent_since = None
        self.readiness = Readiness(False, "it ended and is started again")
        if process is not None:
            process.end(_ANSWER_S)
            _log.warning(
                "worker %d ended (exit code %s) and is started again%s",
                self.number,
                process.process.exitcode,
                self._count_lost(),
            )
        # Counters of the service must not decrease when a process ends.
        counted = {
            key: value for key, value in self._counts.items() if without_labels(key) not in GAUGES
        }
        self._former_counts, self._counts = total_counts([self._former_counts, counted]), {}
        if lived_s > _HEALTHY_S:
            self._backoff = Backoff(_POLICY, self._stopping)
        self._backoff.wait()
        self._restarts += 1

    def _count_lost(self) -> str:
        """Count what the process held by its last report, which is lost without storage; return
        that in words.
        """
        if self._config.storage is not None:
            return ""
        traces = int(self._counts.get("open_traces", 0))
        results = sum(
            int(count)
            for key, count in self._counts.items()
            if without_labels(key) == "results.queued"
        )
        label = str(self.number)
        self._lost.add("workers.lost_traces", traces, worker=label)
        self._lost.add("workers.lost_results", results, worker=label)
        if not (traces or results):
            return ""
        return (
            f"; without storage, {plural(traces, 'open trace')} and"
            f" {plural(results, 'queued result')} that it had are lost"
        )

    def reload(self, config: EvalConfig) -> None:
        """Use another configuration: now, or after the next start if no process answers now."""
        self._config, process = config, self._ready
        if process is None or self._silent_since is not None:
            return
        try:
            process.call(_PART_S, "reload", config)
        except Exception as error:  # noqa: BLE001
            # the process is ending or hangs; the configuration is valid
            _log.warning(
                "reload: worker %d keeps its configuration until it is started again (%s)",
                self.number,
                error,
            )

    def stop(self, timeout_s: float) -> None:
        """Stop the process, and kill it if it does not end; sets `finished`: whether everything was
        evaluated and delivered.
        """
        self._stopping.set()
        process, self._ready = self._ready, None
        if process is not None and self._silent_since is None:
            try:
                self.finished = process.call(timeout_s + _ANSWER_S, "stop", timeout_s)
                self._poll_state(process)
            except Exception as error:  # noqa: BLE001 - the process is killed in any case
                _log.warning(
                    "worker %d could not be stopped: %s", self.number, type(error).__name__
                )
        if self._process is not None:
            self._process.end(_ANSWER_S)

    def disconnect(self) -> None:
        """Let the process stop by itself, without waiting."""
        self._stopping.set()
        if self._process is not None:
            self._process.disconnect()

    # ------------------------------------------------------------------ for the operator

    def scores(self) -> list[Family]:
        """The metrics of results of its process, labelled with its number, since averages cannot be
        added; [] if it hangs.
        """
        process, label = self._ready, {"worker": str(self.number)}
        process = process if self._silent_since is None else None
        try:
            families: list[Family] = (
                process.call(_ANSWER_S, "scores") if process is not None else []
            )
        except (Overloaded, RuntimeError):
            return []
        return [
            replace(
                family,
                rows=[
                    (suffix, {**labels, **label}, value) for suffix, labels, value in family.rows
                ],
            )
            for family in families
        ]

    def recent_runs(self, after: int) -> HeldByWorker | None:
        """The last runs of its process that changed after a change with this number; None if it
        does not answer.
        """
        process = self._ready
        try:
            return None if process is None else process.call(_ANSWER_S, "recent_runs", after)
        except (Overloaded, RuntimeError):
            return None

    def counts(self) -> dict[CountName, Any]:
        """The counters of all its processes, as reported up to a second ago."""
        worker = str(self.number)
        is_up = self._ready is not None and self._silent_since is None
        counts = {count_name("workers.up", worker=worker): int(is_up)}
        counts[count_name("workers.restarts", worker=worker)] = self._restarts
        return total_counts([self._former_counts, self._counts, self._lost.snapshot()]) | counts
