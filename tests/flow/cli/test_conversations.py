"""`replay` and `trajectory` with files of conversations."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from otel_eval.app.stored_traces import replay, understand
from otel_eval.config import load
from otel_eval.sources.files import CollectedMessages
from tests.unit.trajectory.test_conversation import ANTHROPIC, CHAT, RESPONSES

CONFIG = load({"evaluations": [{"scorers": [{"type": "required_tools", "patterns": ["weather"]}]}]})


def write(path: Path, *values: Any) -> Path:
    path.write_text("\n".join(map(json.dumps, values)), encoding="utf-8")
    return path


@pytest.mark.parametrize(
    "values", [(CHAT,), ({"messages": ANTHROPIC, "agent": "clerk"},), (RESPONSES,)]
)
def test_a_file_of_messages_is_scored(values: tuple[Any, ...], tmp_path: Path) -> None:
    problems: list[str] = []
    path = write(tmp_path / "run.json", *values)
    reports = list(replay([path], CONFIG, listener=CollectedMessages(problems)))
    assert [result.outcome.passed for report in reports for result in report.results] == [True]
    assert problems == []
    (run,) = understand([path], CONFIG, listener=CollectedMessages(problems))
    assert [call.name for call in run.calls] == ["weather", "clock"]


def test_each_line_may_be_a_conversation(tmp_path: Path) -> None:
    lines = [{"messages": each} for each in (CHAT, ANTHROPIC, RESPONSES)]
    path = write(tmp_path / "runs.jsonl", *lines)
    problems: list[str] = []
    reports = list(replay([path], CONFIG, listener=CollectedMessages(problems)))
    assert len({report.trajectory.trace_id for report in reports}) == 3
    assert problems == []


@pytest.mark.parametrize(
    "text", ['[{"role": "user", "content": "hi"}, 7]', '[{"role": "us', '{"messages": []}', "[]"]
)
def test_a_file_that_is_not_quite_one_is_one_problem(text: str, tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text(text)
    problems: list[str] = []
    assert list(replay([tmp_path / "run.json"], CONFIG, listener=CollectedMessages(problems))) == []
    assert len(problems) == 1
    assert "\n" not in problems[0]
