"""Reads small files that the configuration names, such as keys, tokens, certificates and datasets,
again when they change.
"""

from __future__ import annotations

import errno
import logging
import os
import stat
import threading
import time
from collections.abc import Callable, Sequence
from os import PathLike
from typing import Final, Generic, TypeVar

from otel_eval.errors import ConfigError

_log = logging.getLogger("otel_eval")

Stamp = tuple[int, ...]

_NONBLOCK: Final = getattr(os, "O_NONBLOCK", 0)  # not on Windows


def file_stamp(file: str | PathLike[str]) -> Stamp | None:
    """A value that differs after the file or its permissions were changed; None if the file does
    not exist or cannot be seen.
    """
    try:
        status = os.stat(file)
    except (OSError, ValueError):  # ValueError: not a valid path
        return None
    # The time of the last change of the inode, too: a copy may keep size and modification time, and
    # `chmod` changes neither.
    return status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino


def read_small_file(
    file: str | PathLike[str], max_bytes: int, unusable: Callable[[str], Exception]
) -> bytes:
    """Read a regular file of at most `max_bytes` bytes.

    Other files are refused: a read from a pipe could block forever, and a device may have no end.

    Args:
        file: the path of the file.
        max_bytes: the maximum size.
        unusable: makes the exception to raise from the reason why the file cannot be read.
    """
    try:
        with open(
            file, "rb", opener=lambda path, flags: os.open(path, flags | _NONBLOCK)
        ) as opened:
            if not stat.S_ISREG(os.fstat(opened.fileno()).st_mode):
                raise OSError(errno.EINVAL, "no regular file")
            content = opened.read(max_bytes + 1)
    except OSError as error:
        raise unusable(f"cannot be read ({error.strerror})") from None
    except ValueError:
        raise unusable("cannot be read (not a path)") from None
    if len(content) > max_bytes:
        raise unusable(
            f"is larger than {max_bytes // 2**20} MiB"
            if max_bytes >= 2**20
            else f"is larger than {max_bytes // 2**10} KiB"
        )
    return content


Value = TypeVar("Value")


class WatchedFiles(Generic[Value]):
    """A value read from files, which is read again when they change; if that fails, the previous
    value is kept.

    Args:
        files: paths of the files.
        read: reads the value; raises `ConfigError` if the files are invalid, which is logged once
            for each change.
        look_s: the least time between two checks for changes, in seconds; calls of `current` make
            the checks.
        consequence: for the log: what is used if `read` fails.
    """

    def __init__(
        self, files: Sequence[str], read: Callable[[], Value], look_s: float, consequence: str
    ) -> None:
        self._files, self._read, self._look_s = files, read, look_s
        self._consequence = consequence
        self._lock = threading.Lock()  # guards the following fields
        self._stamps = self._logged = self._stamp_all()
        self._value = read()
        self._checked = time.monotonic()

    def current(self) -> Value:
        """The value from the last valid version of the files."""
        with self._lock:
            now = time.monotonic()
            if now - self._checked >= self._look_s:
                self._checked = now
                self._check()
            return self._value

    def _check(self) -> None:
        """Read the value again if a file has changed."""
        if (stamps := self._stamp_all()) == self._stamps:
            return
        try:
            self._value, self._stamps = self._read(), stamps
        except ConfigError as error:
            if stamps != self._logged:
                _log.warning("%s; %s", error, self._consequence)
            self._logged = stamps

    def _stamp_all(self) -> list[Stamp | None]:
        """A value that changes when a file does."""
        return [file_stamp(file) for file in self._files]
