"""The span processor and the span exporter that a program adds to its tracer provider.

One lock serialises calls of the inner exporter, as OpenTelemetry requires it of a processor. One
thread evaluates the traces that are due and exports the spans that have their scores. The limits of
assembly bound the spans that are held.
"""

from __future__ import annotations

import logging
import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import asdict, replace
from math import inf
from typing import Any, Final

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from otel_eval.app.build import EngineBuilder, build_limits
from otel_eval.app.exporting import (
    DELIVERY_S,
    build_cases,
    build_exporters,
    destinations,
    result_format,
    window_limits,
)
from otel_eval.app.guarded_scorer import MOST_TIMEOUTS
from otel_eval.app.live import EvaluationParts, LiveEvaluation
from otel_eval.assembly import Limits
from otel_eval.config import ConfigSource, EvalConfig, load
from otel_eval.counters import Counters, Warnings, counts_as_text, in_each_child
from otel_eval.datasets import dataset_counts
from otel_eval.delivery.exports import Exports
from otel_eval.engine import Engine
from otel_eval.errors import ConfigError, Overloaded, redacted_repr
from otel_eval.exporters import Exporter, ExportResult
from otel_eval.exporters import attributes as names
from otel_eval.exporters import global_providers as providers
from otel_eval.exporters.global_providers import GlobalProvidersExporter
from otel_eval.interfaces import SpanFrame, SpanReader
from otel_eval.model import Completeness, Report
from otel_eval.pipeline import FOREVER, Pipeline
from otel_eval.retry import suppress_instrumentation
from otel_eval.sdk_internals import pipeline_of_provider, processors_in
from otel_eval.sources.inprocess.live_traces import InProcessLimits
from otel_eval.sources.inprocess.processor import InProcessSource
from otel_eval.sources.inprocess.sdk_spans import HeldSpans, event_of, frames_of, is_relevant, keep
from otel_eval.worker_thread import WorkerThread

_log = logging.getLogger("otel_eval")

# ids of joined traces, so that late spans do not make a joined run a complete one
_MOST_EARLY: Final = 10_000
_FOR_JUDGES: Final = 0.7  # share of a timeout; the rest is for delivery
_DECISION_WAIT_S: Final = 0.2  # within one process spans arrive in the order in which they ended
_DECISION_WAIT_PARTIAL_S: Final = 1.0
_TICK_S: Final = 0.05
_BATCH: Final = 512
_SHUTDOWN_S: Final = 30.0
_LATE_S: Final = 1.0
_NO_SPAN: Final = (
    "nothing was exported; check the sampler, and that a processor of the agent's provider has the"
    " EvalSpanExporter"
)
_OVER_LIMIT: Final = (
    "open traces reached traces.max_bytes (%d bytes) or traces.max_traces (%d): the oldest are"
    " evaluated early; raise it, or record less content (OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT)"
)
_REMEDY: Final = "name exporters: otlp or jsonl as well"


class _ProcessorEvaluation(LiveEvaluation):
    """The evaluation of the spans of a processor."""

    def __init__(self, parts: EvaluationParts) -> None:
        super().__init__(parts)
        # Used by the worker only. A span can have an explicit start time in the past.
        self._early: Final[dict[bytes, None]] = {}

    def add_early(self, trace_id: bytes) -> None:
        """Note a trace that began before the processor."""
        self._early[trace_id] = None
        if len(self._early) > _MOST_EARLY:
            del self._early[next(iter(self._early))]

    def may_be_joined(self, trace_id: bytes) -> bool:
        """Whether the trace began before the processor."""
        return trace_id in self._early


class _ExporterEvaluation(LiveEvaluation):
    """The evaluation of the spans of an exporter, which holds the runs' own spans meanwhile."""

    def __init__(self, parts: EvaluationParts, exporter: EvalSpanExporter) -> None:
        super().__init__(parts)
        self._exporter: Final = exporter

    def on_decided(self, trace_id: bytes) -> None:
        """Release the spans of the trace: they have their scores."""
        self._exporter.release([trace_id])

    def on_resting(self, trace_id: bytes) -> None:
        """Release the spans of the trace."""
        self._exporter.release([trace_id])


class _EvaluatesInProcess:
    """Evaluates the traces of this process, diagnoses missing scores, and exports the results."""

    _exports: Exports
    _evaluation: LiveEvaluation
    _core: Pipeline

    def _configure(self, config: ConfigSource, longest_s: float = inf) -> list[Exporter]:
        """Load the configuration, and return the exporters that it names.

        Args:
            config: the configuration, or where it is loaded from.
            longest_s: an upper bound in seconds for the configured time limit of user-defined
                scorers.
        """
        settings = self._settings = load(config)
        counters = self._counters = Counters()
        exporters = build_exporters(settings, counters)
        self._longest_s = longest_s
        self._engine = self._build_engine()
        self._cases = build_cases(settings, counters, self._engine.plan)
        _log.info("scores go to %s", ", ".join([*destinations(settings), *self._scores_to()]))
        return exporters

    def _build_engine(self, before: Engine | None = None) -> Engine:
        builder = EngineBuilder(
            self._counters,
            writes_no_run=self._settings.exporters.has_no_run,
            longest_s=self._longest_s,
        )
        return builder.build(self._settings, before)

    def _begin(self) -> None:
        """Start empty in a forked child, because the parent evaluates the traces that began
        there.
        """
        self._engine = self._build_engine(before=self._engine)
        self._start_empty()

    def _start_empty(self) -> None:
        """Create diagnostics and pipeline."""
        raise NotImplementedError

    def _parts(self, *, expects_results: bool = False) -> EvaluationParts:
        return EvaluationParts(
            config=self._settings,
            engine=self._engine,
            exports=self._exports,
            process=self,
            cases=self._cases,
            expects_results=expects_results,
            one_process=True,
        )

    def _pipeline_of(self, limits: Limits) -> Pipeline:
        evaluation, since_ns = self._evaluation, time.time_ns()
        return Pipeline(self._engine, evaluation, limits, later=evaluation.later, since_ns=since_ns)

    @property
    def _stores(self) -> list[Exporter]:
        """The folder of cases, which takes results and is no place to see them."""
        return [self._cases] if self._cases else []

    def _scores_to(self) -> Sequence[str]:
        """Where scores go beside the configured exporters, for the log."""
        raise NotImplementedError

    def why_no_span(self) -> str:
        """A possible reason why no span has arrived."""
        raise NotImplementedError

    def _deliver(self, timeout_s: float) -> bool:
        """Wait for pending results, and deliver all results; False if that was not finished in
        time.
        """
        deadline = time.monotonic() + timeout_s
        evaluated = self._core.wait(timeout_s * _FOR_JUDGES)
        return self._exports.flush(max(0.0, deadline - time.monotonic())) and evaluated

    def counts(self) -> dict[str, Any]:
        """The counters of evaluation and delivery, including losses."""
        return (
            counts_as_text(self._evaluation.diagnostics.counts())
            | counts_as_text(self._exports.counts())
            | counts_as_text(self._counters.snapshot())
            | dataset_counts()
        )


class EvalSpanProcessor(_EvaluatesInProcess, InProcessSource):
    """Scores each agent run of a program as soon as the last span of its trace has ended.

    Add it to a `TracerProvider`; scores are emitted as log events, metrics or evaluation spans,
    through the given providers, or else those of the process. Scoring runs on a thread of its own:
    `on_start` and `on_end` never raise, block or do I/O.

    Args:
        config: a path to a YAML file, a mapping, an `EvalConfig`, or None for the default
            evaluation. `exporters` are used beside the process's own providers, or instead of them
            where an `otlp` exporter is named and `signals` is not.
        tracer_provider, logger_provider, meter_provider: providers for scores, instead of those of
            the process.

    Raises:
        ConfigError: the configuration is invalid.
    """

    def __init__(
        self,
        config: ConfigSource = None,
        *,
        tracer_provider: Any = None,
        logger_provider: Any = None,
        meter_provider: Any = None,
    ) -> None:
        self._providers = (tracer_provider, logger_provider, meter_provider)
        exporters, settings = self._configure(config), self._settings
        _processors.add(self)
        if self._uses_providers:
            more: dict[str, Any] = {
                "on_use": self.be_last_registered_at_exit,
                "window": window_limits(settings),
                "form": result_format(settings),
            }
            to = settings.signals, *self._providers, self.pipeline
            exporters.append(
                GlobalProvidersExporter(*to, counters=self._counters, only=not exporters, **more)
            )
        self._exports = Exports([*exporters, *self._stores], self._counters)
        self._start_empty()
        limits = build_limits(settings)
        # one more, so that the pipeline notices that the trace is over the limit
        most = limits.max_spans_per_trace + 1
        super().__init__(
            self._close_trace,
            limits=InProcessLimits(**asdict(replace(limits, max_spans_per_trace=most))),
        )

    _evaluation: _ProcessorEvaluation

    @property
    def _uses_providers(self) -> bool:
        """Whether scores go to the providers of the process."""
        return self._settings.exporters.otlp is None or self._settings.signals is not None

    def _scores_to(self) -> Sequence[str]:
        if not self._uses_providers:
            return ()
        signals = self._settings.signals
        chosen = "log events or evaluation spans, and metrics" if signals is None else signals
        return (
            "the OpenTelemetry providers of this process, where there are any"
            f" ({chosen if isinstance(chosen, str) else ', '.join(chosen)})",
        )

    def _start_empty(self) -> None:
        limits = build_limits(self._settings)
        # In one process no agent that encloses an evaluated run can arrive later, so runs are kept
        # for late spans only, and while a span of their trace is open.
        limits = replace(
            limits,
            decision_wait_detached_s=0.0,
            keep_s=limits.grace_period_s,
            grace_period_s=limits.max_age_s,
        )
        self._evaluation = _ProcessorEvaluation(self._parts(expects_results=True))
        self._core = self._pipeline_of(limits)
        self._expects = False

    def _note_early(self, trace_id: bytes) -> None:
        self._evaluation.add_early(trace_id)

    def _close_trace(self, trace_id: bytes, spans: list[SpanFrame], why: str) -> None:
        self._core.close_and_evaluate(
            trace_id, spans, None if why == "closed" else Completeness(why)
        )

    def _is_agent(self, span: SpanReader, scope_name: str) -> bool:
        return self._engine.describes_agent(span, scope_name)

    def _reserve(self, size: int) -> None:
        self._core.reserve(size)

    def _blocked_s(self) -> float:
        return self._exports.blocked_s()

    def _tick(self) -> None:
        expected = self._evaluation.expected
        if expected is not None:
            if not self._expects:
                self._expects = True
                expected.start()
            self.examine_open_spans(expected.examine)
        self._core.step()

    def _close(self, timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        self._core.stop_waiting(timeout_s * _FOR_JUDGES)
        longest_s = DELIVERY_S / 2 if self._exports.blocked_s() else DELIVERY_S
        self._exports.close(max(0.0, min(longest_s, deadline - time.monotonic())))
        if not self.is_doubled:
            self._evaluation.diagnostics.end()

    def why_no_span(self) -> str:
        """A possible reason why no span of this process has reached the processor; "" if an equal
        one gets them, because a cell of a notebook was run twice.
        """
        others = [other for other in _processors if other is not self and other.equals(self)]
        if any(other.pipeline() is not None for other in others):
            return ""
        if os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":  # as the SDK reads it
            return "OTEL_SDK_DISABLED=true switches tracing off; unset it to score"
        if self.pipeline() is not None:
            return (
                "spans started, but none has ended; a run is evaluated when its own span has ended"
            )
        provider = providers.global_tracer_provider()
        if provider is None:
            return (
                "no SDK TracerProvider is set in this process; call"
                " opentelemetry.trace.set_tracer_provider with the one that has the"
                " EvalSpanProcessor"
            )
        if self not in processors_in(pipeline_of_provider(provider)):
            return (
                "the global TracerProvider does not have this EvalSpanProcessor; "
                "call add_span_processor on the provider that the agent's instrumentation uses"
            )
        return (
            f"its TracerProvider recorded no span (sampler {providers.sampler_of(provider)}); "
            "check OTEL_TRACES_SAMPLER, and that the agent is instrumented"
        )

    def equals(self, other: InProcessSource) -> bool:
        """Whether the other processor has an equal configuration and the same providers."""
        if not isinstance(other, EvalSpanProcessor):
            return False
        return other._settings == self._settings and other._providers == self._providers

    def counts(self) -> dict[str, Any]:
        """The counters of every part: spans, traces, scores, deliveries and losses."""
        core, source = self._core.counts(), InProcessSource.counts(self)
        held = {"held_bytes": core["held_bytes"] + source["held_bytes"]}
        return core | source | super().counts() | held


_processors: Final[weakref.WeakSet[EvalSpanProcessor]] = weakref.WeakSet()


class EvalSpanExporter(_EvaluatesInProcess, SpanExporter):
    """Wraps a span exporter: a run's own span is held until it has its scores as span events; all
    others are exported at once.

    A run is evaluated `traces.decision_wait` after the last span of its trace, here 0.2 s unless
    configured, or `traces.decision_wait_partial`, here 1 s. A span is held for at most `max_wait`
    seconds; then it is exported without scores.

    Args:
        inner: the wrapped exporter, which exports all spans; never called by two threads at once.
        config: a path to a YAML file, a mapping, an `EvalConfig`, or None for the default
            evaluation. Its `exporters` get the results as well.
        max_wait: seconds. A user-defined scorer fails if it takes longer than a third of it or
            `async_scoring.scorer_timeout`.

    Raises:
        ConfigError: the configuration cannot be used, or an argument has another type.
    """

    def __init__(
        self, inner: SpanExporter, config: ConfigSource = None, *, max_wait: float = 30.0
    ) -> None:
        # else every span would be lost, one warning at a time
        if not callable(getattr(inner, "export", None)):
            raise ConfigError(
                f"inner: {redacted_repr(inner)} is not a span exporter; write e.g."
                " OTLPSpanExporter(), then config"
            )
        if not isinstance(max_wait, int | float):
            raise ConfigError(
                f"max_wait: {redacted_repr(max_wait)} is not a number of seconds; write e.g. 30"
            )
        self._inner, self._max_wait = inner, max_wait
        self._warnings: Final = Warnings()
        self._others: Final = self._configure(config, max_wait / MOST_TIMEOUTS)
        self._name_of: Final = result_format(self._settings).name_of
        self._exports = Exports([_OnSpans(self), *self._others, *self._stores], self._counters)
        self._start_empty()
        in_each_child(self, EvalSpanExporter._begin)

    def _start_empty(self) -> None:
        # In a forked child, too: the parent exports the spans that it holds.
        self._evaluation = _ExporterEvaluation(self._parts(), self)
        self._core = self._pipeline_of(_limits(self._settings))
        if self._engine.waits and not self._others:
            self._warnings.once(
                "judges",
                "scores of judges arrive after the runs' spans have left, and no other exporter"
                " takes them; %s",
                _REMEDY,
            )
        # deferred: a processor holds no spans
        from otel_eval.forwarding.pending_spans import HoldFilter

        self._hold_filter = HoldFilter(self._engine)
        self._held = HeldSpans()
        self._exporting = threading.Lock()  # held around each call of inner.export
        self._released: deque[ReadableSpan] = deque()  # released spans that are not yet exported
        self._ended = threading.Lock()  # acquired by the first shutdown and never released
        self._worker = WorkerThread(
            "otel-eval-export", "spans were not evaluated", tick=self._evaluate_due, tick_s=_TICK_S
        )

    def _scores_to(self) -> Sequence[str]:
        return ("events of the runs' spans",)

    def why_no_span(self) -> str:
        """A possible reason why no span has arrived."""
        return _NO_SPAN

    # ------------------------------------------------------------------ in

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Export at once the spans that are not held, and return the result of the inner exporter
        for them.
        """
        if self._ended.locked():
            return SpanExportResult.FAILURE
        passing = self._hold_run_spans(spans)
        # shut down meanwhile: nothing else would release the spans that were just held
        if self._ended.locked():
            self._release_unscored(self._held.waiting())
            self._export_released(_LATE_S)
        if not passing:
            return SpanExportResult.SUCCESS
        with self._exporting:
            return self._inner.export(passing)

    def _hold_run_spans(self, spans: Sequence[ReadableSpan]) -> Sequence[ReadableSpan]:
        """Hold the runs' own spans, pass all spans to the pipeline if they can be evaluated, and
        return those to export now.
        """
        now = time.monotonic()
        try:
            relevant = [span for span in spans if is_relevant(keep(span))]
            frames = frames_of(relevant)
            roots = self._hold_filter.chosen(frames)
            originals = {
                id(frame[1]): span for (_, _, frame, _), span in zip(frames, relevant, strict=True)
            }
        except Exception as error:  # noqa: BLE001
            # spans that cannot be read must reach the backend, too
            self._counters.add("exporter.unread_spans", len(spans))
            self._warnings.once(
                "unread", "spans were exported without being evaluated: %s", type(error).__name__
            )
            return spans
        held = {
            id(span): trace_id
            for trace_id, span_id, kept in roots
            if self._held.hold(trace_id, span_id, (span := originals[id(kept)]), now)
        }
        self._pass_to_pipeline(frames, set(held.values()))
        return [span for span in spans if id(span) not in held] if held else spans

    def _pass_to_pipeline(self, frames: Sequence[SpanFrame], roots: set[bytes]) -> None:
        try:
            self._core.spans(frames)
        except Overloaded:
            self._release_unscored(roots)
            return
        if roots:
            # their trace is closed and not kept: no evaluation will follow
            self.release(roots - self._core.undecided(roots))
        self._worker.ensure()

    # ----------------------------------------------------------------- out

    def add_scores(self, report: Report) -> bool:
        """Add the results to the run's own span as events; if it was exported already, count them
        and return False.
        """
        run, ended = report.trajectory, names.run_ended_ns(report)
        events = [
            event_of(names.EVENT_NAME, names.event_attributes(report, result), ended)
            for result in report.results
        ]
        scores = names.score_attributes(report, self._name_of) if self._name_of else {}
        placed = self._held.score(
            bytes.fromhex(run.trace_id), bytes.fromhex(run.span_id), events, scores
        )
        if not placed:
            self._counters.add("exporter.scores_unplaced", len(events))
        return placed

    def _release_unscored(self, trace_ids: Collection[bytes]) -> None:
        if count := self.release(trace_ids):
            self._counters.add("exporter.unscored_spans", count)

    def release(self, trace_ids: Collection[bytes]) -> int:
        """Release the held spans of these traces to be exported; return their number."""
        released = self._held.release(trace_ids)
        self._released.extend(released)
        return len(released)

    def _evaluate_due(self) -> None:
        while self._core.step():
            pass
        self._warn_of_limits()
        self._release_evaluated(self._held.waiting(time.monotonic() - self._max_wait))
        self._export_released(_SHUTDOWN_S)

    def _warn_of_limits(self) -> None:
        if self._core.counts()["traces_over_limit"]:
            self._warnings.once(
                "limits",
                _OVER_LIMIT,
                self._settings.traces.max_bytes,
                self._settings.traces.max_traces,
            )

    def _release_evaluated(self, trace_ids: Sequence[bytes], timeout_s: float = FOREVER) -> None:
        """Evaluate these traces and release their spans, without scores if the evaluation does not
        end in time.
        """
        if trace_ids:
            self._core.close_now(trace_ids, timeout_s)
            self._release_unscored(trace_ids)

    def _export_released(self, timeout_s: float) -> bool:
        """Export the released spans; False if another export did not end in time, or the inner
        exporter failed.
        """
        if not self._exporting.acquire(timeout=timeout_s):
            return False
        try:
            released = [self._released.popleft() for _ in range(len(self._released))]
            done = [
                self._export(released[at : at + _BATCH]) for at in range(0, len(released), _BATCH)
            ]
            return all(done)
        finally:
            self._exporting.release()

    def _export(self, spans: Sequence[ReadableSpan]) -> bool:
        try:
            with suppress_instrumentation():
                result = self._inner.export(spans)
            problem = "" if result is SpanExportResult.SUCCESS else "it returned FAILURE"
        except Exception as error:  # noqa: BLE001
            # an error of the inner exporter must not end the thread
            problem = type(error).__name__
        if problem:
            self._counters.add("exporter.failed_spans", len(spans))
            self._warnings.once(
                "inner", "runs' spans could not be exported with their scores: %s", problem
            )
        return not problem

    # ---------------------------------------------------------- life cycle

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Evaluate and export every held span; False if not all spans and results were delivered in
        time.
        """
        deadline = time.monotonic() + timeout_millis / 1000
        failed_before = self._counters.get("exporter.failed_spans")
        self._release_evaluated(self._held.waiting(), timeout_millis / 2000)
        done = self._export_released(max(0.0, deadline - time.monotonic()))
        # the worker may have exported some of them, without success
        done = done and self._counters.get("exporter.failed_spans") == failed_before
        flushed = self._deliver(max(0.0, deadline - time.monotonic()))
        return (
            self._inner.force_flush(max(0, int((deadline - time.monotonic()) * 1000))) is not False
            and done
            and flushed
        )

    def shutdown(self) -> None:
        """Evaluate and export the held spans, then shut the inner exporter down. A second call does
        nothing.
        """
        if not self._ended.acquire(blocking=False):
            return
        deadline = time.monotonic() + _SHUTDOWN_S
        self._worker.end()
        self._core.close_now(self._held.waiting(), _SHUTDOWN_S / 4)
        self._core.stop(Completeness.SHUTDOWN, _SHUTDOWN_S / 4)
        self._release_unscored(self._held.waiting())
        if not self._export_released(max(0.1, deadline - time.monotonic())) and self._released:
            self._counters.add("exporter.failed_spans", len(self._released))
            self._warnings.once(
                "late", "%d runs' spans were not exported before shutdown", len(self._released)
            )
        self._warn_of_limits()
        self._exports.close(max(0.1, min(DELIVERY_S, deadline - time.monotonic())))
        self._evaluation.diagnostics.end()
        self._inner.shutdown()

    def counts(self) -> dict[str, Any]:
        """The counters of every part, and the number of held spans."""
        return self._core.counts() | super().counts() | {"exporter.held_spans": len(self._held)}


class _OnSpans(Exporter):
    """The exporter that adds scores to held spans."""

    name = "spans"

    def __init__(self, exporter: EvalSpanExporter) -> None:
        self._exporter = weakref.ref(exporter)

    def export(self, batch: Sequence[Report]) -> ExportResult:
        exporter = self._exporter()
        placed = [exporter is not None and exporter.add_scores(report) for report in batch]
        return ExportResult.ok() if all(placed) else ExportResult("accepted")


def _limits(settings: EvalConfig) -> Limits:
    """The configured limits; the defaults of the decision waits are shorter than in a receiver."""
    limits, given = build_limits(settings), settings.traces.model_fields_set
    wait = limits.decision_wait_s if "decision_wait" in given else _DECISION_WAIT_S
    partial = (
        limits.decision_wait_partial_s
        if "decision_wait_partial" in given
        else max(_DECISION_WAIT_PARTIAL_S, wait)
    )
    return replace(limits, decision_wait_s=wait, decision_wait_partial_s=max(partial, wait))
