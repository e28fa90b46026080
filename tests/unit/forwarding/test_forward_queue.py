"""The forwarding queue of one signal, with a client that answers as a function decides."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from otel_eval.counters import Counters, without_labels
from otel_eval.delivery import queue as queue_module
from otel_eval.forwarding.forward_queue import ForwardQueue
from otel_eval.retry import ExportResult, RetryPolicy
from tests.support.waiting import LIMIT_S, wait_until


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


class Journal:
    """Collects the acks of requests and of held spans."""

    def __init__(self, acknowledged: list[Any]) -> None:
        self._acknowledged = acknowledged

    def journal_forwarded(self, requests: Sequence[Any], spans: Sequence[Any]) -> None:
        self._acknowledged.append((requests, spans))


QUICK = RetryPolicy(first_s=0.001, longest_s=0.001, last_s=0.001)


def queue_of(
    answer: Callable[[bytes], ExportResult],
    acknowledged: list[Any],
    *,
    retry: RetryPolicy = QUICK,
    limit_bytes: int = 1000,
) -> tuple[ForwardQueue, Counters]:
    client: Any = Client(answer)
    counters = Counters()

    journal: Any = Journal(acknowledged)
    return ForwardQueue("traces", client, counters, limit_bytes, journal, retry=retry), counters


def gauge(queue: ForwardQueue, name: str) -> float:
    """The value of a gauge of the queue, which has one set of labels."""
    return sum(value for key, value in queue.counts().items() if without_labels(key) == name)


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
    assert queue.close(LIMIT_S)
    assert sorted(b"".join(sent)) == sorted(b"abde")
    assert sorted(ack for requests, _ in acknowledged for ack in requests) == list("abcde")
    assert (counters.get("forward.sent"), counters.get("forward.refused")) == (4, 1)
    assert gauge(queue, "forward.waiting_bytes") == 0


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
    assert queue.close(0.01, is_journaled=True)
    closed.set()
    for thread in queue._threads:
        thread.join(LIMIT_S)
    assert (acknowledged, counters.get("forward.refused"), counters.get("forward.lost")) == (
        [],
        0,
        0,
    )


def test_requests_wait_for_a_backend_that_lacks_the_signal_and_pause_nothing() -> None:
    """More than the limit of the queue is accepted: the oldest are given up for it, and so are
    those that waited for too long. What is left is sent when the backend has the signal.
    """
    now, lacks, sent, acknowledged = [0.0], [True], list[bytes](), list[Any]()
    retry = RetryPolicy(recheck_s=60, give_up_s=900, clock=lambda: now[0])

    def answer(body: bytes) -> ExportResult:
        sent.append(body)
        return ExportResult.unsupported("404") if lacks[0] else ExportResult.ok()

    queue, counters = queue_of(answer, acknowledged, retry=retry, limit_bytes=4)
    queue.start()
    for letter in "abcdef":
        queue.reserve(1)
        queue.put(letter.encode(), 1, 1, letter)
        wait_until(lambda: len(queue) == 0)
    assert sent == [b"a"]
    wait_until(lambda: counters.get("forward.discarded") == 2)
    assert gauge(queue, "forward.waiting_bytes") == 4
    assert gauge(queue, "exports.unsupported") == 1
    now[0] += 899
    queue.reserve(1)
    queue.put(b"g", 1, 1, "g")  # one too many; and one is tried again, as a minute has passed
    wait_until(lambda: (len(sent), len(queue)) == (2, 0))
    assert counters.get("forward.discarded") == 3
    now[0] += 1
    lacks[0] = False
    assert not queue.flush(LIMIT_S)  # a minute has not passed
    wait_until(lambda: counters.get("forward.discarded") == 6)
    now[0] += 60
    assert queue.drain(LIMIT_S)
    assert sent[2:] == [b"g"]
    assert sorted(ack for requests, _ in acknowledged for ack in requests) == list("abcdefg")
    assert queue.close(LIMIT_S)
    assert (counters.get("forward.sent"), counters.get("forward.lost")) == (1, 0)


def test_the_age_of_the_oldest_request_and_of_the_one_under_way_show(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A backend that does not respond is logged when the next request comes."""
    may_return = threading.Event()

    def hang(_: bytes) -> ExportResult:
        assert may_return.wait(LIMIT_S)
        return ExportResult.ok()

    queue, _ = queue_of(hang, [])
    queue.start()
    queue.reserve(1)
    queue.put(b"a", 1, 1)
    wait_until(lambda: gauge(queue, "forward.oldest_s") > 0)
    wait_until(lambda: gauge(queue, "exports.running_s") > 0)
    monkeypatch.setattr(queue_module, "_STUCK_S", 0.0)
    queue.reserve(1)
    assert "export to forward.traces has been under way for 0 s" in caplog.text
    may_return.set()
    assert queue.close(LIMIT_S)
    assert gauge(queue, "forward.oldest_s") == 0
