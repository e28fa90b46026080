"""Late spans change a result: the same run again under the next revision, and nothing else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import grpc
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from otel_eval.app.server import Server
from otel_eval.config import load
from tests.support.waiting import wait_until

METHOD = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
TRACE = bytes(range(1, 17))
SECOND = 1_000_000_000


def span(number: int, parent: int, name: str, operation: str, **more: str) -> Span:
    made = Span(trace_id=TRACE, span_id=bytes([number] * 8), name=name, flags=0x100, kind=1)
    made.parent_span_id = bytes([parent] * 8) if parent else b""
    made.start_time_unix_nano, made.end_time_unix_nano = (
        (1000 + number) * SECOND,
        (1100 - number) * SECOND,
    )
    for key, value in {"gen_ai.operation.name": operation, **more}.items():
        made.attributes.add(key=key).value.string_value = value
    return made


def send(channel: grpc.Channel, *spans: Span) -> None:
    request = ExportTraceServiceRequest()
    request.resource_spans.add().scope_spans.add().spans.extend(spans)
    channel.unary_unary(METHOD)(request.SerializeToString(), timeout=300)


def rows(file: Path, count: int) -> list[dict[str, Any]]:
    """The rows of a file as soon as it has so many."""

    def lines() -> list[str]:
        return file.read_text().splitlines() if file.exists() else []

    wait_until(lambda: len(lines()) >= count)
    return [json.loads(line) for line in lines()]


def test_a_late_span_makes_a_revision_of_its_own_run_only(tmp_path: Path) -> None:
    """Two agents in one trace; a tool span of the second comes after both were scored."""
    results = tmp_path / "results.jsonl"
    config = {
        "traces": {
            "decision_wait": "200ms",
            "decision_wait_partial": "200ms",
            "grace_period": "1h",
        },
        "conventions": {"records_tool_spans": ["*"]},
        "evaluations": [
            {
                "name": "calls",
                "scorers": [{"type": "tool_call_count", "criteria": {"search": [">=", 1]}}],
            }
        ],
        "receivers": {"otlp": {"protocols": {"grpc": {"endpoint": "127.0.0.1:0"}}}},
        "exporters": {"jsonl": {"path": str(results)}},
    }
    server = Server(load(config))
    try:
        with grpc.insecure_channel(server.start().grpc) as channel:
            agents = [
                span(n, 1, f"invoke_agent {name}", "invoke_agent", **{"gen_ai.agent.name": name})
                for n, name in ((2, "a"), (3, "b"))
            ]
            send(channel, span(1, 0, "POST /", ""), *agents)
            first = rows(results, 2)
            send(
                channel,
                span(4, 3, "execute_tool search", "execute_tool", **{"gen_ai.tool.name": "search"}),
            )
            second = rows(results, 3)[2:]
    finally:
        server.stop(60.0)
    assert sorted((row["agent"], row["value"], row["revision"]) for row in first) == [
        ("a", 0.0, 0),
        ("b", 0.0, 0),
    ]
    assert [(row["agent"], row["value"], row["revision"]) for row in second] == [("b", 1.0, 1)]
    assert len({row["result_id"] for row in [*first, *second]}) == 3
    assert len(results.read_text().splitlines()) == 3
