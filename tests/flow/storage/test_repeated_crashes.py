"""A trace during whose evaluation the process crashed twice fails without a third attempt."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from otel_eval.model import Failed, Report
from otel_eval.storage.in_progress import key_of_trace
from tests.support.crashing_pipeline import Lives

RUN = ((1, 10, 0, ""), (1, 11, 10, "search"))
TRACE = (1).to_bytes(16)


def crash_while_evaluating(lives: Lives, *parts: bytes, scoring: bool = False) -> None:
    """Crash as if in the evaluation of the trace."""
    lives.durable._in_progress.begin(0, key_of_trace(TRACE, parts))
    if scoring:
        lives.durable._in_progress.mark_scoring(0)
    lives.crash()


@pytest.mark.parametrize("scoring", [True, False])
def test_a_trace_fails_after_two_crashes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, scoring: bool
):
    """Its failed results are exported once. If it is not known that its runs can be built, no span
    of it is read.
    """
    lives = Lives(tmp_path)
    lives.send(*RUN)
    for _ in range(2):
        assert not lives.rows
        crash_while_evaluating(lives, scoring=scoring)
    lives.wait(3)
    assert [(revision, outcome) for revision, outcome, _ in lives.rows[10]] == [(0, "Failed")]
    assert lives.agents[10] == ("seller" if scoring else "")
    assert lives.pipeline.counts()["traces_crashed"] == 1
    assert sum("not evaluated again" in each.message for each in caplog.records) == 1
    lives.crash()
    lives.wait(3)
    assert len(lives.rows[10]) == 1
    assert lives.pipeline.counts()["traces_crashed"] == 0


def test_the_next_revision_fails_as_well(tmp_path: Path):
    """A late span causes no third attempt."""
    lives = Lives(tmp_path)
    lives.send(*RUN)
    for _ in range(2):
        crash_while_evaluating(lives, scoring=True)
    lives.wait(3)
    lives.send((1, 12, 10, "search"))
    lives.wait(3)
    assert [(revision, outcome) for revision, outcome, _ in lives.rows[10]] == [
        (0, "Failed"),
        (1, "Failed"),
    ]


def test_crashes_with_a_success_between_them_do_not_add_up(tmp_path: Path):
    """The trace is evaluated each time."""
    lives = Lives(tmp_path, grace_period="1h")
    for span in range(12, 17):
        lives.send(*RUN, (1, span, 10, "search"))
        crash_while_evaluating(lives)
        lives.wait(3)
    assert {outcome for _, outcome, _ in lives.rows[10]} == {"Scored"}
    assert len(lives.rows[10]) == 5


def test_a_part_of_a_trace_fails_alone(tmp_path: Path):
    """Other runs of the same trace, whose root never arrives, are scored."""
    lives = Lives(tmp_path)
    root = (10).to_bytes(8)
    for _ in range(2):
        lives.send((1, 10, 9999, ""), (1, 11, 10, "search"))
        crash_while_evaluating(lives, root, scoring=True)
    lives.wait(12)
    lives.send((1, 20, 9999, ""), (1, 21, 20, "search"))
    lives.wait(12)
    assert [outcome for _, outcome, _ in lives.rows[10]] == ["Failed"]
    assert [outcome for _, outcome, _ in lives.rows[20]] == ["Scored"]


def test_results_in_the_dead_letter_file_are_not_exported(tmp_path: Path):
    """They are written there with the reason, and not again after a crash."""
    lives = Lives(tmp_path)
    aside: list[Report] = []

    def set_aside(reports: Sequence[Report], why: str) -> bool:
        assert "crashed twice" in why
        aside.extend(reports)
        return True

    lives.send(*RUN)
    for _ in range(2):
        crash_while_evaluating(lives, scoring=True)
    lives.listener.set_aside = set_aside  # type: ignore[method-assign]
    lives.wait(3)
    assert not lives.rows
    (report,) = aside
    assert [result.outcome for result in report.results] == [
        Failed("crashed", "the process crashed twice while the trace was evaluated")
    ]
    lives.crash()
    lives.wait(3)
    assert not lives.rows


def test_traces_that_were_recovered_after_a_crash_are_evaluated_one_by_one(tmp_path: Path):
    """The results of each are journaled before the next is evaluated. Traces that arrive later are
    evaluated together.
    """
    lives = Lives(tmp_path)
    for trace in range(1, 6):
        lives.send((trace, 10 * trace, 0, ""), (trace, 10 * trace + 1, 10 * trace, "search"))
    lives.crash()
    lives.send((6, 60, 0, ""), (6, 61, 60, "search"), (7, 70, 0, ""), (7, 71, 70, "search"))
    batches: list[int] = []
    record = lives.durable.record_evaluated

    def count(traces: Any) -> None:
        batches.append(len(traces))
        record(traces)

    lives.durable.record_evaluated = count  # type: ignore[method-assign]
    lives.wait(3)
    assert batches == [1, 1, 1, 1, 1, 2]
    assert {run: [outcome for _, outcome, _ in rows] for run, rows in lives.rows.items()} == {
        run: ["Scored"] for run in range(10, 80, 10)
    }
