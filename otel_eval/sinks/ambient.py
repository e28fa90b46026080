"""Send scores through whatever OpenTelemetry the process has, so that adding one processor is enough to see something.

Knows where to look and in which order; emits through the other sinks. What is found is looked for at the first result, and
again as long as it is missing, because programs configure logging after tracing as often as before.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, Final

from otel_eval.model import Report
from otel_eval.ports import Sink
from otel_eval.sinks import attributes as names
from otel_eval.sinks import providers
from otel_eval.sinks.log_events import LogEventSink
from otel_eval.sinks.metrics import MetricSink
from otel_eval.sinks.span_events import SpanSink, pipeline_tracer
from otel_eval.sinks.tally import Counters, Tally, Warnings
from otel_eval.sinks.window import WindowLimits

__all__ = ["SIGNALS", "AmbientSink"]

SIGNALS: Final = ("logs", "metrics", "spans")

_REMEDY: Final = {
    "logs": "configure a LoggerProvider with a processor (opentelemetry._logs.set_logger_provider) or pass logger_provider",
    "metrics": "configure a MeterProvider (opentelemetry.metrics.set_meter_provider) or pass meter_provider",
    "spans": "add a span processor with an exporter to the TracerProvider, pass tracer_provider, or name exporters",
}
_MISSING: Final = {
    "logs": "no logger provider with a processor",
    "metrics": "no meter provider",
    "spans": "no tracer provider with another processor",
}


class AmbientSink:
    """Log events, metrics or spans, through the providers given or else the process's own.

    Without `signals`: log events if there is a `LoggerProvider`, else an evaluation span; metrics if there is a
    `MeterProvider`. With `signals`: exactly these. A provider without processors counts as absent.

    Counts `results.undeliverable` by signal: nothing to send through, or the provider was shut down before.

    Args:
        signals: any of logs, metrics, spans; None to decide by what there is.
        tracer_provider, logger_provider, meter_provider: used instead of the process's own.
        pipeline: gives the processors and the resource of the provider whose spans are judged, or None.
        counters: counted into.
        found: called when a provider is first used; the moment to move exit hooks in front of the provider's.
        window: how far back the metrics' sliding windows reach; None for none.
        only: whether there is no other sink; then it is reported if nothing takes the scores although no signal was named.
    """

    name: Final = "opentelemetry"

    def __init__(
        self,
        signals: Collection[str] | None = None,
        tracer_provider: Any = None,
        logger_provider: Any = None,
        meter_provider: Any = None,
        pipeline: Callable[[], tuple[Any, Any] | None] = lambda: None,
        *,
        counters: Counters | None = None,
        found: Callable[[], None] = lambda: None,
        window: WindowLimits | None = None,
        only: bool = True,
    ) -> None:
        self._only: Final = only
        self._signals = None if signals is None else frozenset(signals)
        self._tracers, self._loggers, self._meters = tracer_provider, logger_provider, meter_provider
        self._pipeline, self._found, self._window = pipeline, found, window
        self._counters: Final = counters if counters is not None else Tally()
        self._warnings: Final = Warnings()
        self._sinks: dict[str, tuple[Sink, Any]] = {}  # signal → sink, and the provider or pipeline behind it

    def emit(self, report: Report) -> bool:
        """Send the report; what cannot be sent is counted and logged once, with the remedy. False if no signal took it."""
        failed: Exception | None = None
        accepted = False
        for signal in self._wanted():
            try:
                accepted = self._send(signal, report) or accepted
            except Exception as error:  # noqa: BLE001 - one signal's trouble must not cost the others; raised below
                failed = error
        if failed is not None:
            raise failed
        return accepted

    def _wanted(self) -> tuple[str, ...]:
        if self._signals is not None:
            return tuple(signal for signal in SIGNALS if signal in self._signals)
        metrics = ("metrics",) if self._sink("metrics") else ()
        if self._sink("logs"):
            return ("logs", *metrics)
        return ("spans", *metrics) if self._only or self._sink("spans") else metrics

    def _send(self, signal: str, report: Report) -> bool:
        held = self._sink(signal)
        if held is None:
            self._counters.add("results.undeliverable", len(report.results), signal=signal)
            why = _MISSING[signal]
            self._warnings.once(signal, "scores cannot be sent as %s: there is %s; %s", signal, why, _REMEDY[signal])
            return False
        sink, provider = held
        if providers.is_shut_down(provider):
            self._counters.add("results.undeliverable", len(report.results), signal=signal)
            remedy = "shut the TracerProvider (or the processor) down first, so that the last scores still find their way"
            self._warnings.once(f"{signal} closed", "scores cannot be sent as %s: the provider was shut down; %s", signal, remedy)
            return False
        sink.emit(report)
        return True

    def _sink(self, signal: str) -> tuple[Sink, Any] | None:
        held = self._sinks.get(signal)
        if held is None:
            held = {"logs": self._logs, "metrics": self._metrics, "spans": self._spans}[signal]()
            if held is not None and providers.has_no_processor(held[1]):
                return None  # one may be added later
            if held is not None:
                self._sinks[signal] = held
                self._found()
        return held

    def _logs(self) -> tuple[Sink, Any] | None:
        provider = self._loggers if self._loggers is not None else providers.global_logger_provider()
        return (LogEventSink(provider), provider) if provider is not None else None

    def _metrics(self) -> tuple[Sink, Any] | None:
        provider = self._meters if self._meters is not None else providers.global_meter_provider()
        return (MetricSink(provider, window=self._window), provider) if provider is not None else None

    def _spans(self) -> tuple[Sink, Any] | None:
        if self._tracers is not None:
            return _through(self._tracers)
        origin = self._pipeline()
        if origin is not None:
            try:
                return SpanSink(pipeline_tracer(*origin)), origin[0]  # flushed by the provider that flushes us
            except (TypeError, AttributeError, ImportError):
                pass  # an SDK that makes tracers in another way
        provider = providers.global_tracer_provider()
        return _through(provider) if provider is not None else None

    def flush(self, timeout_s: float) -> bool:
        """Have every provider in use deliver; False if one did not in time."""
        delivered = [sink.flush(timeout_s) for sink, _ in list(self._sinks.values())]
        return all(delivered)

    def close(self, timeout_s: float) -> None:
        """Deliver. The providers are the program's to shut down."""
        self.flush(timeout_s)


def _through(provider: Any) -> tuple[Sink, Any]:
    return SpanSink(provider.get_tracer(names.SCOPE), getattr(provider, "force_flush", None)), provider
