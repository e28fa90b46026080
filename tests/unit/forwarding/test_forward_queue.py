"""The forwarding queue of one signal, with a client that answers as a function decides."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from otel_eval.counters import Counters
from otel_eval.forwarding.forward_queue import ForwardQueue
from otel_eval.retry import Attempts, ExportResult, RetryPolicy


class Client:
    """Like a gRPC channel, it raises errors after it was closed."""

    def __init__(self, answer: Callable[[], ExportResult]) -> None:
        self.answer, self.is_closed = answer, False

    def send(self, _: bytes) -> ExportResult:
        result = self.answer()
        if self.is_closed:
            raise ValueError("Cannot invoke RPC on closed channel!")
        return result

    def close(self) -> None:
        self.is_closed = True


def test_a_request_that_meets_a_closed_client_is_not_refused() -> None:
    """Acknowledged, it would not be forwarded after the next start either."""
    sending, closed = threading.Event(), threading.Event()

    def answer() -> ExportResult:
        sending.set()
        assert closed.wait(10.0)
        return ExportResult("ok")

    client: Any = Client(answer)
    counters, acknowledged = Counters(), list[Any]()
    attempts = Attempts("forward.traces", RetryPolicy(last_s=0.001), "dropped", forwards=True)
    queue = ForwardQueue("traces", client, attempts, counters, 1000, lambda *acks: acknowledged.append(acks))
    queue.start()
    queue.reserve(1)
    queue.put(b"a", 1, 1, "ack")
    assert sending.wait(10.0)
    assert queue.stop(0.01, kept=True)
    closed.set()
    assert queue.wait(10.0)
    assert (acknowledged, counters.get("forward.refused"), counters.get("forward.lost")) == ([], 0, 0)
