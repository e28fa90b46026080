"""The SDK's interface to the OTLP client for metrics: of results in a process and in the receiver, and of the receiver itself."""

from __future__ import annotations

import threading
import time
from typing import Any, Final

from opentelemetry.exporter.otlp.proto.common._internal.metrics_encoder import OTLPMetricExporterMixin
from opentelemetry.exporter.otlp.proto.common.metrics_encoder import encode_metrics
from opentelemetry.sdk.metrics.export import MetricExporter, MetricExportResult

from otel_eval.quiet import quiet
from otel_eval.sinks.attempts import Attempts
from otel_eval.sinks.client import OtlpClient
from otel_eval.sinks.endpoint import Endpoint
from otel_eval.sinks.responses import ExportResult, SignalHistory
from otel_eval.sinks.retry import RetryPolicy
from otel_eval.sinks.tally import Counters, Outage, Warnings
from otel_eval.telling import redacted

__all__ = ["OtlpMetricExporter"]

_DEFAULT: Final = RetryPolicy()


class OtlpMetricExporter(OTLPMetricExporterMixin, MetricExporter):
    """Sends sums, and tries for `to.timeout_s`; what a later export contains anyway is not kept.

    Temporality and histograms are as OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE and _DEFAULT_HISTOGRAM_AGGREGATION say.
    Counts `exports.sent` and `exports.failed`, `exports.rejected` (data points), `exports.outages` and `exports.recovered`.

    Args:
        to: the endpoint, as `for_signal` returns it.
        name: in counters and warnings.
        retry: how long to wait between attempts.

    Attributes:
        failures: exports that failed so far.

    Raises:
        ConfigError: a TLS file cannot be used.
    """

    def __init__(self, to: Endpoint, counters: Counters, name: str = "otlp.metrics", retry: RetryPolicy = _DEFAULT) -> None:
        self._common_configuration()
        self.name: Final = name
        self._to, self._counters = to, counters
        self._client: Final = OtlpClient(to, "metrics")
        history = SignalHistory(recheck_s=retry.recheck_s, clock=retry.clock)
        self._attempts: Final = Attempts(name, retry, history, "sums are kept")
        self._outage: Final = Outage(name, counters)
        self._warnings: Final = Warnings()
        self._stopping: Final = threading.Event()
        self.failures = 0

    def export(self, metrics_data: Any, timeout_millis: float = 10_000, **kwargs: Any) -> MetricExportResult:
        """Send the sums."""
        result = self._sent(encode_metrics(metrics_data).SerializeToString())
        if result.status == "ok":
            self._counters.add("exports.sent", sink=self.name)
            self._outage.over(0)
            self._rejected(result)
            return MetricExportResult.SUCCESS
        self.failures += 1
        self._counters.add("exports.failed", sink=self.name)
        if result.status == "unsupported":
            return MetricExportResult.SUCCESS  # it is logged once; the SDK would log every export
        self._outage.began()
        place = redacted(self._to.endpoint)
        self._warnings.say("failed", "export to %s at %s failed (%s), retrying", self.name, place, result.reason)
        return MetricExportResult.FAILURE

    def _rejected(self, result: ExportResult) -> None:
        if result.rejected:
            self._counters.add("exports.rejected", result.rejected, sink=self.name)
            reason = result.reason or "no reason given"
            self._warnings.say("rejected", "%d data points of %s were rejected: %s", result.rejected, self.name, reason)

    def _sent(self, body: bytes) -> ExportResult:
        """The result of the last attempt, none of which begins later than the endpoint's timeout."""
        until, backoff = time.monotonic() + self._to.timeout_s, self._attempts.backoff(self._stopping)
        while True:
            result = self._attempts.make(lambda: self._attempt(body))
            if result.status == "retryable":
                backoff.wait(result.after_s, max(0.0, until - time.monotonic()))
            if result.status != "retryable" or time.monotonic() >= until or self._stopping.is_set():
                return result

    def _attempt(self, body: bytes) -> ExportResult:
        with quiet():
            return self._client.send(body)

    def counts(self) -> dict[str, int]:
        """1 while the endpoint does not support metrics."""
        return {f"exports.unsupported{{sink={self.name}}}": 1} if self._attempts.unsupported else {}

    def force_flush(self, timeout_millis: float = 10_000) -> bool:
        """Nothing is held here."""
        return True

    def shutdown(self, timeout_millis: float = 30_000, **kwargs: Any) -> None:
        """Close the connection."""
        self._stopping.set()
        self._client.close()
