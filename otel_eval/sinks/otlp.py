"""Send scores over OTLP: log events and spans through a queue for each signal, metrics through the SDK's periodic reader."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any, Final

from otel_eval.errors import ConfigError
from otel_eval.sinks.delivery.carrier import OtlpCarrier
from otel_eval.sinks.delivery.outbox import Outbox
from otel_eval.sinks.delivery.queued import QueuedExporter
from otel_eval.sinks.endpoint import SIGNALS, Endpoint, for_signal
from otel_eval.sinks.metric_exporter import OtlpMetricExporter
from otel_eval.sinks.metrics import MetricSink
from otel_eval.sinks.resource import own_resource
from otel_eval.sinks.responses import SignalHistory
from otel_eval.sinks.retry import RetryPolicy
from otel_eval.sinks.tally import Counters, Tally
from otel_eval.telling import redacted

if TYPE_CHECKING:
    from otel_eval.model import Report
    from otel_eval.ports import Sink
    from otel_eval.sinks.delivery.dead_letters import DeadLetters
    from otel_eval.sinks.window import WindowLimits

__all__ = ["metric_exporter", "otlp_sinks"]

_log = logging.getLogger("otel_eval")

_QUEUE: Final = 8192  # results
_LINGER_S: Final = 1.0  # "seconds after each run", in one request with those of other runs
_DEFAULT: Final = RetryPolicy()


class _Metrics:
    """Metrics of one endpoint, with the provider behind them."""

    def __init__(self, inner: MetricSink, provider: Any, exporter: OtlpMetricExporter) -> None:
        self.name: Final = inner.name
        self._inner, self._provider, self._exporter = inner, provider, exporter

    def emit(self, report: Report) -> bool:
        """Add to the sums. False: exports are counted, not results."""
        self._inner.emit(report)
        return False

    def counts(self) -> dict[str, int]:
        """1 while the endpoint does not support metrics; nothing waits."""
        return self._exporter.counts()

    def flush(self, timeout_s: float) -> bool:
        """Export the sums; False if that failed or time ran out."""
        before = self._exporter.failures
        return self._inner.flush(timeout_s) and self._exporter.failures == before

    def close(self, timeout_s: float) -> None:
        """Export the sums and end."""
        del timeout_s  # the provider keeps its own; whoever closes several sinks leaves a slow one behind
        self._provider.shutdown()


def otlp_sinks(
    to: Endpoint,
    signals: Collection[str] = SIGNALS,
    *,
    counters: Counters | None = None,
    metrics_interval_s: float = 5.0,
    window: WindowLimits | None = None,
    in_process: bool = False,
    dead_letters: Callable[[], DeadLetters | None] = lambda: None,
    retry: RetryPolicy = _DEFAULT,
) -> list[Sink]:
    """One sink per signal.

    Their resource is `service.name` otel-eval and what OTEL_RESOURCE_ATTRIBUTES and OTEL_SERVICE_NAME say. With `in_process`,
    files that OTEL_EXPORTER_OTLP_CERTIFICATE and the like name and that cannot be used are left out with a warning: the
    environment must not end a program.

    Args:
        dead_letters: opens what takes results that are refused permanently, for each signal; None: they are counted.
        retry: how long to wait between attempts.

    Raises:
        ConfigError: a signal, the protocol or the endpoint cannot be used.
    """
    unknown = sorted(set(signals) - set(SIGNALS))
    if unknown:
        raise ConfigError(f"exporters.otlp.signals: {unknown[0]!r} is not a signal; choose from logs, metrics, spans")
    if "://" not in to.endpoint:
        place = redacted(to.endpoint)
        raise ConfigError(f"exporters.otlp.endpoint: {place!r} has no scheme; write e.g. 'http://{place}'")
    counted = counters if counters is not None else Tally()
    problems: set[str] | None = set() if in_process else None
    endpoints = {signal: for_signal(to, signal, problems) for signal in SIGNALS if signal in signals}
    for problem in sorted(problems or ()):
        _log.warning("%s; it is not used", problem)
    return [
        _metrics(OtlpMetricExporter(at, counted, retry=retry), metrics_interval_s, window)
        if signal == "metrics"
        else _queued(OtlpCarrier(at, signal), counted, dead_letters(), retry)
        for signal, at in endpoints.items()
    ]


def _queued(carrier: OtlpCarrier, counters: Counters, dead_letters: DeadLetters | None, retry: RetryPolicy) -> Sink:
    history = SignalHistory(recheck_s=retry.recheck_s, clock=retry.clock)

    def queue() -> Outbox:
        return Outbox(
            carrier,
            counters,
            limit=_QUEUE,
            dead_letters=dead_letters,
            retry=retry,
            history=history,
            linger_s=_LINGER_S,
        )

    return QueuedExporter(queue, counters, _QUEUE, dead_letters)


def _metrics(exporter: OtlpMetricExporter, interval_s: float, window: WindowLimits | None) -> Sink:
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader

    reader = PeriodicExportingMetricReader(exporter, export_interval_millis=interval_s * 1000)
    provider = MeterProvider(metric_readers=[reader], resource=own_resource(), shutdown_on_exit=False)
    return _Metrics(MetricSink(provider, exporter.name, window=window), provider, exporter)


def metric_exporter(to: Endpoint) -> OtlpMetricExporter:
    """The exporter of the receiver's own metrics to an endpoint.

    Raises:
        ConfigError: the endpoint cannot be used.
    """
    return OtlpMetricExporter(for_signal(to, "metrics"), Tally(), "telemetry.otlp.metrics")
