"""Reading from a socket with a deadline for the whole of a request.

A timeout of the socket itself starts anew with every byte, so a client that sends one now and then would be waited for
without end. Knows no HTTP.
"""

from __future__ import annotations

import io
import socket
import sys
import time
from http.client import LineTooLong
from typing import Any

__all__ = ["TimedReader"]


class TimedReader(io.RawIOBase):
    """A socket to read from until a deadline, however few bytes come at a time."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._deadline = 0.0
        self._left = sys.maxsize

    def allow(self, seconds: float, size: int = sys.maxsize) -> None:
        """Set the deadline anew, and how many bytes may be read until then."""
        self._deadline = time.monotonic() + seconds
        self._left = size

    def readable(self) -> bool:
        """Yes."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Whatever came, as soon as something did.

        Raises:
            TimeoutError: the deadline has passed.
            LineTooLong: more was sent than may be; the base class answers 431 where that is a header.
        """
        if self._left <= 0:
            raise LineTooLong("header")
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError("the client is too slow")
        self._connection.settimeout(left)
        size = self._connection.recv_into(buffer)
        self._left -= size
        return size
