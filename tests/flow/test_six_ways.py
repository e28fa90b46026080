"""One run of an agent, its spans teed to every way in and out: equal values, equal result ids.

The processor, the exporter wrapper, the receiver, what the receiver passes on, and a replay of what was passed on. Conditions and
labels read attributes of the run's span, of its resource and of its scope on each of them.
"""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.json_format import MessageToDict
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, Status, StatusCode

import otel_eval
from otel_eval import EvalSpanProcessor, app
from otel_eval.config import load
from otel_eval.sinks.jsonl import result_fields


def _backends() -> Any:
    path = Path(__file__).parent / "forward" / "backend.py"
    spec = importlib.util.spec_from_file_location("forward_backend", path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules.setdefault("forward_backend", importlib.util.module_from_spec(spec))
    spec.loader.exec_module(module)
    return module


backends = _backends()
EVENT = "gen_ai.evaluation.result"
Scores = dict[str, tuple[str, str, str, Any, str]]
"""Result id → evaluation, scorer, outcome, value, label."""

EVALUATIONS = [
    {
        "name": "of everything",
        "match": {"attributes": {"tenant": "a*", "deployment.environment.name": "prod", "team": "travel"}},
        "scorers": [
            {"type": "tool_call_count", "criteria": {"search": "<= 1"}},
            {"type": "tool_call_order", "expected": ["search", "book"]},
            {"type": "tool_call_args", "expected": [{"name": "book", "arguments": {"seat": 3}}]},
            {"type": "tool_errors"},
            {"type": "label_distribution", "name": "of-span", "label": "tenant"},
            {"type": "label_distribution", "name": "of-resource", "label": "deployment.environment.name"},
            {"type": "label_distribution", "name": "of-scope", "label": "team"},
        ],
    },
    {"name": "of others", "match": {"attributes": {"tenant": "b*"}}, "scorers": [{"type": "tool_errors"}]},
]
CONFIG = {"evaluations": EVALUATIONS, "traces": {"settle": "300ms", "settle_partial": "400ms"}}
LABELS = {"of-span": "acme", "of-resource": "prod", "of-scope": "travel"}


def agent(provider: TracerProvider) -> None:
    """Behind a web server: two searches, and a booking that fails."""
    tracer = provider.get_tracer("shop", attributes={"team": "travel"})
    run = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "clerk", "tenant": "acme"}
    with (
        tracer.start_as_current_span("POST /chat", kind=SpanKind.SERVER),
        tracer.start_as_current_span("invoke_agent clerk", attributes=run),
    ):
        for name in ("search", "search", "book"):
            told = {
                "gen_ai.operation.name": "execute_tool",
                "gen_ai.tool.name": name,
                "gen_ai.tool.call.arguments": '{"seat": 3}',
            }
            with tracer.start_as_current_span(f"execute_tool {name}", attributes=told) as call:
                if name == "book":
                    call.set_status(Status(StatusCode.ERROR))


def of_rows(rows: list[dict[str, Any]]) -> Scores:
    """Of JSON Lines."""
    labels = {True: "pass", False: "fail", None: "not_evaluated"}
    return {r["result_id"]: (r["evaluation"], r["scorer"], r["outcome"], r["value"], labels[r["passed"]]) for r in rows}


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
    events = [event for span in spans_of(bodies) for event in span.events if event.name == EVENT]
    return of_attributes([{a.key: _plain(MessageToDict(a.value)) for a in event.attributes} for event in events])


def _plain(value: dict[str, Any]) -> Any:
    (held,) = value.values()
    return held


def of_replay(path: Path) -> Scores:
    """Of stored traces, scored again."""
    problems: list[str] = []
    reports = list(app.replay([path], load(CONFIG), on_problem=problems.append))
    assert problems == []
    return of_rows([result_fields(report, result) for report in reports for result in report.results])


def wrapped(memory: InMemorySpanExporter) -> SimpleSpanProcessor | BatchSpanProcessor | None:
    """The exporter wrapper, where this version has it."""
    kind = getattr(otel_eval, "EvalSpanExporter", None)
    return None if kind is None else BatchSpanProcessor(kind(memory, CONFIG))


@pytest.mark.parametrize("protocol", ["grpc", "http/protobuf"])
def test_every_way_gives_the_same_scores(protocol: str, tmp_path: Path) -> None:
    """Value by value, result id by result id."""
    live, received = tmp_path / "live.jsonl", tmp_path / "received.jsonl"
    memory = InMemorySpanExporter()
    with ExitStack() as open_things:
        backend = open_things.enter_context(backends.BACKENDS[protocol]())
        _, bound = open_things.enter_context(
            backends.forwarding(backend, protocol, **CONFIG, exporters={"jsonl": {"path": str(received)}})
        )
        resource = Resource({"service.name": "shop", "deployment.environment.name": "prod"})
        provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        settings = {**CONFIG, "exporters": {"jsonl": {"path": str(live)}}}
        nowhere = TracerProvider(shutdown_on_exit=False)  # or the processor's own evaluation spans would go the other ways too
        provider.add_span_processor(EvalSpanProcessor(settings, tracer_provider=nowhere))
        provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=bound.grpc, insecure=True)))
        wrapper = wrapped(memory)
        if wrapper is not None:
            provider.add_span_processor(wrapper)
        agent(provider)
        provider.shutdown()
        assert backend.wait(lambda: len(list(spans_of(backend.got["traces"]))) == 5)
    expected = of_file(live)
    assert {each[1]: each[3] for each in expected.values() if each[2] == "scored"} == {
        "tool_call_count": 0.0,
        "tool_call_order": 1.0,
        "tool_call_args": 1.0,
        "tool_errors": pytest.approx(2 / 3),
    }
    stored = tmp_path / "forwarded.pb"
    stored.write_bytes(b"".join(backend.got["traces"]))
    assert of_file(received) == expected
    assert of_forwarded(backend.got["traces"]) == expected
    assert of_replay(stored) == expected
    if wrapper is not None:
        events = [event for span in memory.get_finished_spans() for event in span.events if event.name == EVENT]
        assert of_attributes([dict(event.attributes or {}) for event in events]) == expected
    labels = [json.loads(line) for line in received.read_text().splitlines()]
    assert {row["scorer"]: row["details"]["label"] for row in labels if row["scorer"] in LABELS} == LABELS
    assert {span.name for span in spans_of(backend.got["traces"]) if any(e.name == EVENT for e in span.events)} == {
        "invoke_agent clerk"
    }
