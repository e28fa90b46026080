"""The recorded traces of many instrumentations, from the file to the printed line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from otel_eval.cli import main
from tests.support.recorded_traces import traces

FOLDER = Path(__file__).parents[2] / "traces"
TRUTH = json.loads((FOLDER / "truth.json").read_text(encoding="utf-8"))
TOOLS = {
    "look",
    "get_weather",
    "book_flight",
    "lookup_fact",
    "ask_expert",
    "expert",
    "delegate_task_to_member",
    "transfer_to_expert",
    "delete_all",
}


def calls_by_file(capsys: pytest.CaptureFixture[str]) -> dict[str, list[dict[str, Any]]]:
    """The calls that `otel-eval trajectory` prints, by the file of their run."""
    files = [truth["file"] for truth in TRUTH]
    file_of = {trace.trace_id.hex(): file for file in files for trace in traces(file)}
    assert main(["trajectory", *(str(FOLDER / file) for file in files), "--format", "json"]) == 0
    found: dict[str, list[dict[str, Any]]] = {}
    for run in map(json.loads, capsys.readouterr().out.splitlines()):
        found.setdefault(file_of[run["trace_id"]], []).extend(run["calls"])
    assert found.keys() == set(files)
    return found


def test_the_printed_calls_are_those_that_happened(capsys: pytest.CaptureFixture[str]) -> None:
    """Of every recorded trace; where none is recorded, none is invented."""
    calls = calls_by_file(capsys)
    for truth in TRUTH:
        if truth["calls"] is None:
            assert {call["name"] for call in calls[truth["file"]]} <= TOOLS, truth["file"]
        else:
            assert_happened(calls[truth["file"]], truth)


def assert_happened(got: list[dict[str, Any]], truth: dict[str, Any]) -> None:
    """Names, arguments, errors and order; calls that overlapped may come in either order."""
    want = truth["calls"]
    # A failure of a call without a span may be unknown, and is not compared then.
    unknown = {call["name"] for call in got if call.get("failure_unknown") and not call["span_id"]}
    assert sorted((seen(call, unknown) for call in got), key=repr) == sorted(
        (seen(call, unknown) for call in want), key=repr
    )
    together = {i for pair in truth["overlapping"] for i in pair}
    alone = [i for i in range(len(want)) if i not in together]
    assert [got[i]["name"] for i in alone] == [want[i]["name"] for i in alone]
    for one, other in truth["overlapping"]:
        assert other in got[one]["overlaps"]
        assert one in got[other]["overlaps"]


def seen(call: dict[str, Any], unknown: set[str]) -> tuple[Any, ...]:
    """What is compared of a call; a final answer's arguments are the framework's business."""
    arguments = None if call["name"] not in TOOLS else call["arguments"]
    return call["name"], arguments, call["name"] not in unknown and bool(call["error"])


def test_one_replay_scores_every_run(capsys: pytest.CaptureFixture[str]) -> None:
    """Each file's run, by both scorers of the default evaluation; those that wait are skipped."""
    files = [str(FOLDER / each["file"]) for each in TRUTH if "waiting" not in each]
    assert main(["replay", *files, "--format", "json"]) == 1  # calls failed in most of them
    every = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    rows = [row for row in every if row["outcome"] != "no_run"]
    assert len({row["trace_id"] for row in rows}) == len(files)
    assert {row["outcome"] for row in rows if row["scorer"] == "time_cost"} == {"scored"}
