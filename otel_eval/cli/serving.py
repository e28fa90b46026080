"""Run the receiver until a signal stops it, or score and deliver what storage kept (`serve --drain`)."""

from __future__ import annotations

import logging
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

from otel_eval.cli.log_format import configure_logging, write_line
from otel_eval.config import EvalConfig, refuse_credentials
from otel_eval.errors import ConfigError, OtelEvalError
from otel_eval.redaction import redacted_repr
from otel_eval.versions import build_info

if TYPE_CHECKING:
    from otel_eval.app.server import Server

__all__ = ["drain", "run"]

_log = logging.getLogger("otel_eval")

STOP_S: Final = 10.0  # for taking no more, scoring what is pending and flushing
_ENDS: Final = (signal.SIGTERM, signal.SIGINT)
_MARGIN_S: Final = 2.0


def run(read: Callable[[], EvalConfig], source: str | None = None) -> int:
    """Serve until SIGTERM or SIGINT; 0 after everything pending was scored and flushed.

    Args:
        read: reads the configuration; once more at each SIGHUP.
        source: the file of the configuration, for the log.
    """
    # gRPC's core writes a line for each broken handshake and bad header: at the pace of a stranger, past our limits on lines.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    from otel_eval.app.server import Server
    from otel_eval.app.server_wiring import check

    config = read()
    check(config)
    configure_logging(config.telemetry.log_format, config.telemetry.log_level)
    asked = _StopRequests()
    signals = _signals(asked)  # before anything listens, so that none during the start is lost
    server = Server(config)
    asked.tell(server.note_stop)
    bound = server.start()
    try:
        places = [("grpc", bound.grpc), ("http", bound.http), ("telemetry", server.admin.address)]
        addresses = " ".join(f"{name}={place}" for name, place in places if place)
        write_line(f"ready {addresses}", prefix="", level=logging.INFO)
        described = *_described(config, source), addresses, *build_info().values()
        _log.info("serving %s: evaluations %s; exporters %s; addresses %s; version %s (%s, Python %s)", *described)
        while signals.recv(1)[0] not in _ENDS:
            _reload(server, read)
    finally:
        watchdog = threading.Timer(STOP_S + _MARGIN_S, _abort)
        watchdog.daemon = True
        watchdog.start()
        if not server.stop(STOP_S):
            write_line(f"not every score was there and delivered within {STOP_S:g} s; some failed with timeout or are lost")
        watchdog.cancel()
    return 0


def _described(config: EvalConfig, source: str | None) -> tuple[str, str, str]:
    """The configuration's file, its evaluations with their scorers, and its exporters, without headers and keys."""
    from otel_eval.scorers.judge import any_judge_name

    with any_judge_name():  # no judge is asked
        evaluations = [f"{each.name} ({', '.join(scorer.name for scorer in each.build())})" for each in config.evaluations]
    return source or "the default evaluation, no configuration file", ", ".join(evaluations), ", ".join(_exporters(config))


def _exporters(config: EvalConfig) -> Iterator[str]:
    jsonl, otlp, forward = config.exporters.jsonl, config.exporters.otlp, config.exporters.forward
    if jsonl or not (otlp or forward):
        yield f"jsonl {jsonl.path if jsonl else '- (stdout)'}"
    if otlp:
        yield f"otlp {redacted_repr(otlp.endpoint)} ({', '.join(otlp.signals)})"
    if forward:
        yield f"forward {redacted_repr(forward.endpoint)}"


class _StopRequests:
    """Requests to stop, by the number of their signals."""

    def __init__(self) -> None:
        self._numbers: list[int] = []
        self._tell: Callable[[], None] = lambda: None

    def tell(self, whom: Callable[[], None]) -> None:
        """Call this at the first request, also if that came before."""
        self._tell = whom
        if self._numbers:
            whom()

    def __call__(self, number: int) -> None:
        if self._numbers and number == signal.SIGINT:  # a person who asks twice does not want to wait
            os._exit(130)
        self._numbers.append(number)
        self._tell()


def _signals(asked: _StopRequests) -> socket.socket:
    """Where a byte comes for each signal that matters: its number.

    The interpreter's own wake-up writes it, whichever thread the signal meets; a lock or a queue is not safe in a handler.
    """
    ours, theirs = socket.socketpair()
    theirs.setblocking(False)
    signal.set_wakeup_fd(theirs.detach(), warn_on_full_buffer=False)
    for number in _ENDS:
        signal.signal(number, lambda which, _: asked(which))
    if hasattr(signal, "SIGHUP"):  # not on Windows
        signal.signal(signal.SIGHUP, lambda *_: None)
    return ours


def _reload(server: Server, read: Callable[[], EvalConfig]) -> None:
    """Go on with what the configuration says now; with what it said before if that cannot be used."""
    try:
        kept = server.reload(read())
    except OtelEvalError as error:
        _log.warning("reload: %s; what was read before stays", " ".join(str(error).split()))
        return
    except Exception as error:  # noqa: BLE001 - a new configuration must not end what runs by the old one
        _log.warning("reload: unexpected %s; what was read before stays", type(error).__name__)
        return
    for key in kept:
        _log.warning("reload: %s changed; that needs a restart", key)
    _log.warning("reload: done")


def _abort() -> None:
    write_line(f"stopping took longer than {STOP_S + _MARGIN_S:g} s; ended with scores unsent")
    os._exit(1)


def drain(config: EvalConfig) -> int:
    """Score and deliver it without listening; 1 if told to stop before everything was delivered.

    Raises:
        ConfigError: there is no storage, or a URL holds credentials.
    """
    from otel_eval.app.server import Server

    if config.storage is None:
        raise ConfigError("storage: is missing, and --drain scores what storage kept; add it or leave --drain out")
    refuse_credentials(config)
    configure_logging(config.telemetry.log_format, config.telemetry.log_level)
    told = threading.Event()
    server = Server(config)

    def stop(*_: object) -> None:
        server.note_stop()
        told.set()

    for number in (signal.SIGTERM, signal.SIGINT, getattr(signal, "SIGHUP", signal.SIGINT)):  # no SIGHUP on Windows
        signal.signal(number, stop)
    if server.drain(told):
        return 0
    write_line("told to stop before everything was delivered; the rest stays in storage")
    return 1
