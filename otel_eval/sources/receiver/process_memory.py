"""The memory of the process: its resident size, whether it grows, and settings of glibc's allocator and of garbage collection.

The settings make a receiver cheaper. They are for a process of its own, never set on import, and do nothing on platforms with
another allocator. Growth bounds what no counter knows: what grpcio has received of messages that are not complete yet.
"""

from __future__ import annotations

import ctypes
import gc
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

__all__ = ["RssMonitor", "resident", "trim_malloc", "tune_gc", "tune_malloc"]


def resident() -> int:
    """Bytes of this process in memory; 0 where that cannot be asked for."""
    try:
        pages = int(Path("/proc/self/statm").read_bytes().split()[1])
    except OSError:  # not Linux
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


class RssMonitor:
    """Whether the process has grown by more than so many bytes while it was not at ease.

    Args:
        limit_bytes: more is much.
        size: how great the process is now.
    """

    def __init__(self, limit_bytes: int, size: Callable[[], int] = resident) -> None:
        self._limit: Final = limit_bytes
        self._size: Final = size
        self._base = size()

    def at_ease(self) -> None:
        """Take the present size as the base."""
        self._base = self._size()

    @property
    def much(self) -> bool:
        """Whether it has grown by more than the limit."""
        now = self._size()
        self._base = min(self._base, now)
        return now - self._base > self._limit


_M_TRIM_THRESHOLD: Final = -1  # malloc.h
_M_MMAP_THRESHOLD: Final = -3
_M_ARENA_MAX: Final = -8
_MIB: Final = 1024 * 1024
_KEPT: Final = 64 * _MIB
_ARENAS: Final = 2  # glibc's own number is eight for each core, each with free memory of its own


def tune_malloc() -> bool:
    """Keep the memory of request bodies instead of giving each back to the kernel; False where that cannot be set.

    A body of 1.5 MB is otherwise mapped and unmapped each time, which costs as much as decoding it. The price: freed memory
    stays with the process until `trim_malloc`.
    """
    mallopt = _of_glibc("mallopt")
    settings = ((_M_MMAP_THRESHOLD, _KEPT), (_M_TRIM_THRESHOLD, _KEPT), (_M_ARENA_MAX, _ARENAS))
    return mallopt is not None and all(mallopt(*each) for each in settings)


def trim_malloc() -> bool:
    """Return every free page of the heap to the system; False if there was none, or where that cannot be done.

    A page that holds a single live block stays. It takes milliseconds, and none of them holds the interpreter's lock.
    """
    trim = _of_glibc("malloc_trim")
    return trim is not None and bool(trim(0))


def _of_glibc(name: str) -> Any:
    if not sys.platform.startswith("linux"):
        return None
    try:
        return getattr(ctypes.CDLL(None), name)
    except (OSError, AttributeError):  # another C library
        return None


def tune_gc() -> None:
    """Look for garbage less often: buffered spans are tuples of bytes, which form no cycles, but there are many."""
    gc.set_threshold(50_000, 20, 100)
