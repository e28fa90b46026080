"""Counters of results are 0 before the first result: from the start, and for an agent from its
first span.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor

from otel_eval import EvalSpanProcessor
from otel_eval.app.server import Server
from otel_eval.config import load
from tests.support.waiting import STAYS_OPEN, wait_until

AGENT = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "helpdesk"}
EVALUATIONS = [
    {"name": "all", "scorers": [{"type": "tool_errors"}]},
    {
        "name": "named",
        "match": {"service": "billing", "agent": "clerk"},
        "scorers": [{"type": "tool_errors"}],
    },
]
ZEROS = {"pass": 0, "fail": 0, "not_evaluated": 0}
Found = dict[tuple[str, str, str], dict[str, float]]


def found_in(text: str) -> Found:
    """Counts of results by evaluation, service and agent, then by label."""
    found: Found = {}
    for labels, value in re.findall(r"^otel_eval_results_total\{(.*)\} (\S+)$", text, re.MULTILINE):
        told = dict(re.findall(r'(\w+)="([^"]*)"', labels))
        key = (
            told["otel_eval_evaluation"],
            told.get("otel_eval_service", ""),
            told.get("gen_ai_agent_name", ""),
        )
        by_label = found.setdefault(key, {})
        label = told["gen_ai_evaluation_score_label"]
        by_label[label] = by_label.get(label, 0) + float(value)
    return found


def served(
    tmp_path: Path,
    what: Callable[[Server, Callable[[], Found], str], Any],
    forward: Any = None,
    **traces: Any,
) -> Any:
    """What a running receiver shows."""
    ports = {"otlp": {"protocols": {"grpc": {"endpoint": "127.0.0.1:0"}}}}
    outs = {"jsonl": {"path": str(tmp_path / "out.jsonl")}} | (
        {"forward": forward} if forward else {}
    )
    given = {
        "receivers": ports,
        "exporters": outs,
        "evaluations": EVALUATIONS,
        "telemetry": {"endpoint": "127.0.0.1:0"},
    }
    server = Server(load(given | {"traces": traces}))
    bound = server.start()
    try:

        def scraped() -> Found:
            with urlopen(f"http://{server.admin.address}/metrics", timeout=300) as answer:
                return found_in(answer.read().decode())

        return what(server, scraped, str(bound.grpc))
    finally:
        server.stop(2.0)


def test_the_receiver_begins_with_what_the_configuration_names(tmp_path: Path) -> None:
    start = served(tmp_path, lambda server, scraped, place: scraped())
    assert start == {("all", "", ""): ZEROS, ("named", "billing", "clerk"): ZEROS}


def test_an_evaluation_of_a_new_configuration_begins_with_zeros(tmp_path: Path) -> None:
    def reload(server: Server, scraped: Callable[[], Found], place: str) -> Found:
        server.reload(
            load({"evaluations": [{"name": "new", "scorers": [{"type": "tool_errors"}]}]})
        )
        return scraped()

    assert served(tmp_path, reload)["new", "", ""] == ZEROS


@pytest.mark.parametrize(
    "forward", [None, {"endpoint": "http://127.0.0.1:1"}], ids=["scored", "forwarded as well"]
)
def test_an_agent_begins_with_zeros_before_its_run_is_evaluated(
    tmp_path: Path, forward: Any
) -> None:
    """Only for the evaluations that match it; the span that it is known by has just arrived."""

    def send(server: Server, scraped: Callable[[], Found], place: str) -> Found:
        provider = TracerProvider(
            resource=Resource({"service.name": "shop"}), shutdown_on_exit=False
        )
        provider.add_span_processor(
            SimpleSpanProcessor(OTLPSpanExporter(endpoint=f"http://{place}", insecure=True))
        )
        provider.get_tracer("t").start_span("invoke_agent helpdesk", attributes=AGENT).end()
        provider.shutdown()
        wait_until(lambda: ("all", "shop", "helpdesk") in scraped())
        return scraped()

    found = served(tmp_path, send, forward, **STAYS_OPEN)
    assert found["all", "shop", "helpdesk"] == ZEROS
    assert ("named", "shop", "helpdesk") not in found


def test_in_a_process_an_agent_begins_with_zeros_while_its_span_is_open() -> None:
    reader = InMemoryMetricReader()
    meters = MeterProvider(metric_readers=[reader], shutdown_on_exit=False)
    processor = EvalSpanProcessor({"evaluations": EVALUATIONS}, meter_provider=meters)
    provider = TracerProvider(resource=Resource({"service.name": "shop"}), shutdown_on_exit=False)
    provider.add_span_processor(processor)

    def counted() -> dict[tuple[Any, ...], set[float]]:
        data = reader.get_metrics_data()
        metrics = data.resource_metrics[0].scope_metrics[0].metrics if data is not None else ()
        points = [
            point
            for each in metrics
            if each.name == "otel_eval.results"
            for point in each.data.data_points
        ]
        keys = ("otel_eval.evaluation", "otel_eval.service", "gen_ai.agent.name")
        found: dict[tuple[Any, ...], set[float]] = {}
        for point in points:
            found.setdefault(tuple(point.attributes.get(key) for key in keys), set()).add(
                point.value
            )
        return found

    with provider.get_tracer("t").start_as_current_span("invoke_agent helpdesk", attributes=AGENT):
        wait_until(lambda: ("all", "shop", "helpdesk") in counted())
        open_counts = counted()
    provider.shutdown()
    expected = [("all", None, None), ("named", "billing", "clerk"), ("all", "shop", "helpdesk")]
    assert open_counts == {key: {0} for key in expected}
    assert sum(counted()["all", "shop", "helpdesk"]) == 1
