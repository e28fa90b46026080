"""Files that may be replaced while the process runs: how a change is seen without reading them, and how they are read.

A read from a pipe could wait for ever and a device has no end: only regular files are read.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import Final

__all__ = ["file_stamp", "read_regular_file"]

_AT_ONCE: Final = getattr(os, "O_NONBLOCK", 0)  # not on Windows


def file_stamp(file: str) -> tuple[int, int, int] | None:
    """Something that differs when the file was changed; None if it is not there."""
    try:
        found = Path(file).stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def read_regular_file(file: str, most: int) -> bytes:
    """What it holds, or the first `most` bytes and one more.

    Raises:
        OSError: it cannot be read, or is no file.
    """
    with open(file, "rb", opener=lambda path, flags: os.open(path, flags | _AT_ONCE)) as opened:
        if not stat.S_ISREG(os.fstat(opened.fileno()).st_mode):
            raise OSError(errno.EINVAL, "no regular file")
        return opened.read(most + 1)
