"""When a trace closes, and with which completeness."""

from __future__ import annotations

import pytest

from otel_eval.assembly import Limits, TraceBuffer
from otel_eval.model import Completeness
from tests.support.made_spans import FakeSpan, span

LIMITS = Limits(
    decision_wait_s=1, decision_wait_partial_s=6, grace_period_s=30, idle_s=300, max_age_s=3600
)
TRACE = b"t" * 16


def push(buffer: TraceBuffer, *spans: FakeSpan, now: float = 0, trace: bytes = TRACE) -> None:
    for each in spans:
        buffer.push(
            trace,
            each.span_id.encode(),
            (each.parent.encode(), each, each.resource_scope),
            100,
            now,
        )


def closing(buffer: TraceBuffer, upto: int = 4000) -> tuple[int, Completeness] | None:
    """The first whole second at which a trace closes, and why."""
    for now in range(upto):
        for trace in buffer.due(now):
            return now, trace.reason
    return None


@pytest.mark.parametrize(
    ("spans", "when", "reason"),
    [
        pytest.param(
            [span("r"), span("c", "r")], 1, Completeness.COMPLETE, id="every link resolves: settle"
        ),
        pytest.param(
            [span("r"), span("c", "r", service="b")],
            6,
            Completeness.COMPLETE,
            id="two services: decision_wait_partial",
        ),
        pytest.param(
            [span("r"), span("c", "gone")], 6, Completeness.REMOTE_PARENT, id="a parent is missing"
        ),
        pytest.param(
            [span("r", "gone", remote=True)],
            6,
            Completeness.REMOTE_PARENT,
            id="remote parent never comes",
        ),
        pytest.param(
            [span("r", "gone", kind=2)],
            6,
            Completeness.REMOTE_PARENT,
            id="no flags, a server span enters",
        ),
        pytest.param(
            [span("r", "gone", kind=5)],
            6,
            Completeness.REMOTE_PARENT,
            id="no flags, a consumer span enters",
        ),
        pytest.param(
            [span("c", "gone", remote=False)],
            300,
            Completeness.IDLE,
            id="the local root is still open: idle",
        ),
        pytest.param(
            [span("c", "gone")], 300, Completeness.IDLE, id="nothing says that anything ended: idle"
        ),
        pytest.param([span("s", "s")], 300, Completeness.IDLE, id="its own parent"),
        pytest.param([span("a", "b"), span("b", "a")], 300, Completeness.IDLE, id="a cycle"),
        pytest.param(
            [span("r"), span("a", "b"), span("b", "a")],
            1,
            Completeness.COMPLETE,
            id="a cycle beside a root",
        ),
    ],
)
def test_a_trace_closes_when_nothing_is_known_to_be_open(spans, when, reason):
    """Parent links, services and remoteness decide how long to wait."""
    buffer = TraceBuffer(LIMITS)
    push(buffer, *spans)
    assert closing(buffer) == (when, reason)


def test_every_span_starts_the_wait_anew():
    """The wait counts from the last span of the trace, not from its first."""
    buffer = TraceBuffer(LIMITS)
    push(buffer, span("r"), now=0)
    push(buffer, span("c", "r"), now=0.9)
    assert buffer.due(1.5) == []
    assert len(buffer.due(1.9)) == 1


def test_a_root_that_arrives_late_ends_the_long_wait():
    """Children alone wait for idle_timeout; when the root arrives, the trace closes after
    `decision_wait_s`.
    """
    buffer = TraceBuffer(LIMITS)
    push(buffer, span("c", "r"), now=0)
    assert buffer.due(50) == []
    push(buffer, span("r"), now=60)
    assert [t.reason for t in buffer.due(61)] == [Completeness.COMPLETE]


def test_a_trace_that_never_rests_closes_for_its_age():
    """A span every minute keeps a trace open until max_age."""
    buffer = TraceBuffer(LIMITS)
    closed = []
    for minute in range(61):
        push(buffer, span(f"c{minute}", "r"), now=minute * 60)
        closed += buffer.due(minute * 60)
    assert [t.reason for t in closed] == [Completeness.AGED]


def test_a_source_that_counts_need_not_wait():
    """`close` closes a trace at once, with the completeness that its parent links give."""
    buffer = TraceBuffer(LIMITS)
    push(buffer, span("r", "gone", remote=True), span("c", "r"))
    assert [t.reason for t in buffer.close(TRACE, 0)] == [Completeness.REMOTE_PARENT]
    assert buffer.close(TRACE, 0) == []


def test_the_end_closes_everything_in_order_of_arrival():
    """`drain` closes for the given reason, else with the completeness that the wait would have
    given.
    """
    buffer = TraceBuffer(LIMITS)
    push(buffer, span("a"), trace=b"1" * 16)
    push(buffer, span("b", "gone"), trace=b"2" * 16)
    assert [(t.trace_id[:1], t.reason) for t in buffer.drain(0)] == [
        (b"1", Completeness.COMPLETE),
        (b"2", Completeness.REMOTE_PARENT),
    ]
    push(buffer, span("c"), trace=b"3" * 16)
    assert [t.reason for t in buffer.drain(0, Completeness.SHUTDOWN)] == [Completeness.SHUTDOWN]


def test_log_records_wait_for_their_span():
    """A log record joins its span when that arrives. If no span arrives, the trace closes without
    spans and is not counted.
    """
    buffer = TraceBuffer(LIMITS)
    frame = ("payload", None)
    buffer.push_logs([(TRACE, b"r", frame, 10), (TRACE, b"r", frame, 10)], 0)
    push(buffer, span("r"), now=2)
    (trace,) = buffer.due(3)
    assert trace.logs == {b"r": (frame,)}
    buffer.push_logs([(b"9" * 16, b"r", frame, 10)], 3)
    assert [trace.frames for trace in buffer.drain(4)] == [{}]
    assert buffer.counts.traces_closed == 1
