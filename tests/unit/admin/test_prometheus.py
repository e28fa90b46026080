"""Names in Prometheus: the same by a scrape of ours, by OTLP, and by the SDK's exporter, and as the
reference has them.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from prometheus_client import CollectorRegistry, generate_latest

from otel_eval.admin.metrics import (
    Family,
    families_of,
    prometheus_name,
    prometheus_text,
    self_families,
)
from otel_eval.counters import count_name
from otel_eval.exporters.metrics import MetricsExporter
from otel_eval.exporters.window import WindowLimits
from otel_eval.model import Report, Result, Scored, Skipped, Trajectory, verdict_of
from otel_eval.testing import call

REFERENCE = Path(__file__).parents[3] / "docs/reference"


def reports() -> list[Report]:
    """Two revisions of a run with every kind of outcome that has an instrument, and a tool call
    that failed.
    """
    failed = call("lookup", error="Timeout", start_ns=0, end_ns=10**9)
    run = Trajectory(
        trace_id="0" * 31 + "1", span_id="0" * 15 + "1", agent="a", service="s", calls=(failed,)
    )
    outcomes = {
        "one": Scored(value=0.5, passed=False),
        "two": Skipped("", reason="recorded", details={"label": "x"}),
    }
    shared = {"evaluation": "e", "type": "t", "version": "1", "revision": 0}
    results = tuple(
        Result(scorer=name, outcome=outcome, result_id=name, **shared)
        for name, outcome in outcomes.items()
    )
    return [
        Report(run, "e", revision, results, standing=verdict_of(results)) for revision in (0, 1)
    ]


@pytest.fixture
def exported() -> tuple[list[Family], set[str]]:
    """What our scrape and the SDK's exporter have of one meter provider."""
    ours, registry = InMemoryMetricReader(), CollectorRegistry()
    theirs = PrometheusMetricReader(registry=registry)
    provider = MeterProvider(metric_readers=[ours, theirs], shutdown_on_exit=False)
    MetricsExporter(provider, window=WindowLimits(60, 10)).export(reports())
    families = list(families_of(ours.get_metrics_data()))
    names = set(re.findall(r"# TYPE (\S+)", generate_latest(registry).decode())) - {"target_info"}
    provider.shutdown()
    return families, names


# Prometheus 3.9.1, github.com/prometheus/otlptranslator with the default strategy
# UnderscoreEscapingWithSuffixes.
UNITS = {"s": "seconds", "By": "bytes", "ms": "milliseconds", "%": "percent"}


def by_otlp(name: str, unit: str, kind: str) -> str:
    """The name that Prometheus makes of an instrument that it receives by OTLP."""
    words = [word for word in re.split(r"[^a-zA-Z0-9:]", name) if word]
    suffix = (
        ""
        if "{" in unit
        else UNITS.get(unit, re.sub(r"[^a-zA-Z0-9:]", "", unit if unit != "1" else ""))
    )
    if suffix and suffix not in words:
        words.append(suffix)
    if kind == "counter":
        words = [*(word for word in words if word != "total"), "total"]
    if kind == "gauge" and unit == "1":
        words = [*(word for word in words if word != "ratio"), "ratio"]
    return "_".join(words)


def names(families: list[Family]) -> set[str]:
    return {prometheus_name(each.name, each.unit, each.kind) for each in families}


def test_an_instrument_has_one_name_by_every_way(exported: Any) -> None:
    families, of_sdk = exported
    assert (
        names(families) == of_sdk == {by_otlp(each.name, each.unit, each.kind) for each in families}
    )


def test_the_reference_lists_every_name(exported: Any) -> None:
    """And no other."""
    families, _ = exported
    rows = re.findall(
        r"^\| `(otel_eval\.\S+)` +\|.*\| `(otel_eval_\w+)` \|",
        (REFERENCE / "signals.md").read_text(),
        re.MULTILINE,
    )
    assert dict(rows) == {
        each.name: prometheus_name(each.name, each.unit, each.kind) for each in families
    }


def counted() -> list[Family]:
    """Self-metrics of every kind."""
    counts: dict[str, Any] = {"requests": {"grpc": 1}, "accepted_spans": {"grpc": 1}}
    counts |= {
        "oldest_trace_s": 1,
        "held_bytes": 1,
        "open_traces": 1,
        "evaluating_s": 1,
        "storage.bytes": 1,
    }
    counts |= {
        count_name("results.exported", exporter="a"): 1,
        count_name("receiver.certificate_not_after", receiver="otlp"): 1,
    }
    return self_families(counts)


def test_self_metrics_have_one_name_too() -> None:
    found = counted()
    assert names(found) == {by_otlp(each.name, each.unit, each.kind) for each in found}
    assert {
        "otel_eval_processor_oldest_trace_age_seconds",
        "otel_eval_processor_held_bytes",
    } < names(found)
    assert {
        "otel_eval_receiver_accepted_spans_total",
        "otel_eval_process_memory_rss_bytes",
    } < names(found)


def test_the_reference_of_self_metrics_has_prometheus_names() -> None:
    """Of those counted here, as whole names or as endings."""
    page = (REFERENCE / "self-metrics.md").read_text()
    endings = set(re.findall(r"`(_\w+)`", page))
    absent = {
        each
        for each in names(counted())
        if f"`{each}`" not in page and not any(each.endswith(end) for end in endings)
    }
    assert absent == set()


def test_a_histogram_is_cumulative_and_ends_with_infinity(exported: Any) -> None:
    families, _ = exported
    (scores,) = [each for each in families if each.name == "otel_eval.score"]
    rows = list(scores.rows)
    assert [value for suffix, _, value in rows if suffix == "_bucket"] == [0] * 5 + [1] * 8
    assert [labels["le"] for suffix, labels, _ in rows if suffix == "_bucket"][-2:] == ["1", "+Inf"]
    assert [(suffix, value) for suffix, _, value in rows[-2:]] == [("_sum", 0.5), ("_count", 1)]
    assert (
        'gen_ai_evaluation_name="one",otel_eval_scorer_type="t",le="0.5"} 1\n'
        in prometheus_text([scores])
    )


def test_a_set_of_labels_has_as_many_series_as_the_reference_tells(exported: Any) -> None:
    """Of one scorer and one tool."""
    families, _ = exported
    series = {
        each.name: sum(
            "one" in labels.values() or "lookup" in labels.values() for _, labels, _ in each.rows
        )
        for each in families
    }
    assert (
        series["otel_eval.score"],
        series["otel_eval.results"],
        series["otel_eval.revisions"],
    ) == (15, 4, 1)
    assert (
        series["otel_eval.tool.call.duration"],
        series["otel_eval.tool.calls"],
        series["otel_eval.tool.errors"],
    ) == (17, 1, 1)
