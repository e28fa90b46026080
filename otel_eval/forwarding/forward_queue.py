"""The forwarding queue of one signal, with a limit in bytes, and the threads that send what is in
it.

A request stays in the queue until the backend accepted it or refused it permanently. While the
backend fails, the queue fills, and `reserve` raises a retryable error (backpressure). It differs
from `ExportQueue` in that it holds requests as bytes, reserves memory before a request is
journaled, joins requests and held spans, and sends from several threads. Attempts and retries are
the same.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from otel_eval.counters import Counters, Outage, Warnings
from otel_eval.errors import Overloaded
from otel_eval.forwarding.pending_spans import PendingSpan
from otel_eval.forwarding.splice import wrap_spans
from otel_eval.otlp.client import OtlpClient
from otel_eval.retry import Attempts, ExportResult

# bytes of requests that are joined: backends accept 4 MiB unless configured otherwise
_MAX_JOINED: Final = 3 * 1024 * 1024
_COLLECT_S: Final = 0.05
"""Seconds after a request in which further ones are collected: each costs the client a third of a
millisecond and several thread switches, whatever its size. A single request is sent at once.
"""
# requests under way at once: one is sent while the other one waits for its response
_THREADS: Final = 2

_NOUNS: Final = {"traces": "spans", "logs": "log records", "metrics": "data points"}


class _Request(NamedTuple):
    """A request, the number of items in it, and the acks of the request, or of the held spans in
    it.
    """

    body: bytes
    items: int
    requests: list[Any]
    spans: list[Any]


class ForwardQueue:
    """Forwards one signal.

    Args:
        signal: traces, logs or metrics.
        client: sends requests; it is closed with the queue.
        attempts: makes the attempts, and knows whether the endpoint supports the signal.
        limit_bytes: the limit of reserved and queued bytes; a single request is accepted whatever
            its size.
        acknowledge: called with the acks of requests and of held spans that were forwarded or
            refused permanently.
    """

    def __init__(
        self,
        signal: str,
        client: OtlpClient,
        attempts: Attempts,
        counters: Counters,
        limit_bytes: int,
        acknowledge: Callable[[Sequence[Any], Sequence[Any]], None],
    ) -> None:
        self._signal, self._client, self._attempts = signal, client, attempts
        self._counters, self._warnings, self._limit, self._acknowledge = (
            counters,
            Warnings(),
            limit_bytes,
            acknowledge,
        )
        self._name, self._noun = f"forward.{signal}", _NOUNS[signal]
        self._outage: Final = Outage(self._name, counters)
        # requests that are collected must not cause backpressure
        self._enough_bytes = min(_MAX_JOINED, limit_bytes // 4)
        self._changed = threading.Condition()  # guards what follows
        self._queue: deque[_Request] = deque()
        self._queued_bytes = 0
        self._sent_at = float("-inf")
        self._bytes = 0  # reserved, queued or being sent
        self._items = 0
        self._flushing = self._closed = False
        self._stopping = threading.Event()
        self._threads = [
            threading.Thread(target=self._run, name=f"otel-eval-forward-{signal}", daemon=True)
            for _ in range(_THREADS)
        ]

    def start(self) -> None:
        """Begin to send."""
        for thread in self._threads:
            thread.start()

    # ------------------------------------------------------------------ in

    def reserve(self, size: int) -> None:
        """Reserve bytes of the limit, which `put` uses or releases.

        Raises:
            Overloaded: the queue is full.
        """
        with self._changed:
            if self._bytes and self._bytes + size > self._limit:
                self._counters.add("forward.busy", signal=self._signal)
                raise Overloaded(f"the queue of {self._signal} to forward is full; retry later")
            self._bytes += size

    def put(self, body: bytes, items: int, reserved: int, ack: Any = None) -> None:
        """Queue a request for which bytes were reserved; for b"" only release them."""
        with self._changed:
            self._bytes -= reserved
            if body:
                self._add(_Request(body, items, [] if ack is None else [ack], []))

    def add(self, spans: Sequence[PendingSpan]) -> None:
        """Queue spans that were held. They are always accepted: their bytes were reserved with
        their request.
        """
        if spans:
            body = wrap_spans((each.container, each.payload) for each in spans)
            with self._changed:
                self._add(
                    _Request(
                        body, len(spans), [], [each.ack for each in spans if each.ack is not None]
                    )
                )

    def _add(self, request: _Request) -> None:
        self._queue.append(request)
        self._queued_bytes += len(request.body)
        self._bytes += len(request.body)
        self._items += request.items
        # For requests in between no thread has to be woken: the one that was woken for the first
        # waits with a timeout.
        if len(self._queue) == 1 or self._due_s() == 0:
            self._changed.notify()

    # ----------------------------------------------------------------- out

    def _run(self) -> None:
        while requests := self._next_requests():
            self._deliver(requests)
            with self._changed:
                self._bytes -= sum([len(each.body) for each in requests])
                self._items -= sum([each.items for each in requests])
                self._changed.notify_all()

    def _next_requests(self) -> list[_Request]:
        """Wait for requests that are due, and remove those to join from the queue; [] when the
        queue is closed.
        """
        with self._changed:
            while not self._closed:
                due_s = self._due_s()
                if due_s == 0:
                    requests = self._pop_requests()
                    if self._queue:
                        self._changed.notify()  # another thread can send the rest
                    return requests
                self._changed.wait(due_s)
        return []

    def _due_s(self) -> float | None:
        """In how many seconds the queued requests are due; None if the queue is empty."""
        if not self._queue:
            return None
        is_due = self._flushing or self._queued_bytes > self._enough_bytes
        return 0 if is_due else max(0, self._sent_at + _COLLECT_S - time.monotonic())

    def _pop_requests(self) -> list[_Request]:
        """Remove requests from the queue that can be joined."""
        self._sent_at = time.monotonic()
        requests = [self._queue.popleft()]
        size = len(requests[0].body)
        while self._queue and size + len(self._queue[0].body) <= _MAX_JOINED:
            requests.append(self._queue.popleft())
            size += len(requests[-1].body)
        self._queued_bytes -= size
        return requests

    def _deliver(self, requests: Sequence[_Request]) -> None:
        """Try until the backend accepted or permanently refused the requests, or the queue is
        closed.
        """
        # Concatenated protobuf requests are one request.
        body = (
            requests[0].body if len(requests) == 1 else b"".join([each.body for each in requests])
        )
        items = sum([each.items for each in requests])
        backoff = self._attempts.backoff(self._stopping)
        while (result := self._attempts.make(lambda: self._attempt(body))).status == "retryable":
            self._outage.began()
            self._counters.add("forward.retries", signal=self._signal)
            message = "export to %s failed (%s), %d queued, retrying"
            self._warnings.say(self._name, message, self._name, result.reason, self._items)
            backoff.wait(result.after_s)
            if self._closed:
                return None
        # perhaps because of one client's
        if result.status == "permanent" and len(requests) > 1 and not result.concerns_all:
            half = len(requests) // 2
            self._deliver(requests[:half])
            return self._deliver(requests[half:])
        self._count_outcome(result, items)
        acks = (
            [ack for each in requests for ack in each.requests],
            [ack for each in requests for ack in each.spans],
        )
        if any(acks):
            self._acknowledge(*acks)
        return None

    def _attempt(self, body: bytes) -> ExportResult:
        try:
            return self._client.send(body)
        except Exception as error:  # noqa: BLE001 - the thread must go on; a request that cannot be sent must not block others
            # A closed client raises errors, too; the request is not refused, and is forwarded after
            # the next start.
            return ExportResult("retryable" if self._closed else "permanent", type(error).__name__)

    def _count_outcome(self, result: ExportResult, items: int) -> None:
        if result.status == "unsupported":
            self._counters.add("forward.discarded", items, signal=self._signal)
            return
        refused = min(items, result.rejected) if result.status == "ok" else items
        if result.status == "ok":
            self._counters.add("forward.sent", items - refused, signal=self._signal)
            self._outage.ended(self._items - items)
        if refused:
            self._count_refused(refused, items, result)
        elif result.reason:  # OTLP: a message without rejected items is a warning
            self._warnings.say(
                f"{self._name}.warned", "the backend warned about %s: %s", self._noun, result.reason
            )

    def _count_refused(self, refused: int, items: int, result: ExportResult) -> None:
        self._counters.add("forward.refused", refused, signal=self._signal)
        message, reason = (
            "%d of %d %s were refused by the backend: %s",
            result.reason or "it gave no reason",
        )
        self._warnings.say(f"{self._name}.refused", message, refused, items, self._noun, reason)

    @property
    def is_unsupported(self) -> bool:
        """Whether the endpoint does not support the signal."""
        return bool(self._attempts.unsupported)

    # ----------------------------------------------------------------- end

    def wait(self, timeout_s: float) -> bool:
        """Send what is queued without further delay; False if the queue is not empty after
        `timeout_s` seconds.
        """
        with self._changed:
            self._flushing = True
            self._changed.notify_all()
            return self._changed.wait_for(lambda: not self._items, timeout_s)

    def stop(self, timeout_s: float, *, kept: bool = False) -> bool:
        """Send what is queued, then close the queue; False if items are left, which are counted and
        logged, unless `kept`.
        """
        self._stopping.set()
        done = self.wait(timeout_s)
        with self._changed:
            self._closed = True
            left = self._items
            self._changed.notify_all()
        if left and not kept:
            self._counters.add("forward.lost", left, signal=self._signal)
            self._warnings.once(
                f"{self._name}.lost", "%d %s were not forwarded before the end", left, self._signal
            )
        self._client.close()
        return done or kept

    @property
    def waiting_bytes(self) -> int:
        """The bytes that are reserved, queued or being sent."""
        return self._bytes
