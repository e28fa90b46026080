"""The span processor that a program adds to its tracer provider, and trajectories of spans that it already has."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, replace
from math import inf
from typing import Any, Final

from opentelemetry.sdk.trace import ReadableSpan

from otel_eval.app.exporting import DELIVERY_S, exporters_of, window_limits
from otel_eval.app.judge_clients import dataset_counts
from otel_eval.app.wiring import ExpectedResults, evaluation_in_process, limits_of, plan_of
from otel_eval.assembly import TraceBuffer
from otel_eval.config import ConfigSource, EvalConfig, load
from otel_eval.counters import Counters
from otel_eval.exporters import global_providers as providers
from otel_eval.exporters.fanout import Fanout
from otel_eval.exporters.global_providers import GlobalProvidersExporter
from otel_eval.interfaces import SpanFrame, SpanReader
from otel_eval.model import Completeness, Trajectory
from otel_eval.sources.inprocess.live_traces import InProcessLimits
from otel_eval.sources.inprocess.processor import InProcessSource
from otel_eval.sources.inprocess.sdk_spans import frames_of, neighbours
from otel_eval.trajectory.builder import build

_MOST_EARLY: Final = 10_000  # remembered, so that late spans do not make a joined run a complete one
_FOR_JUDGES: Final = 0.7  # of the time there is, the rest is for delivery


class EvalSpanProcessor(InProcessSource):
    """Scores each agent run of a program as soon as the last span of its trace has ended.

    Add it to a `TracerProvider`; scores appear as log events, metrics or evaluation spans, through the providers given, else
    those of the process. Scoring runs on a thread of its own: `on_start` and `on_end` never raise, block or do I/O.

    Args:
        config: a path to a YAML file, a mapping, an `EvalConfig`, or None for the default evaluation. `exporters` are used
            beside the process's own providers, or instead of them where an `otlp` exporter is named and `signals` is not.
        tracer_provider, logger_provider, meter_provider: where scores go, instead of the process's own.

    Raises:
        ConfigError: the configuration cannot be used.
    """

    def __init__(
        self, config: ConfigSource = None, *, tracer_provider: Any = None, logger_provider: Any = None, meter_provider: Any = None
    ) -> None:
        self._providers = (tracer_provider, logger_provider, meter_provider)
        settings = load(config)
        counters = Counters()
        exporters = exporters_of(settings, counters)
        if settings.exporters.otlp is None or settings.signals is not None:
            global_exporter = GlobalProvidersExporter(
                settings.signals,
                *self._providers,
                self.pipeline,
                counters=counters,
                found=self.be_last_registered_at_exit,
                window=window_limits(settings),
                only=not exporters,
            )
            exporters.append(global_exporter)
        self._fanout = Fanout(exporters, counters)
        self._settings, self._counters = settings, counters
        self._begin()
        limits = limits_of(settings)
        most = limits.max_spans_per_trace + 1  # so that the core sees that a limit cut it
        super().__init__(self._whole, limits=InProcessLimits(**asdict(replace(limits, max_spans_per_trace=most))))

    def _begin(self) -> None:
        """Start empty: at construction, and in a forked child, whose parent evaluates what began there."""
        limits = limits_of(self._settings)
        # No agent that encloses an evaluated run can arrive any more, so that runs are kept for late spans only.
        limits = replace(limits, decision_wait_detached_s=0.0, keep_s=limits.grace_period_s)
        # Traces that began before us; written and read by the worker. Spans may have been given start times of the past.
        self._early: dict[bytes, None] = {}
        self._engine, self._diagnostics, self._core = evaluation_in_process(
            self._settings,
            self._counters,
            self._fanout,
            limits,
            self.counts,
            self._unseen,
            may_be_joined=self._early.__contains__,
        )
        self._expected, self._expects = ExpectedResults(self._fanout, self._engine), False

    def _note_early(self, trace_id: bytes) -> None:
        self._early[trace_id] = None
        if len(self._early) > _MOST_EARLY:
            del self._early[next(iter(self._early))]

    def _whole(self, trace_id: bytes, spans: list[SpanFrame], why: str) -> None:
        self._core.close_and_evaluate(trace_id, spans, None if why == "closed" else Completeness(why))

    def _is_agent(self, span: SpanReader, scope_name: str) -> bool:
        return self._engine.describes_agent(span, scope_name)

    def _reserve(self, size: int) -> None:
        self._core.reserve(size)

    def _blocked_s(self) -> float:
        return self._fanout.blocked_s()

    def _tick(self) -> None:
        if not self._expects:
            self._expects = True
            self._expected.start()
        self.look_at_open(self._expected.saw)
        self._core.step()

    def _deliver(self, timeout_s: float) -> bool:
        deadline = time.monotonic() + timeout_s
        came = self._core.wait(timeout_s * _FOR_JUDGES)
        return self._fanout.flush(max(0.0, deadline - time.monotonic())) and came

    def _close(self, timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        self._core.stop_waiting(timeout_s * _FOR_JUDGES)
        longest_s = DELIVERY_S / 2 if self._fanout.blocked_s() else DELIVERY_S
        self._fanout.close(max(0.0, min(longest_s, deadline - time.monotonic())))
        if not self.is_doubled:
            self._diagnostics.end()

    def _unseen(self) -> str:
        """Why no span of this process may have reached the processor."""
        if os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":  # as the SDK reads it
            return "OTEL_SDK_DISABLED=true switches tracing off; unset it to score"
        if self.pipeline() is not None:
            return "spans started, but none has ended; a run is evaluated when its own span has ended"
        provider = providers.global_tracer_provider()
        if provider is None:
            return (
                "no SDK TracerProvider is set in this process; "
                "call opentelemetry.trace.set_tracer_provider with the one that has the EvalSpanProcessor"
            )
        if self not in neighbours(getattr(provider, "_active_span_processor", None)):
            return (
                "the global TracerProvider does not have this EvalSpanProcessor; "
                "call add_span_processor on the provider that the agent's instrumentation uses"
            )
        return (
            f"its TracerProvider recorded no span (sampler {providers.sampler_of(provider)}); "
            "check OTEL_TRACES_SAMPLER, and that the agent is instrumented"
        )

    def equals(self, other: InProcessSource) -> bool:
        """Whether the other evaluates by an equal configuration and sends its scores to the same providers."""
        if not isinstance(other, EvalSpanProcessor):
            return False
        return other._settings == self._settings and other._providers == self._providers

    def counts(self) -> dict[str, Any]:
        """What every part counted: what was dropped, closed, scored, sent and lost."""
        mine = self._diagnostics.counts() | self._fanout.counts() | self._counters.snapshot() | dataset_counts()
        core, source = self._core.counts(), super().counts()
        held = {"held_bytes": core["held_bytes"] + source["held_bytes"]}
        return core | source | mine | held


def trajectories(spans: Iterable[ReadableSpan], config: EvalConfig | Mapping[str, Any] | None = None) -> list[Trajectory]:
    """Return every agent run in a list of finished spans, nested runs too, in order of the first spans of their traces.

    Args:
        spans: spans of the SDK, of any number of traces; where ids are missing the order of the list counts.
        config: its `conventions` and limits are used.
    """
    settings = load(config)
    limits = replace(limits_of(settings), decision_wait_s=inf, decision_wait_partial_s=inf, idle_s=inf, max_age_s=inf)
    buffer = TraceBuffer(limits)
    buffer.push_many(frames_of(spans), 0.0)
    plan = plan_of(settings)
    return [run.trajectory for trace in buffer.drain(0.0) for run in build(trace, plan)]
