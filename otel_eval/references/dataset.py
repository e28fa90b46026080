"""A file of records that is read again when it changes.

Knows the file and the time; knows not what the records are for. Looks at the file at most once a second, on the thread of
whoever asks; a version that cannot be used is counted and said once, and the one before stays. There is no lock: two threads
that look at the same time read the same, and records change hands in one assignment.
"""

from __future__ import annotations

import logging
import os
import stat
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from otel_eval.references.records import LIMIT, Record, Unusable, parsed

__all__ = ["Dataset"]

_log = logging.getLogger("otel_eval")

_LOOK_S: Final = 1.0
_Stamp = tuple[int, int, int]


class Dataset:
    """Records by key.

    Args:
        path: of a file whose name ends as one of `FORMATS`.
        column: holds the keys.
        clock: seconds that only rise.

    Attributes:
        changes: new versions that were taken.
        broken: new versions that were not.

    Raises:
        Unusable: the file cannot be read or holds no records.
    """

    def __init__(self, path: Path, column: str, clock: Callable[[], float] = time.monotonic) -> None:
        self.path: Final = path
        self._column, self._clock = column, clock
        self._records: dict[str, Record] = {}
        self._lines: dict[str, int] = {}
        self._stamp: _Stamp | None = None
        self._error: Unusable | None = None
        self._next = 0.0
        self.changes = self.broken = 0
        self.check()

    def check(self) -> None:
        """Look at the file now, as it is before it is relied on.

        Raises:
            Unusable: it cannot be read or holds no records.
        """
        self._look()
        if self._error is not None:
            raise self._error

    def __call__(self, key: str) -> Record | None:
        """The record of a key, or None."""
        if self._clock() >= self._next:
            before = self._stamp
            self._look()
            if self._stamp != before:
                self._tell()
        return self._records.get(key)

    def place_of(self, key: str) -> Mapping[str, Any]:
        """The file's name and the line of the record of a key."""
        return {"dataset": self.path.name, "line": self.line_of(key)}

    def line_of(self, key: str) -> int:
        """The line of the record of a key, from 1; 0 if there is none."""
        return self._lines.get(key, 0)

    def record_keys(self) -> list[str]:
        """The keys of the records, in the order of the file."""
        return list(self._records)

    def fields(self) -> set[str]:
        """Every column that some record has."""
        return {name for record in self._records.values() for name in record}

    def _look(self) -> None:
        self._next = self._clock() + _LOOK_S
        stamp = _stamp_of(self.path)
        if stamp == self._stamp and (stamp is not None or self._error is not None):
            return
        self._stamp = stamp
        try:
            self._records, self._lines = parsed(_read(self.path), self.path.suffix.lower(), self._column)
            self._error = None
        except Unusable as error:
            self._error = error

    def _tell(self) -> None:
        if self._error is None:
            self.changes += 1
            return
        self.broken += 1
        _log.warning("%s: %s; the records read before stay in use", self.path, self._error)


def _stamp_of(path: Path) -> _Stamp | None:
    """What changes when the file does; None if there is none."""
    try:
        seen = os.stat(path)
    except (OSError, ValueError):  # what is no path is no file either
        return None
    return seen.st_mtime_ns, seen.st_size, seen.st_ino


def _read(path: Path) -> bytes:
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise Unusable("is not a file; name a file of records")  # a pipe would never end
        with path.open("rb") as file:
            raw = file.read(LIMIT + 1)
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else "not a path"
        raise Unusable(f"cannot be read ({why}); name a file of records") from None
    if len(raw) > LIMIT:
        raise Unusable(f"is larger than {LIMIT // 2**20} MiB; split it or give a function as the dataset")
    return raw
