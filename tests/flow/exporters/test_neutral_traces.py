"""Exported scores change nothing that a backend computes from spans: begin, end, resources and
number of traces.

Two services record one trace, each with an agent run and a resource of its own. What a backend
knows of the trace is compared with what it knows of the spans alone.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import (
    NonRecordingSpan,
    SpanContext,
    SpanKind,
    TraceFlags,
    set_span_in_context,
)

from otel_eval import EvalSpanExporter, EvalSpanProcessor
from otel_eval.app import stored_traces
from otel_eval.app.server import Server
from otel_eval.config import load
from otel_eval.native import VERSION
from tests.support import agent_programs
from tests.support.exported_results import (
    Received,
    record_fields,
    records_of,
    span_fields,
    spans_of,
)
from tests.support.listeners import NO_PROBLEMS
from tests.support.otlp_backend import ANYWHERE, Backend, grpc_backend

PROJECT = "openinference.project.name"
DESK = {
    "service.name": "desk",
    PROJECT: "support",
    "process.command_args": ("desk", "-v"),
    "host.cpus": 2,
}
STOCK = {"service.name": "stock", PROJECT: "support", "service.instance.id": "stock-1"}
SCOPE = ("otel_eval", VERSION, "https://opentelemetry.io/schemas/1.38.0")
CONFIG: dict[str, Any] = {
    "evaluations": [
        {
            "name": "policy",
            "match": {"runs": "all"},
            "scorers": [{"type": "tool_errors"}, {"type": "tool_call_args", "expected": []}],
        }
    ],
    "traces": {"decision_wait": "300ms", "decision_wait_partial": "400ms", "grace_period": "1h"},
}
EXPORT = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
MILLISECOND = 1_000_000


def config_for(backend: Backend) -> dict[str, Any]:
    return {
        **CONFIG,
        "exporters": {"otlp": {"endpoint": backend.url, "signals": ["logs", "spans"]}},
    }


def play(*processors: SpanProcessor) -> tuple[ReadableSpan, ...]:
    """A desk whose agent asks the agent of the stock; the spans of both services in the order in
    which they ended.
    """
    memory = InMemorySpanExporter()
    desk, stock = (
        _tracer(resource, (*processors, SimpleSpanProcessor(memory))) for resource in (DESK, STOCK)
    )
    now = time.time_ns()
    at = [now + step * MILLISECOND for step in range(8)]
    door = desk.start_span("POST /chat", kind=SpanKind.SERVER, start_time=at[0])
    clerk = desk.start_span(
        "invoke_agent clerk",
        set_span_in_context(door),
        attributes=_agent("clerk", "resp-1"),
        start_time=at[1],
    )
    tool = desk.start_span(
        "execute_tool ask", set_span_in_context(clerk), attributes=_tool("ask"), start_time=at[2]
    )
    there = NonRecordingSpan(
        SpanContext(
            tool.get_span_context().trace_id, tool.get_span_context().span_id, True, TraceFlags(1)
        )
    )
    keeper = stock.start_span(
        "invoke_agent keeper",
        set_span_in_context(there),
        kind=SpanKind.SERVER,
        attributes=_agent("keeper"),
        start_time=at[3],
    )
    stock.start_span(
        "execute_tool count",
        set_span_in_context(keeper),
        attributes=_tool("count"),
        start_time=at[3],
    ).end(at[4])
    for each, end in ((keeper, at[5]), (tool, at[5]), (clerk, at[6]), (door, at[7])):
        each.end(end)
    return tuple(span for span in memory.get_finished_spans() if span.name[:8] != "evaluate")


def _tracer(resource: dict[str, Any], processors: Sequence[SpanProcessor]) -> Any:
    provider = TracerProvider(resource=Resource(resource), shutdown_on_exit=False)
    for each in processors:
        provider.add_span_processor(each)
    return provider.get_tracer("app")


def _agent(name: str, response: str = "") -> dict[str, str]:
    found = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": name}
    return found | ({"gen_ai.response.id": response} if response else {})


def _tool(name: str) -> dict[str, str]:
    return {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": name}


@contextmanager
def serving(backend: Backend) -> Iterator[Any]:
    """Sends bodies to `serve`, whose results go to the backend."""
    server = Server(load({**config_for(backend), "receivers": ANYWHERE}))
    try:
        with grpc.insecure_channel(server.start().grpc) as channel:
            yield lambda spans: channel.unary_unary(EXPORT)(
                agent_programs.protobuf(spans), timeout=300
            )
    finally:
        server.stop(60.0)


def received(backend: Backend, count: int) -> tuple[list[Received], list[Received]]:
    """The evaluation spans and the log records of a backend, once there are so many spans; two
    records for each.
    """

    def evaluations() -> list[Received]:
        return [each for each in spans_of(backend.got["traces"]) if each.scope[0] == "otel_eval"]

    def arrived() -> bool:
        return len(evaluations()) >= count and len(records_of(backend.got["logs"])) >= 2 * count

    assert backend.wait(arrived), backend.got
    return evaluations(), records_of(backend.got["logs"])


def known_of(spans: Sequence[Received]) -> dict[str, Any]:
    """What backends compute from the spans of a trace, whatever the order in which they arrived."""
    items = [each.item for each in spans]
    return {
        "traces": {span.trace_id for span in items},
        "begin": min(span.start_time_unix_nano for span in items),
        "end": max(span.end_time_unix_nano for span in items),
        "resources": sorted({repr(sorted(each.resource.items())) for each in spans}),
        "roots": {span.span_id for span in items if not span.parent_span_id},
    }


@pytest.mark.parametrize("first", ["run", "evaluation"])
def test_a_trace_is_the_same_with_and_without_its_evaluations(first: str) -> None:
    """Of `serve`, whether they arrive at the backend after the spans or before them; each has the
    resource of its own run.
    """
    with grpc_backend() as backend, serving(backend) as send:
        spans = play()
        if first == "run":
            send_to(backend, spans)
        send(spans)
        received(backend, 2)
        if first == "evaluation":
            send_to(backend, spans)
    arrived = spans_of(backend.got["traces"])
    evaluations = [each for each in arrived if each.scope[0] == "otel_eval"]
    alone = [each for each in arrived if each.scope[0] != "otel_eval"]
    assert (arrived[0].scope[0] == "otel_eval") == (first == "evaluation")
    assert (len(alone), len(evaluations)) == (len(spans), 2)
    assert known_of(arrived) == known_of(alone)
    assert arrived[0].resource[PROJECT] == {"stringValue": "support"}
    of_run = {each.item.span_id: each for each in alone}
    for each in evaluations:
        run = of_run[each.item.parent_span_id]
        assert each.resource == run.resource
        assert (
            each.item.start_time_unix_nano
            == each.item.end_time_unix_nano
            == run.item.end_time_unix_nano
        )
        assert [(link.trace_id, link.span_id) for link in each.item.links] == [
            (run.item.trace_id, run.item.span_id)
        ]


def send_to(backend: Backend, spans: Sequence[ReadableSpan]) -> None:
    """What the program's own exporter sends."""
    with grpc.insecure_channel(backend.url.removeprefix("http://")) as channel:
        channel.unary_unary(EXPORT)(agent_programs.protobuf(spans), timeout=300)


def test_a_late_revision_is_as_neutral() -> None:
    """Its evaluation span is another one, at the same time and with the same resource."""
    with grpc_backend() as backend, serving(backend) as send:
        spans = play()
        late = next(span for span in spans if span.name == "execute_tool count")
        send([span for span in spans if span is not late])
        received(backend, 2)
        send([late])
        evaluations, _ = received(backend, 4)
    by_run: dict[bytes, list[Received]] = {}
    for each in evaluations:
        by_run.setdefault(each.item.parent_span_id, []).append(each)
    for revised in by_run.values():
        revisions = [span_fields(each)["attributes"]["otel_eval.revision"] for each in revised]
        assert revisions == [{"intValue": "0"}, {"intValue": "1"}]
        assert len({each.item.span_id for each in revised}) == 2
        assert (
            len(
                {
                    (
                        each.item.start_time_unix_nano,
                        each.item.end_time_unix_nano,
                        repr(each.resource),
                    )
                    for each in revised
                }
            )
            == 1
        )


def test_every_way_in_exports_the_same_spans_and_records(tmp_path: Path) -> None:
    """The processor, the wrapped exporter, the receiver and the replay, but for when and by whom a
    run was evaluated.
    """
    with ExitStack() as opened:
        backends = {
            way: opened.enter_context(grpc_backend())
            for way in ("processor", "wrapper", "serve", "replay")
        }
        send = opened.enter_context(serving(backends["serve"]))
        nowhere = TracerProvider(shutdown_on_exit=False)
        processor = EvalSpanProcessor(
            {**config_for(backends["processor"])}, tracer_provider=nowhere
        )
        wrapped = InMemorySpanExporter()
        wrapper = SimpleSpanProcessor(EvalSpanExporter(wrapped, config_for(backends["wrapper"])))
        spans = play(processor, wrapper)
        send(spans)
        stored = tmp_path / "stored.pb"
        stored.write_bytes(agent_programs.protobuf(spans))
        assert list(
            stored_traces.replay(
                [stored], load(config_for(backends["replay"])), export=True, listener=NO_PROBLEMS
            )
        )
        found = {way: received(backend, 2) for way, backend in backends.items()}
        processor.shutdown()
        wrapper.shutdown()
    fields = {
        way: (
            sorted(map(span_fields, evaluations), key=lambda each: each["where"]),
            sorted(
                map(record_fields, records),
                key=lambda each: each["attributes"]["otel_eval.result_id"]["stringValue"],
            ),
        )
        for way, (evaluations, records) in found.items()
    }
    expected = fields.pop("serve")
    assert {each["scope"] for part in expected for each in part} == {SCOPE}
    assert {each["severity"] for each in expected[1]} == {(9, "INFO")}
    assert [each["attributes"].get("gen_ai.response.id") for each in expected[0]].count(
        {"stringValue": "resp-1"}
    ) == 1
    assert fields == dict.fromkeys(fields, expected)


def test_records_were_observed_when_the_run_was_evaluated() -> None:
    """After the end of the run, which is the time of the record."""
    with grpc_backend() as backend, serving(backend) as send:
        spans = play()
        send(spans)
        _, records = received(backend, 2)
    ends = {span.end_time for span in spans}
    assert all(each.item.time_unix_nano in ends for each in records)
    assert all(
        each.item.time_unix_nano < each.item.observed_time_unix_nano <= time.time_ns()
        for each in records
    )
