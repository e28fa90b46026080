"""Runs the core in a process: one buffer, one lock, one worker thread.

The lock guards only the buffer and is never held while a trace is decoded or scored, or a report
emitted. Traces are evaluated one at a time, by the worker or by the thread that flushes, so that
revisions of a report are in order.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import asdict
from math import inf
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

from otel_eval.assembly import Closing, Limits, TraceBuffer
from otel_eval.counters import Progress, ProgressState
from otel_eval.engine import Engine
from otel_eval.errors import Overloaded
from otel_eval.evaluations import RunMatch
from otel_eval.interfaces import MOST_CRASHES, ClosedTrace, JoinedLog, SpanFrame
from otel_eval.model import Completeness, Report, Stamp

if TYPE_CHECKING:
    from otel_eval.judges import AsyncEvaluator
    from otel_eval.storage.durable import Durable
    from otel_eval.storage.in_progress import RecordedAttempts
    from otel_eval.storage.recovery import Recovery

FOREVER: Final = -1.0  # as a lock's timeout

_log = logging.getLogger("otel_eval")

_TICK_S: Final = 0.1  # between two checks for due traces: results are late by at most this time
_REST_S: Final = 1.0  # the same while nothing is due
# for which a thread of the host program may wait for the evaluation of another trace
_MOMENT_S: Final = 0.05
_BATCH: Final = 256  # traces removed from the buffer while the lock is held once
# an evaluation that takes longer is logged: a busy machine, or a slow user-defined scorer
_SLOW_S: Final = 5.0
_PARTS: Final = 32  # traces that are being evaluated may have this fraction (1/32) of `max_bytes`


class PipelineListener:
    """What a pipeline tells the process that it runs in, and asks of it.

    No method may raise. These do nothing; a way of running overrides those that it needs.
    """

    def on_spans_accepted(self, spans: Sequence[SpanFrame]) -> None:
        """Spans were accepted; called by the threads that call `Pipeline.spans`."""

    def on_tick(self) -> None:
        """Called by the worker between two checks for due traces: at least ten times a second, once
        a second while no trace is due soon.
        """

    def on_evaluated(
        self, trace: ClosedTrace, runs: Sequence[RunMatch], reports: Sequence[Report]
    ) -> None:
        """A trace was evaluated; called before its reports are passed on, with its runs that are
        new or have changed.
        """

    def on_reports(self, reports: Sequence[Report]) -> None:
        """These reports, of one trace or several, are to be exported, except for their pending
        results.
        """

    def on_decided(self, trace_id: bytes) -> None:
        """All reports on a trace except pending results were passed on, or there are none."""

    def on_resting(self, trace_id: bytes) -> None:
        """Nothing of a trace is part of a run: it waits for spans that may never come."""

    def on_final(self, runs: Sequence[tuple[str, str]]) -> None:
        """These `detached` runs, trace id and span id in hex, can no longer turn out to lie inside
        another run.
        """

    def set_aside(self, reports: Sequence[Report], why: str) -> bool:
        """Write failed results to a dead-letter file instead of exporting them; False if there is
        none or it cannot be written.
        """
        return False

    def backpressure(self) -> str:
        """Why evaluation must pause because exporters do not accept more reports; "" if they
        do.
        """
        return ""

    def may_be_joined(self, trace_id: bytes) -> bool:
        """Whether runs of a trace can be `joined`."""
        return True


class Pipeline:
    """Accepts spans, evaluates their traces when they are due, and passes reports on.

    Args:
        engine: evaluates closed traces.
        listener: gets the reports, and is told what happens.
        limits: the limits of the buffer.
        clock: returns monotonic seconds.
        later: gets the reports with pending results, after they were passed on. Required if the
            engine `waits`.
        journal: records requests, closed traces and reports on disk.
        evaluator: the evaluator id in reports; a random one if None.
        since_ns: the Unix time since which all spans arrive here; runs that began before are
            `joined`. 0: no run is.
    """

    def __init__(
        self,
        engine: Engine,
        listener: PipelineListener,
        limits: Limits | None = None,
        clock: Callable[[], float] = time.monotonic,
        *,
        later: AsyncEvaluator | None = None,
        journal: Durable | None = None,
        evaluator: str | None = None,
        since_ns: int = 0,
    ) -> None:
        if engine.waits and later is None:
            raise ValueError("some scorers are asynchronous; pass later")
        self._later = later
        self._journal: Final = journal
        self._listener: Final = listener
        self._engine, self._clock = engine, clock
        self._buffer: Final = TraceBuffer(limits, engine)
        self._evaluator: Final = evaluator or uuid4().hex
        self._since_ns: Final = since_ns
        self._lock = threading.Lock()  # guards _buffer
        # one evaluation at a time; taken before _lock, never after it
        self._evaluating = threading.RLock()
        # Counters. `traces_failed`: the evaluation of a trace raised, which is a defect of this
        # package, and the trace is lost; `traces_crashed`: not evaluated again, because the process
        # crashed twice during their evaluation; `spans_refused`: because of backpressure, or
        # because the process is ending.
        self._counters = dict.fromkeys(
            ("reports", "traces_failed", "traces_crashed", "spans_refused"), 0
        )
        self.progress: Final = Progress(clock)
        self._wake = threading.Event()
        self._wakes_at = -inf  # until then the worker waits, unless it is woken
        # traces that were closed before a restart and not evaluated
        self._recovered: Sequence[ClosedTrace] = ()
        # set when the traces in _recovered were evaluated
        self.caught_up: Final = threading.Event()
        self._stopping = False
        self._worker: threading.Thread | None = None

    # ------------------------------------------------------------------ in

    def spans(self, spans: Sequence[SpanFrame], origin: Any = None) -> None:
        """Accept spans; `origin` is the request that they arrived in, for the journal.

        Raises:
            Overloaded: closed traces that are not evaluated hold half of `max_bytes`, open traces
                fill it and close soon, the queue of an exporter is full, the journal cannot be
                written, or the process is ending.
        """
        self._push(spans, origin, self._buffer.push_many)
        self._listener.on_spans_accepted(spans)

    def logs(self, logs: Sequence[JoinedLog], origin: Any = None) -> None:
        """Accept log records; raises as `spans` does."""
        self._push(logs, origin, self._buffer.push_logs)

    def _push(
        self, items: Sequence[Any], origin: Any, push: Callable[[Sequence[Any], float], None]
    ) -> None:
        journal = self._journal
        try:
            refusal = "the process is ending" if self._stopping else self._listener.backpressure()
            if refusal:
                raise Overloaded(refusal)
            with self._lock:
                if refusal := self._buffer.refusal(items, self._clock()):
                    self._wake.set()
                    raise Overloaded(f"{refusal}; retry later")
                # Journaled in the order in which items are added to the buffer, so that recovery
                # results in the same buffer.
                position = (
                    journal.journal_request(origin, {item[0] for item in items})
                    if journal is not None
                    else 0
                )
                push(items, self._clock())
                self._wake_if_due()
            if journal is not None:
                journal.wait_until_synced(position)
        except Overloaded:
            self._counters["spans_refused"] += len(items)
            raise

    def close_and_evaluate(
        self, trace_id: bytes, spans: Iterable[SpanFrame], why: Completeness | None = None
    ) -> None:
        """Evaluate a trace now with the spans that its source has collected; `why`: the closing
        reason if some are still open. Else it is forgotten.
        """
        now = self._clock()
        with self._evaluating:
            with self._lock:
                self._buffer.push_many(spans, now)
                closed = self._buffer.close(trace_id, now, why)
                self._wake_if_due()
            self._evaluate(closed)
            if why is None:
                with self._lock:
                    self._buffer.forget(trace_id)

    # ------------------------------------------------------------------ out

    def start(self) -> None:
        """Start the worker that closes and evaluates due traces."""
        if self._worker is None:
            self._worker = threading.Thread(target=self._work, name="otel-eval", daemon=True)
            self._worker.start()

    def _work(self) -> None:
        while not self._stopping:
            self._listener.on_tick()
            if not self.step():
                self._wake.wait(self._pause_s())
                self._wakes_at = -inf
                self._wake.clear()

    def _pause_s(self) -> float:
        """How long to wait before the next check, in seconds: longer while nothing is due, because
        waking up costs most.
        """
        with self._lock:
            now = self._clock()
            pause_s = (
                min(max(self._buffer.next_due() - now, _TICK_S), _REST_S)
                if self._journal is None and not self._recovered
                else _TICK_S
            )
            self._wakes_at = now + pause_s
        return pause_s

    def _wake_if_due(self) -> None:
        """Wake the worker if something is due before it wakes up by itself; called with the lock
        held.
        """
        if max(self._buffer.next_due(), self._clock()) < self._wakes_at - _TICK_S:
            self._wake.set()

    def use_engine(self, engine: Engine, later: AsyncEvaluator | None) -> None:
        """Use another engine from the next trace on. `later` is used if there is no evaluator of
        asynchronous scorers yet.
        """
        if engine.waits and later is None:
            raise ValueError("some scorers are asynchronous; pass later")
        # Without the lock: an evaluation that waits for an exporter must not delay a reload.
        self._later = self._later or later
        self._engine = engine
        self._buffer.use_roles(engine)

    def step(self) -> bool:
        """Evaluate due traces; True if more may be due already."""
        paused = self._listener.backpressure()
        self.progress.note_progress(paused)
        if paused:
            return False
        with self._evaluating:
            self._evaluate_recovered()
            with self._lock:
                closed = self._due(self._clock())
                final, resting = self._buffer.take_final(), self._buffer.take_resting()
            self._evaluate(closed)
            if final:
                self._listener.on_final([(trace_id.hex(), run.hex()) for trace_id, run in final])
            for trace_id in resting:
                self._listener.on_resting(trace_id)
                if not self.undecided((trace_id,)):
                    self._listener.on_decided(trace_id)
        return bool(closed)

    def _evaluate_recovered(self) -> None:
        recovered, self._recovered = self._recovered, ()
        self._evaluate(recovered)
        self.caught_up.set()

    def _due(self, now: float) -> list[ClosedTrace]:
        # Traces that are being evaluated do not count as held, so they are limited to a small part
        # of `max_bytes`.
        most_bytes = self._buffer.limits.max_bytes // _PARTS
        if self._journal is None:
            return self._buffer.due(now, _BATCH, most_bytes)
        self._journal.tidy(self._buffer)
        due = self._buffer.close_due(now, _BATCH, most_bytes)
        return (
            self._buffer.pop_closed(now, _BATCH, most_bytes)
            if due and self._journal.journal_closings(due)
            else []
        )

    def close_now(self, trace_ids: Iterable[bytes], timeout_s: float = FOREVER) -> bool:
        """Evaluate those of the traces that wait only for late spans; False if another evaluation
        did not end in `timeout_s`.
        """
        if not self._evaluating.acquire(timeout=timeout_s):
            return False
        try:
            for trace_id in trace_ids:
                with self._lock:
                    over = self._buffer.is_over(trace_id)
                    closed = self._buffer.close(trace_id, self._clock()) if over else []
                self._evaluate(closed)
        finally:
            self._evaluating.release()
        return True

    def drain(self, reason: Completeness | None = None, deadline: float | None = None) -> bool:
        """Close and evaluate all held traces; False if that was not finished before `deadline`
        (monotonic seconds).
        """
        if not self._evaluating.acquire(
            timeout=FOREVER if deadline is None else max(0.0, deadline - self._clock())
        ):
            _log.warning(
                "what was left was not scored before the process had to end: a scorer did not"
                " return"
            )
            return False
        try:
            self._evaluate_recovered()
            with self._lock:
                closed = self._buffer.drain(self._clock(), reason)
                if self._journal is not None and not self._journal.journal_closings(
                    list(map(Closing.of, closed))
                ):
                    return False
            for index in range(0, len(closed), _BATCH):
                if deadline is not None and self._clock() > deadline:
                    self._counters["traces_failed"] += len(closed) - index
                    _log.warning(
                        "%d traces were not scored before the process had to end",
                        len(closed) - index,
                    )
                    return False
                self._evaluate(closed[index : index + _BATCH])
        finally:
            self._evaluating.release()
        return True

    def stop(
        self, reason: Completeness | None = Completeness.SHUTDOWN, timeout_s: float = 10.0
    ) -> bool:
        """Refuse input, evaluate held traces and wait for pending results; False if that was not
        finished in time.
        """
        deadline = self._clock() + timeout_s
        self.halt(timeout_s)
        drained = self.drain(reason, deadline)
        return self.stop_waiting(max(0.0, deadline - self._clock())) and drained

    def halt(self, timeout_s: float) -> None:
        """Refuse input and stop the worker."""
        self._stopping = True
        self._wake.set()
        if self._worker is not None and self._worker is not threading.current_thread():
            self._worker.join(timeout_s)

    def recover(self, recovery: Recovery) -> None:
        """Fill the buffer with what was held before a restart; traces that were closed before are
        evaluated first.
        """
        with self._evaluating, self._lock:
            self._recovered = recovery.replay(self._buffer, self._clock())

    def wait(self, timeout_s: float) -> bool:
        """Wait until all pending results were emitted; False if they were not within `timeout_s`
        seconds.
        """
        return self._later is None or self._later.wait(timeout_s)

    def stop_waiting(self, timeout_s: float) -> bool:
        """Wait like `wait` before the end of the process: results that are still pending afterwards
        fail with `timeout`.
        """
        return self._later is None or self._later.stop(timeout_s)

    def _evaluate(self, closed: Sequence[ClosedTrace]) -> None:
        if self._journal is None:
            for trace in closed:
                self._pass_on([(trace, self._reports(trace))])
            return
        for index in range(0, len(closed), _BATCH):
            evaluated: list[tuple[ClosedTrace, Sequence[Report]]] = []
            for batch in self._journal.attempts.batches(closed[index : index + _BATCH]):
                of_batch = [
                    (trace, self._attempt(trace, self._journal.attempts)) for trace in batch
                ]
                self._journal.record_evaluated(of_batch)
                evaluated += of_batch
            if not self._journal.wait_until_journaled():
                return
            self._pass_on(evaluated)

    def _attempt(self, trace: ClosedTrace, attempts: RecordedAttempts) -> Sequence[Report]:
        """Evaluate a trace, unless the process crashed twice while it was evaluated."""
        crashes = attempts.begin(trace)
        try:
            if crashes.times >= MOST_CRASHES:
                self._counters["traces_crashed"] += 1
                stamp = self._stamp(trace)
                scored = attempts.give_up(self._engine, trace, stamp, crashes, self._listener)
                trace.history.record(scored.evaluations)
                return scored.reports
            reports = self._reports(trace)
        finally:
            attempts.end(trace)
        if crashes.times:
            attempts.forget_crashes(trace)
        return reports

    def _stamp(self, trace: ClosedTrace) -> Stamp:
        is_joinable = self._since_ns and self._listener.may_be_joined(trace.trace_id)
        return Stamp(self._evaluator, time.time_ns(), self._since_ns if is_joinable else 0)

    def _reports(self, trace: ClosedTrace) -> Sequence[Report]:
        engine, stamp = self._engine, self._stamp(trace)
        self.progress.begin(trace.trace_id)
        try:
            built = engine.build(trace, stamp)
            if self._journal is not None:
                self._journal.attempts.mark_scoring()
            scored = engine.score(built)
            trace.history.record(scored.evaluations)
            self._listener.on_evaluated(trace, built.matches, scored.reports)
        except Exception as error:  # noqa: BLE001
            # one trace must not prevent the evaluation of others
            self._counters["traces_failed"] += 1
            problem = f"could not be evaluated: {type(error).__name__}"
            _log.warning("trace %s %s", trace.trace_id.hex(), problem)
            scored = engine.no_run(trace, stamp, f"the trace {problem}")
            trace.history.record(scored.evaluations)
        finally:
            if self.progress.evaluating_s >= _SLOW_S:
                _log.warning(
                    "evaluating trace %s took %.1f s",
                    trace.trace_id.hex(),
                    self.progress.evaluating_s,
                )
            self.progress.note_progress()
        return scored.reports

    def evaluation(self) -> ProgressState:
        """Whether the evaluation of due traces makes progress."""
        return self.progress.state(
            self._journal.waits if self._journal is not None else "", self._is_due
        )

    def _is_due(self) -> bool:
        with self._lock:
            return self._buffer.next_due() <= self._clock()

    def _pass_on(self, evaluated: Sequence[tuple[ClosedTrace, Sequence[Report]]]) -> None:
        """Have the reports exported, and their pending results computed."""
        reports = [report for _, of_trace in evaluated for report in of_trace]
        if reports:
            self._listener.on_reports(reports)
        for report in reports:
            self._counters["reports"] += not report.no_run
            if report.pending and self._later is not None:
                self._later.put(report)
        for trace, _ in evaluated:
            if trace.part is None or not self.undecided((trace.trace_id,)):
                self._listener.on_decided(trace.trace_id)

    def undecided(self, trace_ids: Collection[bytes]) -> set[bytes]:
        """Those of the traces that are open, due or being evaluated; every report on the others was
        emitted.
        """
        with self._lock:
            undecided = {trace_id for trace_id in trace_ids if self._buffer.is_undecided(trace_id)}
        if len(undecided) < len(set(trace_ids)):
            # One of the others may just have been removed from the buffer, and its evaluation may
            # not have ended.
            if not self._evaluating.acquire(timeout=_MOMENT_S):
                return set(trace_ids)
            self._evaluating.release()
        return undecided

    def reserve(self, size: int) -> None:
        """Forget evaluated traces until `size` bytes, which the source holds, fit into `max_bytes`,
        too.
        """
        with self._lock:
            self._buffer.reserve(size)

    def use_limits(self, limits: Limits) -> None:
        """Replace the limits of the buffer."""
        self._buffer.limits = limits

    def compact(self) -> None:
        """Free memory of the buffer that only serves speed."""
        with self._lock:
            self._buffer.compact(self._clock())

    @property
    def held_bytes(self) -> int:
        """Bytes of the held spans, with overhead."""
        return self._buffer.held_bytes

    def counts(self, *, late: bool = True) -> dict[str, Any]:
        """The counters and gauges of pipeline and buffer, and with `late` those of asynchronous
        results.
        """
        with self._lock:
            oldest = round(self._buffer.age(self._clock()), 3)
        gauges = {
            "open_traces": len(self._buffer),
            "held_bytes": self._buffer.held_bytes,
            "oldest_trace_s": oldest,
        }
        gauges["evaluating_s"] = round(self.progress.evaluating_s, 3)
        later = self._later.counts() if late and self._later is not None else {}
        return self._counters | asdict(self._buffer.counts) | gauges | later
