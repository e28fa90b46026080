"""What a processor imports into the program that it evaluates."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

PROGRAM = """
import sys

import opentelemetry.sdk.trace.export, pydantic  # an agent has loaded both

before = {*sys.modules}
from otel_eval import EvalSpanProcessor

types = ("required_tools", "forbidden_tools")
scorers = [{"type": type, "patterns": ["search_*"]} for type in types]
scorers += [{"type": "tool_errors"}, {"type": "loop_detection"}]
processor = EvalSpanProcessor(
    {
        "evaluations": [{"name": "rules", "scorers": scorers}],
        "exporters": {"jsonl": {"path": sys.argv[1]}},
    }
)
print(*sys.modules.keys() - before)
processor.shutdown()
"""
# Of this package: what serves other ways in and out, commands, and other scorers.
NOT_NEEDED = (
    "otel_eval.admin otel_eval.cli otel_eval.forwarding otel_eval.http1 otel_eval.judges"
    " otel_eval.otlp otel_eval.storage otel_eval.suggestion otel_eval.ui"
    " otel_eval.sources.files otel_eval.sources.kafka otel_eval.sources.receiver"
    " otel_eval.sources.warehouse"
    " otel_eval.app.kafka otel_eval.app.receiving otel_eval.app.server otel_eval.app.stored_traces"
    " otel_eval.app.workers"
    " otel_eval.config.conventions otel_eval.config.yaml_text"
    " otel_eval.exporters.annotations otel_eval.exporters.cases otel_eval.exporters.console"
    " otel_eval.exporters.kafka otel_eval.exporters.otlp otel_eval.exporters.products"
    " otel_eval.scorers.alignment otel_eval.scorers.calls otel_eval.scorers.cel"
    " otel_eval.scorers.dag otel_eval.scorers.judge_scorers otel_eval.scorers.pattern"
    # Of others: what these parts use.
    " asyncio click confluent_kafka google.protobuf grpc http.client http.server openai"
    " opentelemetry.sdk._logs sqlite3 ssl yaml"
)


def test_a_processor_imports_only_what_its_configuration_names(tmp_path: Path) -> None:
    """An agent's start does not pay for servers, commands, Kafka, HTTP clients, and scorers and
    exporters that it does not use.
    """
    printed = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path / "results.jsonl")],
        check=True,
        capture_output=True,
        text=True,
        timeout=300,
    ).stdout
    modules = set(printed.split())
    assert "otel_eval.scorers.sequence" in modules
    assert sorted(modules.intersection(NOT_NEEDED.split())) == []


def test_the_modules_that_must_not_be_imported_exist() -> None:
    """One that was renamed would never be found."""
    names = [name for name in NOT_NEEDED.split() if name.startswith("otel_eval.")]
    assert [name for name in names if importlib.util.find_spec(name) is None] == []
