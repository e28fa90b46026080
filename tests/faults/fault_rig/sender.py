"""Send runs as a good exporter does: requests that were refused or not answered are retried, and
acknowledgements are recorded.

Knows OTLP's answers on both protocols. A run counts as acknowledged when each of its spans was, in
whatever request.
"""

from __future__ import annotations

import http.client
import queue
import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import grpc

from tests.faults.fault_rig.traffic import Run, body

__all__ = ["Request", "Sender", "requests_of", "shuffled"]

METHOD: Final = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
REQUEST_S: Final = 20.0
PAUSE_S: Final = 0.02  # shorter than a sender is asked to wait, so that the pressure is real
TRANSIENT: Final = (
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.DEADLINE_EXCEEDED,
    grpc.StatusCode.CANCELLED,
    grpc.StatusCode.UNKNOWN,
)


@dataclass(frozen=True, slots=True)
class Request:
    """A body, and how many spans of which run are in it."""

    body: bytes
    spans: tuple[tuple[int, int], ...]


def requests_of(runs: Iterable[Run], *, at_once: int = 5) -> list[Request]:
    """Whole runs, so many a request."""
    runs = list(runs)
    found = []
    for first in range(0, len(runs), at_once):
        some = runs[first : first + at_once]
        spans = [(run.number, run.spans()) for run in some]
        found.append(
            Request(
                body([each for _, own in spans for each in own]),
                tuple((n, len(own)) for n, own in spans),
            )
        )
    return found


def shuffled(
    runs: Iterable[Run], *, seed: int, at_once: int = 9, twice: float = 0.3
) -> list[Request]:
    """The spans of all the runs in any order, some of them twice, cut into requests anywhere."""
    rng = random.Random(seed)
    spans = [(run.number, span) for run in runs for span in run.spans()]
    again = rng.sample(spans, int(len(spans) * twice))
    rng.shuffle(spans)
    mixed = [(*each, 1) for each in spans]
    for each in again:
        mixed.insert(rng.randrange(len(mixed) + 1), (*each, 0))
    found = []
    for first in range(0, len(mixed), at_once):
        some = mixed[first : first + at_once]
        found.append(
            Request(
                body([span for _, span, _ in some]), tuple((n, counted) for n, _, counted in some)
            )
        )
    return found


class Sender:
    """Sends over a few connections at once.

    Attributes:
        acknowledged: numbers of the runs of which every span was acknowledged.
        taken: spans that were acknowledged, each once.
        begun: requests that are being sent or were sent.
        allowed: how many requests may have begun; until a scenario allows more, no further one
            begins.
        answers: how many requests had each result: "ok", "refused", "lost" (no response),
            "rejected" (permanently).
    """

    def __init__(
        self,
        runs: Iterable[Run],
        address: Callable[[], tuple[str, str]],
        *,
        protocol: str = "grpc",
        channel: Callable[..., grpc.Channel] = grpc.insecure_channel,
        token: str = "",
    ) -> None:
        self._left = {run.number: len(run.calls) + 1 for run in runs}
        self._address, self._protocol = address, protocol
        self._channel, self._metadata = (
            channel,
            (("authorization", f"Bearer {token}"),) if token else (),
        )
        self._lock = threading.Lock()  # guards what follows
        self.acknowledged: set[int] = set()
        self.answers: Counter[str] = Counter()
        self.taken = self.begun = 0
        self.allowed = sys.maxsize
        self.stopped = threading.Event()

    def send(
        self, requests: Sequence[Request], *, within_s: float, threads: int = 4, pace_s: float = 0.0
    ) -> None:
        """Send each until it is acknowledged, the time is over, or `stopped` is set."""
        waiting: queue.SimpleQueue[Request] = queue.SimpleQueue()
        for each in requests:
            waiting.put(each)
        deadline = time.monotonic() + within_s
        workers = [
            threading.Thread(target=self._work, args=(waiting, deadline, pace_s))
            for _ in range(threads)
        ]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join(within_s + REQUEST_S)

    def _work(self, waiting: queue.SimpleQueue[Request], deadline: float, pace_s: float) -> None:
        connection = self._connection()
        try:
            while time.monotonic() < deadline and not self.stopped.is_set():
                if not self._may_begin():
                    self.stopped.wait(PAUSE_S)
                    continue
                try:
                    request = waiting.get_nowait()
                except queue.Empty:
                    return
                self._until_taken(connection, request, deadline)
                if pace_s:
                    time.sleep(pace_s)
        finally:
            connection.close()

    def _may_begin(self) -> bool:
        with self._lock:
            may_begin = self.begun < self.allowed
            self.begun += may_begin
            return may_begin

    def _connection(self) -> _GrpcConnection | _HttpConnection:
        if self._protocol == "http":
            return _HttpConnection(self._address)
        return _GrpcConnection(self._address, self._channel, self._metadata)

    def _until_taken(
        self, connection: _GrpcConnection | _HttpConnection, request: Request, deadline: float
    ) -> None:
        while time.monotonic() < deadline and not self.stopped.is_set():
            answer = connection.send(request.body)
            with self._lock:
                self.answers[answer] += 1
            if answer == "ok":
                return self._book(request)
            if answer == "rejected":
                return None
            time.sleep(PAUSE_S)
        return None

    def _book(self, request: Request) -> None:
        with self._lock:
            for number, count in request.spans:
                self._left[number] -= count
                self.taken += count
                if self._left[number] == 0:
                    self.acknowledged.add(number)


class _GrpcConnection:
    def __init__(
        self,
        address: Callable[[], tuple[str, str]],
        make: Callable[..., grpc.Channel],
        metadata: tuple[tuple[str, str], ...],
    ) -> None:
        self._address, self._make, self._metadata = address, make, metadata
        self._channel: grpc.Channel | None = None

    def send(self, data: bytes) -> str:
        if self._channel is None:
            options = [
                ("grpc.use_local_subchannel_pool", 1),
                ("grpc.max_reconnect_backoff_ms", 100),
            ]
            self._channel = self._make(
                self._address()[0], options=[*options, ("grpc.min_reconnect_backoff_ms", 50)]
            )
        try:
            self._channel.unary_unary(METHOD)(data, timeout=REQUEST_S, metadata=self._metadata)
        except grpc.RpcError as error:
            return self._meaning(error)
        return "ok"

    def _meaning(self, error: grpc.RpcError) -> str:
        if error.code() not in TRANSIENT:
            return "rejected"
        trailers = dict(error.trailing_metadata() or ())
        if "google.rpc.retryinfo-bin" in trailers:
            return "refused"
        self.close()  # no answer of the receiver's own: it is gone, or the connection is
        return "lost"

    def close(self) -> None:
        if self._channel is not None:
            self._channel.close()
        self._channel = None


class _HttpConnection:
    def __init__(self, address: Callable[[], tuple[str, str]]) -> None:
        self._address = address
        self._connection: http.client.HTTPConnection | None = None

    def send(self, data: bytes) -> str:
        try:
            if self._connection is None:
                host, port = self._address()[1].rsplit(":", 1)
                self._connection = http.client.HTTPConnection(host, int(port), timeout=REQUEST_S)
            self._connection.request(
                "POST", "/v1/traces", data, {"Content-Type": "application/x-protobuf"}
            )
            answer = self._connection.getresponse()
            answer.read()
        except (OSError, http.client.HTTPException, ValueError):
            self.close()
            return "lost"
        if answer.will_close:
            self.close()
        if answer.status == 200:
            return "ok"
        return (
            "refused"
            if answer.status in (429, 502, 503, 504) and answer.headers["Retry-After"]
            else "rejected"
        )

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._connection = None
