"""Late spans change a result: the same run again under the next revision, and nothing else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import grpc
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from otel_eval.app.server import Server
from otel_eval.config import load
from tests.support.made_spans import otlp_request, otlp_span
from tests.support.waiting import wait_until

METHOD = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
SECOND = 1_000_000_000


def span(number: int, parent: int, name: str, operation: str, **more: str) -> Span:
    """A span that begins after those with lower numbers, and ends before them."""
    return otlp_span(
        number,
        parent,
        name,
        start_ns=(1000 + number) * SECOND,
        end_ns=(1100 - number) * SECOND,
        attributes={"gen_ai.operation.name": operation, **more},
    )


def send(channel: grpc.Channel, *spans: Span) -> None:
    channel.unary_unary(METHOD)(otlp_request(*spans), timeout=300)


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
