"""Hold the spans of open traces until they can be evaluated. The caller owns time and concurrency.

How a trace ends. A trace closes once its root has ended and no span of it is known to be open:

* all parent links resolve and its spans are of one service: `decision_wait_s` after its last span
  (`complete`);
* all parent links resolve and its spans are of several services: `decision_wait_partial_s` after it
  (`complete`);
* a parent is missing, but a root or a local root has arrived: `decision_wait_partial_s` after it
  (`remote_parent`);
* otherwise a span may still be running: `idle_s` after its last span (`idle`), or
  `max_age_s` after its first (`aged`); a size limit (`overflow`) or the end of the process
  (`shutdown`) may come first.

A source that counts started and ended spans calls `close`, and there is no wait.

A trace with agent spans and without a root is not closed as a whole: each of its trees is evaluated
on its own (see `subtrees`) and the trace stays open. When no span of it is open it is dormant: only
kept trees are left. It is dropped when these are, `max_age_s` after its last span at the earliest.

A closed trace is kept for `grace_period_s`, so that spans which arrive after the evaluation can
change it: the trace opens again and closes with `changed` set. When a limit is reached, closed
traces are evicted first. Then only the id is held, as a
tombstone: spans that arrive after that are counted and form no run.

Backpressure. Call `refusal` before each request. It refuses the request in two cases: closed traces
that were not evaluated, those that are due included, use half of `max_bytes`; or open traces use
all of it, and the oldest of them waits only for late spans, so it closes soon. If the oldest trace
is still running, it is closed instead (`overflow`) and the request is accepted. A request whose own
traces exceed the limits is accepted too, because refusing it would never free memory for it; it
closes the oldest of them, even one whose root has ended. So open traces stay within `max_bytes`,
and everything held within one and a half times `max_bytes` plus one request.

Of two spans with one id the one with the greater rank is kept (later end, more attributes, greater
bytes), in whatever order they arrive.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from itertools import islice
from typing import Any, Final

from otel_eval.assembly.closing import RECORDS_PER_SPAN, Closing, Version, Wait, closing_state, rank
from otel_eval.assembly.subtrees import SPAN_OVERHEAD_BYTES, OpenTrace
from otel_eval.assembly.trace_store import ALL, TraceStore
from otel_eval.interfaces import ClosedTrace, Frame, JoinedLog, SpanFrame
from otel_eval.model import Completeness

_RECORDS_LIMIT: Final = f"log records ({RECORDS_PER_SPAN} × traces.max_spans_per_trace)"


class TraceBuffer(TraceStore):
    """Spans in, closed traces out: `push`, then `due` from time to time.

    Instants are seconds of any monotonic clock. Not safe for several threads at once; the caller
    holds a lock.

    Args:
        limits: how long and how much the buffer holds.
        is_agent: whether a span is an agent's; traces without any are closed as a whole.
    """

    # ------------------------------------------------------------------ in

    def push(self, trace_id: bytes, span_id: bytes, frame: Frame, size: int, now: float) -> None:
        """Add one span of `size` payload bytes."""
        self.push_many(((trace_id, span_id, frame, size),), now)

    def push_many(self, spans: Iterable[SpanFrame], now: float) -> None:
        """Add spans, given as `(trace id, span id, frame, size)`; their order does not matter."""
        by_trace = defaultdict[bytes, list[SpanFrame]](list)
        for item in spans:
            by_trace[item[0]].append(item)
        for trace_id, items in by_trace.items():
            trace = self._open.get(trace_id) or self._open_or_reopen(trace_id, now)
            if trace is None:
                for item in items[1:]:  # the first one was counted by the call
                    self._push(*item, now)
            elif not self._push_all(trace, items, now):
                for item in items:
                    self._push(*item, now)
        self._enforce_limits(now)

    def _push_all(self, trace: OpenTrace, items: Sequence[SpanFrame], now: float) -> bool:
        """Add spans to an open trace; False, and none is added, if one is known, over a limit or
        requires an earlier check.
        """
        limits = self.limits
        frames = {item[1]: item[2] for item in items}
        size = sum([item[3] for item in items]) + SPAN_OVERHEAD_BYTES * len(items)
        if (
            trace.changed is not None
            or len(frames) < len(items)
            or not trace.frames.keys().isdisjoint(frames)
            or len(trace.frames) + len(frames) > limits.max_spans_per_trace
            or trace.open_bytes + size > limits.max_bytes_per_trace
            or now + limits.decision_wait_s < trace.check
        ):
            return False
        trace.frames.update(frames)
        trace.size += size
        trace.touched = now
        self._bytes += size
        self.counts.spans_kept += len(frames)
        return True

    def _push(self, trace_id: bytes, span_id: bytes, frame: Frame, size: int, now: float) -> None:
        trace = self._open.get(trace_id) or self._open_or_reopen(trace_id, now)
        if trace is None:
            return None
        frames, most, most_bytes = (
            trace.frames,
            self.limits.max_spans_per_trace,
            self.limits.max_bytes_per_trace,
        )
        if span_id in frames:
            return self._keep_higher_rank(trace_id, trace, span_id, frame, size)
        if len(frames) >= most or trace.open_bytes + size > most_bytes:
            return self._overflow(trace_id, trace, most if len(frames) >= most else 0)
        frames[span_id] = frame
        self.counts.spans_kept += 1
        self.counts.spans_late += trace.changed is not None
        return self._add(trace_id, trace, span_id, size, now)

    def _add(
        self, trace_id: bytes, trace: OpenTrace, span_id: bytes, size: int, now: float
    ) -> None:
        """Update an open trace to which a span or log record of `size` payload bytes was added."""
        trace.size += size + SPAN_OVERHEAD_BYTES
        self._bytes += size + SPAN_OVERHEAD_BYTES
        trace.touched = now
        if trace.changed is not None:
            trace.changed.add(span_id)
        if now + self.limits.decision_wait_s < trace.check:
            self._schedule(trace_id, trace, now + self.limits.decision_wait_s)

    def push_logs(self, logs: Iterable[JoinedLog], now: float) -> None:
        """Add log records, given as `(trace id, span id, frame, size)`: content that is sent apart
        from its span.
        """
        most = RECORDS_PER_SPAN * self.limits.max_spans_per_trace
        for trace_id, span_id, frame, size in logs:
            trace = self._open.get(trace_id) or self._open_or_reopen(trace_id, now)
            if trace is None:
                continue
            held = trace.logs.get(span_id, ())
            if frame in held:
                continue
            if trace.records >= most or trace.open_bytes + size > self.limits.max_bytes_per_trace:
                self._overflow(
                    trace_id, trace, most if trace.records >= most else 0, _RECORDS_LIMIT
                )
                continue
            trace.logs.setdefault(span_id, {})[frame] = None
            trace.records += 1
            self._add(trace_id, trace, span_id, size, now)
            if trace.trees is not None:
                with self._resized(trace_id, trace):
                    trace.trees.note_log(trace, span_id)
        self._enforce_limits(now)

    def _open_or_reopen(self, trace_id: bytes, now: float) -> OpenTrace | None:
        """Open or reopen the trace of an id that is not open; None, with the span counted, if it is
        too late or over a limit.
        """
        if self._tombstones.holds(trace_id, now):
            self.counts.spans_too_late += 1
            return None
        was_ready = trace_id in self._ready
        trace = self._dormant.pop(trace_id, None) or self._reopen(trace_id)
        if trace is None:
            trace = OpenTrace(touched=now, created=now, check=float("inf"))
            self.counts.traces_opened += 1
        elif trace.cut:
            self.counts.spans_over_limit += 1
            return None
        trace.created = trace.created if was_ready else now
        trace.check = float("inf")
        trace.tree_check = now
        self._open[trace_id] = trace
        self._schedule(trace_id, trace, now + self.limits.decision_wait_s)
        return trace

    def _reopen(self, trace_id: bytes) -> OpenTrace | None:
        """Reopen a trace that was closed, evaluated or not; None if there is none. One that a limit
        cut stays closed.
        """
        if trace_id in self._ready:
            trace, _ = self._ready[trace_id]
            if not trace.cut:
                del self._ready[trace_id]
                self._backlog -= trace.size
                self._bytes += trace.size
            return trace
        late = self._grace.get(trace_id)
        if late is not None and not late.cut:
            del self._grace[trace_id]
            self._grace_bytes -= late.size
            self._bytes += late.size
            # Late spans go into copies, because the trace may be under evaluation.
            late.frames, late.changed = dict(late.frames), set()
        return late

    def _keep_higher_rank(
        self, trace_id: bytes, trace: OpenTrace, span_id: bytes, frame: Frame, size: int
    ) -> None:
        known = self._version(trace, span_id)
        found = rank(frame)
        if (
            found > known.rank
            and trace.open_bytes - known.size + size > self.limits.max_bytes_per_trace
        ):
            return self._overflow(trace_id, trace, 0)
        self.counts.spans_duplicate += 1
        if found > known.rank:
            trace.frames[span_id] = frame
            trace.versions[span_id] = Version(found, size)
            trace.size += size - known.size
            self._bytes += size - known.size
            if trace.changed is not None:
                trace.changed.add(span_id)
        return None

    def _version(self, trace: OpenTrace, span_id: bytes) -> Version:
        """Return the kept version of a span of which another version arrived."""
        known = trace.versions.get(span_id)
        if known is None:
            known = trace.versions[span_id] = Version(rank(trace.frames[span_id]), 0)
            trace.size += SPAN_OVERHEAD_BYTES
            self._bytes += SPAN_OVERHEAD_BYTES
        return known

    def _overflow(
        self,
        trace_id: bytes,
        trace: OpenTrace,
        most: int,
        what: str = "spans (traces.max_spans_per_trace)",
    ) -> None:
        """Close a trace that reached a limit: the span or log record is dropped, and so are those
        that follow.
        """
        self.counts.spans_over_limit += 1
        limit = (
            f"more than {most} {what}"
            if most
            else f"more than {self.limits.max_bytes_per_trace} bytes (traces.max_bytes_per_trace)"
        )
        trace.cut = trace.cut or limit
        self._set_ready(trace_id, trace, Completeness.OVERFLOW)

    def _enforce_limits(self, now: float) -> None:
        """Keep the limits: evict evaluated traces first, then close what is due, then the oldest
        open traces (`overflow`).
        """
        self._drop_from_grace(0, 0)
        if not self._fits(0, 0):
            self._check(now, ALL)
        while self._open and not self._fits(0, 0):
            self._close_oldest()

    def _close_oldest(self) -> None:
        trace_id = next(iter(self._open))
        self.counts.traces_over_limit += 1
        self._set_ready(trace_id, self._open[trace_id], Completeness.OVERFLOW)

    # -------------------------------------------------------- backpressure

    def refusal(self, items: Collection[Sequence[Any]], now: float) -> str:
        """Return why spans or log records should be refused now; "" if they can be pushed.
        Amortised O(log n) for each item.

        Args:
            items: what is to be pushed, in the form of `push_many` and `push_logs`.
            now: the instant; traces that are due are closed.
        """
        self._check(now, ALL, aged=False)
        if self._backlog > self.limits.max_bytes // 2:
            return "closed traces that wait to be evaluated hold half of traces.max_bytes"
        ids = {item[0] for item in items}
        size, traces = self._needed(items, ids)
        self._drop_from_grace(size, traces)
        while self._open and not self._fits(size, traces):
            trace_id, trace = next(iter(self._open.items()))
            if self._oldest_is_over():
                return (
                    "open traces fill traces.max_bytes or traces.max_traces, and the oldest closes"
                    " soon"
                )
            self._close_oldest()
            if trace_id in ids:  # it opens again
                size, traces = size + trace.size, traces + 1
        return ""

    def _needed(self, items: Collection[Sequence[Any]], ids: set[bytes]) -> tuple[int, int]:
        """Return how many bytes and open traces pushing these may add; closed traces that they
        reopen are included.
        """
        size = sum([item[3] for item in items]) + SPAN_OVERHEAD_BYTES * len(items)
        opened = ids.difference(self._open)
        closed = (
            self._ready[each][0] if each in self._ready else self._grace.get(each)
            for each in opened
        )
        return size + sum(trace.size for trace in closed if trace is not None), len(opened)

    def _oldest_is_over(self) -> bool:
        trace_id, trace = next(iter(self._open.items()))
        if self._last_over != (trace, trace.check):  # further spans do not change the answer
            if not self.is_over(trace_id):
                return False
            self._last_over = (trace, trace.check)
        return True

    # ----------------------------------------------------------------- out

    def due(self, now: float, most: int = ALL, most_bytes: int = ALL) -> list[ClosedTrace]:
        """Close the traces that are due at `now` and return closed traces, limited as in
        `pop_closed`.
        """
        self._expire(now)
        self._check(now, most)
        return self.pop_closed(now, most, most_bytes)

    def close_due(self, now: float, most: int = ALL, most_bytes: int = ALL) -> list[Closing]:
        """Close the traces that are due at `now`; return ids and reasons of what `pop_closed`
        returns next.
        """
        self._expire(now)
        self._check(now, most)
        found = [Closing.of(part) for part in self._ready_parts[:most]]
        return found + [
            Closing(trace_id, self._ready[trace_id][1])
            for trace_id in self._next(most - len(found), most_bytes)
        ]

    def pop_closed(self, now: float, most: int = ALL, most_bytes: int = ALL) -> list[ClosedTrace]:
        """Remove and return at most `most` closed traces and parts; more than one whole trace only
        within `most_bytes`.
        """
        parts = self._ready_parts[:most]
        del self._ready_parts[:most]
        ids = self._next(most - len(parts), most_bytes)
        return parts + [self._pop_ready(trace_id, now) for trace_id in ids]

    def _next(self, most: int, most_bytes: int) -> list[bytes]:
        ids: list[bytes] = []
        size = 0
        for trace_id, (trace, _) in islice(self._ready.items(), most):
            if ids and size + trace.size > most_bytes:
                break
            ids.append(trace_id)
            size += trace.size
        return ids

    def close(
        self, trace_id: bytes, now: float, reason: Completeness | None = None
    ) -> list[ClosedTrace]:
        """Close a trace now, because its source knows that no span of it is open, or for the
        `reason`; return closed traces.
        """
        if reason is Completeness.DETACHED:
            self._close_trees(Closing(trace_id, reason), now)
        elif (trace := self._open.get(trace_id)) is not None:
            self._set_ready(trace_id, trace, reason or closing_state(trace.frames)[1])
        return self.pop_closed(now)

    def drain(self, now: float, reason: Completeness | None = None) -> list[ClosedTrace]:
        """Close every open trace, for the `reason` or else for that of its state; return closed
        traces.
        """
        for trace_id, trace in list(self._dormant.items()):
            # its runs may not have been reported
            if trace.trees is not None and trace.trees.maybe_deferred:
                self._open[trace_id] = self._dormant.pop(trace_id)
        for trace_id, trace in list(self._open.items()):
            self._set_ready(trace_id, trace, reason or closing_state(trace.frames)[1])
        return self.pop_closed(now)

    def _check(self, now: float, most: int, *, aged: bool = True) -> None:
        """Close the traces that are due.

        Args:
            now: the instant.
            most: no more are closed when this number is ready for evaluation.
            aged: also close traces that are due because of their age. Not before spans are pushed:
                these would reopen such a trace again and again, and it would never be evaluated.
        """
        checks, deferred = self._checks, []
        while checks and checks[0][0] <= now and len(self._ready) + len(self._ready_parts) < most:
            _, number, trace_id = heapq.heappop(checks)
            trace = self._scheduled(number, trace_id)
            if trace is None:
                continue
            if not aged and trace.created + self.limits.max_age_s <= now:
                deferred.append((trace_id, trace))
                continue
            soonest = min(
                trace.touched + self.limits.decision_wait_s,
                trace.created + self.limits.max_age_s,
                trace.tree_check,
            )
            if soonest > now:  # it is not due whatever it waits for, so its spans need not be read
                self._schedule(trace_id, trace, soonest)
                continue
            state = closing_state(trace.frames)
            following = (
                None if state[0] is Wait.COMPLETE else self._check_trees(trace_id, trace, now)
            )
            trace.tree_check = trace.tree_check if trace.tree_check > now else float("inf")
            if following is not None:
                self._schedule(trace_id, trace, following)
                continue
            deadline, reason = self._deadline(trace, *state)
            if deadline <= now:
                self._set_ready(trace_id, trace, reason)
            else:
                self._schedule(trace_id, trace, min(deadline, trace.tree_check))
        for trace_id, trace in deferred:
            self._schedule(trace_id, trace, now)

    def _deadline(
        self, trace: OpenTrace, wait: Wait, reason: Completeness
    ) -> tuple[float, Completeness]:
        """Return when the trace closes if no span arrives, and the reason."""
        quiet = (
            trace.touched + getattr(self.limits, wait.value),
            Completeness.IDLE if wait is Wait.OPEN else reason,
        )
        aged = trace.created + self.limits.max_age_s, Completeness.AGED
        return aged if aged[0] < quiet[0] else quiet
