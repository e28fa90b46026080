"""The span exporter that puts scores on the runs' own spans before they leave the process.

One lock serialises calls of the inner exporter, as OpenTelemetry requires it of a processor. One thread evaluates the
traces that are due and exports the spans that have their scores. The limits of assembly bound the spans that are held.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any, Final

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from otel_eval.app.exporting import DELIVERY_S, exporters_of
from otel_eval.app.judge_clients import dataset_counts
from otel_eval.app.wiring import MOST_HUNG, evaluation_in_process, limits_of
from otel_eval.assembly import Limits
from otel_eval.config import ConfigSource, EvalConfig, load
from otel_eval.counters import Counters, Warnings, in_each_child
from otel_eval.errors import ConfigError, Overloaded, redacted_repr
from otel_eval.exporters import Exporter, ExportResult
from otel_eval.exporters import attributes as names
from otel_eval.exporters.fanout import Fanout
from otel_eval.forwarding.pending_spans import HoldFilter
from otel_eval.interfaces import SpanFrame
from otel_eval.model import Completeness, Report
from otel_eval.pipeline import FOREVER
from otel_eval.retry import suppress_instrumentation
from otel_eval.sources.inprocess.live_traces import is_relevant
from otel_eval.sources.inprocess.sdk_spans import HeldSpans, event_of, frames_of
from otel_eval.worker_thread import WorkerThread

_DECISION_WAIT_S: Final = 0.2  # of a process's own traces: spans come in the order in which they ended
_DECISION_WAIT_PARTIAL_S: Final = 1.0
_TICK_S: Final = 0.05
_BATCH: Final = 512
_SHUTDOWN_S: Final = 30.0
_LATE_S: Final = 1.0
_UNSEEN: Final = (
    "nothing was exported; "
    "check that a span processor with the EvalSpanExporter is on the provider that the agent uses, and the sampler"
)
_EARLY: Final = (
    "open traces reached traces.max_bytes (%d bytes) or traces.max_traces (%d): the oldest are evaluated early; raise it, or "
    "record less content (OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT)"
)
_REMEDY: Final = "name exporters: otlp or jsonl as well"


class EvalSpanExporter(SpanExporter):
    """Wraps a span exporter: a run's own span is held until it has its scores as span events; all others are exported at once.

    A run is evaluated `traces.decision_wait` after the last span of its trace, here 0.2 s unless configured, or
    `traces.decision_wait_partial`, here 1 s. A span is held for at most `max_wait` seconds; then it is exported without scores.

    Args:
        inner: the exporter to which everything goes; never called by two threads at once.
        config: a path to a YAML file, a mapping, an `EvalConfig`, or None for the default evaluation. Its `exporters` get the
            results as well.
        max_wait: seconds. A scorer of your own fails that does not return in a third of it or in `async_scoring.scorer_timeout`.

    Raises:
        ConfigError: the configuration cannot be used, or an argument has another type.
    """

    def __init__(self, inner: SpanExporter, config: ConfigSource = None, *, max_wait: float = 30.0) -> None:
        if not callable(getattr(inner, "export", None)):  # else every span would be lost, one warning at a time
            raise ConfigError(f"inner: {redacted_repr(inner)} is not a span exporter; write e.g. OTLPSpanExporter(), then config")
        if not isinstance(max_wait, int | float):
            raise ConfigError(f"max_wait: {redacted_repr(max_wait)} is not a number of seconds; write e.g. 30")
        self._settings: Final = load(config)
        self._inner, self._max_wait = inner, max_wait
        self._counters: Final = Counters()
        self._warnings: Final = Warnings()
        self._others: Final = exporters_of(self._settings, self._counters)
        self._fanout: Final = Fanout([_OnSpans(self), *self._others], self._counters)
        self._ending: Final = threading.Event()
        self._begin()
        in_each_child(self, EvalSpanExporter._begin)

    def _begin(self) -> None:
        """Start empty: at construction, and in a forked child, whose parent exports what it holds."""
        limits, longest_s = _limits(self._settings), self._max_wait / MOST_HUNG
        parts = self._settings, self._counters, self._fanout, limits, self.counts, lambda: _UNSEEN
        engine, self._diagnostics, self._core = evaluation_in_process(
            *parts, longest_s, evaluated=lambda trace_id: self._release([trace_id])
        )
        if engine.waits and not self._others:
            self._warnings.once(
                "judges", "scores of judges arrive after the runs' spans have left, and no other exporter takes them; %s", _REMEDY
            )
        self._waiting = HoldFilter(engine)
        self._held = HeldSpans()
        self._exporting = threading.Lock()  # held around each call of inner.export
        self._leaving: deque[ReadableSpan] = deque()  # with their scores, not yet exported
        self._ended = threading.Lock()  # taken by the first shutdown and never released
        self._worker = WorkerThread("otel-eval-export", "spans were not evaluated", tick=self._look, tick_s=_TICK_S)

    # ------------------------------------------------------------------ in

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Export every span at once that is not held; returns the inner exporter's result for these."""
        if self._ending.is_set():
            return SpanExportResult.FAILURE
        passing = self._part(spans)
        if self._ending.is_set():  # shut down meanwhile: nothing would release the spans that were just held
            self._unscored(self._held.waiting())
            self._leave(_LATE_S)
        if not passing:
            return SpanExportResult.SUCCESS
        with self._exporting:
            return self._inner.export(passing)

    def _part(self, spans: Sequence[ReadableSpan]) -> Sequence[ReadableSpan]:
        """The spans that leave at once; the others are held, and the pipeline takes every span that it can evaluate."""
        now = time.monotonic()
        try:
            frames = frames_of([span for span in spans if span.context is not None and is_relevant(span)])
            roots = self._waiting.chosen(frames)
        except Exception as error:  # noqa: BLE001 - spans that we cannot read must reach the backend all the same
            self._counters.add("exporter.unread_spans", len(spans))
            self._warnings.once("unread", "spans were exported without being evaluated: %s", type(error).__name__)
            return spans
        held = {id(span): trace_id for trace_id, span_id, span in roots if self._held.hold(trace_id, span_id, span, now)}
        self._take(frames, set(held.values()))
        return [span for span in spans if id(span) not in held] if held else spans

    def _take(self, frames: Sequence[SpanFrame], roots: set[bytes]) -> None:
        try:
            self._core.spans(frames)
        except Overloaded:
            self._unscored(roots)
            return
        if roots:
            self._release(roots - self._core.undecided(roots))  # their trace was closed and forgotten: it is not evaluated again
        self._worker.ensure()

    # ----------------------------------------------------------------- out

    def place(self, report: Report) -> bool:
        """Add the results to the run's own span as events; False, and counted, if the span has left already."""
        run, ended = report.trajectory, names.run_ended_ns(report)
        events = [event_of(names.EVENT_NAME, names.event_attributes(report, result), ended) for result in report.results]
        placed = self._held.score(bytes.fromhex(run.trace_id), bytes.fromhex(run.span_id), events)
        if not placed:
            self._counters.add("exporter.scores_unplaced", len(events))
        return placed

    def _unscored(self, trace_ids: Collection[bytes]) -> None:
        if count := self._release(trace_ids):
            self._counters.add("exporter.unscored_spans", count)

    def _release(self, trace_ids: Collection[bytes]) -> int:
        released = self._held.release(trace_ids)
        self._leaving.extend(released)
        return len(released)

    def _look(self) -> None:
        while self._core.step():
            pass
        self._warn_of_limits()
        self._release_evaluated(self._held.waiting(time.monotonic() - self._max_wait))
        self._leave(_SHUTDOWN_S)

    def _warn_of_limits(self) -> None:
        if self._core.counts()["traces_over_limit"]:
            self._warnings.once("limits", _EARLY, self._settings.traces.max_bytes, self._settings.traces.max_traces)

    def _release_evaluated(self, trace_ids: Sequence[bytes], timeout_s: float = FOREVER) -> None:
        """Evaluate these traces and release their spans: with their scores if the evaluation ends in time, else without."""
        if trace_ids:
            self._core.close_now(trace_ids, timeout_s)
            self._unscored(trace_ids)

    def _leave(self, timeout_s: float) -> bool:
        """Export what has its scores; False if another export did not end in time, or the inner exporter refused."""
        if not self._exporting.acquire(timeout=timeout_s):
            return False
        try:
            leaving = [self._leaving.popleft() for _ in range(len(self._leaving))]
            done = [self._export(leaving[at : at + _BATCH]) for at in range(0, len(leaving), _BATCH)]
            return all(done)
        finally:
            self._exporting.release()

    def _export(self, spans: Sequence[ReadableSpan]) -> bool:
        try:
            with suppress_instrumentation():
                result = self._inner.export(spans)
            problem = "" if result is SpanExportResult.SUCCESS else "it returned FAILURE"
        except Exception as error:  # noqa: BLE001 - an error of the inner exporter must not end the thread
            problem = type(error).__name__
        if problem:
            self._counters.add("exporter.failed_spans", len(spans))
            self._warnings.once("inner", "runs' spans could not be exported with their scores: %s", problem)
        return not problem

    # ---------------------------------------------------------- life cycle

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Evaluate and export every span that was taken; False if not all of them were delivered in time."""
        deadline = time.monotonic() + timeout_millis / 1000
        self._release_evaluated(self._held.waiting(), timeout_millis / 2000)
        done = self._leave(max(0.0, deadline - time.monotonic()))
        came = self._core.wait(max(0.0, deadline - time.monotonic()) * 0.7)
        flushed = self._fanout.flush(max(0.0, deadline - time.monotonic())) and came
        return self._inner.force_flush(max(0, int((deadline - time.monotonic()) * 1000))) is not False and done and flushed

    def shutdown(self) -> None:
        """Evaluate and export what is held, then shut the inner exporter down. A second call does nothing."""
        if self._ending.is_set() or not self._ended.acquire(blocking=False):
            return
        deadline = time.monotonic() + _SHUTDOWN_S
        self._ending.set()
        self._worker.end()
        self._core.close_now(self._held.waiting(), _SHUTDOWN_S / 4)
        self._core.stop(Completeness.SHUTDOWN, _SHUTDOWN_S / 4)
        self._unscored(self._held.waiting())
        if not self._leave(max(0.1, deadline - time.monotonic())) and self._leaving:
            self._counters.add("exporter.failed_spans", len(self._leaving))
            self._warnings.once("late", "%d runs' spans were not exported before shutdown", len(self._leaving))
        self._warn_of_limits()
        self._fanout.close(max(0.1, min(DELIVERY_S, deadline - time.monotonic())))
        self._diagnostics.end()
        self._inner.shutdown()

    def counts(self) -> dict[str, Any]:
        """The counters of every part, and the number of held spans."""
        waiting = self._diagnostics.counts() | self._fanout.counts() | {"exporter.held_spans": len(self._held)}
        return self._core.counts() | self._counters.snapshot() | dataset_counts() | waiting


class _OnSpans(Exporter):
    """Adds scores to the held spans."""

    name = "spans"

    def __init__(self, exporter: EvalSpanExporter) -> None:
        self._exporter = weakref.ref(exporter)

    def export(self, batch: Sequence[Report]) -> ExportResult:
        exporter = self._exporter()
        placed = [exporter is not None and exporter.place(report) for report in batch]
        return ExportResult.ok() if all(placed) else ExportResult("accepted")


def _limits(settings: EvalConfig) -> Limits:
    """The configured limits; waits that are not configured are shorter than in a receiver."""
    limits, given = limits_of(settings), settings.traces.model_fields_set
    wait = limits.decision_wait_s if "decision_wait" in given else _DECISION_WAIT_S
    partial = limits.decision_wait_partial_s if "decision_wait_partial" in given else max(_DECISION_WAIT_PARTIAL_S, wait)
    return replace(limits, decision_wait_s=wait, decision_wait_partial_s=max(partial, wait))
