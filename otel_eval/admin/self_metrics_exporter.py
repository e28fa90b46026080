"""Self-metrics sent by OTLP at an interval.

There is no instrument on the path of a span: the numbers are gathered when they are sent. What cannot be sent is not kept; the
next export supersedes it.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from itertools import groupby
from typing import Any, Final

from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Gauge,
    Metric,
    MetricExporter,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

from otel_eval.admin.metrics import SelfMetric, collect_self_metrics
from otel_eval.native import VERSION
from otel_eval.retry import suppress_instrumentation

__all__ = ["SelfMetricsExporter", "metrics_data"]

_log = logging.getLogger("otel_eval")


def metrics_data(found: list[SelfMetric], resource: Resource, begun_ns: int, now_ns: int) -> MetricsData:
    """Readings, ordered by name, as the SDK's exporters take them; counters are cumulative since `begun_ns`."""
    metrics = []
    for name, rows in groupby(found, key=lambda each: each.name):
        group = list(rows)
        points = [NumberDataPoint(dict(each.labels), begun_ns, now_ns, each.value) for each in group]
        data = Gauge(points) if group[0].gauge else Sum(points, AggregationTemporality.CUMULATIVE, is_monotonic=True)
        metrics.append(Metric(name, None, group[0].unit, data))
    scope = ScopeMetrics(InstrumentationScope("otel_eval", VERSION), metrics, "")
    return MetricsData([ResourceMetrics(resource, [scope], "")])


class SelfMetricsExporter:
    """Sends readings every `interval_s` seconds, and once more at the end.

    Args:
        exporter: of the SDK's kind; it is shut down at the end.
        counts: what every part counted.
        resource: whose numbers they are.
    """

    def __init__(
        self, exporter: MetricExporter, counts: Callable[[], Mapping[str, Any]], resource: Resource, interval_s: float
    ) -> None:
        self._exporter, self._counts, self._resource, self._interval_s = exporter, counts, resource, interval_s
        self._begun_ns: Final = time.time_ns()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="otel-eval-self-metrics", daemon=True)
        self._failed = False

    def start(self) -> None:
        """Begin, on a thread of its own."""
        self._thread.start()

    def stop(self, timeout_s: float) -> None:
        """Send once more and end; what takes longer is left alone."""
        self._over.set()
        if self._thread.ident is None:  # it never began
            self._exporter.shutdown()
        else:
            self._thread.join(timeout_s)

    def _run(self) -> None:
        while not self._over.wait(self._interval_s):
            self._send()
        self._send()
        self._exporter.shutdown()

    def _send(self) -> None:
        try:
            with suppress_instrumentation():
                found = metrics_data(collect_self_metrics(self._counts()), self._resource, self._begun_ns, time.time_ns())
                self._exporter.export(found)  # which logs it if the endpoint does not accept them
        except Exception as error:  # noqa: BLE001 - numbers about the work must not end it
            if not self._failed:
                self._failed = True
                _log.warning("telemetry.otlp: metrics could not be made (%s)", type(error).__name__)
