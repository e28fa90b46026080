"""The forwarding queue of one signal, with a limit in bytes.

A request stays in the queue until the backend accepted it or refused it permanently. While the
backend fails, the queue fills, and `reserve` raises a retryable error (backpressure). Memory is
reserved before a request is journaled. Requests and held spans are joined, and sent by several
threads.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import accumulate, takewhile
from typing import Any, Final, NamedTuple

from otel_eval.counters import Counters, CountName, count_name
from otel_eval.delivery.queue import DeliveryQueue, Entry
from otel_eval.errors import Overloaded
from otel_eval.forwarding.pending_spans import PendingSpan
from otel_eval.forwarding.splice import wrap_spans
from otel_eval.otlp.client import OtlpClient
from otel_eval.retry import Attempts, ExportResult, RetryPolicy
from otel_eval.storage.durable import ForwardedRequests

# bytes of requests that are joined: backends accept 4 MiB unless configured otherwise
_MAX_JOINED: Final = 3 * 1024 * 1024
_COLLECT_S: Final = 0.05
"""Seconds after a request in which further ones are collected: each costs the client a third of a
millisecond and several thread switches, whatever its size. A single request is sent at once.
"""
# requests under way at once: one is sent while the other one waits for its response
_THREADS: Final = 2

_NOUNS: Final = {"traces": "spans", "logs": "log records", "metrics": "data points"}


class ForwardedBody(NamedTuple):
    """An encoded request, the number of items in it, and the acks of the request, or of the held
    spans in it.
    """

    body: bytes
    items: int
    requests: Sequence[Any] = ()
    spans: Sequence[Any] = ()


class ForwardQueue(DeliveryQueue[ForwardedBody]):
    """Forwards one signal.

    Counts `forward.sent`, `forward.refused`, `forward.discarded`, `forward.retries`,
    `forward.busy` and `forward.lost`, each by signal.

    Args:
        signal: traces, logs or metrics.
        client: sends requests; it is closed with the queue.
        limit_bytes: the limit of reserved and queued bytes, and of parked ones; a single request is
            accepted whatever its size.
        journal: is told which requests and held spans were forwarded or refused permanently.
        retry: how long to wait between attempts.
        waits_for_access: whether requests are retried while the backend refuses the credentials.
    """

    family = "forward"

    def __init__(
        self,
        signal: str,
        client: OtlpClient,
        counters: Counters,
        limit_bytes: int,
        journal: ForwardedRequests | None,
        *,
        retry: RetryPolicy,
        waits_for_access: bool = False,
    ) -> None:
        self._client, self._journal = client, journal
        self._signal, self._limit = signal, limit_bytes
        # requests that are collected must not cause backpressure
        self._enough_bytes = min(_MAX_JOINED, limit_bytes // 4)
        self._reserved = 0  # bytes
        name = f"forward.{signal}"
        fate = f"they wait for {retry.give_up_s:g} s, then they are dropped"
        attempts = Attempts(name, retry, fate, forwards=True, waits_for_access=waits_for_access)
        super().__init__(
            name,
            attempts,
            counters,
            retry=retry,
            labels={"signal": signal},
            threads=_THREADS,
            max_parked_size=limit_bytes,
        )

    # ------------------------------------------------------------------ in

    def reserve(self, size: int) -> None:
        """Reserve bytes of the limit, which `put` uses or releases.

        Raises:
            Overloaded: the queue is full.
        """
        self.warn_if_stuck()
        with self._lock:
            in_use = self._reserved + self._size
            if in_use and in_use + size > self._limit:
                self._count("busy")
                raise Overloaded(f"the queue of {self._signal} to forward is full; retry later")
            self._reserved += size

    def put(self, body: bytes, items: int, reserved: int, ack: Any = None) -> None:
        """Queue a request for which bytes were reserved; for b"" only release them."""
        with self._lock:
            self._reserved -= reserved
            if body:
                request = ForwardedBody(body, items, () if ack is None else (ack,))
                self._add(request, len(body))

    def add(self, spans: Sequence[PendingSpan]) -> None:
        """Queue spans that were held. They are always accepted: their bytes were reserved with
        their request.
        """
        if spans:
            body = wrap_spans((span.container, span.payload) for span in spans)
            acks = [span.ack for span in spans if span.ack is not None]
            with self._lock:
                self._add(ForwardedBody(body, len(spans), spans=acks), len(body))

    # ----------------------------------------------------------------- out

    def _due_in_s(self) -> float:
        if self._hurry or self._queued_size > self._enough_bytes:
            return 0.0
        return self._popped_at + _COLLECT_S - time.monotonic()

    def _batch_length(self) -> int:
        """How many requests can be joined, at least one."""
        sizes = accumulate(entry.size for entry in self._queue)
        return max(1, sum(1 for _ in takewhile(lambda size: size <= _MAX_JOINED, sizes)))

    def _send(self, items: Sequence[ForwardedBody]) -> ExportResult:
        # Concatenated protobuf requests are one request.
        return self._client.send(
            items[0].body if len(items) == 1 else b"".join([request.body for request in items])
        )

    def _settle(self, result: ExportResult, entries: Sequence[Entry[ForwardedBody]]) -> bool:
        requests = [entry.item for entry in entries]
        self._count_outcome(result, sum([request.items for request in requests]))
        acks = [ack for request in requests for ack in request.requests]
        acks_of_spans = [ack for request in requests for ack in request.spans]
        if self._journal is not None and (acks or acks_of_spans):
            self._journal.journal_forwarded(acks, acks_of_spans)
        return True

    def _count_outcome(self, result: ExportResult, items: int) -> None:
        """Count the spans or log records of a request as sent, refused or discarded, and warn of
        what the backend says.
        """
        if result.status == "unsupported":
            self._count("discarded", items)
            return
        noun, refused = _NOUNS[self._signal], items
        if result.status == "ok":
            refused = min(items, result.rejected)
            self._count("sent", items - refused)
        if refused:
            self._count("refused", refused)
            reason = result.reason or "it gave no reason"
            message = "%d of %d %s were refused by the backend: %s"
            self._warnings.say("refused", message, refused, items, noun, reason)
        elif result.reason:  # OTLP: a message without rejected items is a warning
            self._warnings.say("warned", "the backend warned about %s: %s", noun, result.reason)

    def counts(self) -> dict[CountName, float]:
        """The bytes that are reserved, queued, being sent or parked, and the gauges of every
        queue.
        """
        with self._lock:
            parked = sum([entry.size for entry in self._parked])
            unsent = self._reserved + self._size + parked
        return {count_name("forward.waiting_bytes", **self._labels): unsent, **super().counts()}

    # ----------------------------------------------------------------- end

    def close(self, timeout_s: float, *, is_journaled: bool = False) -> bool:
        """Send what is queued, then close the queue; False if items are left, which are counted and
        logged, unless they are journaled.
        """
        self.stop()
        is_sent = self.drain(timeout_s)
        self._end_threads(0.0)
        if not is_journaled:
            entries, reason = self._pop_rest()
            lost = sum([entry.item.items for entry in entries])
            if lost:
                self._count("lost", lost)
                message = "%d %s were not forwarded before the end (%s)"
                self._warnings.once("lost", message, lost, _NOUNS[self._signal], reason)
        self._client.close()
        return is_sent or is_journaled
