"""Decision trees and expressions over recorded traces, and with a judge that a configuration
names.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from otel_eval.app import stored_traces
from otel_eval.cli import main
from otel_eval.config import load
from otel_eval.sources.files import CollectedMessages

TRACES = Path(__file__).parents[1] / "traces"
FILES = [
    "langchain_openinference.json",
    "langchain_openllmetry.json",
    "pydantic_ai_v5.json",
    "strands_default.json",
]
CONFIG = """
evaluations:
  - name: travel
    scorers:
      - type: expression
        name: looked-first
        expression: calls[0].name == "get_weather"
      - type: dag
        root: cities
        nodes:
          cities:
            type: task
            cel: calls.filter(c, c.name == "get_weather").map(c, c.arguments.city)
            children: [asked]
          asked:
            type: binary
            cel: cities.size() > 0 && cities.all(city, city.size() > 2)
            children:
              - {verdict: true, then: booked}
              - {verdict: false, score: 0}
          booked:
            type: choice
            cel: 'calls.exists(c, c.name == "book_flight") ? "booked" : "not booked"'
            children:
              - {verdict: booked, score: 10}
              - {verdict: not booked, then: {scorer: {type: tool_errors}}}
"""


@pytest.mark.parametrize("file", FILES)
def test_a_recorded_run_is_scored_by_what_it_recorded(
    file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Arguments are read because the expressions look at them."""
    config = tmp_path / "eval.yaml"
    config.write_text(CONFIG, encoding="utf-8")
    main(["replay", str(TRACES / file), "--config", str(config), "--format", "json"])
    rows = {row["scorer"]: row for row in map(json.loads, capsys.readouterr().out.splitlines())}
    assert rows["looked-first"]["value"] == 1
    assert rows["dag"]["explanation"] == "cities → asked: true → booked: booked → 10 of 10"


def test_a_judge_that_the_configuration_names_decides_a_node() -> None:
    """Its result comes in a report of its own, with what the trace recorded in its prompt."""
    prompts: list[str] = []

    async def judge(prompt: str) -> str:
        prompts.append(prompt)
        return '{"verdict": true, "reason": "it did"}'

    asks: dict[str, Any] = {
        "type": "binary",
        "criteria": "Did it look at the weather first?",
        "reads": ["calls"],
    }
    asks["children"] = [{"verdict": True, "score": 9}, {"verdict": False, "score": 1}]
    tree = {"type": "dag", "judge": "mine", "root": "a", "nodes": {"a": asks}}
    config = load({"judges": {"mine": judge}, "evaluations": [{"name": "e", "scorers": [tree]}]})
    problems: list[str] = []
    reports = list(
        stored_traces.replay([str(TRACES / FILES[0])], config, listener=CollectedMessages(problems))
    )
    results = [result for report in reports for result in report.results]
    assert [
        (result.scorer, getattr(result.outcome, "value", result.outcome)) for result in results
    ] == [("dag", 0.9)]
    assert '"tool": "get_weather"' in prompts[0]
    assert problems == []
