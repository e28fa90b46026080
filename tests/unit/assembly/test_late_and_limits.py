"""Spans that arrive after the evaluation, and limits."""

from __future__ import annotations

import weakref

from hypothesis import given
from hypothesis import strategies as st

from otel_eval.assembly import Limits, TraceBuffer
from otel_eval.interfaces import LastEvaluation
from otel_eval.model import Completeness
from otel_eval.otlp.spans import LOG_READER
from tests.support.made_spans import ROLES, FakeSpan, span

TRACE = b"t" * 16


def push(
    buffer: TraceBuffer, *spans: FakeSpan, now: float = 0, trace: bytes = TRACE, size: int = 100
) -> None:
    for each in spans:
        frame = (each.parent.encode(), each, each.resource_scope)
        buffer.push_many([(trace, each.span_id.encode(), frame, size)], now)


def test_a_late_span_opens_the_trace_again():
    """The whole trace closes once more, with the changed spans and its last evaluations."""
    buffer = TraceBuffer(Limits(decision_wait_s=1, grace_period_s=30))
    push(buffer, span("r"))
    (first,) = buffer.due(1)
    first.history.record({b"r": LastEvaluation(0, "")})
    push(buffer, span("c", "r"), now=20)
    (second,) = buffer.due(21)
    assert (first.changed, second.changed) == (None, frozenset({b"c"}))
    assert (set(second.frames), second.history.evaluations) == (
        {b"r", b"c"},
        {b"r": LastEvaluation(0, "")},
    )
    assert buffer.counts.spans_late == 1


def test_later_still_is_counted_and_told_once():
    """After grace_period_s only the id is left, for max_age_s; then it is forgotten, too."""
    buffer = TraceBuffer(Limits(decision_wait_s=1, grace_period_s=30, max_age_s=100))
    push(buffer, span("r"))
    (trace,) = buffer.due(1)
    trace.history.record({b"r": LastEvaluation(0, "")})
    buffer.due(31)
    push(buffer, span("c", "r"), now=40)
    assert [(each.is_late, set(each.frames)) for each in buffer.due(40)] == [(True, {b"c"})]
    push(buffer, span("d", "r"), now=50)
    assert (buffer.due(50), buffer.counts.spans_too_late, buffer.held_bytes) == ([], 2, 0)
    buffer.due(200)
    push(buffer, span("e", "r"), now=200)
    assert (len(buffer), buffer.counts.spans_too_late) == (1, 2)


def test_spans_that_come_before_any_evaluation_join_the_trace():
    """A closed trace that was not popped yet opens again."""
    buffer = TraceBuffer(Limits(decision_wait_s=1, max_traces=1))
    push(buffer, span("r"), trace=b"1" * 16)
    push(buffer, span("x"), trace=b"2" * 16)  # closes the first one: overflow
    push(buffer, span("c", "r"), trace=b"1" * 16)
    closed = {t.trace_id[:1]: set(t.frames) for t in buffer.drain(0)}
    assert closed[b"1"] == {b"r", b"c"}


def test_of_two_spans_with_one_id_the_greater_counts_whichever_came_first():
    """The one with the later end is kept, then the one with more attributes, then with the greater
    bytes.
    """
    versions = [
        span("r", end_ns=1, attributes={"a": 1, "b": 2}),
        span("r", end_ns=2),
        span("r", end_ns=2, attributes={"a": 1}),
        span("r", end_ns=2, attributes={"a": 2}),
    ]
    for order in (versions, versions[::-1]):
        buffer = TraceBuffer(Limits())
        push(buffer, *order)
        (trace,) = buffer.drain(0)
        assert trace.frames[b"r"][1].given == {"a": 2}
        assert buffer.counts.spans_duplicate == 3


def test_a_repeated_span_is_no_change():
    """An identical span that arrives again causes no revision."""
    buffer = TraceBuffer(Limits(decision_wait_s=1))
    push(buffer, span("r"))
    buffer.due(1)
    push(buffer, span("r"), now=2)
    (again,) = buffer.due(3)
    assert again.changed == frozenset()


def test_a_trace_over_its_span_limit_closes_at_once_and_says_which_limit():
    """Spans that arrive later are over the limit too and are dropped."""
    buffer = TraceBuffer(Limits(max_spans_per_trace=2))
    push(buffer, *(span(f"c{n}", "r") for n in range(5)))
    (trace,) = buffer.due(0)
    assert (trace.reason, len(trace.frames)) == (Completeness.OVERFLOW, 2)
    assert trace.cut == "more than 2 spans (traces.max_spans_per_trace)"
    push(buffer, span("r"))
    assert (buffer.due(1000), buffer.counts.spans_over_limit) == ([], 4)


def test_a_trace_over_its_byte_limit_closes_too():
    """The bytes of one trace are bounded."""
    buffer = TraceBuffer(Limits(max_bytes_per_trace=1000))
    push(buffer, span("a"), span("b"), size=600)
    (trace,) = buffer.due(0)
    assert trace.cut == "more than 1000 bytes (traces.max_bytes_per_trace)"


def test_a_trace_over_its_limit_of_log_records_closes_too():
    """There may be ten for each span of the limit; a duplicate does not count."""
    buffer = TraceBuffer(Limits(max_spans_per_trace=2))
    push(buffer, span("r"))
    records = [(TRACE, b"r", (b"%d" % number, LOG_READER), 10) for number in range(20)]
    buffer.push_logs(records + records, 0)
    assert buffer.counts.spans_over_limit == 0
    buffer.push_logs([(TRACE, b"s", (b"one more", LOG_READER), 10)], 0)
    (trace,) = buffer.due(0)
    assert (trace.reason, list(trace.logs), len(trace.logs[b"r"])) == (
        Completeness.OVERFLOW,
        [b"r"],
        20,
    )
    assert trace.cut == "more than 20 log records (10 × traces.max_spans_per_trace)"


def test_log_records_that_come_late_do_not_change_what_was_handed_over():
    """The trace may be under evaluation at this moment."""
    buffer = TraceBuffer(Limits(decision_wait_s=1, grace_period_s=30))
    push(buffer, span("r"))
    buffer.push_logs([(TRACE, b"r", (b"1", LOG_READER), 10)], 0)
    (first,) = buffer.due(1)
    buffer.push_logs([(TRACE, b"r", (b"2", LOG_READER), 10)], 2)
    (second,) = buffer.due(3)
    assert [[payload for payload, _ in trace.logs[b"r"]] for trace in (first, second)] == [
        [b"1"],
        [b"1", b"2"],
    ]


def test_of_many_versions_of_a_span_the_first_and_the_last_count_as_held():
    """No other trace is closed for versions that were dropped: their bytes are free."""
    buffer = TraceBuffer(Limits(max_bytes=100_000))
    push(buffer, span("other"), trace=b"o" * 16)
    for end in range(600):
        push(buffer, span("r", end_ns=end), size=10_000)
    assert (len(buffer), buffer.counts.traces_over_limit, buffer.counts.spans_duplicate) == (
        2,
        0,
        599,
    )
    assert 20_000 < buffer.held_bytes < 21_500
    assert [len(trace.frames) for trace in buffer.drain(0)] == [1, 1]
    buffer.due(1000)
    assert buffer.held_bytes == 0


def test_a_greater_version_of_a_span_counts_against_the_byte_limit_of_its_trace():
    """Such a trace is not evaluated as if it were complete; a version that is not kept adds no
    bytes.
    """
    buffer = TraceBuffer(Limits(max_bytes_per_trace=1000))
    push(buffer, span("r", end_ns=2), size=100)
    push(buffer, span("r", end_ns=1), size=5000)
    assert buffer.counts.spans_over_limit == 0
    push(buffer, span("r", end_ns=3), size=5000)
    (trace,) = buffer.due(0)
    assert (trace.cut, trace.frames[b"r"][1].end_ns) == (
        "more than 1000 bytes (traces.max_bytes_per_trace)",
        2,
    )


def test_versions_of_spans_of_kept_trees_leave_no_bytes_behind():
    """While trees of a trace are evaluated separately, the sizes of single spans are known only
    until the next check.
    """
    limits = Limits(
        decision_wait_s=1,
        decision_wait_partial_s=1,
        decision_wait_detached_s=1,
        keep_s=5,
        grace_period_s=1,
        idle_s=10,
        max_age_s=20,
    )
    buffer = TraceBuffer(limits, ROLES)
    for at in range(8):
        push(buffer, span("a", "gone", "agent"), span(f"b{at}", "away"), now=at, size=10)
        for end, size in ((10, 1000), (11, 2000), (12, 20)):
            push(buffer, span("a", "gone", "agent", end_ns=end + 10 * at), now=at, size=size)
        buffer.due(at + 0.9)
        assert buffer.held_bytes >= buffer.open_bytes >= 0
    buffer.due(100)
    buffer.due(1000)
    buffer.due(2000)
    assert (len(buffer), buffer.held_bytes) == (0, 0)


def test_an_evaluated_tree_makes_room_for_the_next_one_of_its_trace():
    """A long session closes one tree after another; only the open ones are limited."""
    buffer = TraceBuffer(Limits(max_bytes_per_trace=1000), ROLES)
    for at in range(3):
        push(buffer, span(f"a{at}", f"gone{at}", "agent"), now=61 * at, size=700)
        (closed,) = buffer.due(61 * at + 60)
        assert (closed.reason, closed.cut) == (Completeness.DETACHED, "")
    assert buffer.counts.spans_over_limit == 0


def test_what_waits_without_a_run_is_given_up_first():
    """Then what was evaluated; both before an open trace."""
    buffer = TraceBuffer(Limits(), ROLES)
    push(buffer, span("a", "gone", "agent", remote=True), trace=b"1" * 16)
    push(buffer, span("web", "gone", remote=True), trace=b"2" * 16)
    push(buffer, span("c", "r", "tool", remote=False), trace=b"3" * 16)
    assert [each.trace_id[:1] for each in buffer.due(6)] == [b"1"]
    for size, held in ((900, b"13"), (500, b"3")):
        buffer.reserve(buffer.limits.max_bytes - size)
        buffer.pop_closed(6)
        assert {each for each in (b"1", b"2", b"3") if buffer.holds(each * 16)} == {
            bytes((each,)) for each in held
        }


def test_evaluated_traces_are_dropped_first_when_room_is_short():
    """A closed trace is evicted before an open one is evaluated early."""
    buffer = TraceBuffer(Limits(decision_wait_s=1, max_traces=2))
    push(buffer, span("r"), trace=b"1" * 16)
    buffer.due(1)
    push(buffer, span("r"), trace=b"2" * 16, now=1)
    push(buffer, span("r"), trace=b"3" * 16, now=1)
    assert (buffer.counts.late_given_up, buffer.counts.traces_over_limit, len(buffer)) == (1, 0, 2)
    push(buffer, span("r"), trace=b"4" * 16, now=1)
    assert [(t.trace_id[:1], t.reason) for t in buffer.due(1)] == [(b"2", Completeness.OVERFLOW)]


events = st.lists(
    st.tuples(
        st.integers(0, 6),  # trace
        st.integers(0, 9),  # span
        st.integers(-1, 9),  # parent
        st.integers(0, 4000),  # size
        st.floats(0, 20),  # seconds that pass
        st.booleans(),  # whether `due` is called
    ),
    max_size=80,
)


@given(events)
def test_whatever_arrives_memory_is_bounded_and_every_span_is_accounted_for(sequence):
    """Held bytes and traces stay under their limits; pushed = kept + duplicate + too late + over a
    limit.
    """
    limits = Limits(
        decision_wait_s=1,
        decision_wait_partial_s=2,
        grace_period_s=5,
        idle_s=10,
        max_age_s=30,
        max_traces=3,
        max_spans_per_trace=4,
    )
    buffer, now = (
        TraceBuffer(
            Limits(**{f: getattr(limits, f) for f in limits.__slots__} | {"max_bytes": 9000})
        ),
        0.0,
    )
    for trace, number, parent, size, pause, look in sequence:
        now += pause
        push(
            buffer,
            span(f"s{number}", f"s{parent}" if parent >= 0 else ""),
            now=now,
            trace=bytes([trace]) * 16,
            size=size,
        )
        assert buffer.held_bytes - buffer.backlog_bytes <= 9000
        assert len(buffer) <= 3
        if look:
            buffer.due(now)
    tally = buffer.counts
    assert (
        tally.spans_kept + tally.spans_duplicate + tally.spans_too_late + tally.spans_over_limit
        == len(sequence)
    )
    buffer.drain(now)
    buffer.due(now + 1000)
    assert (len(buffer), buffer.held_bytes) == (0, 0)


@given(st.permutations(range(8)), st.lists(st.integers(0, 7), max_size=8))
def test_order_and_repetition_do_not_change_what_comes_out(order, again):
    """Any order, with any spans twice, gives the same frames and the same reason."""
    spans = [span("s0"), *(span(f"s{n}", f"s{n // 2}", service="ab"[n % 2]) for n in range(1, 8))]
    buffer = TraceBuffer(Limits())
    push(buffer, *(spans[n] for n in (*order, *again)))
    (trace,) = buffer.drain(0)
    assert {k: f[1].name for k, f in trace.frames.items()} == {
        s.span_id.encode(): s.name for s in spans
    }
    assert trace.reason is Completeness.COMPLETE


def test_spans_of_a_forgotten_trace_take_no_memory():
    """Even while a later check is scheduled, for which the trace would have waited if its root had
    not arrived.
    """
    buffer = TraceBuffer(Limits(decision_wait_s=1, grace_period_s=30, idle_s=300))
    child = span("c", "r")
    held = weakref.ref(child)
    push(buffer, child)
    assert buffer.due(2) == []  # the root is missing, so the next check is when the trace is idle
    push(buffer, span("r"), now=3)
    assert len(buffer.due(4)) == 1
    del child
    assert held() is not None
    buffer.due(40)
    assert held() is None
