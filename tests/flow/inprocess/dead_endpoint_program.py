"""A scored program whose results go to an endpoint where nothing listens; prints how long its exit
hooks took.

Argument: grpc or http/protobuf (an exporter of the configuration), batch or simple (a logger
provider of the program).
"""

from __future__ import annotations

import atexit
import sys
import time

from opentelemetry.exporter.otlp.proto.grpc._log_exporter import OTLPLogExporter
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import BatchLogRecordProcessor, SimpleLogRecordProcessor
from opentelemetry.sdk.trace import TracerProvider

from otel_eval import EvalSpanProcessor

DEAD = "http://127.0.0.1:9"


def processor(kind: str) -> EvalSpanProcessor:
    if kind not in ("batch", "simple"):
        return EvalSpanProcessor({"exporters": {"otlp": {"endpoint": DEAD, "protocol": kind}}})
    loggers = LoggerProvider(shutdown_on_exit=False)
    made = SimpleLogRecordProcessor if kind == "simple" else BatchLogRecordProcessor
    loggers.add_log_record_processor(made(OTLPLogExporter(endpoint=DEAD)))
    return EvalSpanProcessor(logger_provider=loggers)


def main(kind: str) -> None:
    ended = [0.0]
    # hooks run last made first
    atexit.register(lambda: print(f"exit took {time.monotonic() - ended[0]:.2f} s"))
    provider = TracerProvider()
    provider.add_span_processor(processor(kind))
    tracer = provider.get_tracer("app")
    for _ in range(3):
        with tracer.start_as_current_span(
            "invoke_agent a", attributes={"gen_ai.operation.name": "invoke_agent"}
        ):
            tool = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "search"}
            tracer.start_span("execute_tool search", attributes=tool).end()
    ended[0] = time.monotonic()


if __name__ == "__main__":
    main(sys.argv[1])
