"""The self-metrics of the receiver, for OTLP and in the text format of Prometheus; instruments of
the SDK in that format.

Self-metrics have the names of the Collector with another prefix, because `otelcol_` is reserved for
the Collector. Names have neither `_total` nor a unit: Prometheus appends both to metrics received
by OTLP, and the text format here does the same, so that an instrument has one name in both ways.
Sources: exposition format 0.0.4 (prometheus.io/docs/instrumenting/exposition_formats),
opentelemetry.io/docs/collector/internal-telemetry,
opentelemetry.io/docs/specs/otel/compatibility/prometheus_and_openmetrics.
"""

from __future__ import annotations

import os
import re
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from otel_eval.counters import CountName, Counts, labels_of, without_labels
from otel_eval.descriptors import soft_limit
from otel_eval.native import VERSION, build_info
from otel_eval.retry import suppress_instrumentation
from otel_eval.worker_thread import WorkerThread

if TYPE_CHECKING:
    from opentelemetry.sdk.metrics.export import (
        DataPointT,
        Metric,
        MetricExporter,
        MetricsData,
    )
    from opentelemetry.sdk.resources import Resource

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

Row = tuple[str, Mapping[str, Any], float]
"""The suffix of a sample's name, its labels and its value."""

# Exporters disagree about the suffixes of other units and of "1": a test makes sure that no
# instrument has one.
_UNITS: Final = {"s": "seconds", "By": "bytes"}
_OTHERS: Final = re.compile(r"[^a-zA-Z0-9]+")
_ESCAPED: Final = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


@dataclass(frozen=True, slots=True)
class Family:
    """One metric and its samples.

    Attributes:
        name: the name in OpenTelemetry.
        kind: counter, gauge or histogram.
        unit: in UCUM; `s`, `By`, an annotation in braces, or none.
    """

    name: str
    kind: str
    unit: str
    description: str
    rows: Iterable[Row]


def prometheus_name(name: str, unit: str, kind: str) -> str:
    """The name of an instrument in Prometheus, the same for OTLP and for scraping.

    >>> prometheus_name("otel_eval.tool.call.duration", "s", "histogram")
    'otel_eval_tool_call_duration_seconds'
    >>> prometheus_name("otel_eval.tool.calls", "{call}", "counter")
    'otel_eval_tool_calls_total'
    """
    words = _OTHERS.sub("_", name).split("_")
    suffix = _UNITS.get(unit)
    if suffix and suffix not in words:
        words.append(suffix)
    return "_".join([*words, "total"] if kind == "counter" else words)


def prometheus_text(families: Iterable[Family]) -> str:
    r"""Metrics in the text format of Prometheus.

    >>> print(
    ...     prometheus_text([Family("a.b", "counter", "", "Hits.", [("", {"x": 'y"'}, 3)])]), end=""
    ... )
    # HELP a_b_total Hits.
    # TYPE a_b_total counter
    a_b_total{x="y\""} 3
    """
    return "".join(f"{line}\n" for family in families for line in _lines(family))


def _lines(family: Family) -> Iterator[str]:
    name = prometheus_name(family.name, family.unit, family.kind)
    yield f"# HELP {name} {family.description}"
    yield f"# TYPE {name} {family.kind}"
    for suffix, labels, value in family.rows:
        yield f"{name}{suffix}{_labels(labels)} {value:.15g}"


def _labels(labels: Mapping[str, Any]) -> str:
    pairs = ",".join([f"{_key(key)}={_value(str(value))}" for key, value in labels.items()])
    return "{" + pairs + "}" if pairs else ""


@lru_cache(256)
def _key(name: str) -> str:
    return _OTHERS.sub("_", name)


@lru_cache(4096)  # the series of a histogram have all labels but one in common
def _value(text: str) -> str:
    return f'"{text.translate(_ESCAPED)}"'


def families_of(collected: MetricsData | None) -> Iterator[Family]:
    """The metrics that a reader of the SDK collected: cumulative `MetricsData`, or None if nothing
    was measured.
    """
    for resource in collected.resource_metrics if collected is not None else ():
        for scope in resource.scope_metrics:
            for metric in scope.metrics:
                yield _family(metric)


def _family(metric: Metric) -> Family:
    """The family of a metric that a reader of the SDK collected."""
    from opentelemetry.sdk.metrics.export import Histogram, Sum  # loaded where there are metrics

    kind = "gauge"
    if isinstance(metric.data, Histogram):
        kind = "histogram"
    elif isinstance(metric.data, Sum) and metric.data.is_monotonic:
        kind = "counter"
    rows = [row for point in metric.data.data_points for row in _rows(point)]
    return Family(metric.name, kind, metric.unit or "", metric.description or "", rows)


def _rows(point: DataPointT) -> Iterator[Row]:
    """The rows of a number, or of one point of a histogram: cumulative buckets, sum and count."""
    from opentelemetry.sdk.metrics.export import HistogramDataPoint, NumberDataPoint

    labels: Mapping[str, Any] = point.attributes or {}
    if isinstance(point, NumberDataPoint):
        yield "", labels, point.value
    elif isinstance(point, HistogramDataPoint):
        bounds = [f"{bound:.15g}" for bound in point.explicit_bounds]
        for bound, count in zip([*bounds, "+Inf"], accumulate(point.bucket_counts), strict=True):
            yield "_bucket", {**labels, "le": bound}, count
        yield "_sum", labels, point.sum
        yield "_count", labels, point.count


PREFIX: Final = "otel_eval_"
_RECEIVER: Final = {"receiver": "otlp"}
_BEGUN: Final = time.monotonic()

# Name of a counter → name of the metric, as in the Collector, and unit. The label `data_type` tells
# what `items` are.
_COUNTERS: Final[Mapping[str, tuple[str, str]]] = {
    "spans_kept": ("processor_accepted_spans", "{spans}"),
    "spans_refused": ("processor_refused_spans", "{spans}"),
    "traces_opened": ("processor_new_trace_id_received", "{traces}"),
    "traces_over_limit": ("processor_trace_dropped_too_early", "{traces}"),
    "results.exported": ("exporter_sent_results", "{results}"),
    "results.export_failed": ("exporter_send_failed_results", "{results}"),
    "results.refused": ("exporter_enqueue_failed_results", "{results}"),
    "results.skipped": ("results_skipped", "{results}"),
    "scorers.results": ("scorer_results", "{results}"),
    "results.dropped": ("exporter_dropped_results", "{results}"),
    "results.given_up": ("exporter_given_up_results", "{results}"),
    "exports.outages": ("exporter_outages", "{outages}"),
    "exports.recovered": ("exporter_recoveries", "{outages}"),
    "kafka.spans": ("kafka_spans", "{spans}"),
    "kafka.records": ("kafka_records", "{records}"),
    "kafka.records_reread": ("kafka_records_reread", "{records}"),
    "judges.attempts": ("judges_attempts", "{requests}"),
    "judges.retries": ("judges_retries", "{requests}"),
    "judges.tokens": ("judges_tokens", "{tokens}"),
    "forward.sent": ("exporter_sent_items", "{items}"),
    "forward.refused": ("exporter_send_failed_items", "{items}"),
}
GAUGES: Final[Mapping[str, tuple[str, str] | None]] = {
    "open_traces": ("processor_traces_on_memory", "{traces}"),
    "oldest_trace_s": ("processor_oldest_trace_age", "s"),
    "held_bytes": ("processor_held_bytes", "By"),
    "evaluating_s": ("processor_current_evaluation_duration", "s"),
    "results.queued": ("exporter_queued_results", "{results}"),
    "results.oldest_s": ("exporter_oldest_queued_result_age", "s"),
    "exports.running_s": ("exporter_current_export_duration", "s"),
    "exports.unsupported": ("exporter_unsupported", ""),
    "kafka.lag": ("kafka_lag", "{records}"),
    "kafka.watermark_age_s": ("kafka_watermark_age", "s"),
    "forward.oldest_s": ("exporter_oldest_queued_item_age", "s"),
    "forward.waiting_bytes": ("exporter_queue_size", "By"),
    "storage.bytes": ("storage_size", "By"),
    "receiver.certificate_not_after": ("receiver_certificate_not_after", "s"),
    **dict.fromkeys(
        (
            "forward.held_spans",
            "storage.reports_waiting",
            "kafka.partitions",
            "late_pending",
            "workers.up",
        )
    ),
}
"""Gauges; all other counts are counters. None: the metric has the default name and no unit."""
# the unit, by the last part of a receiver counter's name
_OF_REQUESTS: Final = {"spans": "{spans}", "logs": "{records}"}
_LABELS: Final = {"signal": "data_type"}
_FAILURES: Final = (
    "bad_requests",
    "oversized_requests",
    "unauthenticated_requests",
    "internal_errors",
)


def self_families(counts: Counts) -> list[Family]:
    """The self-metrics: every count, and metrics of the process, ordered by name."""
    families = [
        family
        for key, value in counts.items()
        if key != "requests"
        for family in _families_of(key, value)
    ]
    return sorted(
        joined_families([*families, *_outcomes(counts), *_of_process()]),
        key=lambda family: family.name,
    )


def joined_families(families: Iterable[Family]) -> list[Family]:
    """One family for each name, with the rows of all families of that name."""
    first: dict[str, Family] = {}
    rows: defaultdict[str, list[Row]] = defaultdict(list)
    for family in families:
        first.setdefault(family.name, family)
        rows[family.name] += family.rows
    return [replace(family, rows=rows[name]) for name, family in first.items()]


def _number(
    name: str, labels: Mapping[str, str], value: float, unit: str = "", kind: str = "counter"
) -> Family:
    """A family of one sample, with a description made from its name."""
    # promtool rejects a metric without a description
    description = name.replace("_", " ") + (f" in {unit}" if unit else "")
    return Family(PREFIX + name, kind, unit, description, [("", labels, value)])


def _families_of(key: CountName, value: Any) -> Iterator[Family]:
    """The metrics of one count."""
    counted = without_labels(key)
    if isinstance(value, Mapping):  # a counter of the receiver, by transport
        name, unit = (
            f"receiver_{counted.replace('_logs', '_log_records')}",
            _OF_REQUESTS.get(counted.rpartition("_")[2], ""),
        )
        for transport in ("grpc", "http"):
            yield _number(name, _RECEIVER | {"transport": transport}, value.get(transport, 0), unit)
    elif isinstance(value, int | float):
        # The name begins with the part that counts; without a part it is a count of the processing
        # of spans.
        plain = counted.replace(".", "_") if "." in counted else f"processor_{counted}"
        name, unit = GAUGES.get(counted) or _COUNTERS.get(counted, (plain, ""))
        kind = "gauge" if counted in GAUGES else "counter"
        yield _number(name, _metric_labels(key), value, unit, kind)


def _metric_labels(key: CountName) -> dict[str, str]:
    """The labels of a count as metrics have them."""
    labels = {_LABELS.get(label, label): value for label, value in labels_of(key).items()}
    if labels and without_labels(key).startswith("forward."):
        labels["exporter"] = "forward"
    return dict(sorted(labels.items()))


def _outcomes(counts: Counts) -> Iterator[Family]:
    """`receiver_requests` by outcome, as in the Collector."""
    for transport in ("grpc", "http"):
        counted = {
            name: counts.get(name, {}).get(transport, 0)
            for name in ("requests", "refused_requests", *_FAILURES)
        }
        failures = sum(counted[name] for name in _FAILURES)
        good = counted["requests"] - counted["refused_requests"] - failures
        for outcome, value in (
            ("success", good),
            ("refused", counted["refused_requests"]),
            ("failure", failures),
        ):
            labels = _RECEIVER | {"transport": transport, "outcome": outcome}
            yield _number("receiver_requests", labels, value, "{requests}")


def _of_process() -> Iterator[Family]:
    """Build, uptime and CPU of this process; on Linux also its memory and open files."""
    times = os.times()
    yield _number("build_info", dict(sorted(build_info().items())), 1, kind="gauge")
    yield _number("process_uptime", {}, time.monotonic() - _BEGUN, "s")
    yield _number("process_cpu_seconds", {}, times.user + times.system, "s")
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
        files = len(os.listdir("/proc/self/fd")) - 1  # one is open only to list them
    except OSError:  # not Linux, or no file can be opened
        return
    yield _number("process_memory_rss", {}, pages * os.sysconf("SC_PAGE_SIZE"), "By", "gauge")
    yield _number("process_open_fds", {}, files, "{files}", "gauge")
    if (limit := soft_limit()) is not None:
        yield _number("process_max_fds", {}, limit, "{files}", "gauge")


def _metrics_data(
    families: Iterable[Family], resource: Resource, begun_ns: int, now_ns: int
) -> MetricsData:
    """The metrics in the form that exporters of the SDK accept; counters are cumulative since
    `begun_ns`.
    """
    # deferred: few receivers send their metrics
    from opentelemetry.sdk.metrics import export as sdk
    from opentelemetry.sdk.util.instrumentation import InstrumentationScope

    metrics = []
    for family in families:
        points = [
            sdk.NumberDataPoint(labels, begun_ns, now_ns, value) for _, labels, value in family.rows
        ]
        rising = sdk.AggregationTemporality.CUMULATIVE
        data = (
            sdk.Gauge(points)
            if family.kind == "gauge"
            else sdk.Sum(points, rising, is_monotonic=True)
        )
        metrics.append(sdk.Metric(family.name, None, family.unit, data))
    scope = sdk.ScopeMetrics(InstrumentationScope("otel_eval", VERSION), metrics, "")
    return sdk.MetricsData([sdk.ResourceMetrics(resource, [scope], "")])


class Counted(Protocol):
    """A process with counters."""

    def counts(self) -> Counts:
        """The counters of every part."""


class SelfMetricsExporter:
    """Sends the receiver's own metrics by OTLP every `interval_s` seconds, and once more at the
    end.

    Counters are read only when they are sent, so the path of a span has no instruments. A failed
    export is not retried, because the next one supersedes it.

    Args:
        exporter: a metric exporter of the SDK; it is shut down at the end.
        counted: has the counters of every part.
        resource: the resource of the metrics.
        interval_s: the time between two exports, in seconds.
    """

    def __init__(
        self,
        exporter: MetricExporter,
        counted: Counted,
        resource: Resource,
        interval_s: float,
    ) -> None:
        self._exporter, self._counted, self._resource = exporter, counted, resource
        self._begun_ns: Final = time.time_ns()
        problem = "telemetry.otlp: metrics could not be made"
        self._worker: Final = WorkerThread(
            "otel-eval-self-metrics", problem, tick=self._send, tick_s=interval_s
        )
        self._sends = False

    def start(self) -> None:
        """Start the thread that exports."""
        self._sends = self._worker.ensure()

    def stop(self, timeout_s: float) -> None:
        """Send once more, shut the exporter down, and wait at most `timeout_s` seconds for both."""
        if self._sends:
            self._worker.put(self._send)
        self._worker.put(self._exporter.shutdown)
        self._worker.stop(timeout_s)

    def _send(self) -> None:
        """Send the metrics once; a failure is logged by the exporter."""
        with suppress_instrumentation():
            metrics = _metrics_data(
                self_families(self._counted.counts()),
                self._resource,
                self._begun_ns,
                time.time_ns(),
            )
            self._exporter.export(metrics)  # the exporter logs failures
