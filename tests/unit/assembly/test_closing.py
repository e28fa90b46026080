"""When a trace closes, and with which completeness."""

from __future__ import annotations

import pytest

from otel_eval.assembly import Limits, TraceBuffer
from otel_eval.model import Completeness
from tests.support.made_spans import ROLES, FakeSpan, RolesByName, span

LIMITS = Limits(
    decision_wait_s=1,
    decision_wait_partial_s=6,
    decision_wait_detached_s=60,
    grace_period_s=30,
    idle_s=300,
    max_age_s=3600,
)
TRACE = b"t" * 16


def push(buffer: TraceBuffer, *spans: FakeSpan, now: float = 0, trace: bytes = TRACE) -> None:
    for each in spans:
        frame = (each.parent.encode(), each, each.resource_scope)
        buffer.push_many([(trace, each.span_id.encode(), frame, 100)], now)


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
            [span("r", "gone", "agent", remote=True)],
            6,
            Completeness.DETACHED,
            id="a run whose caller in another process is missing",
        ),
        pytest.param(
            [span("r", "gone", kind=2), span("c", "r", "chat")],
            6,
            Completeness.DETACHED,
            id="a model call below a server span, without flags",
        ),
        pytest.param(
            [span("a", "gone", "agent", remote=False)],
            60,
            Completeness.DETACHED,
            id="an agent below a span of its process that goes on",
        ),
        pytest.param(
            [span("c", "gone", "tool", remote=False)],
            300,
            Completeness.IDLE,
            id="a call of a run that goes on",
        ),
        pytest.param(
            [span("c", "gone", "tool")], 300, Completeness.IDLE, id="the same without flags"
        ),
        pytest.param(
            [span("s", "gone", kind=2), span("t", "s")],
            3600,
            Completeness.AGED,
            id="a server's spans wait for their caller",
        ),
        pytest.param(
            [span("s", "gone", "served", kind=2)],
            3600,
            Completeness.AGED,
            id="those of an MCP server too",
        ),
        pytest.param([span("s", "s", "tool")], 300, Completeness.IDLE, id="its own parent"),
        pytest.param(
            [span("a", "b", "agent"), span("b", "a")], 60, Completeness.DETACHED, id="a cycle"
        ),
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
    buffer = TraceBuffer(LIMITS, ROLES)
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
    buffer = TraceBuffer(LIMITS, ROLES)
    closed = []
    for minute in range(61):
        push(buffer, span(f"c{minute}", "r", "tool"), now=minute * 60)
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


def test_spans_that_wait_for_their_caller_are_held_without_what_only_a_run_needs():
    """They are complete again when a greater version arrives; a repetition changes nothing."""
    slim = span("web", "caller", remote=True, end_ns=5)

    class Reduced(RolesByName):
        def slim(self, frame):
            return (frame[0], slim, frame[2])

    buffer = TraceBuffer(LIMITS, Reduced())
    whole = span("web", "caller", remote=True, end_ns=5, attributes={"url": "…"})
    push(buffer, whole)
    buffer.due(6)
    push(buffer, whole, now=7)
    (trace,) = buffer.close(TRACE, 8)
    assert (trace.frames[b"web"][1], buffer.counts.spans_duplicate) == (slim, 1)
