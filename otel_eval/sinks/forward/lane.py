"""One signal on its way out: a queue with a limit in bytes, and the threads that empty it.

Knows room, batches, retries and counts; knows no wire. What is in the queue stays until the endpoint took it or refused
it for good. While the endpoint is away the queue fills, and then `reserve` tells whoever brings more to come again.
"""

from __future__ import annotations

import random
import threading
import time
from collections import deque
from collections.abc import Sequence
from typing import Final

from otel_eval.errors import Overloaded
from otel_eval.sinks.forward.cut import Shell, wrap
from otel_eval.sinks.forward.send import Answer, Send
from otel_eval.sinks.tally import Counters, Warnings

__all__ = ["Lane"]

_JOINED: Final = 1024 * 1024  # requests are joined up to here: backends take 4 MiB unless told otherwise
_LINGER_S: Final = 0.05  # a span that waited seconds for its scores waits so much longer for company
_FIRST_S: Final = 0.5
_LONGEST_S: Final = 30.0
_FACTOR: Final = 1.5
_LAST_S: Final = 0.2  # between attempts when the process ends

Batch = tuple[bytes, int]
"""A request and the number of items in it."""


class Lane:
    """The way out for one signal.

    Args:
        signal: traces, logs or metrics.
        send: one attempt.
        limit_bytes: of what waits; a single request is taken whatever its size.
        threads: requests under way at once.
    """

    def __init__(
        self, signal: str, send: Send, counters: Counters, warnings: Warnings, *, limit_bytes: int, threads: int = 2
    ) -> None:
        self._signal, self._send, self._counters, self._warnings = signal, send, counters, warnings
        self._limit = limit_bytes
        self._changed = threading.Condition()  # guards what follows
        self._bodies: deque[Batch] = deque()
        self._spans: dict[Shell, list[bytes]] = {}
        self._spans_since = 0.0
        self._spans_bytes = 0
        self._bytes = 0  # reserved, waiting or under way
        self._items = 0
        self._hurry = self._closed = self._unwanted = False
        self._stopping = threading.Event()
        self._threads = [
            threading.Thread(target=self._run, name=f"otel-eval-forward-{signal}", daemon=True) for _ in range(threads)
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
                raise Overloaded("the endpoint that traffic is passed on to is behind; come again")
            self._bytes += size

    def cancel(self, size: int) -> None:
        """Give room back."""
        with self._changed:
            self._bytes -= size
            self._changed.notify_all()

    def put(self, body: bytes, items: int, reserved: int) -> None:
        """Queue a request for which room was reserved."""
        with self._changed:
            self._bytes += len(body) - reserved
            if body:
                self._bodies.append((body, items))
                self._items += items
            self._changed.notify()

    def add(self, spans: Sequence[tuple[Shell, bytes]]) -> None:
        """Queue spans that waited; they were admitted with their request and are always taken."""
        if not spans:
            return
        with self._changed:
            if not self._spans:
                self._spans_since = time.monotonic()
                self._changed.notify()
            for shell, span in spans:
                self._spans.setdefault(shell, []).append(span)
                self._spans_bytes += len(span)
                self._bytes += len(span)
            self._items += len(spans)

    # ----------------------------------------------------------------- out

    def _run(self) -> None:
        while (taken := self._take()) is not None:
            batch, room = taken
            self._deliver(*batch)
            with self._changed:
                self._bytes -= room
                self._items -= batch[1]
                self._changed.notify_all()

    def _take(self) -> tuple[Batch, int] | None:
        """What to send next and the room it takes; None when the lane ends."""
        with self._changed:
            while not self._closed:
                lingered = self._spans_since + _LINGER_S - time.monotonic()
                if self._bodies or (self._spans and (lingered <= 0 or self._hurry or self._spans_bytes > _JOINED)):
                    return self._joined()
                self._changed.wait(lingered if self._spans else None)
        return None

    def _joined(self) -> tuple[Batch, int]:
        """Requests one after the other are one request."""
        parts: list[bytes] = []
        items = room = 0
        while self._bodies and (not parts or room + len(self._bodies[0][0]) <= _JOINED):
            body, count = self._bodies.popleft()
            parts.append(body)
            items += count
            room += len(body)
        if self._spans and (not parts or room + self._spans_bytes <= _JOINED):
            parts.append(wrap(self._spans))
            items += sum(map(len, self._spans.values()))
            room += self._spans_bytes
            self._spans, self._spans_bytes = {}, 0
        return (b"".join(parts) if len(parts) > 1 else parts[0], items), room

    def _deliver(self, body: bytes, items: int) -> None:
        """Try until the endpoint took it or refused it for good, or the lane ends."""
        delay = _FIRST_S
        while not self._unwanted:
            answer = self._attempt(body)
            if answer.fate != "later":
                return self._settle(answer, items)
            self._counters.add("forward.retries", signal=self._signal)
            self._warnings.say(f"forward.{self._signal}", "%s wait to be passed on: %s; trying again", self._signal, answer.why)
            delay = self._pause(delay, answer.after_s)
            if self._closed:
                return None
        return self._counters.add("forward.discarded", items, signal=self._signal)

    def _pause(self, delay: float, at_least_s: float) -> float:
        """Wait before the next attempt; how long to wait after that."""
        if self._stopping.is_set():
            time.sleep(_LAST_S)
            return delay
        # Jitter: several receivers that lost one backend must not come back as one.
        self._stopping.wait(max(at_least_s, delay * random.uniform(0.5, 1.5)))
        return min(_LONGEST_S, delay * _FACTOR)

    def _attempt(self, body: bytes) -> Answer:
        try:
            return self._send(body)
        except Exception as error:  # noqa: BLE001 - the thread must live on; what cannot be sent must not block what can
            return Answer("never", type(error).__name__)

    def _settle(self, answer: Answer, items: int) -> None:
        if answer.fate == "sent":
            self._counters.add("forward.sent", items - answer.rejected, signal=self._signal)
            lost = answer.rejected
        else:
            lost = items
        if lost:
            self._counters.add("forward.refused", lost, signal=self._signal)
            why = answer.why or "partial success"
            self._warnings.say(f"forward.{self._signal}.refused", "%d %s were refused for good: %s", lost, self._signal, why)
        if answer.fate == "unknown" and self._signal != "traces":
            self._unwanted = True
            self._warnings.once(
                f"forward.{self._signal}.unknown", "the endpoint takes no %s; none are passed on from now on", self._signal
            )

    # ----------------------------------------------------------------- end

    def stop(self, timeout_s: float) -> bool:
        """Send what waits, then end; False if something is left, which is counted and said."""
        with self._changed:
            self._hurry = True
            self._stopping.set()
            self._changed.notify_all()
            done = self._changed.wait_for(lambda: not self._items, timeout_s)
            self._closed = True
            left = self._items
            self._changed.notify_all()
        if left:
            self._counters.add("forward.lost", left, signal=self._signal)
            self._warnings.once(f"forward.{self._signal}.lost", "%d %s could not be passed on before the end", left, self._signal)
        return done

    @property
    def waiting_bytes(self) -> int:
        """Of what is reserved, waits or is under way."""
        return self._bytes
