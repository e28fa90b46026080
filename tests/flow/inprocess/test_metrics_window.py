"""Runs of a program, and the metrics of the latest of them."""

from __future__ import annotations

from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider

from otel_eval import EvalSpanProcessor

SCORERS = [
    {"type": "tool_call_count", "criteria": {"search": "== 2"}},
    {"type": "label_distribution", "label": "intent", "window": 3},
]
INTENTS = ("return", "refund", "refund", "refund", "return")


def gauges(config: dict[str, Any]) -> dict[tuple[str, ...], float]:
    """Five runs with one search more each, and every point of the windows by gauge and scorer,
    label or quantile.
    """
    config = {**config, "conventions": {"records_tool_spans": ["app"]}}
    reader, provider = InMemoryMetricReader(), TracerProvider(shutdown_on_exit=False)
    meters = MeterProvider(metric_readers=[reader], shutdown_on_exit=False)
    provider.add_span_processor(EvalSpanProcessor(config, meter_provider=meters))
    tracer = provider.get_tracer("app")
    for searches, intent in enumerate(INTENTS):
        with tracer.start_as_current_span(
            "invoke_agent a", attributes={"gen_ai.operation.name": "invoke_agent", "intent": intent}
        ):
            for _ in range(searches):
                tool = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "search"}
                tracer.start_span("execute_tool search", attributes=tool).end()
    assert provider.force_flush(300_000)
    scopes = [
        scope for each in reader.get_metrics_data().resource_metrics for scope in each.scope_metrics
    ]
    provider.shutdown()
    keys = ("gen_ai.evaluation.name", "otel_eval.label", "otel_eval.quantile")
    return {
        (
            metric.name,
            *(point.attributes[key] for key in keys if key in point.attributes),
        ): point.value
        for scope in scopes
        for metric in scope.metrics
        if metric.name.startswith("otel_eval.window.")
        for point in metric.data.data_points
    }


def test_metrics_tell_of_the_latest_runs():
    """One of five passed; of the last three runs two wanted a refund, as `window` of the scorer
    says.
    """
    got = gauges({"signals": ["metrics"], "evaluations": [{"name": "e", "scorers": SCORERS}]})
    name = "otel_eval.window."
    assert got[(f"{name}results", "tool_call_count")] == 5
    assert got[(f"{name}pass_rate", "tool_call_count")] == pytest.approx(1 / 5)
    assert got[(f"{name}score.quantile", "tool_call_count", "p95")] == 1.0
    labels = {key[2]: value for key, value in got.items() if key[0] == f"{name}label.count"}
    assert labels == {"refund": 2, "return": 1}
    assert got[(f"{name}label.skew", "label_distribution")] == pytest.approx(1 / 3)


@pytest.mark.parametrize("window", [{"time": 0}, {"results": 0}])
def test_a_window_of_nothing_is_off(window: dict[str, int]):
    """No metric of it is there."""
    assert (
        gauges(
            {
                "signals": ["metrics"],
                "window": window,
                "evaluations": [{"name": "e", "scorers": SCORERS}],
            }
        )
        == {}
    )
