"""The span processor that a program adds to its provider: it passes every trace to `handover` once
none of its spans is open.
"""

from __future__ import annotations

import atexit
import logging
import threading
import time
import weakref
from collections.abc import Callable
from itertools import count
from typing import Any, Final

from opentelemetry.sdk.trace import SpanProcessor

from otel_eval.counters import in_each_child
from otel_eval.interfaces import Deployment, SpanFrame, SpanReader
from otel_eval.sdk_internals import (
    pipeline_of,
    processors_in,
    put_last,
    runs_on_callers,
)
from otel_eval.sources.inprocess.live_traces import EndedSpans, InProcessLimits, LiveTrace
from otel_eval.sources.inprocess.memory_limiter import SpanMemoryLimiter
from otel_eval.sources.inprocess.recorder import Recorder, SpanCallbacks
from otel_eval.sources.inprocess.sdk_spans import (
    SdkResourceScopes,
    SdkSpan,
    is_relevant,
    keep,
)
from otel_eval.worker_thread import WorkerThread

_log = logging.getLogger("otel_eval")

Handover = Callable[[bytes, list[SpanFrame], str], None]

_numbers: Final = count()  # of processors, in the order of their creation
_SHUTDOWN_S: Final = 30.0
# that the delivery of one result may take at shutdown before the others are abandoned
_BLOCKED_S: Final = 2.0
# the longest that a root's end waits for its scores, if they could not be exported later
_AT_ONCE_S: Final = 0.2
_MOST_AWAITING: Final = 1000  # threads of the program
# once in 512 spans at most, and only while the thread that limits bytes waits for the interpreter
_YIELD_S: Final = 1e-3


# of open spans: the newest traces, and the oldest spans of each
_TRACES_EXAMINED: Final = 64
_SPANS_EXAMINED: Final = 8


class InProcessSource(SpanCallbacks):
    """Counts the open spans of each trace, and passes complete traces to `handover` on a worker
    thread.

    Args:
        handover: called as `(trace id, [(trace id, span id, frame, bytes)], why)`, one trace at a
            time. `why` is "closed" (no span is open), "detached" (complete runs of a trace with
            open spans), "idle" or "aged" (some spans did not end in time), "overflow" (over a
            limit) or "shutdown". A trace may be passed again, with the spans that ended since.
        limits: the limits of what is held.
        tick_s: the seconds between two checks of the limits.
    """

    def __init__(
        self, handover: Handover, *, limits: InProcessLimits | None = None, tick_s: float = 1.0
    ) -> None:
        limits = limits or InProcessLimits()
        self._handover: Final = handover
        self._reset()
        self._worker: Final = WorkerThread(
            "otel-eval-spans", "spans of a trace were lost", self._serve, self._sweep, tick_s
        )
        super().__init__(
            Recorder(
                limits, self._worker.put, self._on_first_span, self._is_agents, self._on_many_spans
            )
        )
        self._limiter: Final = SpanMemoryLimiter(self._recorder, limits, self._reserve)
        self._limiting: Final = WorkerThread(  # a thread of its own: scorers may take long
            "otel-eval-memory",
            "the limits of bytes were not enforced",
            tick=self._limiter.enforce,
            tick_s=tick_s,
        )
        self.number: Final = next(_numbers)
        self._last_at_exit = False
        # the hook must not keep this object alive
        weak_shutdown: Final = weakref.WeakMethod(self.shutdown)
        self._exit_hook: Final = lambda: alive() if (alive := weak_shutdown()) is not None else None
        atexit.register(self._exit_hook)
        in_each_child(self, InProcessSource._after_fork)

    def _reset(self) -> None:
        self._ending, self._flushing = threading.Lock(), threading.Lock()
        self._pipeline = self._resource = None
        # Of threads that await the results of a trace before on_end returns; None if this processor
        # could be moved to the front.
        self._at_once: threading.Semaphore | None = None
        self._limit_requested = False
        self._scopes = SdkResourceScopes()
        self._first: _First = _First(self)

    # ------------------------------------------------------------------ what subclasses add

    def _is_agent(self, span: SpanReader, scope_name: str) -> bool:
        """Whether a span, open or ended, of a scope of that name is an agent's; called on the
        worker.
        """
        return False

    def _note_early(self, trace_id: bytes) -> None:
        """Called with the id of a trace in which a span started before the processor was added,
        before the trace is passed on.
        """

    def _tick(self) -> None:
        """Called about once a second on the worker."""

    def _reserve(self, size: int) -> None:
        """Called with the bytes of the spans that the processor holds, about once a second and when
        many spans have ended.
        """

    def _deliver(self, timeout_s: float) -> bool:
        """Deliver the results of the traces; False if not all were delivered in time."""
        return True

    def _blocked_s(self) -> float:
        """The seconds for which the delivery of a result has been blocked."""
        return 0.0

    def _close(self, timeout_s: float) -> None:
        """Deliver the last results and close the exporters."""

    def _begin(self) -> None:
        """Called in a child process, before anything is recorded there."""

    # ------------------------------------------------------------------ per trace, on the caller's
    # thread

    def _after_queueing(self, span: SdkSpan) -> None:
        if self._at_once and is_relevant(span):
            self._await_scores(self._at_once)

    def _await_scores(self, turns: threading.Semaphore) -> None:
        """Wait until the trace is scored; one thread at a time, unless callbacks run on the threads
        of the program.

        A `ConcurrentMultiSpanProcessor` has few threads for callbacks, and the export of the scores
        needs one of them.
        """
        if turns.acquire(blocking=False):
            try:
                self._worker.drain(_AT_ONCE_S)
            finally:
                turns.release()

    def _on_first_span(self, span: Any) -> None:
        """Called with the first span of a trace, for what takes too much time for every span."""
        self._worker.ensure()
        self._limiting.ensure()
        pipeline = pipeline_of(span)
        if pipeline is not None and (pipeline is not self._pipeline or self._is_passed(pipeline)):
            if self._deactivate_if_duplicate(pipeline):
                return
            self._pipeline, self._resource = pipeline, span.resource
            turns = threading.Semaphore(_MOST_AWAITING if runs_on_callers(pipeline) else 1)
            self._at_once = None if put_last(self, self._first, pipeline) else turns
        if not self._last_at_exit:
            self._last_at_exit = True
            self.be_last_registered_at_exit()

    def _is_passed(self, pipeline: Any) -> bool:
        """Whether another processor was added behind this one: it may change spans, so it has to
        be called first.
        """
        return self._at_once is None and not isinstance(
            next(reversed(processors_in(pipeline)), self), InProcessSource
        )

    def _on_many_spans(self) -> None:
        if self._limit_requested:
            # The thread has not run since: it loses the race for the interpreter's lock against a
            # thread that releases it often, such as an event loop on a busy machine.
            time.sleep(_YIELD_S)
            return
        self._limit_requested = True
        self._limiting.put(self._limit)

    def _deactivate_if_duplicate(self, pipeline: Any) -> bool:
        """Deactivate this processor if an older one of the pipeline does the same; True if it
        did.
        """
        for other in processors_in(pipeline):
            if (
                isinstance(other, InProcessSource)
                and other.number < self.number
                and other.is_active
                and self.equals(other)
            ):
                self._inactive = True
                self._recorder.shut_down()
                # not a warning: a cell of a notebook may be run twice
                _log.info(
                    "a second %s with the same configuration was added to this TracerProvider and"
                    " stays inactive; add it once (OTEL_EVAL_CONFIG adds one, too)",
                    type(self).__name__,
                )
                return True
        return False

    def equals(self, other: InProcessSource) -> bool:
        """Whether another processor would do the same with each trace."""
        return other is self

    @property
    def is_doubled(self) -> bool:
        """Whether an older processor of the same provider does the same, so that this one is
        inactive.
        """
        return self._inactive

    @property
    def is_active(self) -> bool:
        """Whether spans are recorded: the processor was neither shut down nor deactivated as a
        duplicate.
        """
        return not self._inactive and not self._ending.locked()

    def examine_open_spans(
        self, examine: Callable[[SpanReader, str, str, Deployment], None]
    ) -> None:
        """Call `examine` with some spans that have started and not ended, of the newest traces.

        Called on the worker.

        Args:
            examine: takes a span, the name of its scope, the name of its service, and the
                service's deployment.
        """
        for entry in self._recorder.entries()[-_TRACES_EXAMINED:]:
            for span in filter(None, list(entry.open.values())[:_SPANS_EXAMINED]):
                resource = span.resource.attributes
                service, deployment = str(resource.get("service.name", "")), Deployment.of(resource)
                open_span = keep(span)
                examine(open_span, open_span.scope_name, service, deployment)

    def pipeline(self) -> tuple[Any, Any] | None:
        """The processors and the resource of the provider whose spans were seen last, if the SDK
        shows them.
        """
        return None if self._pipeline is None else (self._pipeline, self._resource)

    def be_last_registered_at_exit(self) -> None:
        """Run before every exit hook registered so far: providers close at exit, the newest first,
        and need the scores before.
        """
        atexit.unregister(self._exit_hook)
        atexit.register(self._exit_hook)

    # ------------------------------------------------------------------ on the threads of the
    # processor

    def _limit(self) -> None:
        self._limit_requested = False
        self._limiter.enforce()

    def _is_agents(self, span: SdkSpan) -> bool:
        return self._is_agent(span, span.scope_name)

    def _serve(self, item: LiveTrace | EndedSpans) -> None:
        """Pass the spans of a queued trace to `handover`, or search it for detached runs; called on
        the worker.
        """
        if self._inactive:
            return
        submitted = self._recorder.take(item)
        if submitted is None:
            return
        trace_id = submitted.trace_id.to_bytes(16, "big")
        if submitted.early:
            self._note_early(trace_id)
        frames = self._scopes.relevant_frames(submitted.spans, trace_id)
        if frames:
            self._handover(trace_id, frames, submitted.why)

    def _sweep(self) -> None:
        self._recorder.sweep(time.monotonic())
        self._tick()

    # ------------------------------------------------------------------ life cycle

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Score every complete trace and deliver the results; False if that was not finished in
        time.
        """
        deadline = time.monotonic() + timeout_millis / 1000
        for entry in self._recorder.entries():
            self._recorder.request_search(entry)
        # twice: the first drain may queue detached runs
        drained = self._worker.drain(timeout_millis / 1000)
        drained = self._worker.drain(max(0.0, deadline - time.monotonic())) and drained
        # A provider flushed here may flush this processor in turn: the nested call has nothing left
        # to do.
        if not self._flushing.acquire(blocking=False):
            return drained
        try:
            return self._deliver(max(0.0, deadline - time.monotonic())) and drained
        finally:
            self._flushing.release()

    def shutdown(self) -> None:
        """Stop recording, evaluate open traces (as "shutdown"), and deliver all results. A second
        call does nothing.
        """
        if not self._ending.acquire(blocking=False):  # never released, so that shutdown runs once
            return
        deadline = time.monotonic() + _SHUTDOWN_S
        atexit.unregister(self._exit_hook)
        self._recorder.shut_down()
        self._limiting.end()
        self._limiter.warn_of_drops()
        if not self._worker.stop(_SHUTDOWN_S / 2, lambda: self._blocked_s() > _BLOCKED_S):
            why = (
                "an exporter does not return"
                if self._blocked_s() > _BLOCKED_S
                else "scoring is behind"
            )
            _log.warning("some runs were not scored before shutdown: %s", why)
        # never released: `force_flush` has nothing to deliver after this
        self._flushing.acquire(blocking=False)
        self._close(max(0.0, deadline - time.monotonic()))

    def counts(self) -> dict[str, Any]:
        """Return the counters of dropped spans and errors, and the gauges of open traces and held
        bytes.
        """
        gauges = {
            "open_traces": len(self._recorder),
            "oldest_trace_s": round(self._recorder.oldest_s(time.monotonic()), 3),
            "callback_errors": self._errors,
            "handover_errors": self._worker.failures + self._limiting.failures,
            "held_bytes": self._limiter.held_bytes,
        }
        return dict(self._recorder.counts) | gauges

    def _after_fork(self) -> None:
        was_shut_down = self._ending.locked()
        self._reset()
        self._worker.reset()
        self._limiting.reset()
        self._recorder.reset(self._worker.put, is_child=True)
        if was_shut_down:
            self._ending.acquire()
            self._recorder.shut_down()
        self._begin()


class _First(SpanProcessor):
    """Stands before the other processors of a pipeline, in which the source is the last.

    A provider flushes and shuts its processors down in their order, and a batch processor that was
    shut down before the source could not export the scores of the last run.
    """

    def __init__(self, source: InProcessSource) -> None:
        self._source: Final = source

    def shutdown(self) -> None:
        self._source.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        return self._source.force_flush(timeout_millis)
