"""Exports results over OTLP: log events and spans through a queue for each signal, metrics through
readers of the SDK.

Metrics are pushed to OTLP endpoints periodically, or collected when they are scraped.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

from opentelemetry.exporter.otlp.proto.common.metrics_encoder import encode_metrics
from opentelemetry.sdk.metrics import AlwaysOffExemplarFilter, Counter, Histogram, MeterProvider
from opentelemetry.sdk.metrics import export as sdk

from otel_eval.counters import Counters, CountName, Outage, Warnings, count_name
from otel_eval.errors import redacted
from otel_eval.exporters import Exporter
from otel_eval.exporters.attributes import PLAIN, ResultFormat
from otel_eval.exporters.metrics import MetricsExporter
from otel_eval.exporters.result_requests import REQUESTS, own_resource
from otel_eval.exporters.window import WindowLimits
from otel_eval.model import Report
from otel_eval.otlp.client import OtlpClient
from otel_eval.otlp.endpoint import Endpoint
from otel_eval.retry import Attempts, ExportResult, RetryPolicy, suppress_instrumentation
from otel_eval.sdk_internals import OTLPMetricExporterMixin

METRICS_INTERVAL_S: Final = 5.0
_MAX_SETS: Final = 2000  # more make a scrape of more than 70,000 series, which takes seconds
_DEFAULT: Final = RetryPolicy()


class OtlpSignalExporter(Exporter):
    """Exports one signal to an OTLP endpoint.

    It does not use the SDK's exporter, which reports neither why an endpoint refused a request, nor
    what it rejected, nor when to retry.

    Args:
        to: the endpoint, as `for_signal` returns it.
        signal: logs or spans.
        name: the name of the endpoint.
        form: what results carry besides the attributes of their events.

    Raises:
        ConfigError: a TLS file cannot be used.
    """

    def __init__(
        self, to: Endpoint, signal: str, name: str = "otlp", form: ResultFormat = PLAIN
    ) -> None:
        self.name = f"{name}.{signal}"
        self._encode, self._form = REQUESTS[signal], form
        self._client: Final = OtlpClient(to, "traces" if signal == "spans" else signal)

    def export(self, batch: Sequence[Report]) -> ExportResult:
        """Send the batch as one request."""
        return self._client.send(self._encode(batch, self._form))

    def close(self, timeout_s: float) -> None:
        """Close the connection."""
        self._client.close()


class SdkMetricExporter(OTLPMetricExporterMixin, sdk.MetricExporter):
    """Sends metrics, with retries for `to.timeout_s`. Nothing is queued, because the next export
    contains the sums again.

    OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE and _DEFAULT_HISTOGRAM_AGGREGATION set
    temporality and histograms. Counts `exports.sent` and `exports.failed`, `exports.rejected` (data
    points), `exports.outages` and `exports.recovered`.

    Args:
        to: the endpoint, as `for_signal` returns it.
        name: the name in counters and warnings.
        retry: how long to wait between attempts.

    Attributes:
        failures: the number of exports that failed.

    Raises:
        ConfigError: a TLS file cannot be used.
    """

    def __init__(
        self,
        to: Endpoint,
        counters: Counters,
        name: str = "otlp.metrics",
        retry: RetryPolicy = _DEFAULT,
    ) -> None:
        self._common_configuration()
        self.name: Final = name
        self._to, self._counters = to, counters
        self._client: Final = OtlpClient(to, "metrics")
        self._attempts: Final = Attempts(name, retry, "sums are kept")
        self._outage: Final = Outage(name, counters)
        self._warnings: Final = Warnings()
        self._stopping: Final = threading.Event()
        self.failures = 0

    def export(
        self, metrics_data: Any, timeout_millis: float = 10_000, **kwargs: Any
    ) -> sdk.MetricExportResult:
        """Send the metrics. SUCCESS also if the endpoint does not support them."""
        with suppress_instrumentation():
            result = self._send(encode_metrics(metrics_data).SerializeToString())
        if result.status == "ok":
            self._counters.add("exports.sent", exporter=self.name)
            self._outage.end(0)
            if result.rejected:
                self._counters.add("exports.rejected", result.rejected, exporter=self.name)
                self._warnings.say(
                    "rejected",
                    "%d data points of %s were rejected: %s",
                    result.rejected,
                    self.name,
                    result.reason or "no reason given",
                )
            return sdk.MetricExportResult.SUCCESS
        self.failures += 1
        self._counters.add("exports.failed", exporter=self.name)
        if result.status == "unsupported":
            # it is logged once; the SDK would log every export
            return sdk.MetricExportResult.SUCCESS
        self._outage.begin()
        self._warnings.say(
            "failed",
            "export to %s at %s failed (%s), retrying",
            self.name,
            redacted(self._to.endpoint),
            result.reason,
        )
        return sdk.MetricExportResult.FAILURE

    def _send(self, body: bytes) -> ExportResult:
        """Send with retries for the endpoint's timeout, and return the result of the last
        attempt.
        """
        until = time.monotonic() + self._to.timeout_s
        backoff = self._attempts.backoff(self._stopping)
        while True:
            result = self._attempts.make(lambda: self._client.send(body))
            if result.status != "retryable":
                return result
            backoff.wait(result.after_s, max(0.0, until - time.monotonic()))
            if time.monotonic() >= until or self._stopping.is_set():
                return result

    def counts(self) -> dict[CountName, int]:
        """1 if the endpoint does not support metrics."""
        name = count_name("exports.unsupported", exporter=self.name)
        return {name: 1} if self._attempts.unsupported else {}

    def force_flush(self, timeout_millis: float = 10_000) -> bool:
        """Return True: nothing is queued."""
        return True

    def shutdown(self, timeout_millis: float = 30_000, **kwargs: Any) -> None:
        """Stop retrying and close the connection."""
        self._stopping.set()
        self._client.close()


def _reader(kind: Callable[..., Any], *args: Any, **options: Any) -> Any:
    """Create a reader that keeps all series of the exporter; older SDKs have no limit that would
    have to be raised.
    """
    limit = 5 * _MAX_SETS  # four counters of results for each set, and the sets of "other"
    try:
        return kind(*args, cardinality_limits={Counter: limit, Histogram: limit}, **options)
    except TypeError:
        return kind(*args, **options)


class OtlpMetricsExporter(MetricsExporter):
    """Exports metrics through a provider of its own, whose readers push them to endpoints or
    collect them for a scrape.

    Args:
        exporters: the exporters to the endpoints; none if the metrics are only scraped.
        window: the limits of the sliding windows; None: there are none.
        scraped: whether `collect` is used.
        by_version: whether scores have the version of the service as a label.
        interval_s: seconds between two exports.
        instance_id: `service.instance.id`.
    """

    def __init__(
        self,
        exporters: Sequence[SdkMetricExporter],
        window: WindowLimits | None = None,
        *,
        scraped: bool = False,
        by_version: bool = False,
        interval_s: float = METRICS_INTERVAL_S,
        counters: Counters | None = None,
        instance_id: str | None = None,
    ) -> None:
        self._exporters: Final = tuple(exporters)
        self._scraped: Final = _reader(sdk.InMemoryMetricReader) if scraped else None
        readers = [] if self._scraped is None else [self._scraped]
        readers += [
            _reader(
                sdk.PeriodicExportingMetricReader,
                exporter,
                export_interval_millis=interval_s * 1000,
            )
            for exporter in exporters
        ]
        # The text of a scrape has no exemplars, and choosing one takes longer than counting.
        exemplars: dict[str, Any] = (
            {} if exporters else {"exemplar_filter": AlwaysOffExemplarFilter()}
        )
        provider = MeterProvider(
            readers, own_resource(instance_id), shutdown_on_exit=False, **exemplars
        )
        name = exporters[0].name if len(exporters) == 1 else "metrics"
        super().__init__(
            provider,
            name,
            max_sets=_MAX_SETS,
            window=window,
            by_version=by_version,
            counters=counters,
        )

    def export(self, batch: Sequence[Report]) -> ExportResult:
        """Record the reports in the metrics. What counts as exported are exports of the metrics,
        not results.
        """
        super().export(batch)
        return ExportResult("accepted")

    def collect(self) -> Any:
        """Collect the current metrics as the SDK's `MetricsData`, cumulative; None if nothing was
        recorded.
        """
        return self._scraped.get_metrics_data() if self._scraped is not None else None

    def counts(self) -> dict[CountName, int]:
        """1 for each endpoint that does not support metrics; nothing is queued."""
        counts: dict[CountName, int] = {}
        for exporter in self._exporters:
            counts |= exporter.counts()
        return counts

    def flush(self, timeout_s: float) -> bool:
        """Export the metrics; False if that failed or took longer than `timeout_s` seconds."""
        before = sum(exporter.failures for exporter in self._exporters)
        is_flushed = super().flush(timeout_s)
        return is_flushed and sum(exporter.failures for exporter in self._exporters) == before

    def close(self, timeout_s: float) -> None:
        """Export the metrics and shut the provider down, which has a timeout of its own."""
        self._provider.shutdown()
