"""A client that speaks HTTP/2 by hand, since libraries send nothing improper."""

from __future__ import annotations

import socket
import time
from typing import Final

from tests.support.waiting import LIMIT_S

EXPORT: Final = b"/opentelemetry.proto.collector.trace.v1.TraceService/Export"
DATA, HEADERS, RESET, SETTINGS, PING, GOAWAY, WINDOW, MORE = 0, 1, 3, 4, 6, 7, 8, 9
_ACK = END = 1
_WHOLE: Final = 4  # of headers
_PIECE: Final = 16384
_PLAIN: Final = b"\0\1\0\0\0\0"  # a table of no bytes: headers of answers are written out each time


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    """One frame; RFC 9113, section 4.1."""
    return len(payload).to_bytes(3) + bytes([kind, flags]) + stream.to_bytes(4) + payload


def header(name: bytes, value: bytes) -> bytes:
    """A literal without indexing; RFC 7541, section 6.2.2."""
    return b"\0" + _text(name) + _text(value)


def _text(text: bytes) -> bytes:
    if len(text) < 127:
        return bytes([len(text)]) + text
    left, digits = len(text) - 127, [127]
    while left >= 128:
        digits.append(left % 128 + 128)
        left //= 128
    return bytes([*digits, left]) + text


def headers(*more: tuple[bytes, bytes], path: bytes = EXPORT) -> bytes:
    """Those of a call."""
    usual = [
        (b":method", b"POST"),
        (b":scheme", b"http"),
        (b":path", path),
        (b":authority", b"x"),
        (b"te", b"trailers"),
    ]
    return b"".join(
        header(*each) for each in [*usual, (b"content-type", b"application/grpc"), *more]
    )


def message(body: bytes, flag: int = 0, size: int | None = None) -> bytes:
    """One message of gRPC, or the beginning of one that claims another size."""
    return bytes([flag]) + (len(body) if size is None else size).to_bytes(4) + body


class Frames:
    """One connection."""

    def __init__(self, address: str) -> None:
        host, port = address.rsplit(":", 1)
        self.socket = socket.create_connection((host, int(port)), LIMIT_S)
        self.socket.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(SETTINGS, 0, 0, _PLAIN))
        self.response: list[tuple[int, int, bytes]] = []  # kind, stream, payload of what came
        self._stream, self._rest = -1, b""
        self._windows = {0: 65535}
        self._first = 65535  # the window of a new stream

    def call(
        self, *more: tuple[bytes, bytes], path: bytes = EXPORT, data: bytes = b"", end: bool = True
    ) -> int:
        """Begin a call; its stream."""
        self._stream += 2
        self._windows[self._stream] = self._first
        self.socket.sendall(
            frame(HEADERS, _WHOLE, self._stream, headers(*more, path=path))
            + frame(DATA, end, self._stream, data)
        )
        self._take(0, len(data))
        self._take(self._stream, len(data))
        return self._stream

    def _take(self, stream: int, size: int) -> None:
        self._windows[stream] -= size

    def pour(self, stream: int, size: int, seconds: float) -> int:
        """Send so many bytes as far as the windows allow; how many that were when it was ended or
        the time was over.
        """
        until, sent = time.monotonic() + seconds, 0
        while sent < size and time.monotonic() < until and not self.ended(stream):
            room = min(_PIECE, self._windows[0], self._windows[stream], size - sent)
            if room <= 0:
                self.listen(0.05)
                continue
            self.socket.settimeout(300)
            self.socket.sendall(frame(DATA, 0, stream, bytes(room)))
            self._take(0, room)
            self._take(stream, room)
            sent += room
        return sent

    def ended(self, stream: int) -> bool:
        """Whether the other side has ended it."""
        return any(
            kind in (RESET, GOAWAY) or (kind == HEADERS and b"grpc-status" in said)
            for kind, on, said in self.response
            if on == stream
        )

    def listen(self, seconds: float) -> bool:
        """Take what comes; False if the other side has closed."""
        self.socket.settimeout(seconds)
        try:
            found = self.socket.recv(65536)
        except TimeoutError:
            return True
        except OSError:
            return False
        self._rest += found
        while len(self._rest) >= 9 and len(self._rest) >= (
            size := 9 + int.from_bytes(self._rest[:3])
        ):
            self._heard(
                self._rest[3], self._rest[4], int.from_bytes(self._rest[5:9]), self._rest[9:size]
            )
            self._rest = self._rest[size:]
        return found != b""

    def _heard(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        self.response.append((kind, stream, payload))
        if kind == WINDOW:
            self._windows[stream] = self._windows.get(stream, 0) + int.from_bytes(payload)
        elif kind == SETTINGS and not flags & _ACK:
            self._settings(payload)
        elif kind == PING and not flags & _ACK:
            self.socket.sendall(frame(PING, _ACK, 0, payload))

    def _settings(self, payload: bytes) -> None:
        for at in range(0, len(payload), 6):
            if int.from_bytes(payload[at : at + 2]) == 4:
                first = int.from_bytes(payload[at + 2 : at + 6])
                self._windows = {
                    key: left + (first - self._first if key else 0)
                    for key, left in self._windows.items()
                }
                self._first = first
        self.socket.sendall(frame(SETTINGS, _ACK, 0))

    def answer(self, stream: int, seconds: float = LIMIT_S) -> bytes:
        """The trailers of a call, or what ended it; nothing if the time is over."""
        until = time.monotonic() + seconds
        while time.monotonic() < until and not self.ended(stream) and self.listen(0.2):
            pass
        return b"".join(
            payload for kind, on, payload in self.response if on == stream and kind == HEADERS
        )

    def close(self) -> None:
        """End the connection."""
        self.socket.close()
