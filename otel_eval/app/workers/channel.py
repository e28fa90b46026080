"""Messages between the front and its workers over stream sockets: a kind, a length, bytes.

A worker gets its end of each connection as a descriptor over its control socket: there is no address that another process could
connect to.
"""

from __future__ import annotations

import socket
import struct
from enum import IntEnum
from typing import Final

from otel_eval.otlp import Signal

__all__ = ["PARTS", "MessageKind", "limit_waits", "receive", "send"]

_HEAD: Final = struct.Struct("<BI")
_LIMIT: Final = struct.Struct("ll")  # struct timeval


PARTS: Final = tuple((transport, signal) for transport in ("grpc", "http") for signal in Signal)
"""Kinds of messages that carry a part of a request, by their place here: how it came, and of which signal it is."""


class MessageKind(IntEnum):
    """Other kinds of messages: what they ask for, or how a message is answered."""

    LOOK = 16
    SCORES = 17
    RELOAD = 18
    STOP = 19
    DONE = 32
    FAILED = 33


def limit_waits(connection: socket.socket, seconds: float) -> None:
    """Have each send and receive fail with an OSError that takes longer. The socket itself stays blocking.

    A timeout of Python's would make it non-blocking, and a message would take several calls of the system.
    """
    limit = _LIMIT.pack(int(seconds), int(seconds % 1 * 1e6))
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, limit)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)


def send(connection: socket.socket, kind: int, payload: bytes = b"") -> None:
    """Send one message.

    Raises:
        OSError: the other end is gone, or does not read in time.
    """
    sent = connection.sendmsg([_HEAD.pack(kind, len(payload)), payload]) - _HEAD.size
    if sent < len(payload):  # a signal interrupted it, or the time is over
        connection.sendall(memoryview(payload)[max(0, sent) :])


def receive(connection: socket.socket) -> tuple[int, bytes]:
    """The next message.

    Raises:
        OSError: the other end is gone, or does not answer in time.
    """
    kind, size = _HEAD.unpack(_exactly(connection, _HEAD.size))
    return kind, _exactly(connection, size)


def _exactly(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:  # more than one turn only after a signal
        more = connection.recv(size - len(data), socket.MSG_WAITALL)
        if not more:
            raise ConnectionResetError("the other end closed the connection")
        data = data + more if data else more
    return data
