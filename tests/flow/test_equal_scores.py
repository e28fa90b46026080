"""One run of an agent, its spans teed to every way in and out: equal values, equal result ids.

The processor, the exporter wrapper, the receiver, what the receiver passes on, a replay of what was
passed on, and the processor that `opentelemetry-instrument` adds where that is installed (make
sdk-range). Conditions, labels and references read attributes of the run's span, of its resource and
of its scope on each of them.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import yaml
from google.protobuf.json_format import MessageToDict
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from otel_eval import EvalSpanExporter, EvalSpanProcessor
from otel_eval.app import stored_traces
from otel_eval.config import load
from otel_eval.exporters.result_rows import rows_of
from otel_eval.sources.files import CollectedMessages
from tests.support import otlp_backend as backends
from tests.support import shop_agent as shop

LOADER = [
    each for each in entry_points(group="opentelemetry_instrumentor") if each.name == "otel_eval"
]
by_the_loader = pytest.mark.skipif(
    importlib.util.find_spec("opentelemetry.instrumentation") is None or not LOADER,
    reason="opentelemetry-instrument and the installed package are needed: make sdk-range",
)


EVENT = "gen_ai.evaluation.result"
Scores = dict[str, tuple[str, str, str, Any, str]]
"""Result id → evaluation, scorer, outcome, value, label."""


def of_rows(rows: list[dict[str, Any]]) -> Scores:
    """Of JSON Lines."""
    labels = {True: "pass", False: "fail", None: "not_evaluated"}
    return {
        r["result_id"]: (
            r["evaluation"],
            r["scorer"],
            r["outcome"],
            r["value"],
            labels[r["passed"]],
        )
        for r in rows
    }


def of_attributes(given: list[dict[str, Any]]) -> Scores:
    """Of the attributes of evaluation events."""
    return {
        each["otel_eval.result_id"]: (
            each["otel_eval.evaluation"],
            each["gen_ai.evaluation.name"],
            each["otel_eval.outcome"],
            each.get("gen_ai.evaluation.score.value"),
            each["gen_ai.evaluation.score.label"],
        )
        for each in given
    }


def of_file(path: Path) -> Scores:
    """Of a file of results."""
    return of_rows([json.loads(line) for line in path.read_text().splitlines()])


def spans_of(bodies: list[bytes]) -> Iterator[Span]:
    """Every span of the requests."""
    for body in bodies:
        for group in ExportTraceServiceRequest.FromString(body).resource_spans:
            for scope in group.scope_spans:
                yield from scope.spans


def of_forwarded(bodies: list[bytes]) -> Scores:
    """Of the events on spans that were passed on."""
    return of_events(
        [event for span in spans_of(bodies) for event in span.events if event.name == EVENT]
    )


def of_logged(bodies: list[bytes]) -> Scores:
    """Of evaluation events that travel as log records."""
    resources = [
        group
        for body in bodies
        for group in ExportLogsServiceRequest.FromString(body).resource_logs
    ]
    records = [
        record for group in resources for scope in group.scope_logs for record in scope.log_records
    ]
    return of_events([record for record in records if record.event_name == EVENT])


def of_events(events: list[Any]) -> Scores:
    """Of events on the wire."""
    return of_attributes(
        [{a.key: _plain(MessageToDict(a.value)) for a in event.attributes} for event in events]
    )


def _plain(value: dict[str, Any]) -> Any:
    (held,) = value.values()
    return held


def of_replay(path: Path) -> Scores:
    """Of stored traces, scored again."""
    problems: list[str] = []
    reports = list(
        stored_traces.replay([path], load(shop.CONFIG), listener=CollectedMessages(problems))
    )
    assert problems == []
    return of_rows([row for report in reports for row in rows_of(report)])


def scored_as_expected(scores: Scores) -> None:
    """The values that this run has; without its reference a scorer is skipped."""
    assert {each[1]: each[3] for each in scores.values() if each[2] == "scored"} == pytest.approx(
        shop.VALUES
    )
    assert {each[1] for each in scores.values() if each[2] == "skipped"} == {
        "by-nobody",
        *shop.LABELS,
    }


def labels_of(path: Path) -> dict[str, str]:
    """What `label_distribution` recorded."""
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    return {row["scorer"]: row["details"]["label"] for row in rows if row["scorer"] in shop.LABELS}


@pytest.mark.parametrize("protocol", ["grpc", "http/protobuf"])
def test_every_way_gives_the_same_scores(protocol: str, tmp_path: Path) -> None:
    """Value by value, result id by result id."""
    live, received, stored = (
        tmp_path / "live.jsonl",
        tmp_path / "received.jsonl",
        tmp_path / "forwarded.pb",
    )
    memory = InMemorySpanExporter()
    with ExitStack() as open_things:
        backend = open_things.enter_context(backends.BACKENDS[protocol]())
        _, bound = open_things.enter_context(
            backends.forwarding(
                backend, protocol, **shop.CONFIG, exporters={"jsonl": {"path": str(received)}}
            )
        )
        provider = TracerProvider(resource=Resource(shop.RESOURCE), shutdown_on_exit=False)
        settings = {**shop.CONFIG, "exporters": {"jsonl": {"path": str(live)}}}
        # or the processor's own evaluation spans would go the other ways too
        nowhere = TracerProvider(shutdown_on_exit=False)
        provider.add_span_processor(EvalSpanProcessor(settings, tracer_provider=nowhere))
        provider.add_span_processor(
            BatchSpanProcessor(OTLPSpanExporter(endpoint=bound.grpc, insecure=True))
        )
        provider.add_span_processor(BatchSpanProcessor(EvalSpanExporter(memory, shop.CONFIG)))
        shop.agent(provider)
        provider.shutdown()
        assert backend.wait(lambda: len(list(spans_of(backend.got["traces"]))) == 5)
    stored.write_bytes(b"".join(backend.got["traces"]))
    expected = of_file(live)
    scored_as_expected(expected)
    wrapped = [
        event
        for span in memory.get_finished_spans()
        for event in span.events
        if event.name == EVENT
    ]
    assert of_attributes([dict(event.attributes or {}) for event in wrapped]) == expected
    assert of_file(received) == expected
    assert of_forwarded(backend.got["traces"]) == expected
    assert of_replay(stored) == expected
    assert labels_of(received) == shop.LABELS
    assert {
        span.name
        for span in spans_of(backend.got["traces"])
        if any(e.name == EVENT for e in span.events)
    } == {"invoke_agent clerk"}


def started_by_the_loader(
    endpoint: str, *words: str, **environment: str
) -> subprocess.CompletedProcess[str]:
    """The agent as a program of its own, traced to the endpoint."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith("OTEL_")}
    attributes = ",".join(
        f"{key}={quote(value)}" for key, value in shop.RESOURCE.items() if key != "service.name"
    )
    environment |= {
        "OTEL_SERVICE_NAME": shop.RESOURCE["service.name"],
        "OTEL_RESOURCE_ATTRIBUTES": attributes,
        "OTEL_EXPORTER_OTLP_ENDPOINT": endpoint,
        "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
        "OTEL_TRACES_EXPORTER": "otlp",
        "OTEL_LOGS_EXPORTER": "otlp",
        "OTEL_METRICS_EXPORTER": "none",
        "PYTHONPATH": str(Path(__file__).parents[2]),
        "NO_PROXY": "127.0.0.1",
    }
    loader = [
        "-c",
        "from opentelemetry.instrumentation.auto_instrumentation import run; run()",
        sys.executable,
    ]
    command = [sys.executable, *loader, str(shop.__file__), *words]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=300, env={**kept, **environment}
    )


@by_the_loader
def test_all_six_ways_give_one_run_the_same_scores(tmp_path: Path) -> None:
    """Its spans go to the loader's processor, one of the program's own, a wrapped exporter, and the
    receiver that passes on.
    """
    started, live, received = (
        tmp_path / f"{name}.jsonl" for name in ("started", "live", "received")
    )
    stored, config = tmp_path / "forwarded.pb", tmp_path / "eval.yaml"
    config.write_text(
        yaml.safe_dump(
            {**shop.CONFIG, "signals": ["logs"], "exporters": {"jsonl": {"path": str(started)}}}
        )
    )
    with ExitStack() as open_things:
        last, beside = (
            open_things.enter_context(backends.BACKENDS["http/protobuf"]()) for _ in range(2)
        )
        exporters = {"jsonl": {"path": str(received)}}
        _, bound = open_things.enter_context(
            backends.forwarding(last, "http/protobuf", **shop.CONFIG, exporters=exporters)
        )
        words = (str(live), f"{beside.url}/v1/traces")
        done = started_by_the_loader(f"http://{bound.http}", *words, OTEL_EVAL_CONFIG=str(config))
        assert done.returncode == 0, done.stderr
        assert last.wait(lambda: len(list(spans_of(last.got["traces"]))) == 5 and last.got["logs"])
    stored.write_bytes(b"".join(last.got["traces"]))
    expected = of_file(live)
    scored_as_expected(expected)
    assert of_file(started) == expected
    assert of_logged(last.got["logs"]) == expected
    assert of_forwarded(beside.got["traces"]) == expected
    assert of_file(received) == expected
    assert of_forwarded(last.got["traces"]) == expected
    assert of_replay(stored) == expected
