"""Hold the spans of open traces until they may be judged.

Knows trace ids, parent links, limits and the instants it is told; knows no clock, no thread, no attribute name and
nothing of what a span says. Whoever calls it owns time and concurrency.

How a trace ends. A trace closes once its root has ended and nothing of it is known to be open:

* every parent link resolves and one service took part: `settle_s` after its last span (`complete`);
* several services took part: `settle_partial_s` after it (`complete`);
* a parent is missing, but a root or the entry span of a service has arrived: `settle_partial_s` after it (`orphaned`);
* otherwise something is still running as far as anyone can tell: `idle_s` after its last span (`idle`), or
  `max_age_s` after its first (`aged`); a size limit (`overflow`) or the end of the process (`shutdown`) may come first.

A source that counts started and ended spans itself says so with `close`, and nothing waits.

A closed trace is kept for `late_s`, so that spans which arrive after the verdict can change it: the trace opens again
and closes with `changed` set. It is the first thing given up when room is short. After that only its id is remembered:
spans later still are counted and form no run.

Backpressure. `refusal` is to be asked before each request. It refuses while closed traces that have not been evaluated,
those whose wait is over included, hold half of `max_bytes`, and while open traces fill `max_bytes` and the oldest of them
only waits for late spans: it closes soon and makes room by itself. The oldest trace that is still running is closed instead
(`overflow`). So open traces stay within `max_bytes`, and all that is held within one and a half times as much plus a request.

Of two spans with one id the greater rank counts (later end, more attributes, greater bytes), never the later arrival.
"""

from __future__ import annotations

import heapq
import sys
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, Final

from otel_eval.assembly.evidence import Wait, outlook, rank
from otel_eval.assembly.held import SPAN_OVERHEAD_BYTES, HeldTrace, add_plain, closed, reopen
from otel_eval.assembly.limits import Limits, Tally
from otel_eval.assembly.tombstones import Tombstones
from otel_eval.model import Completeness
from otel_eval.ports import ClosedTrace, Frame, LogFrame

__all__ = ["TraceBuffer"]

_ALL: Final = sys.maxsize


class TraceBuffer:
    """Spans in, closed traces out: `push`, then `due` from time to time.

    Instants are seconds of any monotonic clock. Not safe for several threads at once; the caller holds a lock.
    """

    def __init__(self, limits: Limits | None = None) -> None:
        self.limits: Final = limits or Limits()
        self.tally: Final = Tally()
        self._open: dict[bytes, HeldTrace] = {}
        self._late: dict[bytes, HeldTrace] = {}  # by the instant of closing
        self._gone = Tombstones(self.limits.max_traces)
        self._checks: list[tuple[float, int, bytes, HeldTrace]] = []
        self._ready: dict[bytes, tuple[HeldTrace, Completeness]] = {}  # closed, not yet handed over
        self._bytes = 0  # of what is open
        self._late_bytes = 0
        self._backlog = 0  # of what is ready
        self._awaited: tuple[HeldTrace | None, float] = (None, 0.0)  # a trace that was found to be over, and its next check
        self._sequence = 0

    # ------------------------------------------------------------------ in

    def push(self, trace_id: bytes, span_id: bytes, frame: Frame, size: int, now: float) -> None:
        """Take one span of `size` payload bytes."""
        self.push_many(((trace_id, span_id, frame, size),), now)

    def push_many(self, spans: Iterable[tuple[bytes, bytes, Frame, int]], now: float) -> None:
        """Take spans as `(trace id, span id, frame, size)`; the order does not matter."""
        most, most_bytes = self.limits.max_spans_per_trace, self.limits.max_bytes_per_trace
        now, soon = float(now), now + self.limits.settle_s
        listed = spans if type(spans) is list else list(spans)
        at = 0
        while at < len(listed):
            at, added, size = add_plain(listed, at, self._open, now, soon, most, most_bytes)
            self.tally.spans_kept += added
            self._bytes += size
            if at < len(listed):
                trace_id, span_id, frame, length = listed[at]
                self._push(trace_id, span_id, frame, length, now)
                at += 1
        self._relieve(now)

    def _push(self, trace_id: bytes, span_id: bytes, frame: Frame, size: int, now: float) -> None:
        trace = self._open.get(trace_id) or self._enter(trace_id, now)
        if trace is None:
            return None
        frames, most, most_bytes = trace.frames, self.limits.max_spans_per_trace, self.limits.max_bytes_per_trace
        if span_id in frames:
            return self._settle_duplicate(trace, span_id, frame, size)
        if len(frames) >= most or trace.size + size > most_bytes:
            return self._cut(trace_id, trace, most if len(frames) >= most else 0)
        frames[span_id] = frame
        size += SPAN_OVERHEAD_BYTES
        trace.size += size
        self._bytes += size
        self.tally.spans_kept += 1
        trace.touched = now
        if trace.changed is not None:
            trace.changed.add(span_id)
            self.tally.spans_late += 1
        if now + self.limits.settle_s < trace.check:
            self._schedule(trace_id, trace, now + self.limits.settle_s)
        return None

    def push_logs(self, logs: Iterable[tuple[bytes, bytes, LogFrame, int]], now: float) -> None:
        """Take log records as `(trace id, span id, frame, size)`: content that travels beside its span."""
        for trace_id, span_id, frame, size in logs:
            trace = self._open.get(trace_id) or self._enter(trace_id, now)
            if trace is None:
                continue
            if trace.size + size > self.limits.max_bytes_per_trace:
                self._cut(trace_id, trace, 0)
                continue
            held = trace.logs.get(span_id, ())
            if frame in held:
                continue
            trace.logs[span_id] = (*held, frame)
            trace.touched = now
            trace.size += size + SPAN_OVERHEAD_BYTES
            self._bytes += size + SPAN_OVERHEAD_BYTES
            if trace.changed is not None:
                trace.changed.add(span_id)
            if now + self.limits.settle_s < trace.check:
                self._schedule(trace_id, trace, now + self.limits.settle_s)
        self._relieve(now)

    def _enter(self, trace_id: bytes, now: float) -> HeldTrace | None:
        """The trace to put a span of an id that is not open into; None if it comes too late for any."""
        if self._gone.holds(trace_id, now):
            self.tally.spans_too_late += 1
            return None
        trace = self._reopen(trace_id)
        if trace is None:
            trace = HeldTrace(touched=now, created=now, check=float("inf"))
            self.tally.traces_opened += 1
        elif trace.cut:
            self.tally.spans_over_limit += 1
            return None
        trace.created, trace.check = now, float("inf")
        self._open[trace_id] = trace
        self._schedule(trace_id, trace, now + self.limits.settle_s)
        return trace

    def _reopen(self, trace_id: bytes) -> HeldTrace | None:
        """A trace that was closed: taken back before anyone judged it, or because late spans change it."""
        if trace_id in self._ready:
            trace, _ = self._ready[trace_id]
            if not trace.cut:
                del self._ready[trace_id]
                self._backlog -= trace.size
                self._bytes += trace.size
            return trace
        late = self._late.get(trace_id)
        if late is not None and not late.cut:
            del self._late[trace_id]
            self._late_bytes -= late.size
            self._bytes += late.size
            reopen(late)
        return late

    def _settle_duplicate(self, trace: HeldTrace, span_id: bytes, frame: Frame, size: int) -> None:
        self.tally.spans_duplicate += 1
        if rank(frame) <= rank(trace.frames[span_id]):
            return
        trace.frames[span_id] = frame
        trace.size += size  # the size of the one put aside is not known: count both rather than too little
        self._bytes += size
        if trace.changed is not None:
            trace.changed.add(span_id)

    def _cut(self, trace_id: bytes, trace: HeldTrace, most: int) -> None:
        """A limit of one trace: it closes now, and nothing that is not there can be judged."""
        self.tally.spans_over_limit += 1
        limit = (
            f"more than {most} spans (traces.max_spans_per_trace)"
            if most
            else f"more than {self.limits.max_bytes_per_trace} bytes (traces.max_bytes_per_trace)"
        )
        trace.cut = trace.cut or limit
        self._set_ready(trace_id, trace, Completeness.OVERFLOW)

    def _relieve(self, now: float) -> None:
        """Make room: first what is already evaluated, then the oldest open trace that is not due, evaluated on what it has."""
        self._give_up_late(0, 0)
        if not self._fits(0, 0):
            self._check(now, _ALL)
        while self._open and not self._fits(0, 0):
            self._evict()

    def _give_up_late(self, size: int, traces: int) -> None:
        """Forget closed traces until so many bytes and open traces more fit, or none is left."""
        most, most_bytes = self.limits.max_traces - traces, self.limits.max_bytes - size
        while self._late and (self.held_bytes > most_bytes or len(self._open) + len(self._late) > most):
            trace_id = next(iter(self._late))
            self._forget(trace_id, self._late.pop(trace_id))
            self.tally.late_given_up += 1

    def _fits(self, size: int, traces: int) -> bool:
        """Whether so many bytes and open traces more are within the limits of what is open."""
        return self._bytes + size <= self.limits.max_bytes and len(self._open) + traces <= self.limits.max_traces

    def _evict(self) -> None:
        trace_id = next(iter(self._open))
        self.tally.traces_over_limit += 1
        self._set_ready(trace_id, self._open[trace_id], Completeness.OVERFLOW)

    # -------------------------------------------------------- backpressure

    def refusal(self, items: Collection[Sequence[Any]], now: float) -> str:
        """Why spans or log records should not be pushed now; "" if they can be. Amortised O(log n) for each item.

        Args:
            items: what is to be pushed, as `push_many` and `push_logs` take it.
            now: closes what is due.
        """
        self._check(now, _ALL)
        if self._backlog > self.limits.max_bytes // 2:
            return "closed traces that wait to be evaluated hold half of traces.max_bytes"
        ids = {item[0] for item in items}
        size, traces = self._needed(items, ids)
        self._give_up_late(size, traces)
        while self._open and not self._fits(size, traces):
            trace_id, trace = next(iter(self._open.items()))
            if self._oldest_is_over():
                return "open traces fill traces.max_bytes or traces.max_traces, and the oldest closes soon"
            self._evict()
            if trace_id in ids:  # it opens again
                size, traces = size + trace.size, traces + 1
        return ""

    def _needed(self, items: Collection[Sequence[Any]], ids: set[bytes]) -> tuple[int, int]:
        """Bytes and open traces that pushing these may add, closed traces that open again included."""
        size = sum([item[3] for item in items]) + SPAN_OVERHEAD_BYTES * len(items)
        opened = ids.difference(self._open)
        closed = (self._ready[each][0] if each in self._ready else self._late.get(each) for each in opened)
        return size + sum(trace.size for trace in closed if trace is not None), len(opened)

    def _oldest_is_over(self) -> bool:
        trace_id, trace = next(iter(self._open.items()))
        if self._awaited != (trace, trace.check):  # more of its spans cannot make it open again
            if not self.is_over(trace_id):
                return False
            self._awaited = (trace, trace.check)
        return True

    # ----------------------------------------------------------------- out

    def due(self, now: float, most: int = _ALL) -> list[ClosedTrace]:
        """Close what is due at `now` and hand it over, at most `most` traces at once."""
        self.ripe(now, most)
        return self.take(now, most)

    def ripe(self, now: float, most: int = _ALL, most_bytes: int = _ALL) -> list[tuple[bytes, Completeness]]:
        """Close what is due at `now`: ids and reasons of what `take` hands over next."""
        self._expire(now)
        self._check(now, most)
        return [(trace_id, self._ready[trace_id][1]) for trace_id in self._next(most, most_bytes)]

    def take(self, now: float, most: int = _ALL, most_bytes: int = _ALL) -> list[ClosedTrace]:
        """Hand over what is closed: at most `most` traces, and none after the first that exceeds `most_bytes`."""
        return [closed for trace_id in self._next(most, most_bytes) if (closed := self._hand_over(trace_id, now))]

    def _next(self, most: int, most_bytes: int) -> list[bytes]:
        ids: list[bytes] = []
        size = 0
        for trace_id, (trace, _) in islice(self._ready.items(), most):
            if ids and size + trace.size > most_bytes:
                break
            ids.append(trace_id)
            size += trace.size
        return ids

    def close(self, trace_id: bytes, now: float, reason: Completeness | None = None) -> list[ClosedTrace]:
        """Close one trace now, because its source knows that nothing of it is open, or for the `reason` given."""
        trace = self._open.get(trace_id)
        if trace is not None:
            self._set_ready(trace_id, trace, reason or outlook(trace.frames)[1])
        return self.take(now)

    def drain(self, now: float, reason: Completeness | None = None) -> list[ClosedTrace]:
        """Close every open trace: for the `reason` given, else as after settling."""
        for trace_id, trace in list(self._open.items()):
            self._set_ready(trace_id, trace, reason or outlook(trace.frames)[1])
        return self.take(now)

    def _check(self, now: float, most: int) -> None:
        checks = self._checks
        while checks and checks[0][0] <= now and len(self._ready) < most:
            when, _, trace_id, trace = heapq.heappop(checks)
            if trace.check != when or self._open.get(trace_id) is not trace:
                continue  # it was looked at since, or closed
            soonest = min(trace.touched + self.limits.settle_s, trace.created + self.limits.max_age_s)
            if soonest > now:  # whatever it waits for, not yet: its spans need no look
                self._schedule(trace_id, trace, soonest)
                continue
            deadline, reason = self._deadline(trace)
            if deadline <= now:
                self._set_ready(trace_id, trace, reason)
            else:
                self._schedule(trace_id, trace, deadline)

    def _deadline(self, trace: HeldTrace) -> tuple[float, Completeness]:
        """When the trace closes if nothing more comes, and why."""
        limits = self.limits
        wait, reason = outlook(trace.frames)
        if wait is Wait.OPEN:
            reason = Completeness.IDLE
        if wait is Wait.SETTLE:
            quiet = trace.touched + limits.settle_s
        else:
            quiet = trace.touched + (limits.settle_partial_s if wait is Wait.PARTIAL else limits.idle_s)
        aged = trace.created + limits.max_age_s
        return (aged, Completeness.AGED) if aged < quiet else (quiet, reason)

    def _schedule(self, trace_id: bytes, trace: HeldTrace, when: float) -> None:
        trace.check = when
        self._sequence += 1
        heapq.heappush(self._checks, (when, self._sequence, trace_id, trace))
        if len(self._checks) > 4 * len(self._open) + 1024:  # mostly entries that were overtaken
            self._checks = [
                entry for entry in self._checks if self._open.get(entry[2]) is entry[3] and entry[3].check == entry[0]
            ]
            heapq.heapify(self._checks)

    def _set_ready(self, trace_id: bytes, trace: HeldTrace, reason: Completeness) -> None:
        if self._open.pop(trace_id, None) is not None:
            self._ready[trace_id] = (trace, reason)
            self._bytes -= trace.size
            self._backlog += trace.size

    def _hand_over(self, trace_id: bytes, now: float) -> ClosedTrace | None:
        """A trace that is ready, as whoever judges it gets it; None if nothing but log records came."""
        trace, reason = self._ready.pop(trace_id)
        self._backlog -= trace.size
        handed = closed(trace_id, trace, reason) if trace.frames else None
        self.tally.traces_closed += handed is not None
        self._keep(trace_id, trace, now)
        return handed

    def _keep(self, trace_id: bytes, trace: HeldTrace, now: float) -> None:
        """Keep a judged trace for late spans; of one that a limit closed only the id: what comes now is over it too."""
        if trace.cut:
            trace = HeldTrace(now, now, now, cut=trace.cut)
        trace.touched = now
        self._late[trace_id] = trace
        self._late_bytes += trace.size
        self._give_up_late(0, 0)

    def _expire(self, now: float) -> None:
        for trace_id in _older(self._late, now - self.limits.late_s):
            self._forget(trace_id, self._late.pop(trace_id))
        self._gone.expire(now)

    def _forget(self, trace_id: bytes, trace: HeldTrace) -> None:
        self._late_bytes -= trace.size
        self._gone.add(trace_id, trace.touched + self.limits.max_age_s)

    # ------------------------------------------------------- after a restart

    def close_again(self, trace_id: bytes, reason: Completeness, now: float) -> ClosedTrace | None:
        """Close a trace as it was closed before a restart, whatever `due` would say; None if it is not here."""
        if trace_id in self._open:
            self._set_ready(trace_id, self._open[trace_id], reason)
        if trace_id not in self._ready:
            return None
        self._ready[trace_id] = (self._ready[trace_id][0], reason)
        return self._hand_over(trace_id, now)

    def remembered(self) -> Iterator[tuple[bytes, float]]:
        """Ids of which only the id is remembered, and until when."""
        return self._gone.items()

    def remember(self, trace_id: bytes, until: float) -> None:
        """Nothing of this trace is wanted any more: forget what is held of it and, until then, take no span of it."""
        self.drop(trace_id)
        self._gone.add(trace_id, until)

    def drop(self, trace_id: bytes) -> None:
        """Forget what is held of a trace."""
        if trace_id in self._open:
            self._bytes -= self._open.pop(trace_id).size
        elif trace_id in self._late:
            self._late_bytes -= self._late.pop(trace_id).size
        elif trace_id in self._ready:
            self._backlog -= self._ready.pop(trace_id)[0].size

    def held(self, trace_id: bytes) -> ClosedTrace | None:
        """All that is held of a trace that is open or kept for late spans; None if it is neither, or a limit cut it."""
        trace = self._open.get(trace_id) or self._late.get(trace_id)
        return closed(trace_id, trace, Completeness.COMPLETE) if trace is not None and not trace.cut else None

    def compact(self, now: float) -> None:
        """Let go of memory that is kept only to be quick when much arrives; for when nothing does."""
        self._gone.compact(now)
        if not self._open:
            self._checks = []

    # ---------------------------------------------------------------- state

    def holds(self, trace_id: bytes) -> bool:
        """Whether spans of the trace are needed: it is open, waits to be judged, or is kept for late spans."""
        return trace_id in self._open or trace_id in self._ready or trace_id in self._late

    def __len__(self) -> int:
        """Open traces."""
        return len(self._open)

    def age(self, now: float) -> float:
        """Of the oldest open trace, in seconds; 0 if none is open."""
        return max(0.0, now - next(iter(self._open.values())).created) if self._open else 0.0

    def is_undecided(self, trace_id: bytes) -> bool:
        """Whether the trace is open, or closed and not yet handed over."""
        return trace_id in self._open or trace_id in self._ready

    def is_over(self, trace_id: bytes) -> bool:
        """Whether the trace is closed and not yet handed over, or open and the span it began with has arrived.

        What is missing of it can only come late.
        """
        trace = self._open.get(trace_id)
        return trace_id in self._ready if trace is None else outlook(trace.frames)[0] is not Wait.OPEN

    @property
    def held_bytes(self) -> int:
        """Payload and overhead of everything held: open, waiting to be judged, kept for late spans."""
        return self._bytes + self._late_bytes + self._backlog

    @property
    def backlog_bytes(self) -> int:
        """Of it, what is closed and waits to be judged: when this grows, whoever brings spans should wait."""
        return self._backlog

    def next_check(self) -> float | None:
        """The instant at which `due` next has something to look at, or None."""
        return self._checks[0][0] if self._checks else None


def _older(traces: dict[bytes, HeldTrace], before: float) -> list[bytes]:
    """The ids at the head of an ordered dictionary that were touched at or before an instant."""
    ids = []
    for trace_id, trace in traces.items():
        if trace.touched > before:
            break
        ids.append(trace_id)
    return ids
