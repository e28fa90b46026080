"""Small files that the configuration names and that may change while the process runs: keys, tokens, certificates, datasets."""

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

Stamp = tuple[int, int, int]

_AT_ONCE: Final = getattr(os, "O_NONBLOCK", 0)  # not on Windows


def file_stamp(file: str | PathLike[str]) -> Stamp | None:
    """A value that differs after the file was changed; None if the file does not exist."""
    try:
        found = os.stat(file)
    except (OSError, ValueError):  # what is no path is no file either
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def read_small_file(file: str | PathLike[str], most: int, unusable: Callable[[str], Exception]) -> bytes:
    """What a file of at most so many bytes holds.

    A read from a pipe could wait forever and a device has no end: only regular files are read.

    Args:
        unusable: makes the error that is raised of why the file cannot be read.
    """
    try:
        with open(file, "rb", opener=lambda path, flags: os.open(path, flags | _AT_ONCE)) as opened:
            if not stat.S_ISREG(os.fstat(opened.fileno()).st_mode):
                raise OSError(errno.EINVAL, "no regular file")
            content = opened.read(most + 1)
    except OSError as error:
        raise unusable(f"cannot be read ({error.strerror})") from None
    except ValueError:
        raise unusable("cannot be read (not a path)") from None
    if len(content) > most:
        raise unusable(f"is larger than {most // 2**20} MiB" if most >= 2**20 else f"is larger than {most // 2**10} KiB")
    return content


Held = TypeVar("Held")


class WatchedFiles(Generic[Held]):
    """What some files hold, read again when they change; while that fails, what they held before.

    Args:
        files: the files.
        read: reads them; raises `ConfigError` if they cannot be used, which is logged once for each change.
        look_s: how often they are looked at, in seconds, while `current` is called.
        kept: what stays in use then, for the log.
    """

    def __init__(self, files: Sequence[str], read: Callable[[], Held], look_s: float, kept: str) -> None:
        self._files, self._read, self._look_s, self._kept = files, read, look_s, kept
        self._lock = threading.Lock()  # guards what follows
        self._stamps = self._logged = self._stamped()
        self._held = read()
        self._looked = time.monotonic()

    def current(self) -> Held:
        """What the files held when they could last be used."""
        with self._lock:
            now = time.monotonic()
            if now - self._looked >= self._look_s:
                self._looked = now
                self._look()
            return self._held

    def _look(self) -> None:
        if (stamps := self._stamped()) == self._stamps:
            return
        try:
            self._held, self._stamps = self._read(), stamps
        except ConfigError as error:
            if stamps != self._logged:
                _log.warning("%s; %s", error, self._kept)
            self._logged = stamps

    def _stamped(self) -> list[Stamp | None]:
        """Something that differs when a file was changed."""
        return [file_stamp(file) for file in self._files]
