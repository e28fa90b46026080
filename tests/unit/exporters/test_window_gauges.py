"""Gauges of windows, read through the real SDK in memory, with a clock that the tests set."""

from __future__ import annotations

import gc
import os
import weakref
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from otel_eval.exporters.metrics import MetricsExporter
from otel_eval.exporters.window import WindowGauges, WindowLimits, gauges_of
from otel_eval.model import Report, Skipped

Reports = Callable[..., Report]
LIMITS = WindowLimits(3600.0, 1000)
OURS = "otel_eval.window."


class Metered:
    """A provider, the gauges behind it, and the time."""

    def __init__(self, limits: WindowLimits = LIMITS) -> None:
        self.reader, self.now = InMemoryMetricReader(), 0.0
        self.provider = MeterProvider(metric_readers=[self.reader], shutdown_on_exit=False)
        self.gauges = WindowGauges(self.provider.get_meter("otel_eval"), limits, lambda: self.now)

    def read(self, *keys: str) -> dict[Any, float]:
        """Every value by the name of its gauge and by these attributes."""
        return read(self.reader, *keys)


def read(reader: InMemoryMetricReader, *keys: str) -> dict[Any, float]:
    data = reader.get_metrics_data()
    metrics = [
        each
        for of in (data.resource_metrics if data else ())
        for scope in of.scope_metrics
        for each in scope.metrics
    ]
    return {
        (
            metric.name.removeprefix(OURS),
            *(point.attributes[key] for key in keys if key in point.attributes),
        ): point.value
        for metric in metrics
        if metric.name.startswith(OURS) and metric.unit and metric.description
        for point in metric.data.data_points
    }


def labelled(report: Report, label: str, run: int, revision: int = 0) -> Report:
    """A report of a run with a label."""
    outcome = Skipped("recorded for the distribution", details={"label": label})
    results = tuple(replace(each, outcome=outcome) for each in report.results)
    return replace(
        report,
        trajectory=replace(report.trajectory, span_id=f"{run:016x}"),
        results=results,
        revision=revision,
    )


def test_scores_have_a_rate_a_mean_and_quantiles(report: Reports):
    """By evaluation, scorer and type; a skipped one has none, and is not in the window."""
    metered = Metered()
    metered.gauges.add(report("scored", "below", "skipped", "failed"))
    got = metered.read("gen_ai.evaluation.name", "otel_eval.quantile")
    assert {key: value for key, value in got.items() if "below" in key} == {
        ("results", "below"): 1,
        ("pass_rate", "below"): 0.0,
        ("score.mean", "below"): 0.25,
        ("score.quantile", "below", "p50"): 0.25,
        ("score.quantile", "below", "p90"): 0.25,
        ("score.quantile", "below", "p95"): 0.25,
    }
    assert {key: value for key, value in got.items() if "skipped" in key or "failed" in key} == {
        ("results", "skipped"): 0,
        ("results", "failed"): 0,
    }
    assert {key[1:] for key in metered.read("otel_eval.evaluation", "otel_eval.scorer.type")} == {
        ("policy", "tool_call_order")
    }


def test_a_revision_replaces_the_runs_earlier_result(report: Reports):
    """Of this run, evaluation and scorer alone; a late older one changes nothing."""
    metered, first = Metered(), report("skipped")
    for label, run, revision in [("no", 1, 0), ("no", 2, 0), ("yes", 1, 2), ("no", 1, 1)]:
        metered.gauges.add(labelled(first, label, run, revision))
    got = metered.read("otel_eval.label")
    assert got == {
        ("results",): 2,
        ("label.count", "no"): 1,
        ("label.count", "yes"): 1,
        ("label.fraction", "no"): 0.5,
        ("label.fraction", "yes"): 0.5,
        ("label.skew",): 0.0,
    }


def test_runs_without_ids_are_runs_of_their_own(report: Reports):
    """Without ids it is not known that two of them are the same."""
    metered = Metered()
    for _ in range(3):
        metered.gauges.add(report("scored", trace_id="", span_id=""))
    assert metered.read()[("results",)] == 3


def test_results_older_than_the_window_are_not_reported(report: Reports):
    """The number of results is 0; an empty window has no rate and no mean."""
    metered = Metered()
    metered.gauges.add(report("scored"))
    metered.now = 3600.0
    assert metered.read() == {("results",): 0}


def test_labels_are_bounded_and_the_rest_is_counted_together(report: Reports):
    """At most 200 names ever, whatever comes and goes, the most frequent first; nothing is lost
    from the sum.
    """
    metered, first, seen = Metered(), report("skipped"), set()
    for begin in range(0, 400, 100):
        metered.now += 4000.0
        for number in range(begin, begin + 100):
            metered.gauges.add(labelled(first, f"label {number}", number))
        metered.gauges.add(labelled(first, f"label {begin + 99}", 9999))
        counts = {
            key[1]: value
            for key, value in metered.read("otel_eval.label").items()
            if key[0] == "label.count"
        }
        assert sum(counts.values()) == 101
        seen |= set(counts)
    metered.now += 4000.0
    metered.gauges.add(labelled(first, "one more", 1))
    assert (len(seen), metered.read("otel_eval.label")[("label.count", "other")]) == (201, 1)


def test_a_label_is_cut(report: Reports):
    """A run may answer at any length."""
    metered = Metered()
    metered.gauges.add(labelled(report("skipped"), "x" * 10_000, 1))
    assert ("label.count", "x" * 200) in metered.read("otel_eval.label")


def test_a_label_can_be_sent(report: Reports):
    """JSON may spell half a surrogate pair, which UTF-8 cannot carry."""
    metered = Metered()
    metered.gauges.add(labelled(report("skipped"), "a\ud800", 1))
    assert ("label.count", "a?") in metered.read("otel_eval.label")


def test_a_scorer_may_look_at_fewer_runs(report: Reports):
    """As `label_distribution` may say; the others look at all."""
    metered = Metered(WindowLimits(3600.0, 4, {("policy", "scored"): 2}))
    for run in range(1, 10):
        metered.gauges.add(report("scored", "below", span_id=f"{run:016x}"))
    got = metered.read("gen_ai.evaluation.name")
    assert (got[("results", "scored")], got[("results", "below")]) == (2, 4)


def test_two_exporters_of_one_provider_share_the_windows(report: Reports):
    """It would ask only the first; and it is freed when it has no other reference."""
    reader = InMemoryMetricReader()
    provider = MeterProvider(metric_readers=[reader], shutdown_on_exit=False)
    for evaluation in ("one", "two"):
        MetricsExporter(provider, window=LIMITS).export([report("scored", evaluation=evaluation)])
    assert {key[1] for key in read(reader, "otel_eval.evaluation")} == {"one", "two"}
    held = weakref.ref(gauges_of(provider, LIMITS))
    del provider, reader
    gc.collect()
    assert held() is None


@pytest.mark.parametrize("limits", [None, WindowLimits(0.0, 10), WindowLimits(60.0, 0)])
def test_there_are_no_gauges_where_there_is_no_window(report: Reports, limits: WindowLimits | None):
    """Turned off, or not configured."""
    reader = InMemoryMetricReader()
    MetricsExporter(
        MeterProvider(metric_readers=[reader], shutdown_on_exit=False), window=limits
    ).export([report("scored")])
    assert read(reader) == {}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_child_process_begins_with_empty_windows(report: Reports):
    """Its parent publishes the earlier results, and may hold the lock."""
    metered = Metered()
    metered.gauges.add(report("scored"))
    with metered.gauges._lock:
        pid = os.fork()
        if not pid:
            metered.gauges.add(report("below"))
            counted = [key for key in metered.read("gen_ai.evaluation.name") if key[0] == "results"]
            os._exit(0 if counted == [("results", "below")] else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_all_windows_together_have_one_bound(
    report: Reports, caplog: pytest.LogCaptureFixture
) -> None:
    """The largest give way; a window within its share keeps its results."""
    metered = Metered(WindowLimits(3600.0, 1000, max_bytes=100 * 400))
    small = report("below")
    metered.gauges.add(small)
    for run in range(300):
        one = report("scored")
        metered.gauges.add(replace(one, trajectory=replace(one.trajectory, span_id=f"{run:016x}")))
    counts = metered.read("gen_ai.evaluation.name")
    assert counts["results", "scored"] == 99
    assert counts["results", "below"] == 1
    for run in range(300, 330):
        metered.gauges.add(
            replace(small, trajectory=replace(small.trajectory, span_id=f"{run:016x}"))
        )
    counts = metered.read("gen_ai.evaluation.name")
    assert (counts["results", "scored"], counts["results", "below"]) == (69, 31)
    assert caplog.text.count("window.max_size is reached") == 1
