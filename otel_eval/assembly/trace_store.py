"""The traces of a buffer by state: open, closed and waiting for evaluation, kept for late spans, or known by id alone."""

from __future__ import annotations

import heapq
import sys
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from math import inf
from typing import Final

from otel_eval.assembly.closing import BufferCounts, Closing, Limits, Wait, closing_state, listed
from otel_eval.assembly.kept_trees import Tombstones
from otel_eval.assembly.subtrees import OpenTrace, SpanTrees
from otel_eval.interfaces import NO_RUN, ClosedTrace, Frame, constructor
from otel_eval.model import Completeness

ALL: Final = sys.maxsize
_LOOKS: Final = 8  # in `decision_wait_detached_s`, at a trace in which spans arrive all the time

_new_closed: Final = constructor(ClosedTrace)


class TraceStore:
    """Traces by state, and how many bytes are in each.

    Args:
        limits: how long and how much is held.
        is_agent: whether a span is an agent's; traces without any are closed as a whole.
    """

    def __init__(self, limits: Limits | None = None, is_agent: Callable[[Frame], bool] = lambda _: False) -> None:
        self.limits = limits or Limits()
        self.counts: Final = BufferCounts()
        self._is_agent: Final = is_agent
        self._gap_s: Final = max(self.limits.decision_wait_s, self.limits.decision_wait_detached_s / _LOOKS)
        # Ordered: the first key of a plain dictionary whose first items were removed is found by a search past all of these.
        self._open = OrderedDict[bytes, OpenTrace]()
        self._dormant = OrderedDict[bytes, OpenTrace]()  # without open spans; something of them is kept, or was
        self._keeping = OrderedDict[bytes, OpenTrace]()  # of which parts are kept; the one that was handed over last is the last
        self._grace = OrderedDict[bytes, OpenTrace]()  # by the instant of closing
        self._tombstones = Tombstones(self.limits.max_traces)
        # The traces themselves are not in it: an entry may stay longer than its trace.
        self._checks: list[tuple[float, int, bytes]] = []
        self._ready = OrderedDict[bytes, tuple[OpenTrace, Completeness]]()  # closed, not yet handed over
        self._ready_parts: list[ClosedTrace] = []  # of traces that stay open
        self._bytes = 0  # of what is open
        self._grace_bytes = 0  # of what is kept for late spans, and of parts of open traces
        self._backlog = 0  # of what is ready
        self._awaited: tuple[OpenTrace | None, float] = (None, 0.0)  # a trace that was found to be over, and its next check
        self._final: list[tuple[bytes, bytes]] = []  # trace and run
        self._sequence = 0

    # ------------------------------------------------------- between the states

    def _drop_from_grace(self, size: int, traces: int) -> None:
        """Forget closed traces until so many bytes and open traces more fit, or none is left."""
        most, most_bytes = self.limits.max_traces - traces, self.limits.max_bytes - size
        while self.held_bytes > most_bytes or self._traces() > most:
            if self._grace:
                self._forget(*self._grace.popitem(last=False))
            elif not self._give_up_part():
                return
            self.counts.late_given_up += 1

    def _traces(self) -> int:
        return len(self._open) + len(self._grace) + len(self._dormant)

    def _give_up_part(self) -> bool:
        """Forget what is kept of the trace whose last part was handed over first; False if nothing is kept."""
        trace_id = next(iter(self._keeping or self._dormant), None)
        if trace_id is None:
            return False
        trace = self._keeping.pop(trace_id, None)
        if trace is not None:
            self._give_up(trace_id, trace)
        if trace_id in self._dormant:
            self._bytes -= self._dormant.pop(trace_id).size
        return True

    def _give_up(self, trace_id: bytes, trace: OpenTrace) -> None:
        """Forget what is kept of trees of a trace."""
        if trace.trees is not None:
            with self._resized(trace_id, trace):
                trace.trees.give_up(trace)

    @contextmanager
    def _resized(self, trace_id: bytes, trace: OpenTrace) -> Iterator[None]:
        """Count what of a trace is open and what is kept after its trees have changed it."""
        before, kept = trace.size, trace.kept_bytes
        yield
        if trace.trees is not None and trace.trees.kept.final:
            self._final += [(trace_id, run) for run in trace.trees.kept.final]
            trace.trees.kept.final.clear()
        self._grace_bytes += trace.kept_bytes - kept
        self._bytes += (trace.size - trace.kept_bytes) - (before - kept)

    def _fits(self, size: int, traces: int) -> bool:
        """Whether so many bytes and open traces more are within the limits of what is open."""
        return self._bytes + size <= self.limits.max_bytes and len(self._open) + traces <= self.limits.max_traces

    def _schedule(self, trace_id: bytes, trace: OpenTrace, when: float) -> None:
        self._sequence += 1
        trace.check, trace.check_number = when, self._sequence
        heapq.heappush(self._checks, (when, self._sequence, trace_id))
        if len(self._checks) > 4 * self._traces() + 1024:  # mostly entries that were overtaken
            self._checks = [entry for entry in self._checks if self._scheduled(*entry[1:]) is not None]
            heapq.heapify(self._checks)

    def _scheduled(self, number: int, trace_id: bytes) -> OpenTrace | None:
        """The trace that an entry is for; None if the trace was scheduled anew since, or closed."""
        trace = self._unclosed(trace_id)
        return trace if trace is not None and trace.check_number == number else None

    def _set_ready(self, trace_id: bytes, trace: OpenTrace, reason: Completeness) -> None:
        """Close a trace as a whole, what is kept of it included, unless a limit closes it: then that stays as it is."""
        if self._open.pop(trace_id, None) is not None:
            if trace.trees is not None:
                with self._resized(trace_id, trace):
                    (trace.trees.give_up if reason is Completeness.OVERFLOW else trace.trees.open_all)(trace)
                trace.changed = trace.trees.changed(trace) if trace.changed is None else trace.changed
            self._ready[trace_id] = (trace, reason)
            self._bytes -= trace.size
            self._backlog += trace.size

    def _hand_over(self, trace_id: bytes, now: float) -> ClosedTrace:
        """A trace that is ready, as it is handed over for evaluation; without spans if nothing but log records arrived."""
        trace, reason = self._ready.pop(trace_id)
        self._backlog -= trace.size
        handed = _closed(trace_id, trace, reason)
        self.counts.traces_closed += bool(trace.frames)
        self._keep(trace_id, trace, now)
        return handed

    def _keep(self, trace_id: bytes, trace: OpenTrace, now: float) -> None:
        """Keep an evaluated trace for late spans; of one that a limit closed only the id."""
        if trace.cut:
            trace = OpenTrace(now, now, now, cut=trace.cut)
        trace.touched = now
        self._grace[trace_id] = trace
        self._grace_bytes += trace.size
        self._drop_from_grace(0, 0)

    def _expire(self, now: float) -> None:
        before = now - self.limits.grace_period_s
        while self._grace and next(iter(self._grace.values())).touched <= before:
            self._forget(*self._grace.popitem(last=False))
        self._tombstones.expire(now)

    def _rest(self, trace_id: bytes, trace: OpenTrace, now: float) -> bool:
        """Have a trace without open spans lie dormant, and in the end forget it; whether it is still there."""
        if trace.frames:
            return True
        if self._open.pop(trace_id, None) is not None:
            self._dormant[trace_id] = trace
        elif trace.kept_bytes == 0 and now >= trace.touched + self.limits.max_age_s:
            self.drop(trace_id)
        return trace_id in self._dormant

    # ---------------------------------------- trees that are evaluated on their own

    def _look(self, trace_id: bytes, trace: OpenTrace, now: float) -> float | None:
        """Close what is due of a trace whose trees close on their own: when to look again; None if it closes as a whole."""
        with self._resized(trace_id, trace):
            following = self._look_at_trees(trace_id, trace, now)
        return following if following is None or self._rest(trace_id, trace, now) else None

    def _look_at_trees(self, trace_id: bytes, trace: OpenTrace, now: float) -> float | None:
        trees = self._trees(trace, now)
        if trees is None:
            trace.look = now + self._gap_s if trace.touched + self.limits.decision_wait_s > now else inf
            return None
        if now < min(trace.look, trees.next_look) < inf:
            return min(trace.look, trees.next_look)
        due, following = trees.look(trace, now)
        for reason, tops in due.items():
            self._hand_over_trees(trace, Closing(trace_id, reason, tuple(tops)), now)
        trace.look = now + self._gap_s if trace.frames else inf
        end = inf if trace.frames else trace.touched + self.limits.max_age_s
        following = min(following, end, trees.kept.next_end(), trace.look if due else inf)
        trees.next_look = max(following, now + self._gap_s / _LOOKS)
        return trees.next_look

    def _trees(self, trace: OpenTrace, now: float) -> SpanTrees | None:
        """The trees of a trace that has an agent span and no root."""
        if not all(frame[0] for frame in trace.frames.values()):
            return None
        trees = self._trees_of(trace, now)
        if not trees.has_agents(trace):
            return None
        if trace.changed is not None:  # it was closed as a whole before
            trees.adopt(trace.frames.keys() - trace.changed)
            trace.changed = None
        return trees

    def _trees_of(self, trace: OpenTrace, now: float) -> SpanTrees:
        trace.trees = trace.trees or SpanTrees(self.limits, self.counts, self._is_agent, now)
        return trace.trees

    def _close_trees(self, closing: Closing, now: float) -> None:
        """Close trees of an open trace; where none is named, all with an agent span, as no span that is open is an agent's."""
        trace = self._open.get(closing.trace_id)
        if trace is None:
            return
        with self._resized(closing.trace_id, trace):
            trees = self._trees_of(trace, now) if closing.tops else self._trees(trace, now)
            if trees is not None and not closing.tops:
                trees.looked = now
                closing = closing._replace(tops=trees.agent_trees(trace))
            if trees is not None:
                self._hand_over_trees(trace, closing, now)
        self._rest(closing.trace_id, trace, now)

    def _hand_over_trees(self, trace: OpenTrace, closing: Closing, now: float) -> None:
        part = self._trees_of(trace, now).hand_over(trace, closing, now)
        if part is not None:
            self._ready_parts.append(part)
            self._keeping[closing.trace_id] = trace
            self._keeping.move_to_end(closing.trace_id)

    def _unclosed(self, trace_id: bytes) -> OpenTrace | None:
        """The trace of the id, if it is open or dormant."""
        return self._open.get(trace_id) or self._dormant.get(trace_id)

    def _forget(self, trace_id: bytes, trace: OpenTrace) -> None:
        self._grace_bytes -= trace.size
        had_run = bool(trace.last_evaluations.keys() - {NO_RUN})
        if not had_run and not trace.cut and all(frame[0] for frame in trace.frames.values()):
            return  # its root never arrived, and it had no run: what comes later may be the first of one
        self._tombstones.add(trace_id, trace.touched + self.limits.max_age_s)

    def close_again(self, trace_id: bytes, reason: Completeness, now: float, tops: tuple[bytes, ...] = ()) -> ClosedTrace | None:
        """Close a trace, or trees of it, as before a restart, even if it is not due; None if it is not here."""
        if tops:
            self._close_trees(Closing(trace_id, reason, tops), now)
            return self._ready_parts.pop() if self._ready_parts else None
        if trace_id in self._open:
            self._set_ready(trace_id, self._open[trace_id], reason)
        if trace_id not in self._ready:
            return None
        self._ready[trace_id] = (self._ready[trace_id][0], reason)
        return self._hand_over(trace_id, now)

    def take_final(self) -> list[tuple[bytes, bytes]]:
        """Trace and run of those that were evaluated on their own and cannot turn out to lie inside another run; each once."""
        final, self._final = self._final, []
        return final

    def give_up_dormant(self, trace_ids: Iterable[bytes]) -> None:
        """Forget what is kept of those of the traces that are dormant, because room is short where their spans are stored."""
        for trace_id in trace_ids:
            trace = self._dormant.get(trace_id)
            if trace is not None and trace.trees is not None:
                self._give_up(trace_id, trace)
                self.counts.late_given_up += 1

    def remembered(self) -> Iterator[tuple[bytes, float]]:
        """Ids of which only the id is remembered, and until when."""
        return self._tombstones.items()

    def remember(self, trace_id: bytes, until: float) -> None:
        """Nothing of this trace is wanted any more: forget what is held of it and, until then, take no span of it."""
        self.drop(trace_id)
        self._tombstones.add(trace_id, until)

    def drop(self, trace_id: bytes) -> None:
        """Forget what is held of a trace."""
        trace = self._open.pop(trace_id, None) or self._dormant.pop(trace_id, None)
        self._keeping.pop(trace_id, None)
        if trace is not None:
            self._bytes -= trace.size - trace.kept_bytes
            self._grace_bytes -= trace.kept_bytes
        elif trace_id in self._grace:
            self._grace_bytes -= self._grace.pop(trace_id).size
        elif trace_id in self._ready:
            self._backlog -= self._ready.pop(trace_id)[0].size

    def held(self, trace_id: bytes) -> ClosedTrace | None:
        """All that is held of a trace that is open or kept for late spans; None if it is neither, or a limit cut it."""
        trace = self._unclosed(trace_id) or self._grace.get(trace_id)
        if trace is None or trace.cut:
            return None
        if trace.trees is not None and trace.trees.kept.parents:
            return trace.trees.whole(trace_id, trace)
        return _closed(trace_id, trace, Completeness.COMPLETE)

    def release_again(self, trace_id: bytes, parents: Mapping[bytes, bool], runs: Mapping[bytes, bytes]) -> None:
        """Restore runs of which only the own span is kept, each below a parent that is missing; see `KeptTrees.parents`."""
        trace = self._unclosed(trace_id)
        if trace is not None and trace.trees is not None:
            trace.trees.kept.release_again(parents, runs)

    def reserve(self, size: int) -> None:
        """Forget what is kept for late spans until so many bytes more fit, or nothing is kept."""
        self._drop_from_grace(size, 0)

    def compact(self, now: float) -> None:
        """Free memory that only serves throughput; to be called while nothing arrives."""
        self._tombstones.compact(now)
        if not self._open and not self._dormant:
            self._checks = []

    def holds(self, trace_id: bytes) -> bool:
        """Whether spans of the trace are needed: it is open, waits for evaluation, or is kept for late spans."""
        dormant = self._dormant.get(trace_id)
        return self.is_undecided(trace_id) or trace_id in self._grace or (dormant is not None and dormant.kept_bytes > 0)

    def __len__(self) -> int:
        """Open traces."""
        return len(self._open)

    def age(self, now: float) -> float:
        """Of the oldest open trace, in seconds; 0 if none is open."""
        return max(0.0, now - next(iter(self._open.values())).created) if self._open else 0.0

    def is_undecided(self, trace_id: bytes) -> bool:
        """Whether the trace is open, or closed and not yet handed over."""
        return trace_id in self._open or trace_id in self._ready

    def undecided(self) -> set[bytes]:
        """The ids of the traces that are open, or closed and not yet handed over."""
        return {*self._open, *self._ready}

    def is_over(self, trace_id: bytes) -> bool:
        """Whether the trace is closed and not yet handed over, or open and the span it began with has arrived.

        What is missing of it can only come late.
        """
        trace = self._open.get(trace_id)
        return trace_id in self._ready if trace is None else closing_state(trace.frames)[0] is not Wait.OPEN

    @property
    def held_bytes(self) -> int:
        """Payload and overhead of everything held: open, waiting for evaluation, kept for late spans."""
        return self._bytes + self._grace_bytes + self._backlog

    @property
    def open_bytes(self) -> int:
        """Of it, what open traces hold."""
        return self._bytes

    @property
    def oldest(self) -> bytes | None:
        """The id of the trace that has been open for longest."""
        return next(iter(self._open), None)

    @property
    def backlog_bytes(self) -> int:
        """Of it, what is closed and waits to be evaluated: backpressure depends on it."""
        return self._backlog

    @property
    def is_empty(self) -> bool:
        """Whether no trace is held that has anything to wait for: an evaluation, a look, the end of the time for late spans."""
        return not (self._checks or self._ready or self._ready_parts or self._grace)

    def next_check(self) -> float | None:
        """The instant at which `due` next has something to look at, or None."""
        return self._checks[0][0] if self._checks else None


def _closed(trace_id: bytes, trace: OpenTrace, reason: Completeness) -> ClosedTrace:
    """The trace as it is handed over for evaluation: it is not changed any more, late spans come into copies."""
    changed = None if trace.changed is None else frozenset(trace.changed)
    released = None if trace.trees is None else trace.trees.kept.released()
    evidence = trace.trees.evidence(trace) if trace.trees is not None and released is not None else None
    logs = listed(trace.logs, trace.logs)
    return _new_closed(trace_id, trace.frames, reason, logs, trace.cut, changed, trace.last_evaluations, None, released, evidence)
