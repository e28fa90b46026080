"""The exporters of one OTLP endpoint as a process has them: results behind queues, metrics
pushed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from otel_eval.counters import Counters
from otel_eval.delivery.export_queue import start_queue
from otel_eval.exporters import Exporter
from otel_eval.exporters.attributes import SIGNALS
from otel_eval.exporters.jsonl import DeadLetterFile
from otel_eval.exporters.otlp import OtlpMetricsExporter, OtlpSignalExporter, SdkMetricExporter
from otel_eval.otlp.endpoint import Endpoint, for_signal
from otel_eval.retry import RetryPolicy

_DEFAULT = RetryPolicy()


def otlp_exporters(
    to: Endpoint,
    signals: Collection[str] = SIGNALS,
    *,
    counters: Counters | None = None,
    dead_letters: Callable[[], DeadLetterFile | None] = lambda: None,
    retry: RetryPolicy = _DEFAULT,
    problems: set[str] | None = None,
    interval_s: float = 5.0,
) -> list[Exporter]:
    """One exporter for each of the signals, in the order logs, metrics, spans."""
    counted = counters if counters is not None else Counters()

    def made(at: Endpoint, signal: str) -> Any:
        if signal == "metrics":
            pushed = SdkMetricExporter(at, counted, "otlp.metrics", retry)
            return OtlpMetricsExporter([pushed], interval_s=interval_s, counters=counted)
        return start_queue(OtlpSignalExporter(at, signal), counted, dead_letters(), retry)

    return [
        made(for_signal(to, signal, problems), signal) for signal in SIGNALS if signal in signals
    ]
