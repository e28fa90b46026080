"""The forwarding queue of one signal, with a limit in bytes, and the threads that empty it.

What is in the queue stays until the backend accepted it or refused it permanently. While the backend fails, the queue fills,
and `reserve` raises a retryable error (backpressure). It differs from `ExportQueue` in that it holds requests as bytes, reserves
room before a request is journaled, joins requests and held spans, and sends from several threads. Attempts and retries are the
same.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final

from otel_eval.counters import Counters, Outage, Warnings
from otel_eval.errors import Overloaded
from otel_eval.forwarding.pending_spans import ReleasedSpan
from otel_eval.forwarding.splice import SpanContainer, wrap_spans
from otel_eval.otlp.client import OtlpClient
from otel_eval.retry import Attempts, ExportResult

_JOINED: Final = 3 * 1024 * 1024  # requests are joined up to here: backends take 4 MiB unless configured otherwise
_LINGER_S: Final = 0.05  # seconds that released spans wait for others to be sent with them
_PACE_S: Final = 0.05
"""Seconds after a request in which further ones are collected: each costs the client a third of a millisecond and its threads
several switches, whatever is in it. A request that comes alone is sent at once."""
_THREADS: Final = 2  # requests under way at once: one is sent while the other one waits for its response

_NOUNS: Final = {"traces": "spans", "logs": "log records", "metrics": "data points"}

_Batch = tuple[bytes, int, list[Any], list[Any]]
"""A request, the number of items in it, and the acks of the requests and of the spans that are joined in it."""


class ForwardQueue:
    """Forwards one signal.

    Args:
        signal: traces, logs or metrics.
        client: sends requests; it is closed with the queue.
        attempts: how long to wait between attempts, and whether the endpoint has accepted the signal before.
        limit_bytes: of what is queued; a single request is accepted whatever its size.
        passed: called with the acks of requests and of held spans that were forwarded or refused permanently.
    """

    def __init__(
        self,
        signal: str,
        client: OtlpClient,
        attempts: Attempts,
        counters: Counters,
        warnings: Warnings,
        limit_bytes: int,
        passed: Callable[[Sequence[Any], Sequence[Any]], None],
    ) -> None:
        self._signal, self._client, self._attempts = signal, client, attempts
        self._counters, self._warnings, self._limit, self._passed = counters, warnings, limit_bytes, passed
        self._noun: Final = _NOUNS.get(signal, signal)
        self._outage: Final = Outage(f"forward.{signal}", counters)
        self._enough = min(_JOINED, limit_bytes // 4)  # requests that are collected must not cause backpressure
        self._changed = threading.Condition()  # guards what follows
        self._bodies: deque[tuple[bytes, int, Any]] = deque()
        self._spans: dict[SpanContainer, list[bytes]] = {}
        self._acks: list[Any] = []  # of the spans
        self._spans_since = 0.0
        self._spans_bytes = 0
        self._bodies_bytes = 0
        self._sent_at = float("-inf")
        self._bytes = 0  # reserved, waiting or under way
        self._items = 0
        self._hurry = self._closed = False
        self._stopping = threading.Event()
        self._threads = [
            threading.Thread(target=self._run, name=f"otel-eval-forward-{signal}", daemon=True) for _ in range(_THREADS)
        ]

    def start(self) -> None:
        """Begin to send."""
        for thread in self._threads:
            thread.start()

    # ------------------------------------------------------------------ in

    def reserve(self, size: int) -> None:
        """Room for so many bytes, to be used by `put` or given back by `cancel`.

        Raises:
            Overloaded: there is none now.
        """
        with self._changed:
            if self._bytes and self._bytes + size > self._limit:
                self._counters.add("forward.busy", signal=self._signal)
                raise Overloaded(f"the queue of {self._signal} to forward is full; retry later")
            self._bytes += size

    def cancel(self, size: int) -> None:
        """Give room back."""
        with self._changed:
            self._bytes -= size
            self._changed.notify_all()

    def put(self, body: bytes, items: int, reserved: int, ack: Any = None) -> None:
        """Queue a request for which room was reserved."""
        with self._changed:
            self._bytes += len(body) - reserved
            if body:
                self._bodies.append((body, items, ack))
                self._bodies_bytes += len(body)
                self._items += items
            # A thread that waits for the first request has a timeout.
            if len(self._bodies) == 1 or self._due_s() == 0:
                self._changed.notify()

    def add(self, spans: Sequence[ReleasedSpan]) -> None:
        """Queue spans that were held; room was reserved with their request, so they are always accepted."""
        if not spans:
            return
        with self._changed:
            if not self._spans:
                self._spans_since = time.monotonic()
                self._changed.notify()
            for container, span, ack in spans:
                self._spans.setdefault(container, []).append(span)
                if ack is not None:
                    self._acks.append(ack)
                self._spans_bytes += len(span)
                self._bytes += len(span)
            self._items += len(spans)

    # ----------------------------------------------------------------- out

    def _run(self) -> None:
        while (taken := self._take()) is not None:
            (body, items, requests, spans), room = taken
            if self._deliver(body, items) and (requests or spans):
                self._passed(requests, spans)
            with self._changed:
                self._bytes -= room
                self._items -= items
                self._changed.notify_all()

    def _take(self) -> tuple[_Batch, int] | None:
        """What to send next and the room it takes; None when the queue ends."""
        with self._changed:
            while not self._closed:
                due_s = self._due_s()
                if due_s == 0:
                    taken = self._joined()
                    if self._bodies or self._spans:
                        self._changed.notify()  # what is left is another thread's
                    return taken
                self._changed.wait(due_s)
        return None

    def _due_s(self) -> float | None:
        """In how many seconds to send what is queued; None if nothing is."""
        if not self._bodies and not self._spans:
            return None
        if self._hurry or self._bodies_bytes + self._spans_bytes > self._enough:
            return 0
        until = self._sent_at + _PACE_S if self._bodies else self._spans_since + _LINGER_S
        return max(0, until - time.monotonic())

    def _joined(self) -> tuple[_Batch, int]:
        """Requests one after the other are one request."""
        parts: list[bytes] = []
        requests: list[Any] = []
        acks: list[Any] = []
        items = room = 0
        self._sent_at = time.monotonic()
        while self._bodies and (not parts or room + len(self._bodies[0][0]) <= _JOINED):
            body, count, ack = self._bodies.popleft()
            parts.append(body)
            if ack is not None:
                requests.append(ack)
            items += count
            room += len(body)
        self._bodies_bytes -= room
        if self._spans and (not parts or room + self._spans_bytes <= _JOINED):
            parts.append(wrap_spans(self._spans))
            items += sum(map(len, self._spans.values()))
            room += self._spans_bytes
            self._spans, self._spans_bytes = {}, 0
            acks, self._acks = self._acks, []
        return (b"".join(parts) if len(parts) > 1 else parts[0], items, requests, acks), room

    def _deliver(self, body: bytes, items: int) -> bool:
        """Try until the backend accepted or refused it permanently; False if the queue ended before."""
        backoff = self._attempts.backoff(self._stopping)
        while (result := self._attempts.make(lambda: self._attempt(body))).status == "retryable":
            self._outage.began()
            self._counters.add("forward.retries", signal=self._signal)
            reason = result.reason
            queued = self._items
            self._warnings.say(
                f"forward.{self._signal}", "export to forward.%s failed (%s), %d queued, retrying", self._signal, reason, queued
            )
            backoff.wait(result.after_s)
            if self._closed:
                return False
        self._count_outcome(result, items)
        return True

    def _attempt(self, body: bytes) -> ExportResult:
        try:
            return self._client.send(body)
        except Exception as error:  # noqa: BLE001 - the thread must live on; what cannot be sent must not block what can
            return ExportResult("permanent", type(error).__name__)

    def _count_outcome(self, result: ExportResult, items: int) -> None:
        if result.status == "unsupported":
            self._counters.add("forward.discarded", items, signal=self._signal)
            return
        lost = min(items, result.rejected) if result.status == "ok" else items
        if result.status == "ok":
            self._counters.add("forward.sent", items - lost, signal=self._signal)
            self._outage.over(self._items - items)
        if lost:
            self._refused(lost, items, result)
        elif result.reason:  # OTLP: a message without rejected items is a warning
            self._warnings.say(f"forward.{self._signal}.warned", "the backend warned about %s: %s", self._noun, result.reason)

    def _refused(self, lost: int, items: int, result: ExportResult) -> None:
        self._counters.add("forward.refused", lost, signal=self._signal)
        how = "rejected by the backend (partial success)" if result.status == "ok" else "refused by the backend permanently"
        why = result.reason or "it gave no reason"
        subject = f"forward.{self._signal}.refused"
        self._warnings.say(subject, "%d of %d %s were %s: %s", lost, items, self._noun, how, why)

    @property
    def is_unsupported(self) -> bool:
        """Whether the endpoint does not support the signal."""
        return self._attempts.unsupported

    # ----------------------------------------------------------------- end

    def wait(self, timeout_s: float) -> bool:
        """Send what is queued at once; False if not all was sent in time."""
        with self._changed:
            self._hurry = True
            self._changed.notify_all()
            return self._changed.wait_for(lambda: not self._items, timeout_s)

    def stop(self, timeout_s: float, *, kept: bool = False) -> bool:
        """Send what is queued, then end; False if something is left, which is counted and logged unless it is `kept` on disk."""
        self._stopping.set()
        done = self.wait(timeout_s)
        with self._changed:
            self._closed = True
            left = self._items
            self._changed.notify_all()
        if left and not kept:
            self._counters.add("forward.lost", left, signal=self._signal)
            self._warnings.once(f"forward.{self._signal}.lost", "%d %s were not forwarded before the end", left, self._signal)
        self._client.close()
        return done or kept

    @property
    def waiting_bytes(self) -> int:
        """Of what is reserved, queued or being sent."""
        return self._bytes
