"""Score what a receiver that will not come back has left in storage.

Knows signals; what is drained is the application's.
"""

from __future__ import annotations

import signal
import threading

from otel_eval.cli.lines import dress, write_line
from otel_eval.config import EvalConfig
from otel_eval.config.credentials import refuse_credentials
from otel_eval.errors import ConfigError

__all__ = ["drain"]


def drain(config: EvalConfig) -> int:
    """Score and deliver it without listening; 1 if told to stop before everything was delivered.

    Raises:
        ConfigError: there is no storage, or a URL holds credentials.
    """
    from otel_eval.app.server import Server

    if config.storage is None:
        raise ConfigError("storage: is missing, and --drain scores what storage kept; add it or leave --drain out")
    refuse_credentials(config)
    dress(config.telemetry.log_format, config.telemetry.log_level)
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
