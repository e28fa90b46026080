"""Run the receiver until a signal stops it, or score and deliver what storage kept (`serve
--drain`).
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from otel_eval.cli.log_format import configure_logging, configure_worker_logging, write_line
from otel_eval.config import EvalConfig, refuse_credentials
from otel_eval.errors import ConfigError, OtelEvalError, StartCancelled
from otel_eval.native import build_info

if TYPE_CHECKING:
    from otel_eval.app.server import Server
    from otel_eval.app.workers.front import FrontServer

_log = logging.getLogger("otel_eval")

# Kubernetes sends SIGKILL 30 s after SIGTERM by default: stopping must end by itself before that.
STOP_S: Final = 10.0  # for closing the listeners, scoring pending traces and flushing
_ENDS: Final = (signal.SIGTERM, signal.SIGINT)
_MARGIN_S: Final = 2.0
_RELOAD_S: Final = 1.0  # for a reload under way to finish before the end


def run(read: Callable[[], EvalConfig], source: str | None = None) -> int:
    """Serve until SIGTERM or SIGINT, then score pending traces and flush; returns 0.

    A signal while workers start ends the start.

    Args:
        read: loads the configuration, at the start and at each SIGHUP.
        source: the file of the configuration, for the log.
    """
    # gRPC's core writes a line for each broken handshake and bad header, without our rate limit:
    # any client could flood the log.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    stop_requests = _StopRequests()
    # before what takes time, so that a signal during the start is not lost
    signals = _signals(stop_requests)
    from otel_eval.app.checking import check

    config = read()
    check(config)  # before anything listens
    configure_logging(config.telemetry.log_format, config.telemetry.log_level)
    server = _server_of(config)
    stop_requests.on_request(server.note_stop)
    try:
        bound = server.start()
    except StartCancelled:
        return 0
    hangs = False
    try:
        kafka = config.receivers.kafka
        listeners = [
            ("grpc", bound.grpc),
            ("http", bound.http),
            ("kafka", kafka and f"{kafka.topic}@{','.join(kafka.brokers)}"),
            ("telemetry", server.admin.address),
            ("ui", server.page.address if server.page else None),
        ]
        addresses = " ".join(f"{name}={address}" for name, address in listeners if address)
        # Scripts wait for this line and read the ports from it, so it does not depend on the log
        # level.
        write_line(f"ready {addresses}", prefix="", level=logging.INFO)
        described = *_describe(config, source), addresses, *build_info().values()
        _log.info(
            "serving %s: evaluations %s; exporters %s; addresses %s; version %s (%s, Python %s)",
            *described,
        )
        reloads = _Reloads(server, read)
        while signals.recv(1)[0] not in _ENDS:  # blocks until a signal
            reloads.request()
        hangs = not reloads.end()
    finally:
        # A scorer or library that blocks must not keep the process: the watchdog ends it.
        watchdog = threading.Timer(STOP_S + _MARGIN_S, _abort)
        watchdog.daemon = True
        watchdog.start()
        if not server.stop(STOP_S):
            write_line(
                f"not all scores were computed and delivered within {STOP_S:g} s; some failed with"
                " timeout or are lost"
            )
        watchdog.cancel()
    if hangs:
        # The interpreter may abort if it ends while a thread runs a user's module.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)
    return 0


def _server_of(config: EvalConfig) -> Server | FrontServer:
    """The server: with several workers the one in front of them."""
    if config.workers > 1:
        from otel_eval.app.workers.front import FrontServer

        telemetry = config.telemetry
        return FrontServer(
            config, partial(configure_worker_logging, telemetry.log_format, telemetry.log_level)
        )
    from otel_eval.app.server import Server

    return Server(config)


def _describe(config: EvalConfig, source: str | None) -> tuple[str, str, str]:
    """File, evaluations with scorers, and exporters of the configuration, for the log: without
    headers and keys.
    """
    from otel_eval.app.exporting import destinations

    built = config.named_scorers()
    evaluations = [
        f"{evaluation.name}"
        f" ({', '.join(scorer.name for of, scorer in built if of == evaluation.name)})"
        for evaluation in config.evaluations
    ]
    return (
        source or "the default evaluation, no configuration file",
        ", ".join(evaluations),
        ", ".join(destinations(config) or ["jsonl - (stdout)"]),
    )


class _StopRequests:
    """Handler of the signals that stop the process."""

    def __init__(self) -> None:
        self._requested = False
        self._callbacks: list[Callable[[], None]] = []

    def on_request(self, callback: Callable[[], None]) -> None:
        """Call the callback at each request to stop; at once if there was one already."""
        self._callbacks.append(callback)
        if self._requested:
            callback()

    def __call__(self, number: int, _: object = None) -> None:
        # the second Ctrl-C ends the process at once
        if self._requested and number == signal.SIGINT:
            os._exit(130)
        self._requested = True
        for callback in self._callbacks:
            callback()


def _signals(stop_requests: _StopRequests) -> socket.socket:
    """A socket that receives one byte, the number, for each signal.

    The interpreter's wake-up descriptor writes it, in whichever thread the signal arrives; locks
    and queues are not safe in a signal handler.
    """
    ours, theirs = socket.socketpair()
    theirs.setblocking(False)
    signal.set_wakeup_fd(theirs.detach(), warn_on_full_buffer=False)
    for number in _ENDS:
        signal.signal(number, stop_requests)
    if hasattr(signal, "SIGHUP"):  # not on Windows
        # A handler of its own, since the default action would end the process; the byte in the
        # socket causes the reload.
        signal.signal(signal.SIGHUP, lambda *_: None)
    return ours


class _Reloads:
    """Reloads the configuration on a thread, one reload at a time, so that one that hangs (a disk,
    a scorer's module) does not delay the end.

    Args:
        server: gets the configuration.
        read: loads it.
    """

    def __init__(self, server: Server | FrontServer, read: Callable[[], EvalConfig]) -> None:
        self._server, self._read = server, read
        self._requested, self._ended = threading.Event(), threading.Event()
        self._thread: Final = threading.Thread(
            target=self._run, name="otel-eval-reload", daemon=True
        )
        self._thread.start()

    def request(self) -> None:
        """Reload soon; requests that wait for a reload under way are one."""
        self._requested.set()

    def end(self) -> bool:
        """Begin no further reload, and wait a moment for one under way; whether it has ended."""
        self._ended.set()
        self._requested.set()
        self._thread.join(_RELOAD_S)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while self._requested.wait() and not self._ended.is_set():
            self._requested.clear()
            _reload(self._server, self._read, self._ended)


def _reload(
    server: Server | FrontServer, read: Callable[[], EvalConfig], is_ending: threading.Event
) -> None:
    """Switch to the current configuration file; keep the running configuration if the file is
    invalid, or the process has begun to end.
    """
    try:
        config = read()
        if is_ending.is_set():
            return
        unchanged_keys = server.reload(config)
    except Exception as error:  # noqa: BLE001 - a new configuration must not end the running server
        reason = (
            " ".join(str(error).split())
            if isinstance(error, OtelEvalError)
            else f"unexpected {type(error).__name__}"
        )
        _log.warning("reload: %s; the running configuration is kept", reason)
        return
    for key in unchanged_keys:
        _log.warning("reload: %s changed; that needs a restart", key)
    _log.warning("reload: done")


def _abort() -> None:
    """End the process at once; for the watchdog."""
    write_line(
        f"shutdown took longer than {STOP_S + _MARGIN_S:g} s; exiting with undelivered scores"
    )
    os._exit(1)


def drain(config: EvalConfig) -> int:
    """Score and deliver what storage kept, without listening; 1 if stopped by a signal before
    everything was delivered.

    Raises:
        ConfigError: no storage is configured, or a URL holds credentials.
    """
    from otel_eval.app.server import Server
    from otel_eval.storage.directory import directories_of, release_split

    if config.storage is None:
        raise ConfigError(
            "storage: missing, but --drain scores what storage kept; add it or leave --drain out"
        )
    refuse_credentials(config)
    configure_logging(config.telemetry.log_format, config.telemetry.log_level)
    stopped = threading.Event()
    stop_requests = _StopRequests()
    stop_requests.on_request(stopped.set)
    for number in (*_ENDS, getattr(signal, "SIGHUP", signal.SIGINT)):  # no SIGHUP on Windows
        signal.signal(number, stop_requests)
    # With several workers each had a directory of its own.
    for directory in directories_of(config.storage.directory):
        of_directory = config.model_copy(
            update={"storage": config.storage.model_copy(update={"directory": str(directory)})}
        )
        server = Server(of_directory)
        stop_requests.on_request(server.note_stop)
        if not server.drain(stopped):
            write_line("stopped before everything was delivered; the rest stays in storage")
            return 1
    release_split(config.storage.directory)
    return 0
