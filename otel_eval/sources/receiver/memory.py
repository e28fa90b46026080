"""Memory of the receiver: the limit for requests in flight, and the growth of the process.

Memory is reserved before a body is read, decompressed or decoded, so that a request that is refused
takes none.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final, Self

from otel_eval.errors import Overloaded
from otel_eval.heap import resident


class Reservation:
    """The memory that one request has reserved; released when the `with` block ends."""

    __slots__ = ("_limiter", "_size")

    def __init__(self, limiter: MemoryLimiter, size: int) -> None:
        self._limiter = limiter
        self._size = size

    def grow(self, size: int) -> None:
        """Reserve more bytes, for instance for a chunk that is to be read or a piece that was
        decompressed.

        Raises:
            Overloaded: they are not available, and another request holds some.
        """
        self._limiter._grow(self._size, size)
        self._size += size

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._limiter._release(self._size)


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

    def _grow(self, reserved: int, size: int) -> None:
        with self._changed:
            if self._bytes > reserved and self._bytes + size > self._limit:
                raise Overloaded("too many bytes in flight")
            self._bytes += size

    def _release(self, reserved: int) -> None:
        with self._changed:
            self._bytes -= reserved
            self._requests -= 1
            if self._closed:
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
        """Wait, after `close`, until no request is in flight; False if one still is after
        `timeout_s` seconds.
        """
        with self._changed:
            return self._changed.wait_for(lambda: self._requests == 0, timeout_s)


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
