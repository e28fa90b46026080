"""Read spans that no built-in convention recognises: describe their attributes in a table, in YAML
or in Python.

python examples/custom_convention.py
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from otel_eval import EvalConfig, trajectories
from otel_eval.config import load
from otel_eval.config.conventions import convention_from_mapping

IN_YAML = """
conventions:
  - name: in-house
    source: the wiki's page on tracing
    scopes: ["acme.*"]
    rules:
      - {kind: tool, key: step.kind, value: "action|lookup"}
      - {kind: agent, name: "session *"}
    fields: {tool_name: step.name, arguments: step.args, result: step.output}
    agent_span_name: ["session *"]
    errors: [{key: step.state, value: failed}]
"""
IN_PYTHON = convention_from_mapping(
    {
        "name": "in-house",
        "source": "the wiki's page on tracing",
        "scopes": ["acme.*"],
        "rules": [
            {"kind": "tool", "key": "step.kind", "value": "action|lookup"},
            {"kind": "agent", "name": "session *"},
        ],
        "fields": {"tool_name": "step.name", "arguments": "step.args", "result": "step.output"},
        "agent_span_name": ["session *"],
        "errors": [{"key": "step.state", "value": "failed"}],
    }
)


def from_yaml() -> EvalConfig:
    """The configuration as `otel-eval serve --config eval.yaml` reads it."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "eval.yaml")
        path.write_text(IN_YAML, encoding="utf-8")
        return load(path)


def session() -> tuple[ReadableSpan, ...]:
    """Spans with attributes of an in-house convention."""
    recorded = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(recorded))
    tracer = provider.get_tracer("acme.agents")
    with tracer.start_as_current_span("session clerk"):
        for name, output, state in (
            ("search", '{"hits": 2}', "done"),
            ("refund", "no such order", "failed"),
        ):
            step = {"step.kind": "action", "step.name": name, "step.args": json.dumps({"order": 7})}
            with tracer.start_as_current_span(
                "step", attributes={**step, "step.output": output, "step.state": state}
            ):
                pass
    return recorded.get_finished_spans()


spans = session()
print("without a table:", [len(run.calls) for run in trajectories(spans)])
for way, config in (("in YAML", from_yaml()), ("in Python", EvalConfig(conventions=(IN_PYTHON,)))):
    for run in trajectories(spans, config):
        for call in run.calls:
            print(way, run.agent, call.name, call.arguments, "->", call.result, call.error or "")
