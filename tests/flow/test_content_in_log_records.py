"""Content that travels as log events beside its span: captured as EVENT_ONLY, joined by span id."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from opentelemetry._logs import SeverityNumber
from opentelemetry.exporter.otlp.proto.grpc._log_exporter import OTLPLogExporter
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import SimpleLogRecordProcessor
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor

from otel_eval.app.server import Server
from otel_eval.config import load
from tests.support.waiting import STAYS_OPEN, ShiftedClock, wait_until

ASKED = [
    {
        "role": "assistant",
        "parts": [{"type": "tool_call", "id": "c1", "name": "search", "arguments": {"q": "x"}}],
    }
]
SCORERS = [
    {"type": "tool_call_args", "expected": [{"name": "search", "arguments": {"q": "x"}}]},
    {"type": "trajectory_structure", "required_keys": ["arguments"]},
]


@pytest.mark.parametrize("logs_first", [True, False])
def test_arguments_come_from_the_log_event_of_the_model_span(
    tmp_path: Path, logs_first: bool
) -> None:
    """The tool span recorded no arguments; the operation's details, sent as a log event, did."""
    rows = _serve(tmp_path, logs_first)
    assert {(row["scorer"], row["outcome"], row["value"]) for row in rows} == {
        ("tool_call_args", "scored", 1.0),
        ("trajectory_structure", "scored", 1.0),
    }


def _serve(folder: Path, logs_first: bool) -> list[dict[str, Any]]:
    results = folder / "results.jsonl"
    clock = ShiftedClock()
    server = Server(
        load(
            {
                "traces": STAYS_OPEN,
                "evaluations": [{"name": "content", "scorers": SCORERS}],
                "receivers": {"otlp": {"protocols": {"grpc": {"endpoint": "127.0.0.1:0"}}}},
                "exporters": {"jsonl": {"path": str(results)}},
            }
        ),
        clock=clock,
    )
    bound = server.start()
    try:
        _agent(f"http://{bound.grpc}", logs_first)
        clock.advance()
        wait_until(lambda: not server.counts()["open_traces"])
    finally:
        server.stop(60.0)
    return [json.loads(line) for line in results.read_text().splitlines()]


def _agent(endpoint: str, logs_first: bool) -> None:
    """A traced agent with content off its spans, and the SDK's real exporters."""
    tracers, loggers = (
        TracerProvider(shutdown_on_exit=False),
        LoggerProvider(shutdown_on_exit=False),
    )
    tracers.add_span_processor(
        SimpleSpanProcessor(OTLPSpanExporter(endpoint=endpoint, insecure=True))
    )
    loggers.add_log_record_processor(
        SimpleLogRecordProcessor(OTLPLogExporter(endpoint=endpoint, insecure=True))
    )
    tracer, logger = tracers.get_tracer("agent"), loggers.get_logger("agent")

    def details() -> None:
        logger.emit(
            event_name="gen_ai.client.inference.operation.details",
            severity_number=SeverityNumber.INFO,
            attributes={
                "gen_ai.operation.name": "chat",
                "gen_ai.output.messages": json.dumps(ASKED),
            },
        )

    with tracer.start_as_current_span(
        "invoke_agent a", attributes={"gen_ai.operation.name": "invoke_agent"}
    ):
        with tracer.start_as_current_span(
            "chat m", attributes={"gen_ai.operation.name": "chat"}
        ) as chat:
            if logs_first:
                details()
        tool = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": "search",
            "gen_ai.tool.call.id": "c1",
        }
        with tracer.start_as_current_span("execute_tool search", attributes=tool):
            pass
    if not logs_first:
        from opentelemetry.trace import use_span

        with use_span(chat):
            details()
    tracers.shutdown()
    loggers.shutdown()
