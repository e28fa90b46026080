"""Count the spans that start and end in each trace, and submit a trace to the worker when none of
its spans is open.

The two callbacks run on the threads of the traced program, so they take no lock, read no clock and
create no object but what is kept of an ended span: they do a look-up and one operation on a
dictionary, and one on a deque. Reading the span there, while it is in the caches, costs the program
less than holding the SDK's objects until another thread reads them.

Why that is safe: everything the callbacks touch is one C call on a deque or a dictionary. Only
*closing* needs several steps and takes `_lock`. The closing thread sets `closed` and then reads
`open`; a starting span is added to `open` before `closed` is read: one of the two sees the other.
The thread that saw `closed` takes the lock and checks whether the trace is still closed. Each span
is submitted exactly once, by the thread that removes it from the deque.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import repeat
from threading import RLock
from typing import Any, Final

from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor

from otel_eval.sdk_internals import read_context, read_into
from otel_eval.sources.inprocess.live_traces import EndedSpans, InProcessLimits, LiveTrace
from otel_eval.sources.inprocess.sdk_spans import SdkSpan, is_relevant, keep, open_parent

MANY_SPANS: Final = 512
_TRACES_PER_SPAN: Final = 8


class Recorder:
    """Tracks open traces; `SpanCallbacks` notes in it which spans start and end.

    Args:
        put: queues for the worker a `LiveTrace` that may be closed now or is to be searched for
            detached runs, or `EndedSpans`; must neither block nor raise (`SimpleQueue.put`).
        on_first_span: called with the first span of each new trace, on the caller's thread.
        is_agent: whether a span is an agent's; called on the worker. A trace without one is
            submitted as a whole.
        many: called after many starts and ends of spans, on the thread of the last one; must
            neither block nor raise.
    """

    def __init__(
        self,
        limits: InProcessLimits,
        put: Callable[[LiveTrace | EndedSpans], None],
        on_first_span: Callable[[Any], None],
        is_agent: Callable[[SdkSpan], bool],
        many: Callable[[], None],
    ) -> None:
        self._many: Final = many
        self._is_agent: Final = is_agent
        self.limits: Final = limits
        self.counts: Final[Counter[str]] = Counter()  # written under _lock
        self._on_first_span = on_first_span
        self._limit = limits.max_spans_per_trace
        self._check_above = self._limit // 2
        self.reset(put)

    def reset(
        self, put: Callable[[LiveTrace | EndedSpans], None], *, is_child: bool = False
    ) -> None:
        """Start empty, also in a child process after a fork: every lock is new, and traces that
        started before are `early`.
        """
        self._put, self._is_child = put, is_child
        # Guards closing: `closed`, removal from `_traces`, what is queued, `counts`. Reentrant: a
        # finalizer may end a span.
        self._lock = RLock()
        self._traces: dict[int, LiveTrace] = {}
        # queued for the worker; only measured bytes count
        self.waiting_bytes = 0
        self._unmeasured: deque[EndedSpans] = deque()
        self.call_after(MANY_SPANS)
        self._is_shut_down = False
        self._since_ns = time.time_ns()

    def __len__(self) -> int:
        return len(self._traces)

    def oldest_s(self, now: float) -> float:
        """For how many seconds the oldest trace has been open; 0 if none is."""
        oldest = self._oldest()
        return 0.0 if oldest is None else now - oldest.since

    def _oldest(self) -> LiveTrace | None:
        with suppress(RuntimeError):  # another thread changed the dictionary
            return next(iter(self._traces.values()), None)
        return None

    # ------------------------------------------------------------------ for the callbacks

    def _add_trace(self, span: Any, parent_context: Any) -> LiveTrace | None:
        """Add the trace of a span that started, with the span's parent if it is open in this
        process; the caller adds the span.

        None if the span is not relevant, or the recorder is shut down.
        """
        if not is_relevant(keep(span)):
            return None
        if not self._is_shut_down:
            self._on_first_span(span)
        # `_on_first_span` shuts the recorder down if another processor does the same
        if self._is_shut_down:
            return None
        entry = self._entry(span.context[0])
        parent = open_parent(span, parent_context)
        # the trace was submitted before the parent's end
        if parent is not None and (parent.start_time or 0) >= self._since_ns:
            entry.open.setdefault(parent.context.span_id, parent)
        elif parent is not None and not self._is_child:
            # after a fork, spans that started before it end in the other process
            entry.early = True
            entry.open.setdefault(parent.context.span_id, None)
        return entry

    def _entry(self, trace_id: int) -> LiveTrace:
        if len(self._traces) >= self.limits.max_traces:
            with self._lock:
                # else another thread removed a trace, or changed the dictionary
                if (oldest := self._oldest()) is not None:
                    self.evict(oldest)
        return self._traces.setdefault(
            trace_id, LiveTrace(trace_id, time.monotonic(), self._check_above)
        )

    def evict(self, entry: LiveTrace) -> None:
        """Submit a trace before its end because of a limit, and forget it."""
        with self._lock:
            if not entry.closed:
                self.counts["traces_evicted"] += 1
                self.close(entry, "overflow" if entry.open else "closed")

    def _reopen(self, entry: LiveTrace, context: Any) -> None:
        """Move a span that started while its trace was being closed to a new entry of the trace."""
        with self._lock:
            if not entry.closed:
                return
            self._entry(context[0]).open[context[1]] = entry.open.pop(context[1], None)

    def _note_many(self) -> None:
        """Have bytes measured, since many spans started or ended; less often with many open traces,
        each of which takes time.
        """
        self.call_after(self._many_spans)
        self._many()

    def _unmatched_end(self, span: SdkSpan) -> None:
        """Handle the end of a span whose start was not seen, or whose trace was submitted while the
        span was open.
        """
        if not is_relevant(span):
            return
        if self._is_shut_down:
            with self._lock:
                self.counts["spans_after_shutdown"] += 1
            return
        self._on_first_span(span)
        # its start was seen, so its trace was submitted: it is late
        if span.start_ns >= self._since_ns:
            with self._lock:
                self._submit(EndedSpans(span.trace_id, [span], "closed"))
            return
        entry = self._entry(span.trace_id)
        entry.early = True
        entry.spans.append(span)
        self._complete_or_limit(entry, span)

    def _complete_or_limit(self, entry: LiveTrace, span: SdkSpan) -> None:
        """Handle a span that may complete the trace, comes after it was closed, or exceeds a
        limit.
        """
        if entry.closed:
            self._handle_late(entry, span)
            return
        if entry.check_above < 0 or len(entry.spans) > self._limit:
            self._drop_last(entry)
        elif len(entry.spans) > entry.check_above:
            entry.check_above = self._limit
            self.request_search(entry)
        if entry.open or (entry.early and self._await_parent(entry, span)):
            return
        if not entry.queued:
            self._queue_to_close(entry)

    def _queue_to_close(self, entry: LiveTrace) -> None:
        with self._lock:
            if entry.queued or entry.closed:
                return
            if self._is_full:
                self.close(entry, "closed")  # which drops it
                return
            entry.queued = True
            self._queue(entry)

    @property
    def _is_full(self) -> bool:
        """Whether what is queued for the worker has reached its limit."""
        return self.waiting_bytes > self.limits.max_waiting_bytes

    def _queue(self, item: LiveTrace | EndedSpans) -> None:
        """Queue a trace that may be closed, or submitted spans, for the worker."""
        self._unqueue(item)  # a trace may be queued again while the worker takes it
        if count := len(item.spans):
            item.counted = count
            self.waiting_bytes += item.size
        if isinstance(item, EndedSpans) and item.measured < item.counted:
            self._unmeasured.append(item)
        self._put(item)

    def _unqueue(self, item: LiveTrace | EndedSpans) -> None:
        """Subtract the spans from the count of what is queued, if they are counted."""
        if item.counted:
            self.waiting_bytes -= item.size
            item.counted = 0

    def _handle_late(self, entry: LiveTrace, span: SdkSpan) -> None:
        with self._lock:
            try:
                entry.spans.remove(span)
            except ValueError:
                return  # it was submitted when the trace was closed
        self._unmatched_end(span)

    def _drop_last(self, entry: LiveTrace) -> None:
        with self._lock, suppress(IndexError):  # the worker removed the span first
            entry.spans.pop()
            entry.cut = True
            self.counts["spans_dropped"] += 1

    def _await_parent(self, entry: LiveTrace, span: SdkSpan) -> bool:
        """Whether a span that started before the recorder has a parent that has not ended; that
        counts as open then.
        """
        parent_id = span.local_parent_id
        if not parent_id or span.start_ns >= self._since_ns:
            return False
        if any(ended.span_id == parent_id for ended in entry.spans.copy()):
            return False
        entry.open.setdefault(parent_id, None)
        return True

    # ------------------------------------------------------------------ for the worker

    def take(self, entry: LiveTrace | EndedSpans) -> EndedSpans | None:
        """Return the spans of a queued item; None for a trace that has an open span again, or is
        searched for detached runs.
        """
        if isinstance(entry, EndedSpans):
            with self._lock:
                self._unqueue(entry)
            return entry
        if not entry.queued:
            entry.search_queued = False
            self._detach(entry, time.monotonic())
            return None
        # before reading `open`: a thread that empties it afterwards queues it again
        entry.queued = False
        with self._lock:
            self._unqueue(entry)
            if entry.closed:
                return None
            entry.closed = True  # before reading `open`, too: a span that starts meanwhile sees it
            entry.closed = not entry.open
            return self._remove(entry, "closed") if entry.closed else None

    def close(self, entry: LiveTrace, why: str) -> None:
        """Submit the ended spans of a trace, even if others are open, and forget the trace; spans
        that end later are late.
        """
        with self._lock:
            if not entry.closed:
                entry.closed = True
                self._submit(self._remove(entry, why))

    def _remove(self, entry: LiveTrace, why: str) -> EndedSpans:
        if self._traces.get(entry.trace_id) is entry:
            del self._traces[entry.trace_id]
        return self._pop_ended(entry, why)

    def _pop_ended(self, entry: LiveTrace, why: str) -> EndedSpans:
        spans = [entry.spans.popleft() for _ in range(len(entry.spans))]
        self._unqueue(entry)
        size, measured = entry.size, entry.measured
        entry.note_removal()
        why = "overflow" if entry.cut else why
        return EndedSpans(
            entry.trace_id, spans, why, early=entry.early, size=size, measured=measured
        )

    def _submit(self, submitted: EndedSpans) -> None:
        """Queue ended spans for the worker; drop and count them if its queue is full."""
        if self._is_full:
            self.counts["traces_dropped"] += 1
            self.counts["spans_dropped"] += len(submitted.spans)
        elif submitted.spans:
            self._queue(submitted)

    def sweep(self, now: float) -> None:
        """Submit traces that are idle, aged or have too many open spans. Called about once a
        second; costs 0.2 µs for each trace.
        """
        for entry in self.entries():
            self._sweep(entry, now)

    def _sweep(self, entry: LiveTrace, now: float) -> None:
        self._detach(entry, now)
        seen = (len(entry.open), len(entry.spans))
        if now - entry.since >= self.limits.max_age_s and not (
            entry.had_detached and not entry.spans
        ):
            self.close(entry, "aged")
        elif seen[0] > self._limit:
            self.close(entry, "overflow")
        elif seen != entry.last_counts:
            entry.last_counts, entry.unchanged_since = seen, now
        elif entry.spans and now - entry.unchanged_since >= self.limits.idle_s:
            with self._lock:
                self._submit(self._pop_ended(entry, "idle"))

    def _detach(self, entry: LiveTrace, now: float) -> None:
        """Submit the ended spans of a trace that are complete, if there are detached runs; its age
        counts from then on.
        """
        removals, ended = entry.removals, list(entry.spans.copy())
        # one that is queued is about to be closed as a whole
        if entry.early or entry.cut or entry.queued or len(ended) == entry.searched:
            return
        live = {
            span_id: keep(span)
            for span_id, span in entry.open.copy().items()
            if span is not None  # only early traces have others
        }
        if live.keys() <= {span.span_id for span in ended}:
            return  # its last span ends at this moment: it is about to be closed as a whole
        entry.searched = len(ended)
        detached = EndedSpans.detached(entry.trace_id, ended, live, self._is_agent)
        with self._lock:
            if (
                detached is None
                or entry.closed
                or entry.queued
                or entry.cut
                or entry.removals != removals
            ):
                return
            submitted = {span.span_id for span in detached.spans}
            remaining = [span for span in ended if span.span_id not in submitted]
            for _ in ended:
                entry.spans.popleft()
            entry.spans.extendleft(reversed(remaining))
            entry.note_removal()
            entry.since, entry.searched, entry.had_detached, entry.check_above = (
                now,
                len(remaining),
                True,
                self._check_above,
            )
            self._submit(detached)

    # ------------------------------------------------------------------ for the memory limiter

    def entries(self) -> list[LiveTrace]:
        """Return the open traces, the oldest first; those that are queued to be closed are among
        them.
        """
        return list(self._traces.copy().values())

    def call_after(self, spans: int) -> None:
        """Have `many` called after this number of spans (twice as many starts and ends), or later
        with many open traces.
        """
        self._many_spans = spans
        # one item for each start or end
        self._credit = repeat(True, max(2 * spans, len(self._traces) // _TRACES_PER_SPAN))

    def unmeasured(self) -> Iterator[EndedSpans]:
        """Yield submitted spans that are queued and not all measured, each item once."""
        while self._unmeasured:
            submitted = self._unmeasured.popleft()
            if submitted.counted:
                yield submitted

    def add_size(self, item: LiveTrace | EndedSpans, removals: int, count: int, size: int) -> None:
        """Add the size of `count` more spans, unless spans were removed since `removals` was
        read.
        """
        with self._lock:
            if item.removals == removals:
                item.measured += count
                item.size += size
                self.waiting_bytes += size if item.counted else 0

    def request_search(self, entry: LiveTrace) -> None:
        """Have the worker search a trace for detached runs now, and not at the next sweep."""
        if not (entry.queued or entry.search_queued) and len(entry.spans) != entry.searched:
            entry.search_queued = True
            self._put(entry)

    def submit_ended(self, entry: LiveTrace) -> None:
        """Submit the ended spans of a trace because of `max_bytes`; its open spans are still
        tracked.
        """
        with self._lock:
            if entry.spans and not entry.closed and not entry.queued:
                self.counts["traces_evicted"] += 1
                self._submit(self._pop_ended(entry, "overflow"))

    def truncate(self, entry: LiveTrace) -> None:
        """Submit the ended spans of a trace because of `max_bytes_per_trace`; its further spans are
        dropped.
        """
        with self._lock:
            if not entry.closed and not entry.queued:
                entry.cut, entry.check_above = True, -1
                self._submit(self._pop_ended(entry, "overflow"))

    def shut_down(self) -> None:
        """Submit all open traces, and record no more spans."""
        self._is_shut_down = True
        for entry in self.entries():
            self.close(entry, "shutdown" if entry.open else "closed")


class SpanCallbacks(SpanProcessor):
    """The part of a span processor that is the hot path: it never raises, and never blocks.

    Args:
        recorder: what the starts and ends of spans are noted in.
    """

    def __init__(self, recorder: Recorder) -> None:
        self._recorder: Final = recorder
        self._errors = 0
        self._inactive = False

    def on_start(self, span: Any, parent_context: Any = None) -> None:
        """Count the span as open."""
        if self._inactive:
            return
        recorder = self._recorder
        try:
            try:
                context = read_context(span)  # a tuple: (trace id, span id, …)
            except AttributeError:
                context = span.context
            if not next(recorder._credit, False):
                recorder._note_many()
            entry = recorder._traces.get(context[0])
            if entry is None:
                entry = recorder._add_trace(span, parent_context)
                if entry is None:
                    return
            entry.open[context[1]] = span
            if entry.closed:
                recorder._reopen(entry, context)
        except Exception:  # noqa: BLE001 - an error here would surface in the traced program
            self._errors += 1

    def on_end(self, span: ReadableSpan) -> None:
        """Add the span to its trace; if no other is open, the trace is queued for the worker."""
        if self._inactive:
            return
        recorder = self._recorder
        try:
            ended = SdkSpan()
            read_into(ended, span)
            if not next(recorder._credit, False):
                recorder._note_many()
            entry = recorder._traces.get(ended.trace_id)
            if entry is None:
                recorder._unmatched_end(ended)
            else:
                spans, open_spans = entry.spans, entry.open
                spans.append(ended)
                open_spans.pop(ended.span_id, None)
                if open_spans and not entry.closed and len(spans) <= entry.check_above:
                    return
                recorder._complete_or_limit(entry, ended)
            self._after_queueing(ended)
        except Exception:  # noqa: BLE001 - an error here would surface in the traced program
            self._errors += 1

    def _after_queueing(self, span: SdkSpan) -> None:
        """Called at the end of a span whose trace may have been queued for the worker."""
