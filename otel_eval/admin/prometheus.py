"""Prometheus' text format, for the receiver's own numbers and for the instruments of the SDK.

Names are those that Prometheus gives the same instruments when they are pushed by OTLP. Sources: exposition format 0.0.4
(prometheus.io/docs/instrumenting/exposition_formats), opentelemetry.io/docs/specs/otel/compatibility/prometheus_and_openmetrics.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from typing import Any, Final

__all__ = ["CONTENT_TYPE", "Family", "Row", "families_of", "prometheus_name", "prometheus_text"]

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

Row = tuple[str, Mapping[str, Any], float]
"""The suffix of a sample's name, its labels and its value."""

_UNITS: Final = {
    "s": "seconds",
    "By": "bytes",
}  # further ones, and "1", have rules that exporters disagree on: a test keeps them out
_OTHERS: Final = re.compile(r"[^a-zA-Z0-9]+")
_ESCAPED: Final = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


@dataclass(frozen=True, slots=True)
class Family:
    """One metric and its samples.

    Attributes:
        name: as OpenTelemetry names it.
        kind: counter, gauge or histogram.
        unit: in UCUM; `s`, `By`, an annotation in braces, or none.
    """

    name: str
    kind: str
    unit: str
    description: str
    rows: Iterable[Row]


def prometheus_name(name: str, unit: str, kind: str) -> str:
    """The name under which Prometheus has an instrument, whichever way it comes.

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
    r"""The text of metrics.

    >>> print(prometheus_text([Family("a.b", "counter", "", "Hits.", [("", {"x": 'y"'}, 3)])]), end="")
    # HELP a_b_total Hits.
    # TYPE a_b_total counter
    a_b_total{x="y\""} 3
    """
    return "".join(f"{line}\n" for each in families for line in _lines(each))


def _lines(family: Family) -> Iterator[str]:
    name = prometheus_name(family.name, family.unit, family.kind)
    if family.description:
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


def families_of(collected: Any) -> Iterator[Family]:
    """The metrics in what a reader of the SDK collected (`MetricsData`, or None if nothing was measured), cumulative."""
    for resource in collected.resource_metrics if collected is not None else ():
        for scope in resource.scope_metrics:
            for metric in scope.metrics:
                yield _family(metric)


def _family(metric: Any) -> Family:
    points, kind = metric.data.data_points, "gauge"
    if hasattr(metric.data, "is_monotonic"):
        kind = "counter" if metric.data.is_monotonic else "gauge"
    elif hasattr(metric.data, "aggregation_temporality"):
        rows = [row for point in points for row in _histogram(point)]
        return Family(metric.name, "histogram", metric.unit or "", metric.description or "", rows)
    rows = [("", point.attributes, point.value) for point in points]
    return Family(metric.name, kind, metric.unit or "", metric.description or "", rows)


def _histogram(point: Any) -> Iterator[Row]:
    bounds = [f"{bound:.15g}" for bound in point.explicit_bounds]
    for bound, count in zip([*bounds, "+Inf"], accumulate(point.bucket_counts), strict=True):
        yield "_bucket", {**point.attributes, "le": bound}, count
    yield "_sum", point.attributes, point.sum
    yield "_count", point.attributes, point.count
