"""Reading from a socket with a deadline for the whole of a request.

A timeout of the socket itself starts anew with every byte, so a client that sends one now and then would be waited for
without end. Knows how fast a client must send at the least, and since when one is late that sends less than most do. Knows
no HTTP.
"""

from __future__ import annotations

import io
import socket
import sys
import time
from http.client import LineTooLong
from typing import Any, Final

__all__ = ["TimedReader"]

_SLOWEST: Final = 1024.0  # bytes a second: a fraction of the slowest mobile network
_USUAL: Final = 64 * 1024.0  # bytes a second that any ordinary line has


class TimedReader(io.RawIOBase):
    """A socket to read from until a deadline, however few bytes come at a time."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._began = 0.0
        self._seconds = 0.0
        self._grace: float | None = None
        self._received = 0
        self._left = sys.maxsize

    def allow(self, seconds: float, size: int = sys.maxsize) -> None:
        """Begin anew: so many seconds to a deadline, and so many bytes until then."""
        self._began, self._seconds, self._grace = time.monotonic(), seconds, None
        self._received, self._left = 0, size

    def go_on(self, seconds: float, grace: float) -> None:
        """A new deadline, and a pace: from `grace` seconds on whoever sends less than 1 KiB a second is too slow.

        What was read since `allow` counts, since some of it may belong to what is read now.
        """
        self._began, self._seconds, self._grace, self._left = time.monotonic(), seconds, grace, sys.maxsize

    @property
    def late_since(self) -> float:
        """The monotonic time at which a client on an ordinary line would have sent what this one did."""
        return self._began + self._received / _USUAL

    def _deadline(self) -> float:
        if self._grace is None:
            return self._began + self._seconds
        return self._began + min(self._seconds, self._grace + self._received / _SLOWEST)

    def readable(self) -> bool:
        """Yes."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Whatever came, as soon as something did.

        Raises:
            TimeoutError: the deadline has passed, or too little came.
            LineTooLong: more was sent than may be; the base class answers 431 where that is a header.
        """
        if self._left <= 0:
            raise LineTooLong("header")
        left = self._deadline() - time.monotonic()
        if left <= 0:
            raise TimeoutError("the client is too slow")
        self._connection.settimeout(left)
        size = self._connection.recv_into(buffer)
        self._left -= size
        self._received += size
        return size
