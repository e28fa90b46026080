"""Requests on disk are acknowledged once they were forwarded, and after a restart forwarding
continues where it ended.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from otel_eval.app.build import build_engine
from otel_eval.config import load
from otel_eval.counters import Counters, count_name
from otel_eval.errors import Overloaded
from otel_eval.forwarding.pending_spans import PendingSpans, UnsentRequest
from otel_eval.forwarding.stage import Forwarder
from otel_eval.model import Report, Result, Scored
from otel_eval.otlp.endpoint import Endpoint
from otel_eval.otlp.protobuf import SpanBatch, read_traces
from otel_eval.storage.durable import Ack
from otel_eval.testing import trajectory
from tests.support.otlp_backend import Backend

ENGINE = build_engine(load({"evaluations": [{"name": "e", "scorers": [{"type": "tool_errors"}]}]}))
TRACE = (7).to_bytes(16)


def body(*spans: int) -> bytes:
    """Spans of one trace; the first is its root."""
    message = ExportTraceServiceRequest()
    scope = message.resource_spans.add().scope_spans.add()
    for span in spans:
        made = scope.spans.add(
            trace_id=TRACE, span_id=span.to_bytes(8), name="s", kind=1, flags=256
        )
        made.parent_span_id = b"" if span == spans[0] else spans[0].to_bytes(8)
    return message.SerializeToString()


class Keeper:
    """Remembers what it was calls."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, int]] = []
        self.changed = threading.Condition()

    def journal_forwarded(self, requests: Any, spans: Any) -> None:
        with self.changed:
            self.calls += [("rest", request.position) for request in requests] + [
                ("span", span.position) for span in spans
            ]
            self.changed.notify_all()

    def drop(self, ack: Ack) -> None:
        self.calls.append(("dropped", ack.position))

    def notified(self, *wanted: tuple[str, int]) -> bool:
        with self.changed:
            return self.changed.wait_for(lambda: sorted(self.calls) == sorted(wanted), 5)


class Assembly:
    """Keeps a request as number 1, or refuses it."""

    def __init__(self, *, full: bool = False) -> None:
        self.full = full

    def take(self, ack: Ack | None) -> None:
        assert ack is not None
        ack.position = 1
        if self.full:
            raise Overloaded("full")


@contextmanager
def stage(
    backend: Backend, journal: Keeper, held: PendingSpans | None = None
) -> Iterator[Forwarder]:
    to = Endpoint(endpoint=backend.url)
    forward = Forwarder(to, ENGINE, Counters(), pending_spans=held, journal=journal)
    forward.start()
    try:
        yield forward
    finally:
        forward.stop(1.0)


def report(trace_id: bytes = TRACE) -> Report:
    run = replace(trajectory(), trace_id=trace_id.hex(), span_id=(1).to_bytes(8).hex())
    result = Result(
        evaluation="e",
        scorer="s",
        type="tool_errors",
        version="1",
        outcome=Scored(1.0, passed=True),
        revision=0,
        result_id="1" * 32,
    )
    return Report(run, "e", 0, (result,))


def unsent(data: bytes, **more: Any) -> UnsentRequest:
    framed: SpanBatch = read_traces(data)
    return UnsentRequest("traces", data, len(framed.spans), framed.spans, 5, **more)


def arrived(backend: Backend) -> list[tuple[int, int]]:
    """Span and number of its events, in order."""
    return [
        (int.from_bytes(span.span_id), len(span.events))
        for data in backend.got["traces"]
        for group in ExportTraceServiceRequest.FromString(data).resource_spans
        for scope in group.scope_spans
        for span in scope.spans
    ]


def take(forward: Forwarder, data: bytes, assembly: Assembly) -> None:
    spans = read_traces(data).spans
    with forward.accepting("traces", data, len(spans), spans) as request:
        assembly.take(request.ack)


def test_the_rest_of_a_request_and_its_span_that_waits_are_noted_each_for_itself(
    backend: Backend,
) -> None:
    """When the backend has them."""
    journal = Keeper()
    with stage(backend, journal) as forward:
        take(forward, body(1, 2, 3), Assembly())
        assert journal.notified(("rest", 1))
        forward.release((TRACE,))
        assert journal.notified(("rest", 1), ("span", 1))


def test_a_request_that_is_not_taken_is_dropped(backend: Backend) -> None:
    """Nothing of it is sent."""
    journal = Keeper()
    with stage(backend, journal) as forward:
        with pytest.raises(Overloaded):
            take(forward, body(1, 2), Assembly(full=True))
        assert journal.calls == [("dropped", 1)]
    assert arrived(backend) == []


def test_an_evaluated_span_leaves_with_its_scores_and_an_undecided_one_waits(
    backend: Backend,
) -> None:
    """After a restart, with the rest of their requests or without it."""
    journal = Keeper()
    with stage(backend, journal) as forward:
        forward.resume(unsent(body(1, 2), evaluated={TRACE: [report()]}), {TRACE})
        assert journal.notified(("rest", 5), ("span", 5))
        assert sorted(arrived(backend)) == [(1, 1), (2, 0)]
        forward.resume(unsent(body(1, 2)), {TRACE})
        assert journal.notified(("rest", 5), ("span", 5), ("rest", 5))
        assert forward.counts()["forward.held_spans"] == 1
    # a stop leaves it for the next start
    assert sorted(arrived(backend)) == [(1, 1), (2, 0), (2, 0)]


def test_what_was_passed_on_is_not_sent_again_unless_other_spans_wait_now(backend: Backend) -> None:
    """Which of them were is not known, so all are sent."""
    first, journal, held = Keeper(), Keeper(), PendingSpans()
    with stage(backend, first, held) as forward:
        take(forward, body(1, 2), Assembly())
        ((root,), _) = held.journaled_of(TRACE)
        assert first.notified(("rest", 1))
    with stage(backend, journal) as forward:
        forward.resume(unsent(body(1, 2), checksum=root.ack.checksum), set())
        assert journal.notified(("span", 5))
        forward.resume(unsent(body(3, 4), checksum=root.ack.checksum), set())
        assert journal.notified(("span", 5), ("span", 5), ("rest", 5))
    assert sorted(arrived(backend)) == [(1, 0), (2, 0), (3, 0), (4, 0)]


def test_spans_that_are_written_again_belong_to_that_record(backend: Backend) -> None:
    """Their former request is calls, and the copy stands for them after a restart."""
    journal, again, held = Keeper(), Keeper(), PendingSpans()
    with stage(backend, journal, held) as forward:
        take(forward, body(1, 2), Assembly())
        assert journal.notified(("rest", 1))
        roots, copy = held.journaled_of(TRACE)
        cut = roots[0].ack.checksum
        journal.journal_forwarded([], held.reassign(roots, Ack(position=9)))
        assert journal.notified(("rest", 1), ("span", 1))
        forward.release((TRACE,))
        assert journal.notified(("rest", 1), ("span", 1), ("span", 9))
        assert held.reassign(roots, Ack(position=9)) == []
    assert sorted(arrived(backend)) == [(1, 0), (2, 0)]
    with stage(backend, again) as forward:
        former = {(TRACE, (1).to_bytes(8))}
        forward.resume(unsent(body(1, 2), checksum=cut, moved=former), {TRACE})
        assert again.calls == [("dropped", 5)]
        forward.resume(unsent(copy, is_held=True), {TRACE})
        assert forward.counts()["forward.held_spans"] == 1
        assert forward.counts()[count_name("forward.waiting_bytes", signal="traces")] == 0


def test_a_signal_that_is_not_passed_on_any_more_is_dropped(backend: Backend) -> None:
    """Another configuration."""
    journal = Keeper()
    forward = Forwarder(
        Endpoint(endpoint=backend.url), ENGINE, Counters(), journal=journal, signals=("logs",)
    )
    forward.resume(unsent(body(1)), {TRACE})
    assert journal.calls == [("dropped", 5)]
