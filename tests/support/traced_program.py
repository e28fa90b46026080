"""A program that is traced and scored: real providers, real processors, and the simplest judge at
our own seam.
"""

from __future__ import annotations

import io
from typing import Any

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import (
    BatchSpanProcessor,
    ConsoleSpanExporter,
    SimpleSpanProcessor,
)

from otel_eval.counters import Counters
from otel_eval.delivery.exports import Exports
from otel_eval.exporters.global_providers import GlobalProvidersExporter
from otel_eval.model import Completeness, Report, Result, Scored, Trajectory
from otel_eval.sources.inprocess.live_traces import InProcessLimits
from otel_eval.sources.inprocess.processor import InProcessSource

WHY = {"closed": "complete"}


def judge(trace_id: bytes, frames: list[Any], why: str) -> Report:
    """One passing score on the root: how many spans the trace had."""
    root = next((span_id for _, span_id, (parent, *_), _ in frames if not parent), frames[0][1])
    run = Trajectory(
        trace_id=trace_id.hex(), span_id=root.hex(), completeness=Completeness(WHY.get(why, why))
    )
    scored = Scored(value=1.0, passed=True, explanation=f"{len(frames)} spans")
    result = Result(
        evaluation="e",
        scorer="spans",
        type="t",
        version="1",
        outcome=scored,
        revision=0,
        result_id="r" * 32,
    )
    return Report(run, "e", 0, (result,))


class Program:
    """A source whose handover is evaluated and emitted, as the application composes it; `traces`
    remembers what came.
    """

    def __init__(
        self,
        *,
        limits: InProcessLimits | None = None,
        signals: Any = None,
        tick_s: float = 0.05,
        **providers: Any,
    ) -> None:
        self.traces: list[tuple[str, list[str], str]] = []
        self.tally = Counters()
        self.ambient = GlobalProvidersExporter(
            signals, pipeline=self.pipeline, counters=self.tally, on_use=self.found, **providers
        )
        self.sinks = Exports([self.ambient], self.tally)
        self.source = _Source(self, limits, tick_s)

    def pipeline(self) -> Any:
        return self.source.pipeline()

    def found(self) -> None:
        self.source.be_last_registered_at_exit()

    def handover(self, trace_id: bytes, frames: list[Any], why: str) -> None:
        self.traces.append((trace_id.hex(), [frame[1].name for _, _, frame, _ in frames], why))
        self.sinks.export([judge(trace_id, frames, why)])


class _Source(InProcessSource):
    """Delivers what the program's handover emitted."""

    def __init__(self, program: Program, limits: InProcessLimits | None, tick_s: float) -> None:
        super().__init__(program.handover, limits=limits, tick_s=tick_s)
        self._sinks = program.sinks

    def _deliver(self, timeout_s: float) -> bool:
        return self._sinks.flush(timeout_s)

    def _close(self, timeout_s: float) -> None:
        self._sinks.close(timeout_s)


def provider_with(
    source: Any,
    *,
    ours_first: bool,
    exporter: Any = None,
    batch: bool = True,
    at_exit: bool = False,
) -> TracerProvider:
    """A provider with our processor before or after one that exports."""
    sending = exporter if exporter is not None else ConsoleSpanExporter(out=io.StringIO())
    other = (
        BatchSpanProcessor(sending, schedule_delay_millis=60_000)
        if batch
        else SimpleSpanProcessor(sending)
    )
    provider = TracerProvider(shutdown_on_exit=at_exit)
    for processor in (source, other) if ours_first else (other, source):
        provider.add_span_processor(processor)
    return provider


def run_agent(provider: TracerProvider, name: str = "invoke_agent a") -> None:
    """One agent run with two tool calls, nothing of ours asked for."""
    tracer = provider.get_tracer("app")
    with tracer.start_as_current_span(name):
        for _ in range(2):
            with tracer.start_as_current_span("execute_tool search"):
                pass
