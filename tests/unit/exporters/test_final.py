"""Detached results reach an exporter that counts runs when they are final."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from otel_eval.delivery.exports import Exports, FinalResults
from otel_eval.exporters import Exporter, ExportResult
from otel_eval.model import Completeness, Report, Result, Scored, Skipped
from otel_eval.testing import call, trajectory


class Seen(Exporter):
    """An exporter that remembers."""

    name = "seen"

    def __init__(self) -> None:
        self.reports: list[Report] = []

    def export(self, batch: Sequence[Report]) -> ExportResult:
        """Remember them."""
        self.reports += batch
        return ExportResult.ok()

    @property
    def said(self) -> list[tuple[str, int, bool]]:
        """Run, revision, and whether there is a score."""
        return [
            (r.trajectory.span_id, r.revision, isinstance(r.results[0].outcome, Scored))
            for r in self.reports
        ]


def report(
    run: str = "a", revision: int = 0, *, outermost: bool = True, late: bool = False, **facts: Any
) -> Report:
    """A report of one result."""
    facts = {"completeness": Completeness.DETACHED} | facts
    outcome = Scored(value=1.0, passed=True) if outermost else Skipped("part of run o")
    result = Result(
        evaluation="e",
        scorer="s",
        type="t",
        version="1",
        outcome=outcome,
        revision=revision,
        result_id="0" * 32,
    )
    made = trajectory(
        call("search", arguments={"q": "private"}),
        trace_id="t",
        span_id=run,
        outermost=outermost,
        **facts,
    )
    return Report(made, "e", revision, (result,), late=late)


def test_a_detached_result_waits_until_it_is_final():
    """Its values are not kept meanwhile."""
    sink = Exports([FinalResults(seen := Seen())])
    sink.export([report()])
    sink.export([report(late=True)])
    assert seen.said == []
    sink.final([("t", "a"), ("t", "other")])
    assert seen.said == [("a", 0, True), ("a", 0, True)]
    assert "private" not in repr(seen.reports)
    sink.export([report(late=True)])  # a judge that answers afterwards
    assert len(seen.reports) == 3


def test_other_results_do_not_wait():
    """Nor do revisions of what is final."""
    sink = Exports([FinalResults(seen := Seen())])
    sink.export([report(completeness=Completeness.COMPLETE)])
    sink.export([report("b", 3)])
    assert seen.said == [("a", 0, True), ("b", 3, True)]


def test_a_run_inside_another_never_counts_as_an_outermost_one():
    """Only the revision arrives, which removes what an earlier one left."""
    sink = Exports([FinalResults(seen := Seen())])
    sink.export([report()])
    sink.export([report(revision=1)])
    sink.export([report(revision=2, outermost=False)])
    sink.final([("t", "a")])
    assert seen.said == [("a", 2, False)]


def test_a_revision_of_the_whole_trace_follows_what_waited():
    """In the order of revisions."""
    sink = Exports([FinalResults(seen := Seen())])
    sink.export([report()])
    sink.export([report(revision=1, completeness=Completeness.COMPLETE)])
    sink.final([("t", "a")])
    assert seen.said == [("a", 0, True), ("a", 1, True)]


def test_results_that_wait_at_the_end_or_exceed_the_limit_are_passed_on():
    """Bounded, and nothing is lost."""
    sink = Exports([FinalResults(seen := Seen(), max_waiting=2)])
    for run in "abc":
        sink.export([report(run)])
    assert seen.said == [("a", 0, True)]
    sink.close(1)
    assert [run for run, *_ in seen.said] == ["a", "b", "c"]
