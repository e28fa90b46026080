"""More than one processor on one provider: equal ones count once, different ones both work."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider

from otel_eval import EvalSpanProcessor


def config(path: Path, name: str = "policy") -> dict[str, Any]:
    return {
        "evaluations": [{"name": name, "scorers": [{"type": "tool_errors"}]}],
        "exporters": {"jsonl": {"path": str(path)}},
    }


def evaluations(path: Path) -> list[str]:
    return sorted(json.loads(line)["evaluation"] for line in path.read_text().splitlines())


def run_agents(*processors: EvalSpanProcessor) -> None:
    provider = TracerProvider(shutdown_on_exit=False)
    for processor in processors:
        provider.add_span_processor(processor)
    tracer = provider.get_tracer("app")
    for _ in range(2):
        with tracer.start_as_current_span(
            "invoke_agent a", attributes={"gen_ai.operation.name": "invoke_agent"}
        ):
            tool = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "search"}
            tracer.start_span("execute_tool search", attributes=tool).end()
    provider.shutdown()


def test_a_second_processor_of_an_equal_configuration_stays_inactive(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    """Each run is scored once, and a log line says why."""
    caplog.set_level(logging.INFO, "otel_eval")
    results = tmp_path / "results.jsonl"
    first, second = EvalSpanProcessor(config(results)), EvalSpanProcessor(config(results))
    run_agents(first, second)
    assert evaluations(results) == ["policy", "policy"]
    assert [
        line.levelname
        for line in caplog.records
        if "a second EvalSpanProcessor with the same configuration" in line.getMessage()
    ] == ["INFO"]
    assert (second.counts()["open_traces"], second.is_active) == (0, False)


@pytest.mark.parametrize("twice_first", [True, False])
def test_the_same_processor_added_twice_scores_each_run_once(tmp_path: Path, twice_first: bool):
    """Whatever stands between."""
    processor, other = (
        EvalSpanProcessor(config(tmp_path / "a")),
        EvalSpanProcessor(config(tmp_path / "b", "other")),
    )
    run_agents(*([processor, processor, other] if twice_first else [processor, other, processor]))
    assert (evaluations(tmp_path / "a"), evaluations(tmp_path / "b")) == (
        ["policy"] * 2,
        ["other"] * 2,
    )
    assert processor.counts()["spans_duplicate"] == 0


def test_processors_of_different_configurations_both_work(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    """Also on one provider."""
    results = tmp_path / "results.jsonl"
    run_agents(EvalSpanProcessor(config(results)), EvalSpanProcessor(config(results, "other")))
    assert evaluations(results) == ["other", "other", "policy", "policy"]
    assert caplog.records == []


def test_equal_processors_on_different_providers_both_work(tmp_path: Path):
    """They see different runs. So does one that takes the place of another that was shut down."""
    results = tmp_path / "results.jsonl"
    for _ in range(2):
        run_agents(EvalSpanProcessor(config(results)))
    assert evaluations(results) == ["policy"] * 4


def test_a_processor_takes_over_from_an_equal_one_that_was_shut_down(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    """The provider lives on."""
    results = tmp_path / "results.jsonl"
    first, second = EvalSpanProcessor(config(results)), EvalSpanProcessor(config(results))
    first.shutdown()
    run_agents(first, second)
    assert evaluations(results) == ["policy", "policy"]


CELL = """
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from otel_eval import EvalSpanProcessor, scorer

@scorer("has_calls")
def has_calls(run):
    return bool(run.calls)

provider = TracerProvider()
evaluation = {"evaluations": [{"scorers": [{"type": "has_calls"}]}], "exporters": {"console": {}}}
provider.add_span_processor(EvalSpanProcessor(evaluation))
trace.set_tracer_provider(provider)
agent = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "clerk"}
tool = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "search"}
tracer = trace.get_tracer("my-agent")
with tracer.start_as_current_span("run", attributes=agent):
    tracer.start_span("call", attributes=tool).end()
"""
NOTEBOOK = """
import logging
logging.basicConfig(format="%(name)s %(message)s")
for _ in range(2):
    exec(CELL, globals())
trace.get_tracer_provider().add_span_processor(EvalSpanProcessor(evaluation))
with tracer.start_as_current_span("run", attributes=agent):
    tracer.start_span("call", attributes=tool).end()
trace.get_tracer_provider().force_flush()
"""


def test_a_cell_of_a_notebook_that_is_run_twice_warns_of_nothing() -> None:
    """It makes the scorer, the provider and the processor again; the first ones stay in use."""
    done = subprocess.run(
        [sys.executable, "-c", f"CELL = {CELL!r}\n{NOTEBOOK}"], capture_output=True, text=True
    )
    ours = [line for line in done.stderr.splitlines() if not line.startswith("opentelemetry.")]
    assert (done.returncode, ours) == (0, [])
    assert [line.split()[1:] for line in done.stdout.splitlines()] == [
        ["clerk", "1", "call", "pass", "default"]
    ] * 3


def test_where_scores_go_is_logged_once_at_the_start(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "otel_eval")
    results = tmp_path / "results.jsonl"
    exporters = {"console": {}, "jsonl": {"path": str(results)}}
    processor = EvalSpanProcessor({"exporters": exporters, "signals": ["spans"]})
    processor.shutdown()
    assert [each.getMessage() for each in caplog.records if "scores go" in each.getMessage()] == [
        f"scores go to jsonl {results}, console, the OpenTelemetry providers of this process, where"
        " there are any (spans)"
    ]
