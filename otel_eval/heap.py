"""The heap of the process: its size, settings, and returning freed memory to the system.

The settings of glibc's allocator and of garbage collection reduce the CPU time of a receiver. They
are meant for a process of its own, never set on import, and have no effect on platforms with
another allocator.
"""

from __future__ import annotations

import gc
import os
import sys
import time
from collections.abc import Callable
from typing import Any, Final, Protocol


def resident() -> int:
    """The resident memory of this process in bytes; 0 on systems that do not report it."""
    try:
        with open("/proc/self/statm", "rb", buffering=0) as statm:
            pages = int(statm.read().split()[1])
    except OSError:  # not Linux
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


_M_TRIM_THRESHOLD: Final = -1  # malloc.h
_M_MMAP_THRESHOLD: Final = -3
_M_ARENA_MAX: Final = -8
_MIB: Final = 1024 * 1024
_KEPT: Final = 64 * _MIB
_ARENAS: Final = 2  # glibc's default is eight for each core, each with free memory of its own


def tune_malloc() -> bool:
    """Keep freed memory of request bodies instead of returning it to the kernel; False if the
    allocator cannot be set so.

    Otherwise a body of 1.5 MB is mapped and unmapped each time, which takes as long as decoding it.
    The disadvantage: the process keeps freed memory until `trim_malloc`.
    """
    mallopt = _of_glibc("mallopt")
    settings = ((_M_MMAP_THRESHOLD, _KEPT), (_M_TRIM_THRESHOLD, _KEPT), (_M_ARENA_MAX, _ARENAS))
    return mallopt is not None and all(mallopt(*setting) for setting in settings)


def trim_malloc() -> bool:
    """Return every free page of the heap to the system; False if there was none, or the allocator
    is not glibc's.

    A page with a single live block stays. The call takes milliseconds and does not hold the
    interpreter's lock.
    """
    trim = _of_glibc("malloc_trim")
    return trim is not None and bool(trim(0))


def _of_glibc(name: str) -> Any:
    if not sys.platform.startswith("linux"):
        return None
    import ctypes  # here, because a traced program may never need it

    try:
        return getattr(ctypes.CDLL(None), name)
    except (OSError, AttributeError):  # another C library
        return None


def tune_gc() -> None:
    """Run garbage collection less often: buffered spans are many tuples of bytes, which form no
    cycles.
    """
    gc.set_threshold(50_000, 20, 100)


_LOOK_S: Final = 1.0
_QUIET_S: Final = 2.0  # without input, after which the load counts as over
_BUSY_S: Final = 60.0  # between two trims while input never stops
_LEAST_BYTES: Final = 8 * 2**20  # bytes, the least that is worth a trim


class MemoryUser(Protocol):
    """What holds memory as long as input arrives."""

    @property
    def arrived(self) -> int:
        """A count that increases with input, of requests or spans."""

    @property
    def held_bytes(self) -> int:
        """Bytes of held spans."""

    def compact(self) -> None:
        """Free memory that only serves speed."""


class IdleMemory:
    """Trims the heap when memory was freed and input has stopped, or once a minute if it does not
    stop.

    glibc keeps freed memory for later allocations, and with `tune_malloc` it keeps more. After a
    peak that is most of the memory of the process.

    Args:
        user: what holds the memory; it is compacted before a trim.
        clock: returns monotonic seconds.
        size: returns the memory in bytes whose growth, too, is worth a trim.
        trim: returns free memory to the system.
    """

    def __init__(
        self,
        user: MemoryUser,
        clock: Callable[[], float] = time.monotonic,
        size: Callable[[], int] = resident,
        trim: Callable[[], bool] = trim_malloc,
    ) -> None:
        self._user: Final = user
        self._clock, self._size, self._trim = clock, size, trim
        self._looked = self._trimmed = self._since = clock()
        self._seen = 0
        self._most_held, self._trimmed_size = 0, size()

    def look(self) -> None:
        """Return freed memory to the system if it is enough to matter. To be called often; it
        checks once a second.
        """
        now = self._clock()
        if now - self._looked < _LOOK_S:
            return
        self._looked = now
        if (arrived := self._user.arrived) != self._seen:
            self._seen, self._since = arrived, now
        held_bytes = self._user.held_bytes
        self._most_held = max(self._most_held, held_bytes)
        over = now - self._since >= _QUIET_S or now - self._trimmed >= _BUSY_S
        if over and (
            self._most_held - held_bytes >= _LEAST_BYTES
            or self._size() - self._trimmed_size >= _LEAST_BYTES
        ):
            self._user.compact()
            self._trim()
            self._trimmed, self._most_held, self._trimmed_size = now, held_bytes, self._size()
