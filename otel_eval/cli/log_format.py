"""Log lines on stderr: as text or JSON, and with a limit on repeated lines, also for lines of
libraries.

With JSON every line is one object: also warnings of libraries, errors at the start and uncaught
exceptions.
"""

from __future__ import annotations

import json
import logging
import os
import re
import sys
import threading
import time
import traceback
from collections.abc import Iterable
from datetime import UTC, datetime
from types import TracebackType
from typing import Final

import click

_log = logging.getLogger("otel_eval")
ExceptionInfo = tuple[type[BaseException], BaseException, TracebackType | None]

_KINDS: Final = 1000  # kinds counted at a time
_JSON_CONFIGURED: Final = re.compile(r"""log_format["']?\s*:\s*["']?json\b""")
_MOST_READ: Final = 2**20


class JsonFormatter(logging.Formatter):
    """One JSON object a line: `time` (RFC 3339), `level`, `logger`, `message`.

    A record with an exception has its type as `exception`. The traceback, which may quote content,
    is added only with OTEL_EVAL_DEBUG=1.
    """

    def format(self, record: logging.LogRecord) -> str:
        """The line of a record."""
        fields = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": _message(record),
        }
        if record.exc_info and record.exc_info[0] is not None:
            fields["exception"] = record.exc_info[0].__name__
            if os.environ.get("OTEL_EVAL_DEBUG") == "1":
                fields["traceback"] = "".join(traceback.format_exception(*record.exc_info))
        return json.dumps(fields, ensure_ascii=False)


def _message(record: logging.LogRecord) -> str:
    try:
        return record.getMessage()
    except Exception:  # noqa: BLE001 - a library's log call whose arguments do not match its format
        return str(record.msg)


class RateLimitFilter(logging.Filter):
    """Limits log lines of one kind to `limit` in `every_s` seconds; the first line after that gives
    the number left out.

    A kind is a logger and its message before formatting. Debug messages are not limited.
    """

    def __init__(self, limit: int = 10, every_s: float = 60.0) -> None:
        super().__init__()
        self._limit, self._every_s = limit, every_s
        self._lock = threading.Lock()  # guards _seen
        # kind → (start of the window, lines in it)
        self._seen: dict[tuple[str, str], tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the line is written."""
        if record.levelno <= logging.DEBUG:
            return True
        now = time.monotonic()
        kind = (record.name, str(record.msg))
        with self._lock:
            window_start, count = self._seen.pop(kind, (now, 0))
            over = now - window_start >= self._every_s
            # Popped and inserted again, so that the dictionary is ordered by last use and the first
            # kind is the oldest.
            self._seen[kind] = (now, 1) if over else (window_start, count + 1)
            if len(self._seen) > _KINDS:
                del self._seen[next(iter(self._seen))]
        if over and count > self._limit:
            record.msg, record.args = (
                f"{_message(record)} ({count - self._limit} more lines like this were left out)",
                (),
            )
        return over or count < self._limit


def configure_logging(form: str, level: str = "info") -> None:
    """Set the format ("text" or "json") and the rate limit for every handler of the process, and
    the level of our logger.
    """
    for handler in logging.getLogger().handlers:
        if not any(isinstance(limit, RateLimitFilter) for limit in handler.filters):
            handler.addFilter(RateLimitFilter())
    debugs = os.environ.get("OTEL_EVAL_DEBUG") == "1"
    _log.setLevel(logging.DEBUG if debugs else logging.getLevelNamesMapping()[level.upper()])
    if form == "json":
        _everything_as_json()


def configure_worker_logging(form: str, level: str, number: int) -> None:
    """Set up logging in a new process that is one of several workers."""
    logging.basicConfig(format="otel-eval: %(message)s", level=logging.WARNING, stream=sys.stderr)

    def numbered(record: logging.LogRecord) -> bool:
        record.msg = f"worker {number}: {record.msg}"
        return True

    for handler in logging.getLogger().handlers:
        handler.addFilter(numbered)
    configure_logging(form, level)


def _everything_as_json() -> None:
    """Format as JSON what handlers write, and log what would bypass them: warnings and uncaught
    exceptions.
    """
    for handler in logging.getLogger().handlers:
        handler.setFormatter(JsonFormatter())
    logging.captureWarnings(True)
    # a record that cannot be written would print a traceback of many lines
    logging.raiseExceptions = False
    sys.excepthook = lambda kind, error, trace: _uncaught("", kind, error, trace)
    threading.excepthook = lambda args: _uncaught(
        f" in thread {args.thread.name if args.thread else '?'}", *args[:3]
    )
    sys.unraisablehook = lambda args: _uncaught(
        " that could not be raised", args.exc_type, args.exc_value, args.exc_traceback
    )


def _uncaught(
    where: str, kind: type[BaseException], error: BaseException | None, trace: TracebackType | None
) -> None:
    """Log an exception that nothing caught."""
    if not issubclass(kind, SystemExit):  # a regular end of a thread
        _log.error("unexpected %s%s", kind.__name__, where, exc_info=(kind, error or kind(), trace))


def is_json_configured(path: str) -> bool:
    """Whether a configuration file sets `log_format: json`, searched as text, since it may not be
    valid YAML.
    """
    if not os.path.isfile(path):  # a read from a pipe could block forever
        return False
    try:
        with open(path, "rb") as file:
            text = file.read(_MOST_READ).decode("utf-8", "replace")
    except OSError:
        return False
    return _JSON_CONFIGURED.search(text) is not None


def warn(lines: Iterable[str]) -> None:
    """Write lines to stderr, each after the name of the command."""
    for line in lines:
        click.echo(f"otel-eval: {line}", err=True)


def write_line(
    message: str,
    *,
    prefix: str = "otel-eval: ",
    level: int = logging.ERROR,
    exc_info: ExceptionInfo | None = None,
) -> None:
    """Write a line to stderr in the format of the log lines, regardless of log levels."""
    record = logging.LogRecord(
        name="otel_eval",
        level=level,
        pathname="",
        lineno=0,
        msg=message,
        args=(),
        exc_info=exc_info,
    )
    line = JsonFormatter().format(record) if writes_json() else f"{prefix}{message}"
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


def writes_json() -> bool:
    """Whether log lines are JSON."""
    return any(
        isinstance(handler.formatter, JsonFormatter) for handler in logging.getLogger().handlers
    )
