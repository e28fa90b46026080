"""Memory of the receiver: the limit for requests in flight, the size of the process, and returning
freed memory to the system.

Memory is reserved before a body is read, decompressed or decoded, so that a request that is refused
takes none.

The settings of glibc's allocator and of garbage collection reduce the CPU time of a receiver. They
are meant for a process of its own, never set on import, and have no effect on platforms with
another allocator.
"""

from __future__ import annotations

import ctypes
import gc
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, Final, Self

from otel_eval.errors import Overloaded


class Reservation:
    """The memory that one request has reserved; released when the `with` block ends."""

    __slots__ = ("_held", "_limiter")

    def __init__(self, limiter: MemoryLimiter, held: int) -> None:
        self._limiter = limiter
        self._held = held

    def grow(self, size: int) -> None:
        """Reserve more bytes, for instance for a chunk that is to be read or a piece that was
        decompressed.

        Raises:
            Overloaded: they are not available, and another request holds some.
        """
        self._limiter._grow(self._held, size)
        self._held += size

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._limiter._release(self._held)


class MemoryLimiter:
    """A limit of bytes that the requests in flight share.

    A single request is always admitted, whatever its size: the size of a body has a limit of its
    own.
    """

    def __init__(self, limit_bytes: int) -> None:
        self._limit = limit_bytes
        self._changed = threading.Condition()  # guards what follows
        self._bytes = 0
        self._requests = 0
        self._closed = False

    def enter(self, size: int) -> Reservation:
        """Reserve `size` bytes for a new request.

        Raises:
            Overloaded: they are not available now, or the receiver is stopping.
        """
        with self._changed:
            if self._closed:
                raise Overloaded("the receiver is stopping")
            if self._requests and self._bytes + size > self._limit:
                raise Overloaded("too many bytes in flight")
            self._bytes += size
            self._requests += 1
        return Reservation(self, size)

    def _grow(self, held: int, size: int) -> None:
        with self._changed:
            if self._bytes > held and self._bytes + size > self._limit:
                raise Overloaded("too many bytes in flight")
            self._bytes += size

    def _release(self, held: int) -> None:
        with self._changed:
            self._bytes -= held
            self._requests -= 1
            self._changed.notify_all()

    def close(self) -> None:
        """Admit no more requests."""
        with self._changed:
            self._closed = True

    @property
    def closed(self) -> bool:
        """Whether no more requests are admitted."""
        return self._closed

    def wait_idle(self, timeout_s: float) -> bool:
        """Wait until no request is in flight; False if one still is after `timeout_s` seconds."""
        with self._changed:
            return self._changed.wait_for(lambda: self._requests == 0, timeout_s)


def resident() -> int:
    """The resident memory of this process in bytes; 0 on systems that do not report it."""
    try:
        with open("/proc/self/statm", "rb", buffering=0) as statm:
            pages = int(statm.read().split()[1])
    except OSError:  # not Linux
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


class RssMonitor:
    """Whether the process has grown by more than a number of bytes since the last call of
    `at_ease`.

    This is the only way to notice the memory of messages that grpcio has received in part: nothing
    counts it.

    Args:
        limit_bytes: growth up to this is accepted.
        size: returns the resident memory in bytes.
    """

    def __init__(self, limit_bytes: int, size: Callable[[], int] = resident) -> None:
        self._limit: Final = limit_bytes
        self._size: Final = size
        self._base = size()

    def at_ease(self) -> None:
        """Measure growth from the present size on."""
        self._base = self._size()

    @property
    def has_grown(self) -> bool:
        """Whether the process has grown by more than the limit."""
        now = self._size()
        self._base = min(self._base, now)
        return now - self._base > self._limit


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
    return mallopt is not None and all(mallopt(*each) for each in settings)


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
_QUIET_S: Final = 2.0  # without a request, after which the load counts as over
_BUSY_S: Final = 60.0  # between two trims while requests never stop
_LEAST_BYTES: Final = 8 * 2**20  # bytes, the least that is worth a trim


class IdleMemory:
    """Trims the heap when memory was freed and requests have stopped, or once a minute if they do
    not stop.

    glibc keeps freed memory for later allocations, and with `tune_malloc` it keeps more. After a
    peak that is most of the memory of the process.

    Args:
        requests: returns a count that increases with each request.
        held: returns the bytes of held spans.
        compact: frees memory that only serves speed.
        clock: returns monotonic seconds.
        size: returns the resident memory of the process in bytes.
        trim: returns free memory to the system.
    """

    def __init__(
        self,
        requests: Callable[[], int],
        held: Callable[[], int],
        compact: Callable[[], None],
        clock: Callable[[], float] = time.monotonic,
        size: Callable[[], int] = resident,
        trim: Callable[[], bool] = trim_malloc,
    ) -> None:
        self._requests, self._held, self._compact = requests, held, compact
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
        if (requests := self._requests()) != self._seen:
            self._seen, self._since = requests, now
        held = self._held()
        self._most_held = max(self._most_held, held)
        over = now - self._since >= _QUIET_S or now - self._trimmed >= _BUSY_S
        if over and (
            self._most_held - held >= _LEAST_BYTES
            or self._size() - self._trimmed_size >= _LEAST_BYTES
        ):
            self._compact()
            self._trim()
            self._trimmed, self._most_held, self._trimmed_size = now, held, self._size()
