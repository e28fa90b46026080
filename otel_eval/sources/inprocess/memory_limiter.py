"""Keep the memory of the spans that a process holds within `max_bytes` and
`max_bytes_per_trace`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable
from itertools import islice
from typing import Any, Final

from otel_eval.assembly import SPAN_OVERHEAD_BYTES
from otel_eval.counters import Warnings
from otel_eval.heap import IdleMemory
from otel_eval.sources.inprocess.live_traces import InProcessLimits, LiveTrace
from otel_eval.sources.inprocess.recorder import MANY_SPANS, Recorder
from otel_eval.sources.inprocess.sdk_spans import SdkSpan, keep, size_of

_TRACE_BYTES: Final = 1400  # an open trace without spans, measured with tracemalloc
# of an open span, beside what is kept of it when it has ended: the SDK's objects and locks
_OPEN_SPAN_BYTES: Final = 2300
_FEW_SPANS: Final = 16  # bytes are measured after this many spans at the earliest
_REMEDY: Final = "raise it, or record less content (OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT)"
_EARLY: Final = (
    "the spans of open traces hold more than traces.max_bytes (%d bytes): the oldest traces are"
    " evaluated early; %s"
)
_DROPPED: Final = (
    "evaluation is slower than spans arrive: traces are dropped while queued traces hold %d bytes"
    " (half of traces.max_bytes, at least max_bytes_per_trace); raise it, or use fewer or faster"
    " scorers"
)


class SpanMemoryLimiter:
    """Measures ended spans, each once, and submits traces to the worker early if they hold too many
    bytes.

    `enforce` runs on a thread of its own: the threads on which spans end do not wait for it, and it
    does not wait for scorers.

    Args:
        recorder: holds the spans.
        limits: the limits of the recorder.
        reserve: called with the bytes that the recorder holds, to free as many of those that are
            kept for late spans.
    """

    def __init__(
        self, recorder: Recorder, limits: InProcessLimits, reserve: Callable[[int], None]
    ) -> None:
        self._recorder, self._limits, self._reserve = recorder, limits, reserve
        self._warnings: Final = Warnings()
        self._spans = self._bytes = 0  # measured in this pass
        self.arrived = 0  # spans that were measured in all passes
        self.held_bytes = 0  # of open traces and of spans queued for the worker, as measured last
        # Growth of the rest of the program is no reason to trim the heap.
        self._idle_memory: Final = IdleMemory(self, size=lambda: 0)

    def compact(self) -> None:
        """Nothing is held for speed alone."""

    def enforce(self) -> None:
        """Measure new spans, and submit what exceeds a limit. Linear in the new spans, plus 0.3 µs
        for each open trace.
        """
        now, entries = time.monotonic(), self._recorder.entries()
        self._spans = self._bytes = 0
        for entry in entries:
            if len(entry.spans) > entry.measured:
                self._measure(entry)
            if (
                8 * abs(len(entry.open) - entry.live_measured) > entry.live_measured
                or now >= entry.live_due
            ):
                self._measure_live(entry, now)
        for submitted in self._recorder.unmeasured():
            fresh = submitted.spans[submitted.measured :]
            self._recorder.add_size(submitted, submitted.removals, len(fresh), _sizes(fresh))
        self._enforce_per_trace(entries)
        self._enforce_total([entry for entry in entries if not entry.queued and not entry.closed])
        self.warn_of_drops()
        self.held_bytes = sum(map(_open_bytes, entries)) + self._recorder.waiting_bytes
        self._reserve(self.held_bytes)
        self.arrived += self._spans
        self._idle_memory.look()
        self._schedule_next()

    def warn_of_drops(self) -> None:
        """Log one warning, once traces were dropped."""
        if self._recorder.counts["traces_dropped"]:
            self._warnings.once("dropped", _DROPPED, self._limits.max_waiting_bytes)

    def _measure(self, entry: LiveTrace) -> None:
        removals, begin = entry.removals, entry.measured
        fresh = list(islice(entry.spans.copy(), begin, None))
        size = _sizes(fresh)
        self._recorder.add_size(entry, removals, len(fresh), size)
        self._spans += len(fresh)
        self._bytes += size

    def _measure_live(self, entry: LiveTrace, now: float) -> None:
        """Measure open spans. They may still get attributes, so this is repeated as the trace ages
        or their number changes.
        """
        live = [span for span in entry.open.copy().values() if span is not None]
        entry.live_measured, entry.live_size = len(live), sum(map(_open_size, live))
        self._spans += len(live)
        self._bytes += entry.live_size
        entry.live_due = now + max(1.0, now - entry.since)

    def _schedule_next(self) -> None:
        """Schedule the next measurement: after as many spans of the size measured now as hold an
        eighth of `max_bytes`.
        """
        if self._spans:
            share = self._limits.max_bytes // 8 * self._spans // self._bytes
            self._recorder.call_after(min(MANY_SPANS, max(_FEW_SPANS, share)))

    def _enforce_per_trace(self, entries: Iterable[LiveTrace]) -> None:
        limit = self._limits.max_bytes_per_trace
        for entry in entries:
            if entry.size > limit + SPAN_OVERHEAD_BYTES and not entry.cut:
                self._recorder.truncate(entry)
            elif entry.size > limit // 2:
                self._recorder.request_search(entry)

    def _enforce_total(self, entries: list[LiveTrace]) -> None:
        """Submit the ended spans of the oldest traces, then whole traces, until open traces fit
        into `max_bytes`.
        """
        limit, size = self._limits.max_bytes, sum(map(_open_bytes, entries))
        if size > limit:
            self._warnings.once("early", _EARLY, limit, _REMEDY)
        elif size > limit // 2:
            for entry in entries:
                self._recorder.request_search(entry)
        for submit in (self._recorder.submit_ended, self._recorder.evict):
            for entry in entries:
                if size <= limit:
                    return
                size -= _open_bytes(entry)
                submit(entry)
                size += _open_bytes(entry)


def _open_bytes(entry: LiveTrace) -> int:
    """The bytes of an open trace; 0 if it is queued for the worker, where its bytes are counted
    separately.
    """
    return 0 if entry.closed or entry.counted else _TRACE_BYTES + entry.size + entry.live_size


def _sizes(spans: Collection[SdkSpan]) -> int:
    # Includes what assembly adds to each span, so that both find the same limit exceeded.
    return sum(map(size_of, spans)) + SPAN_OVERHEAD_BYTES * len(spans)


def _open_size(span: Any) -> int:
    return _OPEN_SPAN_BYTES + size_of(keep(span))
