"""A program with one scored run, whose results go to an exporter of an installed package. Argument:
its configuration as JSON.
"""

from __future__ import annotations

import json
import sys

from opentelemetry.sdk.trace import TracerProvider

from otel_eval import EvalSpanProcessor


def main(config: str) -> None:
    processor = EvalSpanProcessor(json.loads(config))
    provider = TracerProvider()
    provider.add_span_processor(processor)
    tracer = provider.get_tracer("app")
    for agent in ("first", "second"):
        run = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": agent}
        with tracer.start_as_current_span("invoke_agent", attributes=run):
            tool = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "search"}
            tracer.start_span("execute_tool search", attributes=tool).end()
    processor.force_flush(300_000)
    provider.shutdown()
    counts = processor.counts()
    print(json.dumps({key: count for key, count in counts.items() if key.startswith("results.")}))


if __name__ == "__main__":
    main(sys.argv[1])
