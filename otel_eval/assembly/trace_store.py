"""The traces of a buffer by state: open, dormant, closed and not yet evaluated, kept for late
spans, or a tombstone.
"""

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
# checks per `decision_wait_detached_s` of a trace in which spans keep arriving
_CHECKS_PER_WAIT: Final = 8

_new_closed: Final = constructor(ClosedTrace)


class TraceStore:
    """Traces by state, and how many bytes are in each state.

    Args:
        limits: how long and how much the buffer holds.
        is_agent: whether a span is an agent's; traces without any are closed as a whole.
    """

    def __init__(
        self, limits: Limits | None = None, is_agent: Callable[[Frame], bool] = lambda _: False
    ) -> None:
        self.limits = limits or Limits()
        self.counts: Final = BufferCounts()
        self._is_agent: Final = is_agent
        self._check_interval_s: Final = max(
            self.limits.decision_wait_s, self.limits.decision_wait_detached_s / _CHECKS_PER_WAIT
        )
        # Ordered, because finding the first key of a plain dictionary takes a search past all items
        # that were removed before it.
        self._open = OrderedDict[bytes, OpenTrace]()
        # without open spans, but with kept or released trees
        self._dormant = OrderedDict[bytes, OpenTrace]()
        # in the order in which their last part was closed
        self._with_kept_trees = OrderedDict[bytes, OpenTrace]()
        self._grace = OrderedDict[bytes, OpenTrace]()  # by the instant of closing
        self._tombstones = Tombstones(self.limits.max_traces)
        # Schedule of checks: instant, number, trace id. Without the traces themselves, because an
        # entry may outlive its trace.
        self._checks: list[tuple[float, int, bytes]] = []
        self._ready = OrderedDict[bytes, tuple[OpenTrace, Completeness]]()  # closed, not yet popped
        self._ready_parts: list[ClosedTrace] = []  # of traces that stay open
        self._bytes = 0  # of open traces, without their kept trees
        self._grace_bytes = 0  # of evaluated traces kept for late spans, and of kept trees
        self._backlog = 0  # of closed traces that are not yet popped
        # the last trace that `is_over` held for, its next check
        self._last_over: tuple[OpenTrace | None, float] = (None, 0.0)
        self._final: list[tuple[bytes, bytes]] = []  # trace id and run id
        self._sequence = 0

    # ------------------------------------------------------- between the states

    def _drop_from_grace(self, size: int, traces: int) -> None:
        """Evict evaluated traces and kept trees until this many more bytes and open traces fit, or
        none is left.
        """
        most, most_bytes = self.limits.max_traces - traces, self.limits.max_bytes - size
        while self.held_bytes > most_bytes or self._traces() > most:
            if self._grace:
                self._forget(*self._grace.popitem(last=False))
            elif not self._evict_oldest_trees():
                return
            self.counts.late_given_up += 1

    def _traces(self) -> int:
        return len(self._open) + len(self._grace) + len(self._dormant)

    def _evict_oldest_trees(self) -> bool:
        """Drop the kept trees of the trace whose last part was closed the longest ago; False if
        there are none.
        """
        trace_id = next(iter(self._with_kept_trees or self._dormant), None)
        if trace_id is None:
            return False
        trace = self._with_kept_trees.pop(trace_id, None)
        if trace is not None:
            self._drop_kept_trees(trace_id, trace)
        # trees without an agent may be kept of one that is not in `_with_kept_trees`
        if trace_id in self._dormant:
            self.drop(trace_id)
        return True

    def _drop_kept_trees(self, trace_id: bytes, trace: OpenTrace) -> None:
        """Drop the kept trees of a trace."""
        if trace.trees is not None:
            with self._resized(trace_id, trace):
                trace.trees.drop_kept(trace)

    @contextmanager
    def _resized(self, trace_id: bytes, trace: OpenTrace) -> Iterator[None]:
        """Update the totals of bytes after the block changed the trees of a trace, and collect runs
        that became final.
        """
        before, kept = trace.open_bytes, trace.kept_bytes
        yield
        if trace.trees is not None and trace.trees.kept.final:
            self._final += [(trace_id, run) for run in trace.trees.kept.final]
            trace.trees.kept.final.clear()
        self._grace_bytes += trace.kept_bytes - kept
        self._bytes += trace.open_bytes - before

    def _fits(self, size: int, traces: int) -> bool:
        """Whether this many more bytes and open traces are within the limits."""
        return (
            self._bytes + size <= self.limits.max_bytes
            and len(self._open) + traces <= self.limits.max_traces
        )

    def _schedule(self, trace_id: bytes, trace: OpenTrace, when: float) -> None:
        self._sequence += 1
        trace.check, trace.check_number = when, self._sequence
        heapq.heappush(self._checks, (when, self._sequence, trace_id))
        if len(self._checks) > 4 * self._traces() + 1024:  # most entries are obsolete
            self._checks = [
                entry for entry in self._checks if self._scheduled(*entry[1:]) is not None
            ]
            heapq.heapify(self._checks)

    def _scheduled(self, number: int, trace_id: bytes) -> OpenTrace | None:
        """Return the trace of a scheduled check; None if the trace was rescheduled since, or
        closed.
        """
        trace = self._unclosed(trace_id)
        return trace if trace is not None and trace.check_number == number else None

    def _set_ready(self, trace_id: bytes, trace: OpenTrace, reason: Completeness) -> None:
        """Close a whole trace and make it ready for evaluation.

        Its kept trees are evaluated again with it. If a limit closes it they are dropped, and their
        results stay as they are.
        """
        if self._open.pop(trace_id, None) is not None:
            if trace.trees is not None:
                with self._resized(trace_id, trace):
                    (
                        trace.trees.drop_kept
                        if reason is Completeness.OVERFLOW
                        else trace.trees.open_all
                    )(trace)
                trace.changed = (
                    trace.trees.changed(trace) if trace.changed is None else trace.changed
                )
            self._ready[trace_id] = (trace, reason)
            self._bytes -= trace.size
            self._backlog += trace.size

    def _pop_ready(self, trace_id: bytes, now: float) -> ClosedTrace:
        """Pop a trace that is ready for evaluation, and keep it for late spans. It has no spans if
        only log records arrived.
        """
        trace, reason = self._ready.pop(trace_id)
        self._backlog -= trace.size
        closed = _closed(trace_id, trace, reason)
        self.counts.traces_closed += bool(trace.frames)
        self._keep(trace_id, trace, now)
        return closed

    def _keep(self, trace_id: bytes, trace: OpenTrace, now: float) -> None:
        """Keep a popped trace for late spans; of one that a limit cut, only that it was cut."""
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

    def _keep_dormant(self, trace_id: bytes, trace: OpenTrace, now: float) -> bool:
        """Make a trace without open spans dormant, or drop it once nothing of it is kept; False if
        it was dropped.
        """
        if trace.frames:
            return True
        if self._open.pop(trace_id, None) is not None:
            self._dormant[trace_id] = trace
        elif trace.kept_bytes == 0 and now >= trace.touched + self.limits.max_age_s:
            self.drop(trace_id)
        return trace_id in self._dormant

    # ---------------------------------------- trees that are evaluated on their own

    def _check_trees(self, trace_id: bytes, trace: OpenTrace, now: float) -> float | None:
        """Close the due trees of a trace; return when to check again, None if the trace is closed
        as a whole or was dropped.
        """
        with self._resized(trace_id, trace):
            following = self._close_due_trees(trace_id, trace, now)
        return following if following is None or self._keep_dormant(trace_id, trace, now) else None

    def _close_due_trees(self, trace_id: bytes, trace: OpenTrace, now: float) -> float | None:
        trees = self._trees(trace, now)
        if trees is None:
            trace.tree_check = (
                now + self._check_interval_s
                if trace.touched + self.limits.decision_wait_s > now
                else inf
            )
            return None
        if now < min(trace.tree_check, trees.next_check) < inf:
            return min(trace.tree_check, trees.next_check)
        due, following = trees.due(trace, now)
        for reason, roots in due.items():
            self._close_part(trace, Closing(trace_id, reason, tuple(roots)), now)
        trace.tree_check = (
            now + self._check_interval_s if trace.frames or trees.maybe_deferred else inf
        )
        end = inf if trace.frames else trace.touched + self.limits.max_age_s
        following = min(
            following, end, trees.kept.next_end(), trace.tree_check if trees.maybe_deferred else inf
        )
        trees.next_check = max(following, now + self._check_interval_s / _CHECKS_PER_WAIT)
        return trees.next_check

    def _trees(self, trace: OpenTrace, now: float) -> SpanTrees | None:
        """Return the trees of a trace that has an agent span and no root; None for any other
        trace.
        """
        if not all(frame[0] for frame in trace.frames.values()):
            return None
        trees = self._trees_of(trace, now)
        if not trees.has_agents(trace):
            return None
        if trace.changed is not None:  # the whole trace was closed before
            trees.mark_evaluated(trace.frames.keys() - trace.changed)
            trace.changed = None
        return trees

    def _trees_of(self, trace: OpenTrace, now: float) -> SpanTrees:
        trace.trees = trace.trees or SpanTrees(self.limits, self.counts, self._is_agent, now)
        return trace.trees

    def _close_trees(self, closing: Closing, now: float) -> None:
        """Close the named trees of an open trace; if none is named, all with an agent span: its
        source has no open agent span.
        """
        trace = self._open.get(closing.trace_id)
        if trace is None:
            return
        with self._resized(closing.trace_id, trace):
            trees = self._trees_of(trace, now) if closing.roots else self._trees(trace, now)
            if trees is not None and not closing.roots:
                trees.last_check = now
                closing = closing._replace(roots=trees.agent_trees(trace))
            if trees is not None:
                self._close_part(trace, closing, now)
        self._keep_dormant(closing.trace_id, trace, now)

    def _close_part(self, trace: OpenTrace, closing: Closing, now: float) -> None:
        part = self._trees_of(trace, now).close(trace, closing, now)
        if part is not None:
            self._ready_parts.append(part)
            self._with_kept_trees[closing.trace_id] = trace
            self._with_kept_trees.move_to_end(closing.trace_id)

    def _unclosed(self, trace_id: bytes) -> OpenTrace | None:
        """Return the trace of an id if it is open or dormant, else None."""
        return self._open.get(trace_id) or self._dormant.get(trace_id)

    def _forget(self, trace_id: bytes, trace: OpenTrace) -> None:
        self._grace_bytes -= trace.size
        had_run = bool(trace.last_evaluations.keys() - {NO_RUN})
        if not had_run and not trace.cut and all(frame[0] for frame in trace.frames.values()):
            return  # its root never arrived, and it had no run: later spans may begin one
        self._tombstones.add(trace_id, trace.touched + self.limits.max_age_s)

    def reclose(
        self, trace_id: bytes, reason: Completeness, now: float, roots: tuple[bytes, ...] = ()
    ) -> ClosedTrace | None:
        """Close a trace, or trees of it, as a record of the journal has it, due or not; None if it
        is not here.
        """
        if roots:
            self._close_trees(Closing(trace_id, reason, roots), now)
            return self._ready_parts.pop() if self._ready_parts else None
        if trace_id in self._open:
            self._set_ready(trace_id, self._open[trace_id], reason)
        if trace_id not in self._ready:
            return None
        self._ready[trace_id] = (self._ready[trace_id][0], reason)
        return self._pop_ready(trace_id, now)

    def take_final(self) -> list[tuple[bytes, bytes]]:
        """Return, each once, the trace id and run id of runs of closed trees that can no longer
        become inner runs of an agent.
        """
        final, self._final = self._final, []
        return final

    def evict_dormant(self, trace_ids: Iterable[bytes]) -> None:
        """Drop the kept trees of those of the traces that are dormant, because the storage of their
        spans is nearly full.
        """
        for trace_id in trace_ids:
            trace = self._dormant.get(trace_id)
            if trace is not None and trace.trees is not None:
                self._drop_kept_trees(trace_id, trace)
                self.counts.late_given_up += 1

    def tombstones(self) -> Iterator[tuple[bytes, float]]:
        """Yield the ids of which only a tombstone is left, and until when it is held."""
        return self._tombstones.items()

    def add_tombstone(self, trace_id: bytes, until: float) -> None:
        """Replace a trace with a tombstone: drop what is held of it, and accept no span of it until
        an instant.
        """
        self.drop(trace_id)
        self._tombstones.add(trace_id, until)

    def drop(self, trace_id: bytes) -> None:
        """Drop everything that is held of a trace."""
        trace = self._open.pop(trace_id, None) or self._dormant.pop(trace_id, None)
        self._with_kept_trees.pop(trace_id, None)
        if trace is not None:
            self._bytes -= trace.open_bytes
            self._grace_bytes -= trace.kept_bytes
        elif trace_id in self._grace:
            self._grace_bytes -= self._grace.pop(trace_id).size
        elif trace_id in self._ready:
            self._backlog -= self._ready.pop(trace_id)[0].size

    def held(self, trace_id: bytes) -> ClosedTrace | None:
        """Return all spans held of a trace that is open or kept for late spans; None if it is
        neither, or a limit cut it.
        """
        trace = self._unclosed(trace_id) or self._grace.get(trace_id)
        if trace is None or trace.cut:
            return None
        if trace.trees is not None and trace.trees.kept.parents:
            with self._resized(trace_id, trace):
                return trace.trees.snapshot(trace_id, trace)
        return _closed(trace_id, trace, Completeness.COMPLETE)

    def restore_released(
        self, trace_id: bytes, parents: Mapping[bytes, bool], runs: Mapping[bytes, bytes]
    ) -> None:
        """Restore the released trees of a trace after a restart; see
        `KeptTrees.restore_released`.
        """
        trace = self._unclosed(trace_id)
        if trace is not None and trace.trees is not None:
            trace.trees.kept.restore_released(parents, runs)

    def reserve(self, size: int) -> None:
        """Evict what is kept for late spans until `size` more bytes fit, or nothing is kept."""
        self._drop_from_grace(size, 0)

    def compact(self, now: float) -> None:
        """Free memory that only serves throughput; call it while no spans arrive."""
        self._tombstones.compact(now)
        if not self._open and not self._dormant:
            self._checks = []

    def holds(self, trace_id: bytes) -> bool:
        """Whether spans of the trace are needed: it is open, closed and not yet popped, or kept for
        late spans.
        """
        dormant = self._dormant.get(trace_id)
        return (
            self.is_undecided(trace_id)
            or trace_id in self._grace
            or (dormant is not None and dormant.kept_bytes > 0)
        )

    def __len__(self) -> int:
        """The number of open traces."""
        return len(self._open)

    def age(self, now: float) -> float:
        """Return the age of the oldest open trace in seconds; 0 if none is open."""
        return max(0.0, now - next(iter(self._open.values())).created) if self._open else 0.0

    def is_undecided(self, trace_id: bytes) -> bool:
        """Whether the trace is open, or closed and not yet popped."""
        return trace_id in self._open or trace_id in self._ready

    def undecided(self) -> set[bytes]:
        """Return the ids of the traces that are open, or closed and not yet popped."""
        return {*self._open, *self._ready}

    def is_over(self, trace_id: bytes) -> bool:
        """Whether the trace is closed and not yet popped, or open with its root or a local root.

        Spans that are missing of it have ended and are only late.
        """
        trace = self._open.get(trace_id)
        return (
            trace_id in self._ready
            if trace is None
            else closing_state(trace.frames)[0] is not Wait.OPEN
        )

    @property
    def held_bytes(self) -> int:
        """Bytes of everything held, payload and overhead: open, closed and not yet popped, and kept
        for late spans.
        """
        return self._bytes + self._grace_bytes + self._backlog

    @property
    def open_bytes(self) -> int:
        """The bytes of `held_bytes` that belong to open traces, without their kept trees."""
        return self._bytes

    @property
    def oldest(self) -> bytes | None:
        """The id of the oldest open trace; None if none is open."""
        return next(iter(self._open), None)

    @property
    def backlog_bytes(self) -> int:
        """The bytes of `held_bytes` that belong to closed traces which are not yet popped:
        backpressure depends on them.
        """
        return self._backlog

    @property
    def is_empty(self) -> bool:
        """Whether nothing is left to do: no check, no evaluation, no trace whose grace period
        ends.
        """
        return not (self._checks or self._ready or self._ready_parts or self._grace)

    def next_check(self) -> float | None:
        """Return when `due` next has a trace to check; None if no check is scheduled."""
        return self._checks[0][0] if self._checks else None


def _closed(trace_id: bytes, trace: OpenTrace, reason: Completeness) -> ClosedTrace:
    """Return the trace for evaluation. Its frames are no longer changed: late spans go into
    copies.
    """
    changed = None if trace.changed is None else frozenset(trace.changed)
    released = None if trace.trees is None else trace.trees.kept.released()
    evidence = (
        trace.trees.evidence(trace) if trace.trees is not None and released is not None else None
    )
    logs = listed(trace.logs, trace.logs)
    return _new_closed(
        trace_id,
        trace.frames,
        reason,
        logs,
        trace.cut,
        changed,
        trace.last_evaluations,
        None,
        released,
        evidence,
    )
