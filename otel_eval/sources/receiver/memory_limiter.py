"""A budget of bytes for requests in flight; room is reserved before a body is read, decompressed or decoded.

A request that is refused here has cost nothing yet, so a flood costs refusals and no memory.
"""

from __future__ import annotations

import threading
from types import TracebackType
from typing import Self

from otel_eval.errors import Overloaded

__all__ = ["MemoryLimiter", "Reservation"]


class Reservation:
    """The room that one request holds; given back when the `with` block ends."""

    __slots__ = ("_admission", "_held")

    def __init__(self, admission: MemoryLimiter, held: int) -> None:
        self._admission = admission
        self._held = held

    def grow(self, size: int) -> None:
        """Ask for more room: a chunk that is to be read, a piece that was decompressed.

        Raises:
            Overloaded: there is none, and another request holds some.
        """
        self._admission._more(self._held, size)
        self._held += size

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._admission._leave(self._held)


class MemoryLimiter:
    """A budget of bytes that the requests in flight share.

    A request that is alone is always admitted, whatever its size: the limit of a single body is another one.
    """

    def __init__(self, limit_bytes: int) -> None:
        self._limit = limit_bytes
        self._changed = threading.Condition()  # guards what follows
        self._bytes = 0
        self._requests = 0
        self._closed = False

    def enter(self, size: int) -> Reservation:
        """Room for a request of so many bytes.

        Raises:
            Overloaded: there is none now, or the receiver is stopping.
        """
        with self._changed:
            if self._closed:
                raise Overloaded("the receiver is stopping")
            if self._requests and self._bytes + size > self._limit:
                raise Overloaded("too many bytes in flight")
            self._bytes += size
            self._requests += 1
        return Reservation(self, size)

    def _more(self, held: int, size: int) -> None:
        with self._changed:
            if self._bytes > held and self._bytes + size > self._limit:
                raise Overloaded("too many bytes in flight")
            self._bytes += size

    def _leave(self, held: int) -> None:
        with self._changed:
            self._bytes -= held
            self._requests -= 1
            self._changed.notify_all()

    def close(self) -> None:
        """Admit nothing more."""
        with self._changed:
            self._closed = True

    @property
    def closed(self) -> bool:
        """Whether nothing more is admitted."""
        return self._closed

    def wait_idle(self, timeout_s: float) -> bool:
        """Wait until no request is in flight; False if one still is when the time is over."""
        with self._changed:
            return self._changed.wait_for(lambda: self._requests == 0, timeout_s)
