"""How log lines look on stderr, and how many there may be.

Knows the logging module. Trouble comes in floods: of one kind of line so many a minute are written, the others are counted.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from datetime import UTC, datetime
from typing import Final

__all__ = ["JsonFormatter", "Sparing", "dress"]

_KINDS: Final = 1000  # remembered at one time


class JsonFormatter(logging.Formatter):
    """One JSON object a line: `time` (RFC 3339), `level`, `logger`, `message`."""

    def format(self, record: logging.LogRecord) -> str:
        """The line of a record, without a traceback."""
        said = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        return json.dumps(said, ensure_ascii=False)


class Sparing(logging.Filter):
    """Lets so many lines of one kind through in any `every_s` seconds; the next one then says how many were left out.

    A kind is a logger and the text of its message before values are put in.
    """

    def __init__(self, most: int = 10, every_s: float = 60.0) -> None:
        super().__init__()
        self._most, self._every_s = most, every_s
        self._lock = threading.Lock()  # guards _seen
        self._seen: dict[tuple[str, str], tuple[float, int]] = {}  # when counting began, and how many came

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the line is written."""
        now = time.monotonic()
        kind = (record.name, str(record.msg))
        with self._lock:
            begun, count = self._seen.pop(kind, (now, 0))
            over = now - begun >= self._every_s
            self._seen[kind] = (now, 1) if over else (begun, count + 1)
            if len(self._seen) > _KINDS:
                del self._seen[next(iter(self._seen))]
        if over and count > self._most:
            record.msg, record.args = f"{record.getMessage()} ({count - self._most} more lines like this were left out)", ()
        return over or count < self._most


def dress(form: str) -> None:
    """Give every handler of the process this form ("text" or "json") and the limit."""
    sparing = Sparing()
    for handler in logging.getLogger().handlers:
        handler.addFilter(sparing)
        if form == "json":
            handler.setFormatter(JsonFormatter())
