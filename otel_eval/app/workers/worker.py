"""One worker process: the server without listeners, and the messages in which it takes its part of each request from the front.

A message is a kind, a length and bytes. A worker gets its end of each connection as a descriptor over its control socket:
there is no address that another process could connect to.
"""

from __future__ import annotations

import os
import pickle
import signal
import socket
import struct
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from enum import IntEnum
from typing import Any, Final

from otel_eval.admin.metrics import Family
from otel_eval.app.server import Server
from otel_eval.app.server_wiring import max_message_size
from otel_eval.config import EvalConfig, OtlpReceiver
from otel_eval.counters import named_count
from otel_eval.diagnostics import expect_no_spans
from otel_eval.errors import ConfigError
from otel_eval.otlp import Encoding, Signal
from otel_eval.sources.receiver import Bound, Consumer, OtlpServer, Relay
from otel_eval.sources.receiver.export_handler import ExportResponse, ExportStatus
from otel_eval.sources.receiver.memory import resident

__all__ = ["PARTS", "MessageKind", "PartReceiver", "limit_waits", "receive", "send", "work"]

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


_OF_ITEMS: Final = ("_spans", "_logs", "_metrics")  # counters; the front counts requests, and those that failed
_STOP_S: Final = 10.0  # to end in when the front is gone
_MARGIN_S: Final = 2.0


class PartReceiver(OtlpServer):
    """The receiver of a worker: it listens nowhere, because parts of requests come from the front."""

    def __init__(self, given: OtlpReceiver, consumer: Consumer, relay: Relay | None) -> None:
        limits: dict[str, Any] = {"max_body_bytes": max_message_size(given), "max_inflight_bytes": given.max_inflight_size}
        limits["max_attributes"] = given.max_attributes
        super().__init__(grpc=None, http=None, consumer=consumer, relay=relay, **limits)
        self._started = False

    def take(self, transport: str, signal: Signal, body: bytes) -> ExportResponse:
        """Deal with a part of a request that came by that transport."""
        return self._handler.answer(transport, signal, Encoding.PROTOBUF, len(body), lambda _: body)

    @property
    def is_open(self) -> bool:
        """Whether requests are taken."""
        return self._started and not self._memory_limiter.closed

    def fit(self, limit: int | None) -> None:
        """Nothing: the front limits the connections."""

    def start(self) -> Bound:
        """Take requests; there is no address."""
        self._started = True
        return super().start()

    def counts(self) -> dict[str, dict[str, int]]:
        """What was in requests; the front counts the requests."""
        return {name: counts for name, counts in super().counts().items() if name.endswith(_OF_ITEMS)}


class _Worker:
    def __init__(self, number: int, config: EvalConfig) -> None:
        self._number: Final = number
        self._stop: Final = threading.Lock()  # one stops it
        self._stopped: bool | None = None
        self._receiver: PartReceiver | None = None
        self._server: Final = Server(config, self._make, has_pages=False)

    def _make(self, given: OtlpReceiver | None, consumer: Consumer, relay: Relay | None, _: Callable[[], bool]) -> PartReceiver:
        self._receiver = PartReceiver(given or OtlpReceiver(), consumer, relay)
        return self._receiver

    def start(self) -> None:
        self._server.start()

    def stop(self, timeout_s: float) -> bool:
        with self._stop:
            if self._stopped is None:
                self._stopped = self._server.stop(timeout_s)
            return self._stopped

    def serve(self, connection: socket.socket) -> None:
        """Answer what comes over one connection, to its end."""
        with connection:
            try:
                while True:
                    send(connection, *self._answer(*receive(connection)))
            except OSError:  # the front closed it
                return

    def _answer(self, kind: int, payload: bytes) -> tuple[MessageKind, bytes]:
        if kind < len(PARTS):
            assert self._receiver is not None
            answer = self._receiver.take(*PARTS[kind], payload)
            is_plain = answer.status is ExportStatus.ACCEPTED and not answer.message
            return MessageKind.DONE, b"" if is_plain else pickle.dumps(answer)
        asked: dict[int, Callable[[], Any]] = {
            MessageKind.LOOK: self._look,
            MessageKind.SCORES: self._scores,
            MessageKind.RELOAD: lambda: self._server.reload(pickle.loads(payload)),
            MessageKind.STOP: lambda: (self.stop(pickle.loads(payload)), self._look()),
        }
        try:
            return MessageKind.DONE, pickle.dumps(asked[kind]())
        except Exception as error:  # noqa: BLE001 - the front reports it
            return MessageKind.FAILED, pickle.dumps(
                error if isinstance(error, ConfigError) else RuntimeError(type(error).__name__)
            )

    def _look(self) -> Any:
        used, label = os.times(), {"worker": str(self._number)}
        own = {
            named_count("workers.cpu_seconds", label): round(used.user + used.system, 2),
            named_count("workers.memory_rss", label): resident(),
        }
        return self._server.counts() | own, self._server.readiness()

    def _scores(self) -> list[Family]:
        """The metrics of results, with the number of this worker: averages of several cannot be added up."""
        label = {"worker": str(self._number)}
        return [
            replace(each, rows=[(suffix, {**labels, **label}, value) for suffix, labels, value in each.rows])
            for each in self._server.scores()
        ]


def work(number: int, config: EvalConfig, instance: str, prepare: Callable[[int], None], control: socket.socket) -> None:
    """Run a worker to its end: until the front closes the control socket, or is gone.

    Args:
        number: of this worker, from 1.
        config: this worker's own.
        instance: `service.instance.id` of its metrics, which must not be those of another worker.
        prepare: called first with the number, to set up logging.
        control: where descriptors of connections come from.
    """
    # The front stops its workers. Signals to the whole group of processes must not end them while it hands over requests.
    for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(each, lambda *_: None)
    given = os.environ.get("OTEL_RESOURCE_ATTRIBUTES", "")
    os.environ["OTEL_RESOURCE_ATTRIBUTES"] = f"{given}{',' if given else ''}service.instance.id={instance}"
    prepare(number)
    expect_no_spans()
    _run(number, config, control)
    sys.stderr.flush()
    os._exit(0)  # a scorer that does not return must not keep the process


def _run(number: int, config: EvalConfig, control: socket.socket) -> None:
    try:
        worker = _Worker(number, config)
        worker.start()
    except Exception as error:  # noqa: BLE001 - the front reports it
        why = error if isinstance(error, ConfigError) else ConfigError(f"worker {number}: {type(error).__name__}: {error}")
        return send(control, MessageKind.FAILED, pickle.dumps(why))
    send(control, MessageKind.DONE)
    while (connection := _accept(control)) is not None:
        threading.Thread(target=worker.serve, args=(connection,), name="otel-eval-part", daemon=True).start()
    watchdog = threading.Timer(_STOP_S + _MARGIN_S, os._exit, (1,))
    watchdog.daemon = True
    watchdog.start()
    worker.stop(_STOP_S)
    return None


def _accept(control: socket.socket) -> socket.socket | None:
    """A connection from the front; None if the front closed the control socket, or is gone."""
    try:
        message, descriptors, _, _ = socket.recv_fds(control, 1, 1)
    except OSError:
        return None
    return socket.socket(fileno=descriptors[0]) if message else None
