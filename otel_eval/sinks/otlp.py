"""Send scores over OTLP, with providers of our own that nobody else sees.

Knows the official exporters and how to put them together; what becomes of a failed export is `refusal`'s to know. gRPC and
HTTP are loaded only when asked for.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from otel_eval.errors import ConfigError
from otel_eval.sinks import attributes as names
from otel_eval.sinks.endpoint import PATHS, Endpoint, for_signal, grpc_credentials, is_secure, url_of
from otel_eval.sinks.log_events import LogEventSink
from otel_eval.sinks.metrics import MetricSink
from otel_eval.sinks.refusal import Ledger, WatchedExporter, WatchedMetricExporter
from otel_eval.sinks.span_events import ReportIds, SpanSink
from otel_eval.sinks.tally import Counters, Tally, Warnings
from otel_eval.telling import redacted

if TYPE_CHECKING:
    from collections.abc import Callable

    from otel_eval.model import Report
    from otel_eval.ports import Sink
    from otel_eval.sinks.window import WindowLimits

__all__ = ["Endpoint", "metric_exporter", "otlp_sinks", "own_resource"]

_log = logging.getLogger("otel_eval")

_QUEUE: Final = 8192
_DELAY_MS: Final = 1000.0  # "seconds after each run", not the SDK's five


class _OtlpSink:
    """One signal of one endpoint, with the provider behind it."""

    def __init__(self, inner: Sink, provider: Any, ledger: Ledger) -> None:
        self.name: Final = inner.name
        self._inner, self._provider, self._ledger = inner, provider, ledger

    def emit(self, report: Report) -> bool:
        """Queue the report, unless the endpoint takes none of this signal. False: it is counted when it was exported."""
        if self._ledger.admit(len(report.results)):
            self._inner.emit(report)
        return False

    def counts(self) -> dict[str, int]:
        """How many results wait to be exported."""
        return {f"results.waiting{{sink={self.name}}}": self._ledger.queued}

    def flush(self, timeout_s: float) -> bool:
        """Export what is batched; False if an export failed meanwhile or time ran out."""
        before = self._ledger.failures
        return self._inner.flush(timeout_s) and self._ledger.failures == before

    def close(self, timeout_s: float) -> None:
        """Export what is batched and end."""
        del timeout_s  # the provider keeps its own; whoever closes several sinks leaves a slow one behind
        self._provider.shutdown()


def otlp_sinks(
    to: Endpoint,
    signals: Collection[str] = ("logs", "metrics", "spans"),
    *,
    counters: Counters | None = None,
    metrics_interval_s: float = 5.0,
    window: WindowLimits | None = None,
    in_process: bool = False,
) -> list[Sink]:
    """One sink per signal.

    Their resource is `service.name` otel-eval and what OTEL_RESOURCE_ATTRIBUTES and OTEL_SERVICE_NAME say. `Ledger` tells
    what is counted. With `in_process`, files that OTEL_EXPORTER_OTLP_CERTIFICATE and the like name and that cannot be used are
    left out with a warning: the environment must not end a program.

    Raises:
        ConfigError: a signal, the protocol or the endpoint cannot be used.
    """
    unknown = sorted(set(signals) - set(PATHS))
    if unknown:
        raise ConfigError(f"exporters.otlp.signals: {unknown[0]!r} is not a signal; choose from logs, metrics, spans")
    if "://" not in to.endpoint:
        place = redacted(to.endpoint)
        raise ConfigError(f"exporters.otlp.endpoint: {place!r} has no scheme; write e.g. 'http://{place}'")
    counted = counters if counters is not None else Tally()
    makers: dict[str, Callable[[Any, Ledger], Sink]] = {
        "logs": _logs,
        "metrics": lambda exporter, ledger: _metrics(exporter, ledger, metrics_interval_s, window),
        "spans": _spans,
    }
    warnings = Warnings()
    problems: set[str] | None = set() if in_process else None
    endpoints = {signal: for_signal(to, signal, problems) for signal in PATHS if signal in signals}
    for problem in sorted(problems or ()):
        _log.warning("%s; it is not used", problem)
    return [
        makers[signal](_exporter(at, signal), Ledger(f"otlp.{signal}", signal, at, counted, warnings, _QUEUE))
        for signal, at in endpoints.items()
    ]


def metric_exporter(to: Endpoint) -> Any:
    """The SDK's exporter of metrics for an endpoint.

    Raises:
        ConfigError: the endpoint cannot be used.
    """
    return _exporter(for_signal(to, "metrics"), "metrics")


def _exporter(to: Endpoint, signal: str) -> Any:
    return (_grpc_exporters(to) if to.protocol == "grpc" else _http_exporters(to))[signal]()


def own_resource() -> Any:
    """What our own telemetry says of who sends it."""
    from opentelemetry.sdk.resources import OTELResourceDetector, Resource

    return Resource.create({"service.name": "otel-eval"}).merge(OTELResourceDetector().detect())


def _logs(exporter: Any, ledger: Ledger) -> Sink:
    from opentelemetry.sdk._logs import LoggerProvider
    from opentelemetry.sdk._logs.export import BatchLogRecordProcessor

    provider = LoggerProvider(resource=own_resource(), shutdown_on_exit=False)
    watched: Any = WatchedExporter(exporter, ledger)
    provider.add_log_record_processor(
        BatchLogRecordProcessor(watched, schedule_delay_millis=_DELAY_MS, max_queue_size=_QUEUE, max_export_batch_size=512)
    )
    return _OtlpSink(LogEventSink(provider, ledger.sink), provider, ledger)


def _spans(exporter: Any, ledger: Ledger) -> Sink:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor
    from opentelemetry.sdk.trace.sampling import ALWAYS_ON

    ids = ReportIds()
    provider = TracerProvider(resource=own_resource(), sampler=ALWAYS_ON, id_generator=ids, shutdown_on_exit=False)
    watched: Any = WatchedExporter(exporter, ledger)
    provider.add_span_processor(
        BatchSpanProcessor(watched, schedule_delay_millis=_DELAY_MS, max_queue_size=_QUEUE, max_export_batch_size=512)
    )
    return _OtlpSink(SpanSink(provider.get_tracer(names.SCOPE), provider.force_flush, ledger.sink, ids), provider, ledger)


def _metrics(exporter: Any, ledger: Ledger, interval_s: float, window: WindowLimits | None) -> Sink:
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader

    reader = PeriodicExportingMetricReader(WatchedMetricExporter(exporter, ledger), export_interval_millis=interval_s * 1000)
    provider = MeterProvider(metric_readers=[reader], resource=own_resource(), shutdown_on_exit=False)
    return _OtlpSink(MetricSink(provider, ledger.sink, window=window), provider, ledger)


def _grpc_exporters(to: Endpoint) -> dict[str, Callable[[], Any]]:
    import grpc
    from opentelemetry.exporter.otlp.proto.grpc._log_exporter import OTLPLogExporter
    from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter
    from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter

    secure = is_secure(to)
    settings: dict[str, Any] = {
        "endpoint": to.endpoint,
        "insecure": not secure,
        "credentials": grpc_credentials(to) if secure else None,
        "headers": tuple((key.lower(), value) for key, value in to.headers.items()) or None,
        "timeout": to.timeout_s,
        "compression": grpc.Compression.Gzip if to.compression == "gzip" else grpc.Compression.NoCompression,
    }
    kinds = {"logs": OTLPLogExporter, "metrics": OTLPMetricExporter, "spans": OTLPSpanExporter}
    return {signal: partial(kind, **settings) for signal, kind in kinds.items()}


def _http_exporters(to: Endpoint) -> dict[str, Callable[[], Any]]:
    from opentelemetry.exporter.otlp.proto.http import Compression
    from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    if is_secure(to):
        to.tls.context()  # `requests` would fail at each export
    settings: dict[str, Any] = {
        "certificate_file": to.tls.ca.path if to.tls.ca else True,  # None: the SDK would read its variables once more
        "client_key_file": to.tls.key.path if to.tls.key else None,
        "client_certificate_file": to.tls.cert.path if to.tls.cert else None,
        "headers": dict(to.headers) or None,
        "timeout": to.timeout_s,
        "compression": Compression.Gzip if to.compression == "gzip" else Compression.NoCompression,
    }
    kinds = {"logs": OTLPLogExporter, "metrics": OTLPMetricExporter, "spans": OTLPSpanExporter}
    return {signal: partial(kind, endpoint=url_of(to, signal), **settings) for signal, kind in kinds.items()}
