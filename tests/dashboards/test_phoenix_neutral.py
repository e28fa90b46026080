"""Evaluation spans leave Phoenix's latency, projects and number of traces as they are, in either
order of arrival.

The recorded runs ended minutes ago, so that an evaluation span at the time of its evaluation would
add minutes to each trace.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from otel_eval import EvalSpanProcessor
from otel_eval.app.server import Server
from otel_eval.config import load
from tests.dashboards.dashboard_rig.phoenix_api import Project
from tests.dashboards.dashboard_rig.recorded_runs import FILES, play
from tests.support.otlp_backend import ANYWHERE
from tests.support.waiting import wait_until

Spans = Sequence[ReadableSpan]
CONFIG: dict[str, Any] = {
    "evaluations": [
        {"name": "policy", "match": {"runs": "all"}, "scorers": [{"type": "tool_errors"}]}
    ]
}
QUANTILES = (0.0, 0.5, 1.0)
WAIT_S = 90


def sent(url: str, spans: Spans) -> None:
    """As a program's own exporter does; patient, because a product on a busy machine is slow."""
    exporter = OTLPSpanExporter(endpoint=f"{url}/v1/traces", timeout=120)
    assert exporter.export(spans).name == "SUCCESS"
    exporter.shutdown()


def recorded(project: str) -> Spans:
    """The spans of all recorded runs, a minute between two of them."""
    memory = InMemorySpanExporter()
    play([SimpleSpanProcessor(memory)], project=project)
    return memory.get_finished_spans()


@contextmanager
def evaluated_by_serve(phoenix: str, spans: Spans) -> Iterator[None]:
    """The evaluation spans of the runs are being sent to Phoenix, and all of them were at the
    end.
    """
    exporters = {
        "otlp": {
            "endpoint": phoenix,
            "protocol": "http/protobuf",
            "signals": ["spans"],
            "timeout": "60s",
        }
    }
    waits = {"decision_wait": "300ms", "decision_wait_partial": "500ms"}
    server = Server(
        load({**CONFIG, "receivers": ANYWHERE, "exporters": exporters, "traces": waits})
    )
    try:
        sent(f"http://{server.start().http}", spans)
        yield
    finally:
        server.stop(60)


def evaluations(project: Project) -> int:
    """How many evaluation spans it has."""
    return len(project.span_ids("span_kind == 'EVALUATOR'"))


def facts(project: Project) -> dict[str, Any]:
    """What the list of traces and its side panel show; latencies in milliseconds."""
    return {"traces": project.trace_count()} | {
        f"p{quantile * 100:g}": project.latency_ms(quantile) for quantile in QUANTILES
    }


def alone(phoenix: str, name: str) -> dict[str, Any]:
    """The same of the runs without any evaluation."""
    project = Project(phoenix, f"{name}-alone")
    sent(phoenix, spans := recorded(project.name))
    wait_until(lambda: len(project.span_ids()) == len(spans), WAIT_S)
    return facts(project)


def same(found: dict[str, Any], expected: dict[str, Any]) -> None:
    """Equal; times are rounded to microseconds, and each playing has other ones."""
    print(found, expected)
    assert found == pytest.approx(expected, abs=0.01)


def test_evaluations_that_arrive_after_the_runs_change_nothing(phoenix: str) -> None:
    """Of `serve`."""
    project = Project(phoenix, "run-first")
    spans = recorded(project.name)
    sent(phoenix, spans)
    wait_until(lambda: len(project.span_ids()) == len(spans), WAIT_S)
    before, elsewhere = facts(project), Project(phoenix, "default").trace_count()
    with evaluated_by_serve(phoenix, spans):
        wait_until(lambda: evaluations(project) >= len(FILES), WAIT_S)
    same(facts(project), before)
    assert Project(phoenix, "default").trace_count() == elsewhere


def test_evaluations_that_arrive_before_the_runs_change_nothing(phoenix: str) -> None:
    """Of `serve`; the project exists from the first evaluation on."""
    project = Project(phoenix, "evaluation-first")
    spans, elsewhere = recorded(project.name), Project(phoenix, "default").trace_count()
    with evaluated_by_serve(phoenix, spans):
        wait_until(lambda: evaluations(project) >= len(FILES), WAIT_S)
    assert len(project.span_ids()) == evaluations(project)
    sent(phoenix, spans)
    wait_until(lambda: len(project.span_ids()) == evaluations(project) + len(spans), WAIT_S)
    same(facts(project), alone(phoenix, project.name))
    assert Project(phoenix, "default").trace_count() == elsewhere


def test_evaluation_spans_of_a_process_change_nothing(phoenix: str) -> None:
    """Of a processor, through the provider of the runs."""
    project = Project(phoenix, "in-process")
    memory, processor = InMemorySpanExporter(), EvalSpanProcessor({**CONFIG, "signals": ["spans"]})
    play([SimpleSpanProcessor(memory), processor], project=project.name)
    spans = memory.get_finished_spans()
    sent(phoenix, spans)
    wait_until(lambda: len(project.span_ids()) == len(spans), WAIT_S)
    assert evaluations(project) >= len(FILES)
    same(facts(project), alone(phoenix, project.name))
    processor.shutdown()
