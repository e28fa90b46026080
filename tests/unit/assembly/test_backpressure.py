"""When a buffer refuses more, and what it closes instead."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from otel_eval.assembly import SPAN_OVERHEAD_BYTES, Limits, TraceBuffer
from otel_eval.model import Completeness
from tests.support.made_spans import ROLES, FakeSpan, span

LIMITS = Limits(
    decision_wait_s=1, decision_wait_partial_s=6, max_bytes=10_000, max_bytes_per_trace=10_000
)
SIZE = 1000 - SPAN_OVERHEAD_BYTES  # a span then counts as 1000 bytes

Item = tuple[bytes, bytes, tuple[bytes, FakeSpan, object], int]


def item(trace: int, each: FakeSpan, size: int = SIZE) -> Item:
    return (
        bytes([trace]) * 16,
        each.span_id.encode(),
        (each.parent.encode(), each, each.resource_scope),
        size,
    )


def push(buffer: TraceBuffer, now: float, *items: Item) -> str:
    """Push the items unless the buffer refuses them; return its reason, or ""."""
    why = buffer.refusal(items, now)
    if not why:
        buffer.push_many(items, now)
    return why


def whole(trace: int) -> Item:
    return item(trace, span("r"))


def running(trace: int) -> Item:
    """A span whose parent has not ended."""
    return item(trace, span("c", "r", remote=False))


def test_traces_that_are_due_count_as_backlog():
    """They lead to refusals even if `due` was not called."""
    buffer = TraceBuffer(LIMITS)
    assert push(buffer, 0, *map(whole, range(6))) == ""
    assert push(buffer, 0.5, whole(6)) == ""
    assert "half of traces.max_bytes" in push(buffer, 1, whole(7))
    assert [each.reason for each in buffer.pop_closed(1)] == [Completeness.COMPLETE] * 6
    assert push(buffer, 1, whole(7)) == ""


def test_traces_that_close_soon_are_waited_for_and_not_cut_short():
    """A buffer full of traces whose root has ended refuses until they are due."""
    buffer = TraceBuffer(LIMITS)
    assert push(buffer, 0, *map(whole, range(5))) == ""
    assert push(buffer, 0.5, *map(whole, range(5, 10))) == ""
    assert "the oldest closes soon" in push(buffer, 0.9, whole(10))
    assert buffer.due(0.9) == []
    assert push(buffer, 1, whole(10)) == ""
    assert {each.reason for each in buffer.due(100)} == {Completeness.COMPLETE}
    assert buffer.counts.traces_over_limit == 0


def test_too_many_traces_that_close_soon_are_waited_for_as_well():
    """The limit on the number of traces works like that on bytes."""
    buffer = TraceBuffer(Limits(decision_wait_s=1, max_traces=3))
    assert push(buffer, 0, *map(whole, range(3))) == ""
    assert "traces.max_traces" in push(buffer, 0.5, whole(3))
    # a span of a trace that is open needs no room for another
    assert push(buffer, 0.5, item(2, span("c", "r"))) == ""
    assert push(buffer, 1, whole(3)) == ""


def test_the_oldest_trace_that_is_still_running_makes_room():
    """It could stay open for a long time. Older traces that are due close as complete."""
    buffer = TraceBuffer(LIMITS)
    assert push(buffer, 0, *map(whole, range(2)), *map(running, range(2, 9))) == ""
    assert push(buffer, 1, running(9), running(10)) == ""
    assert push(buffer, 1, running(11)) == ""
    closed = {each.trace_id[0]: each.reason for each in buffer.pop_closed(1)}
    assert closed == {0: Completeness.COMPLETE, 1: Completeness.COMPLETE}
    assert push(buffer, 1, running(12)) == ""
    assert [(each.trace_id[0], each.reason) for each in buffer.pop_closed(1)] == [
        (2, Completeness.OVERFLOW)
    ]


def test_closed_traces_kept_for_late_spans_never_cost_an_open_one_its_room():
    """They are evicted before anything is refused."""
    buffer = TraceBuffer(LIMITS)
    push(buffer, 0, *map(whole, range(5)))
    buffer.due(1)
    assert push(buffer, 1, *map(whole, range(10, 20))) == ""
    assert (buffer.counts.late_given_up, buffer.held_bytes) == (5, 10_000)


def test_what_is_handed_over_at_once_is_bounded_in_bytes():
    """At least one trace is popped, whatever its size; `close_due` returns the same ones for the
    journal.
    """
    buffer = TraceBuffer(LIMITS)
    push(buffer, 0, *map(whole, range(4)))
    assert [each.trace_id for each in buffer.close_due(1, 10, 2000)] == [
        bytes([0]) * 16,
        bytes([1]) * 16,
    ]
    assert [each.trace_id[0] for each in buffer.pop_closed(1, 10, 2000)] == [0, 1]
    assert [each.trace_id[0] for each in buffer.pop_closed(1, 10, 1)] == [2]


def test_a_request_whose_own_traces_exceed_the_limits_is_taken():
    """Refusing it would free no memory for it, as the open traces are its own. The oldest closes;
    it is complete, because the rest of it arrives before its evaluation.
    """
    buffer = TraceBuffer(LIMITS)
    assert (
        push(
            buffer,
            0,
            *(item(trace, span(f"c{n}", "r"), SIZE) for trace in (1, 2) for n in range(4)),
        )
        == ""
    )
    assert (
        push(buffer, 0, *map(whole, (1, 2)), item(1, span("d", "r")), item(2, span("d", "r"))) == ""
    )
    closed = buffer.pop_closed(0)
    assert [(each.trace_id[0], each.reason, b"r" in each.frames) for each in closed] == [
        (1, Completeness.COMPLETE, True)
    ]
    assert buffer.held_bytes <= 10_000


requests = st.lists(
    st.tuples(
        st.lists(
            st.tuples(st.integers(0, 30), st.booleans(), st.integers(0, 600)),
            min_size=1,
            max_size=6,
        ),
        st.floats(0, 2),  # seconds that pass
        st.integers(0, 3),  # traces that are evaluated
    ),
    max_size=60,
)


@given(requests)
def test_memory_is_bounded_and_no_complete_trace_is_cut_short(sequence):
    """Memory stays within one and a half times `max_bytes` plus a request; only traces without a
    root close by `overflow`.

    A request whose own traces exceed `max_bytes` is left out: it closes the oldest of them.
    """
    limits = Limits(
        decision_wait_s=1,
        decision_wait_partial_s=2,
        grace_period_s=5,
        idle_s=9,
        max_traces=12,
        max_bytes=10_000,
    )
    buffer, now = TraceBuffer(limits), 0.0
    sizes, too_large = Counter[bytes](), set[bytes]()
    for number, (spans, pause, evaluated) in enumerate(sequence):
        now += pause
        items = [
            item(trace, span("r" if root else f"c{number}", "" if root else "r"), size)
            for trace, root, size in spans
        ]
        ids = {trace_id for trace_id, *_ in items}
        request = sum(size + SPAN_OVERHEAD_BYTES for *_, size in items)
        if sum(sizes[each] for each in ids) + request > limits.max_bytes:
            too_large |= ids
        if not push(buffer, now, *items):
            for trace_id, _, _, size in items:
                sizes[trace_id] += size + SPAN_OVERHEAD_BYTES
        assert buffer.held_bytes <= 15_000 + 6 * (600 + SPAN_OVERHEAD_BYTES) + request
        for trace in buffer.due(now, evaluated):
            assert (
                trace.reason is not Completeness.OVERFLOW
                or b"r" not in trace.frames
                or trace.trace_id in too_large
            )
            too_large.discard(trace.trace_id)


def test_a_trace_that_never_pauses_is_evaluated_when_it_is_too_old():
    """Even if every request closes the due traces before its spans are pushed."""
    limits = Limits(
        decision_wait_s=0.3,
        decision_wait_partial_s=0.5,
        idle_s=2.0,
        max_age_s=2.0,
        grace_period_s=10.0,
    )
    buffer = TraceBuffer(limits, ROLES)
    closed_at = []
    for number in range(300):
        now = number * 0.02
        made = span(f"{number:08d}", "missing.", "tool", remote=False)
        item = (b"t" * 16, made.span_id.encode(), (b"missing.", made, made.resource_scope), 100)
        assert buffer.refusal([item], now) == ""
        buffer.push_many([item], now)
        if number % 5 == 0:
            closed_at += [(round(now, 1), trace.reason) for trace in buffer.due(now)]
    times, reasons = zip(*closed_at, strict=True)
    assert (times[0], set(reasons)) == (2.0, {Completeness.AGED})
    assert all(later - earlier < 2.5 for earlier, later in pairwise((*times, 6.0)))
