"""Over real sockets: runs below spans that never arrive, and an agent around one of them that
arrives later.
"""

from __future__ import annotations

import json
import time
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
WEBSOCKET = 99


def span(number: int, parent: int, name: str, operation: str, flags: int = 0x100) -> Span:
    """An agent's or a tool's span; its parent is in the same process, or by its flags in another
    one.
    """
    now = time.time_ns()  # after the receiver began
    named = "gen_ai.tool.name" if operation == "execute_tool" else "gen_ai.agent.name"
    return otlp_span(
        number,
        parent,
        f"{operation} {name}",
        start_ns=now + number,
        end_ns=now + SECOND,
        attributes={"gen_ai.operation.name": operation, named: name},
        flags=flags,
    )


def send(channel: grpc.Channel, *spans: Span) -> None:
    """One request."""
    channel.unary_unary(METHOD)(otlp_request(*spans), timeout=300)


def rows(file: Path, count: int) -> list[tuple[Any, ...]]:
    """Agent, outcome, reason, revision and completeness, as soon as there are so many rows."""
    wait_until(lambda: file.exists() and len(file.read_text().splitlines()) >= count)
    lines = file.read_text().splitlines()
    keys = ("agent", "outcome", "revision", "completeness", "explanation")
    return [tuple(json.loads(line)[key] for key in keys) for line in lines]


def test_each_run_is_scored_while_the_trace_goes_on(tmp_path: Path):
    """`decision_wait_detached` for a local parent, `decision_wait_partial` for a remote one, and a
    revision for an inner run.
    """
    results = tmp_path / "results.jsonl"
    config = {
        "traces": {
            "decision_wait": "100ms",
            "decision_wait_partial": "300ms",
            "decision_wait_detached": "1s",
        },
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
            send(channel, span(2, 1, "search", "execute_tool"), span(1, 3, "inner", "invoke_agent"))
            assert [row[:4] for row in rows(results, 1)] == [("inner", "scored", 0, "detached")]
            send(channel, span(3, WEBSOCKET, "outer", "invoke_agent"))
            said = {row[0]: row[1:] for row in rows(results, 3)[1:]}
            assert said["outer"][:3] == ("scored", 0, "detached")
            assert said["inner"] == ("skipped", 1, "detached", "part of run 0303030303030303")
            send(
                channel,
                span(6, 5, "search", "execute_tool"),
                span(5, 98, "called", "invoke_agent", flags=0x300),
            )
            assert rows(results, 4)[3][:4] == ("called", "scored", 0, "remote_parent")
            wait_until(lambda: not server.counts()["open_traces"])
    finally:
        server.stop(60.0)
    assert len(results.read_text().splitlines()) == 4
