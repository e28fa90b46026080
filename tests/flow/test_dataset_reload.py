"""A dataset that changes while a program runs."""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider

from otel_eval import EvalSpanProcessor, datasets


def put(path: Path, text: str) -> None:
    """Replace the file at once, as the documentation says."""
    path.with_suffix(".new").write_text(text, encoding="utf-8")
    os.replace(path.with_suffix(".new"), path)


def test_a_new_version_counts_from_then_on_and_a_broken_one_changes_nothing(
    tmp_path: Path, caplog: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither disturbs the program; both are counted."""
    monkeypatch.setattr(datasets, "_CHECK_INTERVAL_S", 0.0)
    cases, results = tmp_path / "cases.jsonl", tmp_path / "results.jsonl"
    cases.write_text('{"id": "other", "expected": []}\n', encoding="utf-8")
    reference = {"dataset": str(cases), "key": "case.id", "column": "id"}
    scorers = [{"type": "tool_call_order", "reference": reference}]
    evaluation = {"name": "cases", "scorers": scorers}
    config = {
        "evaluations": [evaluation],
        "traces": {"decision_wait": 0},
        "exporters": {"jsonl": {"path": str(results)}},
    }
    provider = TracerProvider(shutdown_on_exit=False)
    processor = EvalSpanProcessor(config, tracer_provider=TracerProvider(shutdown_on_exit=False))
    provider.add_span_processor(processor)
    before = processor.counts()

    def run() -> None:
        attributes = {"gen_ai.operation.name": "invoke_agent", "case.id": "one"}
        tool = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "search"}
        tracer = provider.get_tracer("agent")
        with tracer.start_as_current_span("invoke_agent", attributes=attributes):
            tracer.start_span("execute_tool search", attributes=tool).end()
        assert provider.force_flush(300_000)

    run()
    put(cases, '{"id": "one", "expected": ["search"]}\n')
    run()
    with caplog.at_level(logging.WARNING, "otel_eval"):
        put(cases, "no longer JSON")
        run()
        run()
    counted = processor.counts()
    provider.shutdown()
    rows = [json.loads(line) for line in results.read_text(encoding="utf-8").splitlines()]
    assert [(row["outcome"], row["value"]) for row in rows] == [("skipped", None)] + [
        ("scored", 1.0)
    ] * 3
    assert [counted[key] - before[key] for key in ("references.reread", "references.broken")] == [
        1,
        1,
    ]
    assert len([each for each in caplog.messages if "stay in use" in each]) == 1
