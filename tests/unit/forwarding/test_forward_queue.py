"""The forwarding queue of one signal, with a client that answers as a function decides."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from otel_eval.counters import Counters
from otel_eval.forwarding.forward_queue import ForwardQueue
from otel_eval.retry import Attempts, ExportResult, RetryPolicy
from tests.support.waiting import LIMIT_S


class Client:
    """Like a gRPC channel, it raises errors after it was closed."""

    def __init__(self, answer: Callable[[bytes], ExportResult]) -> None:
        self.answer, self.is_closed = answer, False

    def send(self, body: bytes) -> ExportResult:
        result = self.answer(body)
        if self.is_closed:
            raise ValueError("Cannot invoke RPC on closed channel!")
        return result

    def close(self) -> None:
        self.is_closed = True


def queue_of(
    answer: Callable[[bytes], ExportResult], acknowledged: list[Any]
) -> tuple[ForwardQueue, Counters]:
    client: Any = Client(answer)
    counters = Counters()
    attempts = Attempts("forward.traces", RetryPolicy(last_s=0.001), "dropped", forwards=True)
    return ForwardQueue(
        "traces", client, attempts, counters, 1000, lambda *acks: acknowledged.append(acks)
    ), counters


def test_a_request_that_is_refused_costs_those_that_were_joined_with_it_nothing() -> None:
    """They come from other clients."""
    sent, acknowledged = list[bytes](), list[Any]()

    def answer(body: bytes) -> ExportResult:
        if b"c" in body:
            return ExportResult("permanent", "400")
        sent.append(body)
        return ExportResult("ok")

    queue, counters = queue_of(answer, acknowledged)
    for letter in "abcde":
        queue.reserve(1)
        queue.put(letter.encode(), 1, 1, letter)
    queue.start()
    assert queue.stop(LIMIT_S)
    assert sorted(b"".join(sent)) == sorted(b"abde")
    assert sorted(ack for requests, _ in acknowledged for ack in requests) == list("abcde")
    assert (counters.get("forward.sent"), counters.get("forward.refused"), queue.waiting_bytes) == (
        4,
        1,
        0,
    )


def test_a_request_that_meets_a_closed_client_is_not_refused() -> None:
    """Acknowledged, it would not be forwarded after the next start either."""
    sending, closed = threading.Event(), threading.Event()

    def answer(_: bytes) -> ExportResult:
        sending.set()
        assert closed.wait(LIMIT_S)
        return ExportResult("ok")

    acknowledged = list[Any]()
    queue, counters = queue_of(answer, acknowledged)
    queue.start()
    queue.reserve(1)
    queue.put(b"a", 1, 1, "ack")
    assert sending.wait(LIMIT_S)
    assert queue.stop(0.01, kept=True)
    closed.set()
    assert queue.wait(LIMIT_S)
    assert (acknowledged, counters.get("forward.refused"), counters.get("forward.lost")) == (
        [],
        0,
        0,
    )
