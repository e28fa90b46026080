"""What runs beside the program's threads: the worker that serves a queue, and the limiter of the bytes that spans hold.

A worker is one thread that serves a queue, in order, one item at a time. Where there can be no thread any more (an interpreter
that is ending), or the caller cannot wait, the caller serves the queue. The limiter keeps what a process holds of its spans
within `max_bytes` and `max_bytes_per_trace`; it has a worker of its own, as scorers may take long on the other.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from itertools import islice
from queue import Empty, SimpleQueue
from typing import Any, Final

from otel_eval.assembly.subtrees import SPAN_OVERHEAD_BYTES
from otel_eval.counters import Warnings
from otel_eval.sources.inprocess.live_traces import InProcessLimits, LiveTrace
from otel_eval.sources.inprocess.recorder import MANY_SPANS, Recorder
from otel_eval.sources.inprocess.sdk_spans import SPAN_BYTES, size_of

_STOP: Final = object()
_LOOK_S: Final = 0.1


class WorkerThread:
    """A thread that serves a queue of items.

    Args:
        serve: called with each item; what it raises is logged once a minute and counted as a failure.
        tick: called about every `tick_s` seconds, between items.
        name: of the thread.
        failed: what it means that one of them raised, for the log.
    """

    def __init__(
        self,
        serve: Callable[[Any], None],
        tick: Callable[[], None],
        tick_s: float = 1.0,
        name: str = "otel-eval-spans",
        failed: str = "spans of a trace were lost",
    ) -> None:
        self._serve_one, self._tick, self._tick_s = serve, tick, tick_s
        self._name, self._failed = name, failed
        self.failures = 0
        self._warnings: Final = Warnings()
        self.reset()

    def reset(self) -> None:
        """Forget the queue and the thread, as in a child process after a fork, where only the forking thread lives."""
        self._queue: SimpleQueue[Any] = SimpleQueue()
        self.put = self._queue.put  # implemented in C: neither blocks nor is interrupted
        self._serving = threading.RLock()  # held while an item is served
        self._server = 0  # the thread that serves now: serving may end spans, which must not serve in turn
        self._starting = threading.Lock()  # guards _thread
        self._thread: threading.Thread | None = None
        self._stopped = False

    def ensure(self) -> bool:
        """Start the thread if it does not run; False if it cannot be started."""
        thread = self._thread
        if thread is not None and thread.is_alive():
            return True
        if self._stopped or not self._starting.acquire(blocking=False):
            return not self._stopped
        try:
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._run, args=(self._queue,), name=self._name, daemon=True)
                self._thread.start()
        except RuntimeError:  # the interpreter is ending
            self._thread = None
            return False
        finally:
            self._starting.release()
        return True

    def _run(self, queue: SimpleQueue[Any]) -> None:
        next_tick = time.monotonic() + self._tick_s
        while True:
            try:
                item = queue.get(timeout=max(0.0, next_tick - time.monotonic()))
            except Empty:
                item = None
            if item is _STOP:
                return
            if item is not None:
                self._serve(item)
            if time.monotonic() >= next_tick:
                self._safely(self._tick)
                next_tick = time.monotonic() + self._tick_s

    def _serve(self, item: Any) -> None:
        with self._serving:
            if isinstance(item, threading.Event):
                item.set()
                return
            self._server = threading.get_ident()
            try:
                self._safely(self._serve_one, item)
            finally:
                self._server = 0

    def _safely(self, call: Callable[..., None], *args: Any) -> None:
        try:
            call(*args)
        except Exception as error:  # noqa: BLE001 - one trace's trouble must not end the thread
            self.failures += 1
            self._warnings.say("failed", "%s: %s (%d so far)", self._failed, type(error).__name__, self.failures)

    def serve_here(self, wait_s: float = 0.2) -> None:
        """Serve what is queued on this thread, if the worker lets go of its item within `wait_s`."""
        if self._queue.empty() or self._server == threading.get_ident() or not self._serving.acquire(timeout=wait_s):
            return
        try:
            while True:
                item = self._queue.get_nowait()
                if item is not _STOP:
                    self._serve(item)
        except Empty:
            return
        finally:
            self._serving.release()

    def drain(self, timeout_s: float, give_up: Callable[[], bool] = lambda: False) -> bool:
        """Wait until all that was put before is served; False if that took too long or `give_up` answered true."""
        if threading.current_thread() is self._thread:
            return True
        done = threading.Event()
        self.put(done)
        if not self.ensure():
            self.serve_here(timeout_s)
        deadline = time.monotonic() + timeout_s
        while not done.wait(max(0.0, min(_LOOK_S, deadline - time.monotonic()))):
            if time.monotonic() >= deadline or give_up():
                return False
        return True

    def stop(self, timeout_s: float, give_up: Callable[[], bool] = lambda: False) -> bool:
        """Serve what was put before, end the thread; True if it ended in time. `give_up` as for `drain`."""
        if self._stopped:
            return True
        drained = self.drain(timeout_s, give_up)
        self._stopped = True
        self.put(_STOP)
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(0.1 if drained else 0)
        return drained

    def end(self) -> None:
        """End the thread after what it serves now, without waiting for it."""
        self._stopped = True
        self.put(_STOP)


_TRACE_BYTES: Final = 1400  # an open trace without spans, measured with tracemalloc
_FEW_SPANS: Final = 16  # less often than after so many spans bytes are always measured
_REMEDY: Final = "raise it, or record less content (OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT)"
_EARLY: Final = "the spans of open traces hold more than traces.max_bytes (%d bytes): the oldest traces are evaluated early; %s"
_DROPPED: Final = (
    "evaluation is slower than spans arrive: traces are dropped while those that wait hold %d spans, or %d bytes (half of "
    "traces.max_bytes, at least max_bytes_per_trace); raise it, or use fewer or faster scorers"
)


class SpanMemoryLimiter:
    """Measures spans that have ended, each once, and gives over traces early where they hold too many bytes.

    `look` runs on a thread of its own: spans ended on another thread do not wait for it, and it does not wait for scorers.

    Args:
        recorder: holds the spans.
        limits: those of the recorder.
        reserve: called with the bytes that the recorder holds, so that as much is forgotten of what is kept for late spans.
    """

    def __init__(self, recorder: Recorder, limits: InProcessLimits, reserve: Callable[[int], None]) -> None:
        self._recorder, self._limits, self._reserve = recorder, limits, reserve
        self._warnings: Final = Warnings()
        self._spans = self._bytes = 0  # that were measured in this look
        self.held_bytes = 0  # of open traces and of spans that wait for the worker, when they were measured last

    def look(self) -> None:
        """Measure what is new and give over what is beyond a limit. Linear in what is new, and 0.3 µs for each open trace."""
        now, entries = time.monotonic(), self._recorder.entries()
        self._spans = self._bytes = 0
        for entry in entries:
            if len(entry.spans) > entry.measured:
                self._measure(entry)
            if 8 * abs(len(entry.live) - entry.live_measured) > entry.live_measured or now >= entry.live_due:
                self._measure_live(entry, now)
        waiting = self._recorder.waiting
        for handed in waiting.unmeasured():
            waiting.add_size(handed, _sizes(islice(handed.spans, handed.measured, None)))
        self._cut_off(entries)
        self._relieve([each for each in entries if not each.queued and not each.closed])
        self.warn_of_drops()
        self.held_bytes = sum(map(_held, entries)) + waiting.size
        self._reserve(self.held_bytes)
        self._pace()

    def warn_of_drops(self) -> None:
        """Log a warning if traces were dropped and it was not logged yet."""
        if self._recorder.counts["traces_dropped"]:
            self._warnings.once("dropped", _DROPPED, self._limits.max_waiting_spans, self._limits.max_waiting_bytes)

    def _measure(self, entry: LiveTrace) -> None:
        draws, begin = entry.draws, entry.measured
        fresh = list(islice(entry.spans.copy(), begin, None))
        size = _sizes(fresh)
        self._recorder.add_size(entry, draws, len(fresh), size)
        self._spans += len(fresh)
        self._bytes += size

    def _measure_live(self, entry: LiveTrace, now: float) -> None:
        """Measure open spans. They are given attributes: again when the trace is twice as old, or their number has changed."""
        live = [span for span in entry.live.copy().values() if span is not None]
        entry.live_measured, entry.live_size = len(live), _sizes(live)
        self._spans += len(live)
        self._bytes += entry.live_size
        entry.live_due = now + max(1.0, now - entry.since)

    def _pace(self) -> None:
        """Have bytes measured again after as many spans as hold an eighth of `max_bytes`, going by those measured now."""
        if self._spans:
            share = self._limits.max_bytes // 8 * self._spans // self._bytes
            self._recorder.call_after(min(MANY_SPANS, max(_FEW_SPANS, share)))

    def _cut_off(self, entries: Iterable[LiveTrace]) -> None:
        most = self._limits.max_bytes_per_trace
        for entry in entries:
            if entry.size > most + SPAN_OVERHEAD_BYTES and not entry.cut:
                self._recorder.cut_off(entry)
            elif entry.size > most // 2:
                self._recorder.ask(entry)

    def _relieve(self, entries: list[LiveTrace]) -> None:
        """Give over what has ended of the oldest traces, then whole traces, until open traces fit into `max_bytes`."""
        most, held = self._limits.max_bytes, sum(map(_held, entries))
        if held > most:
            self._warnings.once("early", _EARLY, most, _REMEDY)
        elif held > most // 2:
            for entry in entries:
                self._recorder.ask(entry)
        for relief in (self._recorder.give_over, self._recorder.evict):
            for entry in entries:
                if held <= most:
                    return
                held -= _held(entry)
                relief(entry)
                held += _held(entry)


def _held(entry: LiveTrace) -> int:
    """Bytes of an open trace; what waits for the worker counts elsewhere."""
    return 0 if entry.closed or entry.counted else _TRACE_BYTES + entry.size + entry.live_size


def _sizes(spans: Iterable[Any]) -> int:
    # With what assembly adds to each span, so that it finds the same limit exceeded.
    return sum([_size(span) + SPAN_OVERHEAD_BYTES for span in spans])


def _size(span: Any) -> int:
    try:
        return size_of(span)
    except Exception:  # noqa: BLE001 - a span that is changed meanwhile, or is none of the SDK's, counts as an empty one
        return SPAN_BYTES
