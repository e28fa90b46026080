"""The last runs, as a page gets them."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from otel_eval.model import NoRun, Report, Result, Scored, ToolCall, Trajectory, Verdict
from otel_eval.ui.recent_runs import RecentRuns

CALL = ToolCall(name="search", arguments={"q": "x" * 400}, start_ns=1, end_ns=2)


def result(scorer: str, revision: int = 0) -> Result:
    return Result(
        evaluation="e",
        scorer=scorer,
        type="tool_errors",
        version="1",
        outcome=Scored(1.0, True, "fine"),
        revision=revision,
        result_id=scorer,
    )


def report(number: int, *scorers: str, **fields: Any) -> Report:
    run = Trajectory(trace_id=f"{number:032x}", span_id="1" * 16, calls=(CALL,), start_ns=1)
    revision = fields.pop("revision", 0)
    results = tuple(result(scorer, revision) for scorer in scorers)
    return Report(run, "e", revision, results, **fields)


def held(**fields: Any) -> RecentRuns:
    return RecentRuns(**{"content": False, "max_bytes": 1 << 20} | fields)


def documents(runs: RecentRuns, after: int = 0) -> list[dict[str, Any]]:
    return [json.loads(change.document) for change in runs.changes(after).documents]


def test_a_later_revision_replaces_and_an_earlier_one_does_not() -> None:
    runs = held()
    for revision in (0, 2, 1):
        runs.add(report(1, "a", revision=revision))
    assert [each["revision"] for each in documents(runs)] == [2]


def test_results_of_judges_join_those_that_came_before() -> None:
    runs = held()
    runs.add(report(1, "a", standing=Verdict.PASS, awaited=1))
    late = report(1, "judge", late=True, standing=Verdict.PASS)
    stripped = replace(late, trajectory=replace(late.trajectory, calls=()), call_count=1)
    runs.add(stripped)
    (document,) = documents(runs)
    assert [each["scorer"] for each in document["results"]] == ["a", "judge"]
    assert (document["verdict"], document["awaited"]) == ("pass", 0)
    assert [call["name"] for call in document["calls"]] == ["search"]


def test_the_oldest_runs_go_when_there_are_too_many_or_they_are_too_large() -> None:
    few = held(most=2)
    for number in range(4):
        few.add(report(number, "a"))
    assert [int(each["trace_id"], 16) for each in documents(few)] == [2, 3]
    small = held(max_bytes=20_000)
    for number in range(100):
        small.add(report(number, "a"))
        if number == 50:
            small.changes(0)  # some are encoded, the others wait
    numbers = [int(each["trace_id"], 16) for each in documents(small)]
    assert numbers == list(range(100 - len(numbers), 100))
    assert 1 < len(numbers) < 100
    assert sum(len(change.document) for change in small.changes(0).documents) <= 20_000


def test_a_run_that_is_too_large_is_shown_without_its_calls_or_counted() -> None:
    large = report(1, "a")
    large = replace(large, trajectory=replace(large.trajectory, calls=(CALL,) * 100))
    runs = held(max_bytes=10_000)
    runs.add(large)
    (document,) = documents(runs)
    assert (document["calls"], document["calls_left_out"]) == (None, True)
    tiny = held(max_bytes=100)
    tiny.add(large)
    assert (documents(tiny), tiny.left_out) == ([], 1)


def test_only_what_changed_is_sent_again() -> None:
    runs = held()
    runs.add(report(1, "a"))
    runs.add(report(2, "a"))
    number = runs.changes(0).number
    runs.add(report(1, "a", revision=1))
    assert [int(each["trace_id"], 16) for each in documents(runs, number)] == [1]
    assert documents(runs, runs.changes(0).number) == []


def test_content_and_traces_without_a_run_stay_out() -> None:
    runs = held()
    runs.add(report(1, "a"))
    runs.add(replace(report(2), no_run=NoRun("no agent", "r")))
    assert "x" * 400 not in json.dumps(documents(runs))
    assert len(documents(runs)) == 1
    shown = held(content=True)
    shown.add(report(1, "a"))
    assert documents(shown)[0]["calls"][0]["arguments"] == CALL.arguments
