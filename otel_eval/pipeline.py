"""Run the core for a process: one buffer, one lock, one worker.

The lock guards the buffer alone and is never held while a trace is read, scored or emitted. Traces are evaluated one
at a time, by the worker or by the thread that flushes, so that revisions follow one another.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

from otel_eval.assembly import Closing, Limits, TraceBuffer
from otel_eval.counters import Progress, ProgressState
from otel_eval.engine import Engine
from otel_eval.errors import Overloaded
from otel_eval.evaluations import ScorerSet
from otel_eval.interfaces import MOST_CRASHES, ClosedTrace, JoinedLog, SpanFrame, constructor
from otel_eval.model import Completeness, Report, Stamp, Trajectory

if TYPE_CHECKING:
    from otel_eval.judges import AsyncEvaluator
    from otel_eval.storage.durable import Durable
    from otel_eval.storage.in_progress import RecordedAttempts

FOREVER: Final = -1.0  # as a lock's timeout

_log = logging.getLogger("otel_eval")
_new_stamp: Final = constructor(Stamp)

_Found = list[tuple[Trajectory, Sequence[ScorerSet]]]  # runs, each with the evaluations that match it

_TICK_S: Final = 0.1  # how late a result may be beyond the configured waits
_REST_S: Final = 1.0  # between two looks while nothing is held
_MOMENT_S: Final = 0.05  # that a thread of the host may wait for the evaluation of another trace
_AT_ONCE: Final = 256  # traces taken out of the buffer under one hold of the lock
_SLOW_S: Final = 5.0  # of an evaluation that is logged: a busy machine, or a slow scorer of a user
_PARTS: Final = 32  # of `max_bytes`, one of which they may have


class Pipeline:
    """Spans in, reports to `emit`.

    Args:
        engine: evaluates closed traces.
        emit: takes each report out; isolates its own failures.
        limits: of the buffer.
        clock: monotonic seconds.
        evaluated: called with the id of each trace when all reports on it but pending ones were emitted, or none can be.
        later: gets the reports that have results pending, after they were emitted. Needed if the engine `waits`.
        journal: writes down what happens.
        note: called with the spans that were taken, by the threads of `spans`; never raises.
        between: called by the worker between two looks at what is due, ten times a second or more often, once a second while
            nothing is held; never raises.
        backpressure: why evaluation must pause, because exporters do not take more reports; "" if they do.
        evaluator: the id that reports carry; a random one if None.
        now_ns: Unix nanoseconds, of which reports carry when they were made.
        since_ns: since when all spans arrive here: runs that began before are `joined`; 0: none is.
        may_be_joined: whether that can be so of a trace.
        watch: takes each evaluated trace with its runs and the reports on them, for diagnostics.
        final: called with the ids of traces and runs that were `detached`, once no other run can turn out to be around them.
    """

    def __init__(
        self,
        engine: Engine,
        emit: Callable[[Report], None],
        limits: Limits | None = None,
        clock: Callable[[], float] = time.monotonic,
        evaluated: Callable[[bytes], object] = lambda _: None,
        later: AsyncEvaluator | None = None,
        journal: Durable | None = None,
        backpressure: Callable[[], str] = lambda: "",
        evaluator: str | None = None,
        now_ns: Callable[[], int] = time.time_ns,
        since_ns: int = 0,
        may_be_joined: Callable[[bytes], bool] = lambda _: True,
        note: Callable[[Sequence[SpanFrame]], None] = lambda _: None,
        between: Callable[[], None] = lambda: None,
        watch: Callable[[ClosedTrace, _Found, Sequence[Report]], None] = lambda *_: None,
        final: Callable[[Sequence[tuple[str, str]]], None] = lambda _: None,
    ) -> None:
        if engine.waits and later is None:
            raise ValueError("some scorers are asynchronous; pass later")
        self._later = later
        self._journal: Final = journal
        self._backpressure, self._note, self._between, self._watch, self._final = backpressure, note, between, watch, final
        self._engine, self._emit, self._clock, self._evaluated = engine, emit, clock, evaluated
        self._found: _Found = []  # runs of the trace that is evaluated now
        self._buffer: Final = TraceBuffer(limits, lambda frame: self._engine.is_agent(frame))
        self._evaluator: Final = evaluator or uuid4().hex
        self._now_ns: Final = now_ns
        self._since_ns, self._may_be_joined = since_ns, may_be_joined
        self._lock = threading.Lock()  # guards _buffer
        self._evaluating = threading.RLock()  # one evaluation at a time; taken before _lock, never after it
        # Counts that only rise. `traces_failed`: reading a trace raised, which is a defect of ours, and the trace is lost;
        # `traces_crashed`: failed without another attempt, because the process crashed twice while they were evaluated;
        # `spans_refused`: by backpressure, or because the process ends.
        self._tally = dict.fromkeys(("reports", "traces_failed", "traces_crashed", "spans_refused"), 0)
        self.progress: Final = Progress(clock)
        self._wake = threading.Event()
        self._resting = False  # the worker waits longer, unless it is woken
        self._first: Sequence[ClosedTrace] = ()  # closed before a restart and not evaluated
        self.caught_up: Final = threading.Event()  # these were evaluated
        self._stopping = False
        self._worker: threading.Thread | None = None

    # ------------------------------------------------------------------ in

    def spans(self, spans: Sequence[SpanFrame], origin: Any = None) -> None:
        """Take framed spans; `origin` is the request they came in, for the journal.

        Raises:
            Overloaded: closed traces that are not evaluated hold half of `max_bytes`, open traces fill it and close soon,
                an exporter's queue is full, what has to survive cannot be written, or the process ends.
        """
        self._take(spans, origin, self._buffer.push_many)
        self._note(spans)

    def logs(self, logs: Sequence[JoinedLog], origin: Any = None) -> None:
        """Take framed log records; raises as `spans` does."""
        self._take(logs, origin, self._buffer.push_logs)

    def _take(self, items: Sequence[Any], origin: Any, push: Callable[[Sequence[Any], float], None]) -> None:
        journal = self._journal
        try:
            if why := "the process is ending" if self._stopping else self._backpressure():
                raise Overloaded(why)
            with self._lock:
                if why := self._buffer.refusal(items, self._clock()):
                    self._wake.set()
                    raise Overloaded(f"{why}; retry later")
                # Written in the order in which the buffer takes it: to read it again then gives the same buffer.
                mark = journal.taken(origin, {item[0] for item in items}) if journal is not None else 0
                push(items, self._clock())
                self._end_rest()
            if journal is not None:
                journal.safe(mark)
        except Overloaded:
            self._tally["spans_refused"] += len(items)
            raise

    def close_and_evaluate(self, trace_id: bytes, spans: Iterable[SpanFrame], why: Completeness | None = None) -> None:
        """Take all that a source holds of a trace and evaluate it now; `why`: the reason, if spans of it are still open."""
        now = self._clock()
        with self._evaluating:
            with self._lock:
                self._buffer.push_many(spans, now)
                closed = self._buffer.close(trace_id, now, why)
                self._end_rest()
            self._evaluate(closed)

    # ------------------------------------------------------------------ out

    def start(self) -> None:
        """Start the worker that closes traces in time."""
        if self._worker is None:
            self._worker = threading.Thread(target=self._work, name="otel-eval", daemon=True)
            self._worker.start()

    def _work(self) -> None:
        while not self._stopping:
            self._between()
            if not self.step():
                self._wake.wait(self._pause_s())
                self._resting = False
                self._wake.clear()

    def _pause_s(self) -> float:
        """How long to wait before the next look; waking up for nothing costs more than looking."""
        with self._lock:
            self._resting = self._journal is None and not self._first and self._buffer.is_empty
        return _REST_S if self._resting else _TICK_S

    def _end_rest(self) -> None:
        """What arrived is to be looked at in time; called with the lock."""
        if self._resting:
            self._wake.set()

    def use_engine(self, engine: Engine, later: AsyncEvaluator | None) -> None:
        """Evaluate with another engine from the next trace on. `later` as at the beginning; one that was there stays."""
        if engine.waits and later is None:
            raise ValueError("some scorers are asynchronous; pass later")
        # Without the lock: an evaluation that waits for an exporter must not delay a reload.
        self._later = self._later or later
        self._engine = engine

    def step(self) -> bool:
        """Evaluate what is due; True if there may be more at once."""
        paused = self._backpressure()
        self.progress.moved(paused)
        if paused:
            return False
        with self._evaluating:
            self._evaluate_first()
            with self._lock:
                closed, final = self._due(self._clock()), self._buffer.take_final()
            self._evaluate(closed)
            if final:
                self._final([(trace_id.hex(), run.hex()) for trace_id, run in final])
        return bool(closed)

    def _evaluate_first(self) -> None:
        first, self._first = self._first, ()
        self._evaluate(first)
        self.caught_up.set()

    def _due(self, now: float) -> list[ClosedTrace]:
        # What is being evaluated is not counted as held, so it is kept to a small part of `max_bytes`.
        most_bytes = self._buffer.limits.max_bytes // _PARTS
        if self._journal is None:
            return self._buffer.due(now, _AT_ONCE, most_bytes)
        self._journal.tidy(self._buffer)
        due = self._buffer.close_due(now, _AT_ONCE, most_bytes)
        return self._buffer.pop_closed(now, _AT_ONCE, most_bytes) if due and self._journal.closing(due) else []

    def close_now(self, trace_ids: Iterable[bytes], timeout_s: float = FOREVER) -> bool:
        """Evaluate now those of the traces that wait only for spans that may come late; False if others took longer than that."""
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
        """Close and evaluate everything that is held; False if `deadline` (monotonic) came first."""
        if not self._evaluating.acquire(timeout=FOREVER if deadline is None else max(0.0, deadline - self._clock())):
            _log.warning("what was left was not scored before the process had to end: a scorer did not return")
            return False
        try:
            self._evaluate_first()
            with self._lock:
                closed = self._buffer.drain(self._clock(), reason)
                if self._journal is not None and not self._journal.closing(list(map(Closing.of, closed))):
                    return False
            for index in range(0, len(closed), _AT_ONCE):
                if deadline is not None and self._clock() > deadline:
                    self._tally["traces_failed"] += len(closed) - index
                    _log.warning("%d traces were not scored before the process had to end", len(closed) - index)
                    return False
                self._evaluate(closed[index : index + _AT_ONCE])
        finally:
            self._evaluating.release()
        return True

    def stop(self, reason: Completeness | None = Completeness.SHUTDOWN, timeout_s: float = 10.0) -> bool:
        """Refuse input, evaluate what is there, wait for what is pending; True if all of it was in time."""
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

    def recover(self, replay: Callable[[TraceBuffer, float], Sequence[ClosedTrace]]) -> None:
        """Have the buffer filled with what was held before a restart; traces that were closed then are evaluated first."""
        with self._evaluating, self._lock:
            self._first = replay(self._buffer, self._clock())

    def wait(self, timeout_s: float) -> bool:
        """Wait until the results that are pending were emitted; False if they did not come in time."""
        return self._later is None or self._later.wait(timeout_s)

    def stop_waiting(self, timeout_s: float) -> bool:
        """The same for the last time: what does not come in time is given up."""
        return self._later is None or self._later.stop(timeout_s)

    def _evaluate(self, closed: Sequence[ClosedTrace]) -> None:
        if self._journal is None:
            for trace in closed:
                self._emit_all(trace, self._reports(trace))
            return
        for index in range(0, len(closed), _AT_ONCE):
            evaluated: list[tuple[ClosedTrace, list[Report]]] = []
            for batch in self._journal.attempts.batches(closed[index : index + _AT_ONCE]):
                noted = [(trace, self._attempt(trace, self._journal.attempts)) for trace in batch]
                self._journal.note(noted)
                evaluated += noted
            if not self._journal.evaluated():
                return
            for trace, reports in evaluated:
                self._emit_all(trace, reports)

    def _attempt(self, trace: ClosedTrace, attempts: RecordedAttempts) -> list[Report]:
        """Evaluate a trace, unless the process crashed twice while it was evaluated."""
        crashes = attempts.begin(trace)
        try:
            if crashes.times >= MOST_CRASHES:
                self._tally["traces_crashed"] += 1
                return attempts.give_up(self._engine, trace, self._stamp(trace), crashes)
            reports = self._reports(trace)
        finally:
            attempts.end(trace)
        if crashes.times:
            attempts.succeeded(trace)
        return reports

    def _stamp(self, trace: ClosedTrace) -> Stamp:
        since_ns = self._since_ns if self._may_be_joined(trace.trace_id) else 0
        return _new_stamp(self._evaluator, self._now_ns(), since_ns)

    def _reports(self, trace: ClosedTrace) -> list[Report]:
        self._found, engine, stamp = [], self._engine, self._stamp(trace)
        self.progress.began(trace.trace_id)
        try:
            reports = engine.evaluate(trace, stamp, self._observe)
            self._watch(trace, self._found, reports)
            return reports
        except Exception as error:  # noqa: BLE001 - a trace that cannot be read must not cost the others theirs
            self._tally["traces_failed"] += 1
            _log.warning("trace %s could not be evaluated: %s", trace.trace_id.hex(), type(error).__name__)
            return engine.no_run(trace, stamp, f"the trace could not be evaluated: {type(error).__name__}")
        finally:
            if self.progress.evaluating_s >= _SLOW_S:
                _log.warning("evaluating trace %s took %.1f s", trace.trace_id.hex(), self.progress.evaluating_s)
            self.progress.moved()

    def evaluation(self) -> ProgressState:
        """Whether the evaluation of what is due makes progress."""
        return self.progress.state(self._journal.waits if self._journal is not None else "", self._is_due)

    def _is_due(self) -> bool:
        with self._lock:
            check = self._buffer.next_check()
        return check is not None and check <= self._clock()

    def _observe(self, trajectory: Trajectory, evaluations: Sequence[ScorerSet]) -> None:
        self._found.append((trajectory, evaluations))
        if self._journal is not None:
            self._journal.attempts.scoring()

    def _emit_all(self, trace: ClosedTrace, reports: Sequence[Report]) -> None:
        for report in reports:
            self._tally["reports"] += not report.no_run
            self._emit(report)
            if report.pending and self._later is not None:
                self._later.put(report)
        if trace.part is None or not self.undecided((trace.trace_id,)):
            self._evaluated(trace.trace_id)

    def undecided(self, trace_ids: Collection[bytes]) -> set[bytes]:
        """Those of the traces whose evaluation is due or under way; every report on the others was emitted."""
        with self._lock:
            found = {trace_id for trace_id in trace_ids if self._buffer.is_undecided(trace_id)}
        if len(found) < len(set(trace_ids)):
            # One of the others may have been taken out for evaluation a moment ago.
            if not self._evaluating.acquire(timeout=_MOMENT_S):
                return set(trace_ids)
            self._evaluating.release()
        return found

    def reserve(self, size: int) -> None:
        """Forget what is kept for late spans until so many bytes, which the source holds, fit into `max_bytes` too."""
        with self._lock:
            self._buffer.reserve(size)

    def use_limits(self, limits: Limits) -> None:
        """Hold no more than these allow from now on; times stay as they are."""
        self._buffer.limits = limits

    def compact(self) -> None:
        """Free memory of the buffer that only serves throughput."""
        with self._lock:
            self._buffer.compact(self._clock())

    @property
    def held_bytes(self) -> int:
        """Payload and overhead of the spans that are held."""
        return self._buffer.held_bytes

    def counts(self, *, late: bool = True) -> dict[str, Any]:
        """Everything the pipeline and its buffer counted, and what they hold now; `late`: of results that came later, too."""
        with self._lock:
            oldest = round(self._buffer.age(self._clock()), 3)
        held = {"open_traces": len(self._buffer), "held_bytes": self._buffer.held_bytes, "oldest_trace_s": oldest}
        held["evaluating_s"] = round(self.progress.evaluating_s, 3)
        later = self._later.counts() if late and self._later is not None else {}
        return self._tally | asdict(self._buffer.counts) | held | later
