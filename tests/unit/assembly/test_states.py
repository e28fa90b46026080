"""The table of states: each state, what may happen to a trace in it, and what comes of that."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from otel_eval.assembly import Limits, State, TraceBuffer
from otel_eval.assembly.trace_buffer import TRANSITIONS, Emits, Event
from otel_eval.interfaces import ClosedTrace, LastEvaluation
from otel_eval.model import Completeness
from tests.support.made_spans import ROLES, FakeSpan, span

TRACE = b"t" * 16
LIMITS = Limits(
    decision_wait_s=1,
    decision_wait_partial_s=6,
    decision_wait_detached_s=60,
    grace_period_s=600,
    keep_s=3600,
    idle_s=900,
    max_age_s=3600,
    max_spans_per_trace=40,
)
RUN = {
    "root": span("root", "", "agent"),
    "child": span("child", "root", "tool"),
    "entry": span("entry", "caller", "agent", remote=True),
    "lost": span("lost", "unknown", "tool", remote=False),
    "web": span("web", "caller", "GET /", remote=True),
    "more": span("more", "elsewhere", "GET /", remote=True),
}


class Life:
    """A buffer with one trace, driven step by step; `emitted` is what the last step handed out."""

    def __init__(self, steps: str) -> None:
        self.buffer, self.now = TraceBuffer(LIMITS, ROLES), 0.0
        self.emitted = Emits.NOTHING
        for step in steps.split():
            self.do(step)

    def do(self, step: str) -> None:
        """Push a span by its name, let seconds pass, or call what a word stands for."""
        self.emitted = Emits.NOTHING
        acts: dict[str, Callable[[], object]] = {
            "close": lambda: self.buffer.close_due(self.now),
            "stop": lambda: self.buffer._close(self.buffer._traces[TRACE], Completeness.SHUTDOWN),
            "take": self.take,
            "leave": lambda: self.buffer.forget(TRACE),
            "room": lambda: self.buffer.reserve(LIMITS.max_bytes),
            "flood": lambda: [self.push(span(f"s{number}", "root")) for number in range(41)],
        }
        if step.isdigit():
            self.now += float(step)
        elif step in RUN:
            self.push(RUN[step])
        else:
            acts[step]()
        if self.buffer.take_resting():
            self.emitted = Emits.RESTING
        if self.buffer.take_final():
            self.emitted = Emits.FINAL

    def push(self, each: FakeSpan) -> None:
        frame = (each.parent.encode(), each, each.resource_scope)
        self.buffer.push_many([(TRACE, each.span_id.encode(), frame, 100)], self.now)

    def take(self) -> None:
        """Take what is closed, and note that its agents were evaluated."""
        for trace in self.buffer.pop_closed(self.now):
            self.emitted = self.kind(trace)
            for span_id, frame in trace.frames.items():
                if frame[1].name == "agent":
                    trace.history.record({span_id: LastEvaluation(0, "")})

    def kind(self, trace: ClosedTrace) -> Emits:
        if trace.is_late:
            return Emits.LATE
        return Emits.TRACE if trace.part is None else Emits.TREES

    @property
    def state(self) -> State:
        return self.buffer.state_of(TRACE, self.now)


KEPT, ENTRY_KEPT = "root 1 close take", "entry 6 close take"
CUT = "root flood take"
ENDED, LEFT = f"{KEPT} 600 close", f"{ENTRY_KEPT} leave"
LATE = f"{ENDED} child"
REPORTED = f"{LATE} take"
ROWS = [
    # steps that lead to the state, what happens, the next state
    ("", Event.SPAN, "root", State.OPEN),
    ("root", Event.SPAN, "child", State.OPEN),
    ("web 6", Event.REST, "close", State.WAITING),
    (f"{ENTRY_KEPT} more 1", Event.SETTLE, "close", State.KEPT),
    ("root 1", Event.CLOSE, "close", State.READY),
    ("root child", Event.CLOSE, "flood", State.READY),
    ("entry 6", Event.CLOSE_PART, "close", State.PART),
    ("web 6 close", Event.SPAN, "entry", State.OPEN),
    ("web 6 close 3594", Event.CLOSE, "close", State.READY),
    ("web 6 close", Event.CLOSE, "room", State.READY),
    ("entry 6 close", Event.SPAN, "more", State.OPEN),
    ("entry 6 close", Event.CLOSE, "flood", State.READY),
    ("entry lost 6 close", Event.TAKE, "take", State.OPEN),
    ("root 1 close", Event.SPAN, "child", State.READY),
    ("root 1 close", Event.CLOSE, "flood", State.READY),
    ("root 1 close", Event.TAKE, "take", State.KEPT),
    ("root flood", Event.TAKE_CUT, "take", State.CUT),
    (KEPT, Event.SPAN, "child", State.OPEN),
    (f"{KEPT} 600", Event.END, "close", State.ENDED),
    (KEPT, Event.END, "room", State.ENDED),
    (f"{ENTRY_KEPT} 3600", Event.END, "close", State.ENDED),
    (KEPT, Event.END, "leave", State.ENDED),
    (ENTRY_KEPT, Event.LEAVE, "leave", State.LEFT),
    ("web 6 close stop take", Event.FORGET, "leave", State.NEW),
    (CUT, Event.SPAN, "child", State.CUT),
    (f"{CUT} 600", Event.END, "close", State.ENDED),
    ("entry flood take", Event.LEAVE, "leave", State.LEFT),
    (ENDED, Event.SPAN, "child", State.LATE),
    (f"{ENDED} 3600", Event.FORGET, "close", State.NEW),
    (LEFT, Event.SPAN, "entry", State.OPEN),
    (f"{LEFT} 3600", Event.FORGET, "close", State.NEW),
    (LATE, Event.SPAN, "web", State.LATE),
    (LATE, Event.CLOSE, "flood", State.LATE),
    (LATE, Event.TAKE, "take", State.REPORTED),
    (REPORTED, Event.SPAN, "web", State.REPORTED),
    (f"{REPORTED} 3600", Event.FORGET, "close", State.NEW),
]


@pytest.mark.parametrize(
    ("steps", "event", "step", "following"), ROWS, ids=[f"{row[0]} | {row[2]}" for row in ROWS]
)
def test_each_event_leads_to_the_state_of_the_table(
    steps: str, event: Event, step: str, following: State
):
    """And hands out what the table says."""
    life = Life(steps)
    state, emits = TRANSITIONS[life.state, event]
    life.do(step)
    assert (life.state, life.emitted) == (following, emits)
    assert following is state


def test_every_row_of_the_table_is_tried():
    """None is left out above."""
    assert TRANSITIONS.keys() == {(Life(steps).state, event) for steps, event, *_ in ROWS}
