"""Hold the spans of traces until they can be evaluated, and afterwards for late spans. The caller
owns time and concurrency.

A trace whose root has ended is closed as a whole, once it has rested: `decision_wait_s` after its
last span, or `decision_wait_partial_s` if several services take part or a parent is missing. Any
other trace may go on for hours. It is divided into trees: a span whose parent has not arrived, with
everything below it. What is in a tree decides when it is closed:

* steps of a run (agent, model and tool spans, but not those that serve a caller in another process)
  below a parent in another process: `decision_wait_partial_s` after its last span;
* an agent span below a parent in the same process: `decision_wait_detached_s` after its last span;
* other steps of a run: `idle_s` after the last span of the trace, because the run's own span is
  probably still open;
* neither: it waits as long as its trace may live, since the span that called it may still arrive.
  Spans that no convention recognises are then held without their attributes.

A tree that never rests is closed `max_age_s` after its first span. A limit, the source or the end
of the process may close a trace as a whole before its time. All spans are held after the
evaluation, and spans that come late are evaluated with them: `TRANSITIONS` has the states of a
trace, `grace_period_s` and `keep_s` end them.

Backpressure. Call `refusal` before each request. It refuses the request in two cases: closed traces
that were not evaluated, those that are due included, use half of `max_bytes`; or open traces use
all of it, and the root of the oldest has arrived, so it closes soon. If the oldest trace is still
running, it is closed instead (`overflow`) and the request is accepted. A request whose own traces
exceed the limits is accepted too, because refusing it would never free memory for it. To make room,
traces that wait without a run are closed first, then evaluated ones are forgotten, the oldest
first. So everything held stays within one and a half times `max_bytes` plus one request.

Of two spans with one id the one with the greater rank is kept (later end, more attributes, greater
bytes), in whatever order they arrive.
"""

from __future__ import annotations

import heapq
import sys
from collections import OrderedDict, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from enum import Enum
from itertools import chain
from math import inf
from operator import itemgetter
from typing import Any, Final, NamedTuple

from otel_eval.assembly.limits import BufferCounts, Limits
from otel_eval.assembly.tombstones import Tombstones
from otel_eval.assembly.trace import SPAN_OVERHEAD_BYTES, Closing, State, Trace, Tree, Version, rank
from otel_eval.interfaces import (
    LATE,
    NO_RUN,
    ClosedTrace,
    Frame,
    JoinedLog,
    LastEvaluation,
    NoRoles,
    SpanFrame,
    SpanRoles,
)
from otel_eval.model import Completeness


class Event(Enum):
    """What happens to a trace."""

    __hash__ = object.__hash__

    SPAN = "a span or log record arrives"
    REST = "it has rested, and nothing of it is part of a run"
    SETTLE = "what is not evaluated is part of no run, and something was evaluated"
    CLOSE = "its wait is over, or a limit, the source or the end of the process closes it"
    CLOSE_PART = "the wait of some of its trees is over"
    TAKE = "it is taken for its evaluation"
    TAKE_CUT = "it is taken for its evaluation, and a limit dropped spans of it"
    END = "its time is over or its room is needed; it had a run"
    LEAVE = "its source knows of no open span; it had a run, and its root is elsewhere"
    FORGET = "its time is over or its room is needed, and it had no run; or that of its id is over"


class Emits(Enum):
    """What a transition hands to the caller."""

    NOTHING = ""
    TRACE = "the whole trace, for its evaluation"
    TREES = "the closed trees, for their evaluation"
    RESTING = "the id: no evaluation of the trace follows soon"
    LATE = "the spans that came too late, for one row that says so"
    FINAL = "the ids of its runs: their results are final"


class Transition(NamedTuple):
    """The next state, and what is handed to the caller."""

    state: State
    emits: Emits = Emits.NOTHING


TRANSITIONS: Final[Mapping[tuple[State, Event], Transition]] = {
    (State.NEW, Event.SPAN): Transition(State.OPEN),
    (State.OPEN, Event.SPAN): Transition(State.OPEN),
    (State.OPEN, Event.REST): Transition(State.WAITING, Emits.RESTING),
    (State.OPEN, Event.SETTLE): Transition(State.KEPT, Emits.RESTING),
    (State.OPEN, Event.CLOSE): Transition(State.READY),
    (State.OPEN, Event.CLOSE_PART): Transition(State.PART),
    (State.WAITING, Event.SPAN): Transition(State.OPEN),
    (State.WAITING, Event.CLOSE): Transition(State.READY),
    (State.PART, Event.SPAN): Transition(State.OPEN),  # the next check closes its trees again
    (State.PART, Event.CLOSE): Transition(State.READY),
    (State.PART, Event.TAKE): Transition(State.OPEN, Emits.TREES),
    (State.READY, Event.SPAN): Transition(State.READY),
    (State.READY, Event.CLOSE): Transition(State.READY),
    (State.READY, Event.TAKE): Transition(State.KEPT, Emits.TRACE),
    (State.READY, Event.TAKE_CUT): Transition(State.CUT, Emits.TRACE),
    (State.KEPT, Event.SPAN): Transition(State.OPEN),
    (State.KEPT, Event.END): Transition(State.ENDED, Emits.FINAL),
    (State.KEPT, Event.LEAVE): Transition(State.LEFT, Emits.FINAL),
    (State.KEPT, Event.FORGET): Transition(State.NEW),
    (State.CUT, Event.SPAN): Transition(State.CUT),  # it is counted and dropped
    (State.CUT, Event.END): Transition(State.ENDED, Emits.FINAL),
    (State.CUT, Event.LEAVE): Transition(State.LEFT, Emits.FINAL),
    (State.ENDED, Event.SPAN): Transition(State.LATE),
    (State.ENDED, Event.FORGET): Transition(State.NEW),
    (State.LEFT, Event.SPAN): Transition(State.OPEN),
    (State.LEFT, Event.FORGET): Transition(State.NEW),
    (State.LATE, Event.SPAN): Transition(State.LATE),
    (State.LATE, Event.CLOSE): Transition(State.LATE),
    (State.LATE, Event.TAKE): Transition(State.REPORTED, Emits.LATE),
    (State.REPORTED, Event.SPAN): Transition(State.REPORTED),  # it is counted and dropped
    (State.REPORTED, Event.FORGET): Transition(State.NEW),
}
"""How a trace moves from state to state."""

ALL: Final = sys.maxsize
RECORDS_PER_SPAN: Final = 10
"""Log records that a trace may have for each span of `max_spans_per_trace`: each message of a model
call can be one.
"""
_RECORDS_LIMIT: Final = f"log records ({RECORDS_PER_SPAN} × traces.max_spans_per_trace)"
_SPANS_LIMIT: Final = "spans (traces.max_spans_per_trace)"
_OPEN: Final = (State.OPEN, State.WAITING, State.PART)
_CLOSED: Final = (State.PART, State.READY, State.LATE)  # in the order in which they are taken
_UNDECIDED: Final = (*_OPEN, State.READY)
_EVALUATED: Final = (State.KEPT, State.CUT)
_GONE: Final = (State.LEFT, State.REPORTED, State.ENDED)  # an id may be held under an earlier one
_HELD: Final = (State.OPEN, State.WAITING, *_CLOSED, *_EVALUATED)
# checks per `decision_wait_detached_s` of a trace in which spans keep arriving
_CHECKS_PER_WAIT: Final = 8
_WHEN: Final = itemgetter(0)  # of a deadline: its instant
_PARENT: Final = itemgetter(0)  # of a frame: the id of the span's parent, b"" for none
_OPENED: Final = (State.NEW, State.LEFT)  # where a span opens a trace
_NOTED: Final = (Emits.RESTING, Emits.FINAL)  # what is handed to the caller later
_SHARE: Final = 4  # evaluated trees of a trace without a root use this part (1/4) of its limits


class TraceBuffer:
    """Spans in, closed traces out: `push_many`, then `due` from time to time.

    Instants are seconds of any monotonic clock. Not safe for several threads at once; the caller
    holds a lock.

    Args:
        limits: how long and how much the buffer holds.
        roles: tells what a span is for assembly.
    """

    def __init__(self, limits: Limits | None = None, roles: SpanRoles | None = None) -> None:
        self.limits = limits or Limits()
        self.counts: Final = BufferCounts()
        self._roles: SpanRoles = roles or NoRoles()
        self._interval_s: Final = max(
            self.limits.decision_wait_s, self.limits.decision_wait_detached_s / _CHECKS_PER_WAIT
        )
        self._traces: dict[bytes, Trace] = {}
        # The same traces by state, in the order in which they entered it. Ordered, because finding
        # the first key of a plain dictionary takes a search past all items that were removed.
        self._queues = {state: OrderedDict[bytes, Trace]() for state in _HELD}
        self._bytes = dict.fromkeys(_HELD, 0)  # of spans and log records, by state
        self._gone = {state: Tombstones(self.limits.max_traces) for state in _GONE}
        # Schedule: instant of a check, number, trace id. An entry is obsolete if `Trace.check` is
        # another instant, and may outlive its trace.
        self._checks: list[tuple[float, int, bytes]] = []
        self._sequence = 0
        self._resting: list[bytes] = []
        self._final: list[tuple[bytes, bytes]] = []  # trace id and run id

    def use_roles(self, roles: SpanRoles) -> None:
        """Ask another object about the spans that arrive from now on."""
        self._roles = roles

    # ------------------------------------------------------------------ states

    def _apply(self, trace: Trace, event: Event) -> None:
        """Move a trace to its next state, and note what is emitted later."""
        before, trace_id = trace.state, trace.trace_id
        state, emits = TRANSITIONS[before, event]
        if emits in _NOTED:
            if emits is Emits.RESTING:
                self._resting.append(trace_id)
            else:
                self._final += [(trace_id, run) for run in trace.history.runs]
        if state is before:
            return
        if before in self._queues:
            del self._queues[before][trace_id]
            self._bytes[before] -= trace.size
        trace.state = state
        if state in self._queues:
            self._traces[trace_id] = trace
            self._queues[state][trace_id] = trace
            self._bytes[state] += trace.size
        else:
            self._traces.pop(trace_id, None)
            if state in self._gone:
                self._gone[state].add(trace_id, trace.touched + self.limits.max_age_s)

    def _resize(self, trace: Trace, size: int) -> None:
        """Add to the bytes of a held trace."""
        trace.size += size
        self._bytes[trace.state] += size

    def state_of(self, trace_id: bytes, now: float) -> State:
        """Return the state of the trace with an id."""
        if (trace := self._traces.get(trace_id)) is not None:
            return trace.state
        for state, tombstones in self._gone.items():
            if tombstones.holds(trace_id, now):
                return state
        return State.NEW

    def _trace_for_spans(self, trace_id: bytes, now: float, count: int) -> Trace | None:
        """Return the record that `count` further spans are added to; None, with the spans counted,
        if they are dropped.
        """
        trace = self._traces.get(trace_id) or self._new_trace(trace_id, now)
        before = trace.state
        self._apply(trace, Event.SPAN)
        if trace.state in _GONE:
            self.counts.spans_too_late += count
            return None
        if trace.cut:
            self.counts.spans_over_limit += count
            return None
        if trace.state is not before and trace.state is State.OPEN:
            trace.created = now if before is State.KEPT else trace.created
            trace.examine_by = now
            is_due = before is State.PART
            self._schedule(trace, now if is_due else now + self.limits.decision_wait_s)
        return trace

    def _new_trace(self, trace_id: bytes, now: float) -> Trace:
        """Return the record of a trace of which no span is held, in the state of its id."""
        state = self.state_of(trace_id, now)
        trace = Trace(trace_id, state, now, now)
        self.counts.traces_opened += state in _OPENED
        if state is State.LEFT:
            trace.is_thinned = True
            if self._gone[State.REPORTED].holds(trace_id, now):
                trace.history.record({NO_RUN: LastEvaluation(0, LATE)})
        elif state is State.ENDED:
            trace.closing = Closing(trace_id, Completeness.AGED)
        return trace

    # ---------------------------------------------------------------------- in

    def push_many(self, spans: Iterable[SpanFrame], now: float) -> None:
        """Add spans, given as `(trace id, span id, frame, size)`; their order does not matter."""
        by_trace: dict[bytes, list[SpanFrame]] = defaultdict(list)
        for item in spans:
            by_trace[item[0]].append(item)
        for trace_id, items in by_trace.items():
            trace = self._trace_for_spans(trace_id, now, len(items))
            if trace is not None and not self._push_all(trace, items, now):
                for _, span_id, frame, size in items:
                    self._push(trace, span_id, frame, size, now)
        self._enforce_limits(now)

    def _push_all(self, trace: Trace, items: Sequence[SpanFrame], now: float) -> bool:
        """Add new spans; False, and none is added, if one is known or over a limit."""
        frames = {item[1]: item[2] for item in items}
        size = sum([item[3] for item in items]) + SPAN_OVERHEAD_BYTES * len(items)
        if (
            len(frames) < len(items)
            or not trace.frames.keys().isdisjoint(frames)
            or len(trace.frames) + len(frames) > self.limits.max_spans_per_trace
            or trace.size + size > self.limits.max_bytes_per_trace
        ):
            return False
        trace.writable_frames().update(frames)
        self._note_arrival(trace, size, now)
        self._count_new(trace, len(frames))
        if trace.fresh is not None:
            trace.fresh.update(frames)
        return True

    def _push(self, trace: Trace, span_id: bytes, frame: Frame, size: int, now: float) -> None:
        frames, limit = trace.frames, self.limits.max_spans_per_trace
        if trace.cut:
            self.counts.spans_over_limit += 1
        elif span_id in frames:
            self._keep_higher_rank(trace, span_id, frame, size)
        elif not self._has_room(trace, 1, size):
            is_full = len(trace.frames) >= limit
            self._overflow(trace, f"more than {limit} {_SPANS_LIMIT}" if is_full else "")
        else:
            trace.writable_frames()[span_id] = frame
            self._count_new(trace, 1)
            trace.note_change(span_id)
            self._note_arrival(trace, size + SPAN_OVERHEAD_BYTES, now)

    def _count_new(self, trace: Trace, spans: int) -> None:
        if trace.state is State.LATE:
            self.counts.spans_too_late += spans
        else:
            self.counts.spans_kept += spans
            self.counts.spans_late += spans if trace.fresh is not None else 0

    def _note_arrival(self, trace: Trace, size: int, now: float) -> None:
        """Note that a span or log record of `size` bytes was added."""
        self._resize(trace, size)
        trace.touched = now
        if trace.state is State.OPEN and now + self.limits.decision_wait_s < trace.check:
            self._schedule(trace, now + self.limits.decision_wait_s)
        elif (
            trace.closing is not None
            and trace.closing == Closing(trace.trace_id, Completeness.OVERFLOW)
            and not trace.cut
            and _reason(trace, self.limits) is Completeness.COMPLETE
        ):  # it was closed to make room, and is complete now
            trace.closing = Closing(trace.trace_id, Completeness.COMPLETE)

    def push_logs(self, logs: Iterable[JoinedLog], now: float) -> None:
        """Add log records, given as `(trace id, span id, frame, size)`: content that is sent apart
        from its span.
        """
        limit = RECORDS_PER_SPAN * self.limits.max_spans_per_trace
        for trace_id, span_id, frame, size in logs:
            trace = self._trace_for_spans(trace_id, now, 1)
            if trace is None or frame in trace.logs.get(span_id, ()):
                continue
            if trace.log_count >= limit:
                self._overflow(trace, f"more than {limit} {_RECORDS_LIMIT}")
            elif not self._has_room(trace, 0, size):
                self._overflow(trace)
            else:
                trace.logs.setdefault(span_id, {})[frame] = None
                trace.log_count += 1
                trace.note_change(span_id)
                self._note_arrival(trace, size + SPAN_OVERHEAD_BYTES, now)
        self._enforce_limits(now)

    def _has_room(self, trace: Trace, spans: int, size: int) -> bool:
        """Whether further spans fit into the limits of a trace. Evaluated trees of a trace without
        a root are forgotten for them.
        """

        def fits() -> bool:
            return (
                len(trace.frames) + spans <= self.limits.max_spans_per_trace
                and trace.size + size <= self.limits.max_bytes_per_trace
            )

        if not fits() and trace.parents and trace.rest(self.limits) is None:
            self._thin(trace, trace.trees(self._roles), inf)
        return fits()

    def _keep_higher_rank(self, trace: Trace, span_id: bytes, frame: Frame, size: int) -> None:
        current = trace.frames[span_id]
        version = trace.versions.get(span_id)
        if version is None:
            version = trace.versions[span_id] = Version(rank(current), 0)
            self._resize(trace, SPAN_OVERHEAD_BYTES)
        new = rank(frame)
        # of a span without its attributes only the end can be compared
        is_greater = new[0] > version.rank[0] if trace.slim.get(span_id) else new > version.rank
        if is_greater and not self._has_room(trace, 0, size - version.size):
            return self._overflow(trace)
        self.counts.spans_duplicate += 1
        if is_greater:
            trace.writable_frames()[span_id] = frame
            trace.slim.pop(span_id, None)
            trace.versions[span_id] = Version(new, size)
            trace.note_change(span_id)
            self._resize(trace, size - version.size)
        return None

    # ------------------------------------------------------------------ limits

    def _overflow(self, trace: Trace, limit: str = "") -> None:
        """Close a trace that reached a limit: the span or log record is dropped, and so are those
        that follow.
        """
        max_bytes = self.limits.max_bytes_per_trace
        self.counts.spans_over_limit += 1
        by_bytes = f"more than {max_bytes} bytes (traces.max_bytes_per_trace)"
        trace.cut = trace.cut or limit or by_bytes
        self._close(trace, Completeness.OVERFLOW)

    def _close(self, trace: Trace, reason: Completeness) -> None:
        """Close a whole trace."""
        trace.closing = Closing(trace.trace_id, reason)
        self._apply(trace, Event.CLOSE)

    def _enforce_limits(self, now: float) -> None:
        """Keep the limits: make room, then close what is due, then the oldest open traces
        (`overflow`).
        """
        if self._make_room(0, 0):
            return
        self._check(now, ALL)
        while not self._make_room(0, 0) and self._queues[State.OPEN]:
            self._close_oldest()

    def _close_oldest(self) -> Trace:
        trace = next(iter(self._queues[State.OPEN].values()))
        self.counts.traces_over_limit += 1
        self._close(trace, Completeness.OVERFLOW)
        return trace

    def _fits(self, size: int, traces: int) -> bool:
        """Whether this many more bytes and traces are within the limits. What is closed and not yet
        taken is limited by backpressure instead.
        """
        excess_bytes = self.held_bytes + size - self.limits.max_bytes
        excess_traces = len(self._traces) + traces - self.limits.max_traces
        if excess_bytes <= 0 and excess_traces <= 0:
            return True
        return excess_bytes <= self.backlog_bytes and excess_traces <= self._unevaluated_count()

    def _make_room(self, size: int, traces: int) -> bool:
        """Close traces that wait without a run, and forget evaluated ones, until this many more
        bytes and traces fit; False if they do not.
        """
        while not self._fits(size, traces):
            trace = next(
                chain.from_iterable(
                    self._queues[state].values() for state in (State.WAITING, *_EVALUATED)
                ),
                None,
            )
            if trace is None:
                return False
            self.counts.late_given_up += 1
            self._give_up(trace)
        return True

    def _give_up(self, trace: Trace) -> None:
        """Free the memory of a trace that waits without a run, or was evaluated."""
        if trace.state is State.WAITING:
            trace.is_evicted = True
            self._close(trace, Completeness.OVERFLOW)
        elif trace.frames and not trace.is_rooted:  # further runs may follow in it
            self._thin(trace, trace.trees(self._roles), inf)
            self._schedule(trace, trace.until)
            self._queues[trace.state].move_to_end(trace.trace_id)
        else:
            self._forget(trace)

    def _forget(self, trace: Trace, event: Event = Event.END) -> None:
        had_run = trace.history.runs or trace.is_thinned or trace.cut
        self._apply(trace, event if had_run else Event.FORGET)

    def refusal(self, items: Collection[Sequence[Any]], now: float) -> str:
        """Return why spans or log records should be refused now; "" if they can be pushed.
        Amortised O(log n) for each item.

        Args:
            items: what is to be pushed, in the form of `push_many` and `push_logs`.
            now: the instant; traces that are due are closed.
        """
        self._check(now, ALL)
        if self.backlog_bytes > self.limits.max_bytes // 2:
            return "closed traces that wait to be evaluated hold half of traces.max_bytes"
        ids = {item[0] for item in items}
        size = sum([item[3] for item in items]) + SPAN_OVERHEAD_BYTES * len(items)
        for trace_id in ids:
            trace = self._traces.get(trace_id)
            if trace is not None and trace.state in (State.WAITING, *_EVALUATED):
                self._queues[trace.state].move_to_end(trace_id)  # it is given up last
        self._make_room(size, len(ids.difference(self._traces)))
        traces = len(ids.difference(self._traces))
        while self._queues[State.OPEN] and not self._fits(size, traces):
            oldest = next(iter(self._queues[State.OPEN].values()))
            if oldest.rest(self.limits) is not None:
                return (
                    "open traces fill traces.max_bytes or traces.max_traces, and the oldest closes"
                    " soon"
                )
            self._close_oldest()
        return ""

    # --------------------------------------------------------------- schedule

    def _schedule(self, trace: Trace, when: float) -> None:
        self._sequence += 1
        trace.check = when
        if when == inf:
            return
        heapq.heappush(self._checks, (when, self._sequence, trace.trace_id))
        if len(self._checks) > 4 * len(self._traces) + 1024:  # most entries are obsolete
            self._checks = [entry for entry in self._checks if self._scheduled(entry)]
            heapq.heapify(self._checks)

    def _scheduled(self, check: tuple[float, int, bytes]) -> Trace | None:
        """Return the trace of a scheduled check; None if the trace was rescheduled since."""
        when, _, trace_id = check
        trace = self._traces.get(trace_id)
        return trace if trace is not None and trace.check == when else None

    def _check(self, now: float, limit: int) -> None:
        """Close what is due, and forget what is over, until `limit` traces are closed."""
        checks = self._checks
        while checks and checks[0][0] <= now and self._unevaluated_count() < limit:
            trace = self._scheduled(heapq.heappop(checks))
            if trace is not None:
                trace.check = inf
                self._examine(trace, now)
            checks = self._checks

    def _unevaluated_count(self) -> int:
        """The number of traces that wait for their evaluation because they or trees of them are
        closed, and of those whose spans that came too late are still to be reported.
        """
        return sum([len(self._queues[state]) for state in _CLOSED])

    def _examine(self, trace: Trace, now: float) -> None:
        """Close a trace or trees of it if they are due, or forget what is over; schedule the next
        check.
        """
        limits = self.limits
        if trace.state in _CLOSED:
            return None
        if trace.state in _EVALUATED and (trace.is_rooted or not trace.frames):
            return self._forget(trace) if trace.until <= now else self._schedule(trace, trace.until)
        aged = trace.created + limits.max_age_s
        soonest = min(trace.touched + limits.decision_wait_s, aged, trace.examine_by)
        if trace.state is State.OPEN and soonest > now:
            # it is not due whatever it waits for, so its spans need not be read
            return self._schedule(trace, soonest)
        trace.examine_by = now + self._interval_s
        wait = trace.rest(limits)
        if wait is None:
            return self._examine_trees(trace, now)
        when, reason = min((trace.touched + wait[0], wait[1]), (aged, Completeness.AGED), key=_WHEN)
        return self._close(trace, reason) if when <= now else self._schedule(trace, when)

    def _examine_trees(self, trace: Trace, now: float) -> None:
        """Do the same for a trace whose root has not arrived."""
        trees = trace.trees(self._roles)
        following = inf
        if trace.state is State.OPEN:
            deadlines = [(*self._deadline(trace, tree), tree.root) for tree in trees]
            following, reason, _ = min(deadlines, key=_WHEN)
            if following <= now:
                roots = [
                    root for when, of_tree, root in deadlines if when <= now and of_tree is reason
                ]
                trace.closing = Closing(trace.trace_id, reason, tuple(roots))
                return self._apply(trace, Event.CLOSE_PART)
        if following == inf and trace.fresh is None:
            return self._wait_for_run(trace, now)
        if following == inf and trace.state is State.OPEN:
            self._apply(trace, Event.SETTLE)
        following = min(following, self._thin(trace, trees, now))
        if not trace.frames:
            return self._examine(trace, now)
        return self._schedule(trace, max(following, now + self._interval_s / _CHECKS_PER_WAIT))

    def _deadline(self, trace: Trace, tree: Tree) -> tuple[float, Completeness]:
        """Return when a tree is closed if no span joins it, and the reason."""
        limits = self.limits
        if not (tree.is_fresh and tree.has_steps):
            return inf, Completeness.AGED
        if tree.is_entry:
            rested = tree.last + limits.decision_wait_partial_s, Completeness.DETACHED
        elif tree.has_agent:
            rested = tree.last + limits.decision_wait_detached_s, Completeness.DETACHED
        else:
            rested = trace.touched + limits.idle_s, Completeness.IDLE
        first = trace.created if trace.fresh is None else tree.first
        return min(rested, (first + limits.max_age_s, Completeness.AGED), key=_WHEN)

    def _wait_for_run(self, trace: Trace, now: float) -> None:
        """Let a trace wait of which nothing is part of a run; close it at the end of its time."""
        rested = trace.touched + self.limits.decision_wait_partial_s
        end = trace.touched + self.limits.max_age_s
        if trace.state is State.OPEN and now < min(rested, end):
            return self._schedule(trace, min(rested, end))
        if now >= end:
            return self._close(trace, Completeness.AGED)
        if trace.state is State.OPEN:
            self._resize(trace, -trace.make_slim(trace.frames, self._roles))
            self._apply(trace, Event.REST)
        return self._schedule(trace, end)

    def _thin(self, trace: Trace, trees: Sequence[Tree], now: float) -> float:
        """Forget trees that are over, and the oldest ones if evaluated trees use too much of the
        limits of their trace; return when the next one is over.
        """
        limits, following = self.limits, inf
        trees = [tree for tree in trees if not (tree.is_fresh and tree.has_steps)]
        span_bytes = max(1, trace.size // max(1, len(trace.frames)))
        limit = min(limits.max_spans_per_trace, limits.max_bytes_per_trace // span_bytes) // _SHARE
        excess = sum(len(tree.ids) for tree in trees) - limit
        for tree in sorted(trees, key=lambda tree: tree.last):
            is_done = tree.has_steps and not trace.is_open_question(tree)
            until = tree.last + (limits.keep_s if is_done else limits.max_age_s)
            if until > now and excess <= 0:
                following = min(following, until)
                continue
            excess -= len(tree.ids)
            self.counts.late_given_up += until > now
            self._final += [(trace.trace_id, run) for run in trace.history.forget(tree.ids)]
            self._resize(trace, -trace.drop(tree))
        trace.until = trace.touched + limits.max_age_s
        return following

    # -------------------------------------------------------------------- out

    def due(self, now: float, limit: int = ALL, most_bytes: int = ALL) -> list[ClosedTrace]:
        """Close what is due at `now` and return closed traces, limited as in `pop_closed`."""
        self.close_due(now, limit, most_bytes)
        return self.pop_closed(now, limit, most_bytes)

    def close_due(self, now: float, limit: int = ALL, most_bytes: int = ALL) -> list[Closing]:
        """Close what is due at `now`; return the closings of what `pop_closed` returns next."""
        for tombstones in self._gone.values():
            tombstones.expire(now)
        self._check(now, limit)
        return [trace.closing for trace in self._next(limit, most_bytes) if trace.closing]

    def pop_closed(self, now: float, limit: int = ALL, most_bytes: int = ALL) -> list[ClosedTrace]:
        """Take at most `limit` closed traces and parts; more than one whole trace only within
        `most_bytes`.
        """
        return [self._take(trace, now) for trace in self._next(limit, most_bytes)]

    def _next(self, limit: int, most_bytes: int) -> list[Trace]:
        traces: list[Trace] = []
        size = 0
        for state in _CLOSED:
            for trace in self._queues[state].values():
                size += trace.size if state is not State.PART else 0
                if len(traces) >= limit or (traces and size > most_bytes):
                    return traces
                traces.append(trace)
        return traces

    def _take(self, trace: Trace, now: float) -> ClosedTrace:
        """Take a closed trace, or the closed trees of an open one, for their evaluation."""
        assert trace.closing is not None
        if trace.state is State.PART:
            return self._take_part(trace, trace.closing, now)
        trace.is_rooted = not all(map(_PARENT, trace.frames.values()))
        is_late = trace.state is State.LATE or (
            # of a run that was left behind in this process
            trace.is_thinned
            and not trace.is_rooted
            and all(tree.is_fragment for tree in trace.trees(self._roles) if tree.is_fresh)
        )
        closed = trace.whole(trace.closing.reason, is_late=is_late)
        if trace.parents:
            self._final += [(trace.trace_id, run) for run in trace.history.runs]
        self.counts.traces_closed += bool(trace.frames) and trace.state is not State.LATE
        if trace.cut and trace.state is State.READY:
            self._resize(trace, -trace.size)
            trace.frames, trace.logs, trace.versions = {}, {}, {}
            self._apply(trace, Event.TAKE_CUT)
        else:
            self._apply(trace, Event.TAKE)
        trace.fresh, trace.is_shared = set(), True
        trace.until = now + self.limits.grace_period_s
        if trace.is_evicted:
            self._forget(trace)
        elif trace.state in _EVALUATED:
            self._schedule(trace, trace.until if trace.is_rooted or not trace.frames else now)
            self._make_room(0, 0)
        return closed

    def _take_part(self, trace: Trace, closing: Closing, now: float) -> ClosedTrace:
        trees, roots = trace.trees(self._roles), set(closing.roots)
        chosen = [
            tree
            for tree in trees
            # after a restart one of the roots may be inside a tree
            if not roots.isdisjoint(tree.ids)
            or not (tree.is_fresh or not trace.is_open_question(tree))
        ]
        closed = trace.part(closing, trees, chosen)
        while len(trace.parents) > self.limits.max_spans_per_trace:
            trace.lost.pop(next(iter(trace.parents)), None)
            del trace.parents[next(iter(trace.parents))]
        self.counts.parts_closed += len(closing.roots)
        self._apply(trace, Event.TAKE)
        trace.examine_by = now
        self._examine(trace, now)
        return closed

    def close(
        self, trace_id: bytes, now: float, reason: Completeness | None = None
    ) -> list[ClosedTrace]:
        """Close a trace now, because its source knows that no span of it is open, or for the
        `reason`; return closed traces. `DETACHED` closes its trees with an agent span.
        """
        trace = self._traces.get(trace_id)
        if trace is not None and trace.state in _OPEN:
            if reason is not Completeness.DETACHED:
                self._close(trace, reason or _reason(trace, self.limits))
            elif roots := [
                tree.root for tree in trace.trees(self._roles) if tree.is_fresh and tree.has_agent
            ]:
                self._close_part(trace, Closing(trace_id, reason, tuple(roots)))
        return self.pop_closed(now)

    def _close_part(self, trace: Trace, closing: Closing) -> None:
        trace.closing = closing
        if trace.state is not State.PART:
            self._apply(trace, Event.CLOSE_PART)

    def drain(self, now: float, reason: Completeness | None = None) -> list[ClosedTrace]:
        """Close every open trace, for the `reason` or else for that of its state; return closed
        traces.
        """
        for trace in [trace for state in _OPEN for trace in self._queues[state].values()]:
            self._close(trace, reason or _reason(trace, self.limits))
        return self.pop_closed(now)

    def take_final(self) -> list[tuple[bytes, bytes]]:
        """Return, each once, the trace id and run id of runs that can no longer become inner runs
        of an agent.
        """
        final, self._final = self._final, []
        return final

    def take_resting(self) -> list[bytes]:
        """Return the ids of traces that wait without a run, or settled without an evaluation."""
        resting, self._resting = self._resting, []
        return resting

    # ---------------------------------------------------------------- storage

    def reclose(
        self, trace_id: bytes, reason: Completeness, now: float, roots: tuple[bytes, ...] = ()
    ) -> ClosedTrace | None:
        """Close a trace, or trees of it, as a record of the journal has it, due or not; None if it
        is not here.
        """
        trace = self._traces.get(trace_id)
        if trace is None or trace.state in _EVALUATED:
            return None
        if roots:
            if trace.state not in _OPEN or trace.frames.keys().isdisjoint(roots):
                return None
            if trace.state is State.WAITING:
                self._apply(trace, Event.SPAN)
            self._close_part(trace, Closing(trace_id, reason, roots))
        else:
            self._close(trace, reason)
        return self._take(trace, now)

    def held(self, trace_id: bytes) -> ClosedTrace | None:
        """Return all spans held of a trace that is open or evaluated; None if it is neither, or a
        limit cut it.
        """
        trace = self._traces.get(trace_id)
        if trace is None or trace.cut or trace.state in _CLOSED:
            return None
        is_rooted = trace.rest(self.limits) is not None
        closed = trace.whole(Completeness.COMPLETE if is_rooted else Completeness.DETACHED)
        return closed if is_rooted else replace(closed, released=trace.released())

    def restore_released(self, trace_id: bytes, parents: Mapping[bytes, bool]) -> None:
        """Restore after a restart which trees of a trace were evaluated: the missing parent of
        each, and whether its spans were forgotten.
        """
        trace = self._traces.get(trace_id)
        if trace is not None:
            trace.parents.update(dict.fromkeys(parents))
            trace.lost.update(
                dict.fromkeys([span_id for span_id, is_lost in parents.items() if is_lost])
            )
            trace.is_thinned = bool(trace.lost)

    def evict(self, trace_ids: Iterable[bytes]) -> None:
        """Give up those of the traces that were evaluated or wait without a run, because the
        storage of their spans is nearly full.
        """
        for trace in [self._traces[trace_id] for trace_id in trace_ids if trace_id in self._traces]:
            if trace.state in (State.WAITING, *_EVALUATED):
                self.counts.late_given_up += 1
                # only an id outlasts a restart, so nothing more is kept of an evaluated one
                give_up = self._give_up if trace.state is State.WAITING else self._forget
                give_up(trace)

    def tombstones(self) -> Iterator[tuple[bytes, float, State]]:
        """Yield the ids of which nothing else is held, until when, and in which state."""
        for state, tombstones in self._gone.items():
            yield from ((trace_id, until, state) for trace_id, until in tombstones.items())

    def add_tombstone(self, trace_id: bytes, until: float, state: State) -> None:
        """Replace a trace with its id, until an instant."""
        self.drop(trace_id)
        self._gone[state].add(trace_id, until)

    def drop(self, trace_id: bytes) -> None:
        """Drop everything that is held of a trace."""
        trace = self._traces.pop(trace_id, None)
        if trace is not None:
            del self._queues[trace.state][trace_id]
            self._bytes[trace.state] -= trace.size

    def forget(self, trace_id: bytes) -> None:
        """Forget an evaluated trace, because its source knows that no span of it is open."""
        trace = self._traces.get(trace_id)
        if trace is not None and trace.state in _EVALUATED:
            last = trace.history.last(NO_RUN)
            if last is not None and last.incomplete == LATE:
                self._gone[State.REPORTED].add(trace_id, trace.touched + self.limits.max_age_s)
            self._forget(trace, Event.END if trace.is_rooted else Event.LEAVE)

    def reserve(self, size: int) -> None:
        """Make room for `size` bytes, as far as that closes no trace with a run."""
        self._make_room(size, 0)

    def compact(self, now: float) -> None:
        """Free memory that only serves throughput; call it while no spans arrive."""
        for tombstones in self._gone.values():
            tombstones.compact(now)
        if not self._traces:
            self._checks = []

    # ------------------------------------------------------------ observation

    def holds(self, trace_id: bytes) -> bool:
        """Whether spans or log records of the trace are held."""
        trace = self._traces.get(trace_id)
        return trace is not None and bool(trace.frames or trace.logs)

    def __len__(self) -> int:
        """The number of open traces."""
        return sum(len(self._queues[state]) for state in _OPEN)

    def age(self, now: float) -> float:
        """Return the age of the oldest open trace in seconds; 0 if none is open."""
        oldest = [next(iter(self._queues[state].values()), None) for state in _OPEN]
        return max([now - trace.created for trace in oldest if trace is not None], default=0.0)

    def is_undecided(self, trace_id: bytes) -> bool:
        """Whether the trace is open, or closed and not yet taken: a result of it may follow."""
        trace = self._traces.get(trace_id)
        return trace is not None and trace.state in _UNDECIDED

    def undecided(self) -> set[bytes]:
        """Return the ids of the traces that are open, or closed and not yet taken."""
        return {trace_id for trace_id, trace in self._traces.items() if trace.state in _UNDECIDED}

    def is_over(self, trace_id: bytes) -> bool:
        """Whether the trace is closed and not yet taken, or open with its root or a local root.

        Spans that are missing of it have ended and are only late.
        """
        trace = self._traces.get(trace_id)
        if trace is None or trace.state in _EVALUATED:
            return False
        return trace.state in (State.READY, State.LATE) or trace.is_over()

    @property
    def held_bytes(self) -> int:
        """Bytes of everything held, payload and overhead."""
        return sum(self._bytes.values())

    @property
    def open_bytes(self) -> int:
        """The bytes of `held_bytes` that belong to open traces."""
        return sum(self._bytes[state] for state in _OPEN)

    @property
    def backlog_bytes(self) -> int:
        """The bytes of `held_bytes` that belong to closed traces which are not yet taken:
        backpressure depends on them.
        """
        return sum([self._bytes[state] for state in _CLOSED])

    @property
    def oldest(self) -> bytes | None:
        """The id of the oldest open trace; None if none is open."""
        return next(chain.from_iterable(self._queues[state] for state in _OPEN), None)

    def next_due(self) -> float:
        """Return when `due` next has a trace to return or to check; infinity if it has none."""
        if self._unevaluated_count():
            return -inf
        return self._checks[0][0] if self._checks else inf


def _reason(trace: Trace, limits: Limits) -> Completeness:
    """Return the completeness of a trace that is closed before it has rested."""
    wait = trace.rest(limits)
    is_complete = wait is not None and wait[1] is Completeness.COMPLETE
    return Completeness.COMPLETE if is_complete else Completeness.REMOTE_PARENT
