"""What the receiver tells of itself, from the configuration.

Knows the keys of `telemetry`; opens what they name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from otel_eval.admin import AdminServer, Readiness
from otel_eval.config import MetricsOtlp, Telemetry, client_tls
from otel_eval.otlp.endpoint import Endpoint

if TYPE_CHECKING:
    from otel_eval.admin.self_metrics_exporter import SelfMetricsExporter

__all__ = ["Operating", "metrics_endpoint"]


class Operating:
    """The pages and the metrics of one receiver.

    Args:
        given: the configuration's `telemetry`.
        counts: what every part counted.
        readiness: whether the receiver works.

    Raises:
        ConfigError: the endpoint for metrics cannot be used.
    """

    def __init__(self, given: Telemetry, counts: Callable[[], Mapping[str, Any]], readiness: Callable[[], Readiness]) -> None:
        self._site: Final = AdminServer(given.endpoint, counts, readiness, given.allowed_hosts) if given.endpoint else None
        self._beat: Final = _beat(given.otlp, counts) if given.otlp else None
        self.address: str | None = None

    def start(self) -> None:
        """Serve the pages and begin to send.

        Raises:
            ConfigError: the address cannot be had.
        """
        self.address = self._site.start() if self._site else None
        if self._beat:
            self._beat.start()

    def stop(self, timeout_s: float) -> None:
        """Send once more, then close the address."""
        if self._beat:
            self._beat.stop(timeout_s)
        if self._site:
            self._site.stop()


def metrics_endpoint(given: MetricsOtlp) -> Endpoint:
    """Where `telemetry.otlp` sends to."""
    return Endpoint(
        endpoint=given.endpoint,
        protocol=given.protocol,
        headers=given.headers,
        timeout_s=given.timeout,
        tls=client_tls(given.tls, "telemetry.otlp.tls"),
    )


def _beat(given: MetricsOtlp, counts: Callable[[], Mapping[str, Any]]) -> SelfMetricsExporter:
    # Deferred: the exporters load grpc's client or requests.
    from otel_eval.admin.self_metrics_exporter import SelfMetricsExporter
    from otel_eval.exporters.otlp import metric_exporter, own_resource

    return SelfMetricsExporter(metric_exporter(metrics_endpoint(given)), counts, own_resource(), given.interval)
