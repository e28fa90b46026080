"""A program that runs an agent and ends, told by its arguments in which order it sets up and how it
ends.

Arguments: own|global  ours|batch (which processor is first)  logs|spans
flush-shutdown|shutdown|exit  early|late (when the logger provider is made). Prints what its
exporters got.
"""

from __future__ import annotations

import sys
from typing import Any

from opentelemetry import trace
from opentelemetry._logs import set_logger_provider
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import BatchLogRecordProcessor, ConsoleLogExporter
from opentelemetry.sdk.trace.export import ConsoleSpanExporter

from tests.support.traced_program import Program, provider_with, run_agent


def logger_provider(whose: str) -> LoggerProvider:
    provider = LoggerProvider()
    exporter = ConsoleLogExporter(formatter=lambda record: f"LOG {event_name(record)}\n")
    provider.add_log_record_processor(
        BatchLogRecordProcessor(exporter, schedule_delay_millis=60_000)
    )
    if whose == "global":
        set_logger_provider(provider)
    return provider


def event_name(record: Any) -> str:
    record = getattr(record, "log_record", record)
    return getattr(record, "event_name", None) or record.attributes["event.name"]


def main(whose: str, first: str, signal: str, end: str, when: str) -> None:
    given: dict[str, Any] = {}
    if signal == "logs" and when == "early":
        given = {"logger_provider": logger_provider(whose)}
    program = Program(**given if whose == "own" else {})
    exporter = ConsoleSpanExporter(formatter=lambda span: f"SPAN {span.name} {len(span.events)}\n")
    provider = provider_with(
        program.source, ours_first=first == "ours", exporter=exporter, at_exit=True
    )
    if whose == "global":
        trace.set_tracer_provider(provider)
    if signal == "logs" and when == "late":
        logger_provider("global")
    run_agent(provider)
    if end == "flush-shutdown":
        provider.force_flush()
    if end != "exit":
        provider.shutdown()


if __name__ == "__main__":
    main(*sys.argv[1:])
