"""Runs whose root never arrives, or hours later: each is evaluated once its own part of the trace
is idle.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from otel_eval.assembly import Limits, evidence_of
from otel_eval.engine import Engine
from otel_eval.evaluations import RunFilter, ScorerSet
from otel_eval.model import Report, Scored, Skipped
from otel_eval.pipeline import Pipeline
from otel_eval.scorers import create_scorer
from tests.support.listening import Listener
from tests.support.made_spans import FakeSpan, span

TRACE = b"t" * 16
OP = "gen_ai.operation.name"
LIMITS = Limits(
    decision_wait_s=1,
    decision_wait_partial_s=6,
    decision_wait_detached_s=60,
    grace_period_s=30,
    idle_s=300,
    max_age_s=3600,
    keep_s=3600,
)


def agent(span_id: str, parent: str, start: int = 0, end: int = 100, **fields: Any) -> FakeSpan:
    """A span of an agent of the same name."""
    attributes = {OP: "invoke_agent", "gen_ai.agent.name": span_id}
    return span(
        span_id,
        parent,
        f"invoke_agent {span_id}",
        start_ns=start,
        end_ns=end,
        attributes=attributes,
        **fields,
    )


def tool(span_id: str, parent: str, start: int = 1, **fields: Any) -> FakeSpan:
    """A tool span."""
    attributes = {OP: "execute_tool", "gen_ai.tool.name": "look"}
    return span(
        span_id,
        parent,
        "execute_tool look",
        start_ns=start,
        end_ns=start + 1,
        attributes=attributes,
        **fields,
    )


class Life:
    """A pipeline with a clock of its own; `reports` are those of the last wait, `last` the newest
    outcome of each run.
    """

    def __init__(
        self, runs: str = "outermost", limits: Limits = LIMITS, *, no_run: bool = False
    ) -> None:
        scorers = (create_scorer({"type": "tool_call_count", "criteria": {"look": [">=", 1]}}),)
        engine = Engine(
            [ScorerSet(name="e", scorers=scorers, match=RunFilter(runs=runs))], no_run=no_run
        )  # type: ignore[arg-type]
        self.now, self.reports, self.last = 0.0, list[Report](), dict[str, Any]()
        self.final: list[str] = []
        self.pipeline = Pipeline(
            engine, Listener(self.take, final=self.finish), limits, clock=lambda: self.now
        )

    def finish(self, runs: Sequence[tuple[str, str]]) -> None:
        """These are final."""
        self.final += [bytes.fromhex(run).decode() for _, run in runs]

    def take(self, report: Report) -> None:
        """A report came out."""
        self.reports.append(report)
        if report.no_run is not None:
            return
        run, (result,) = bytes.fromhex(report.trajectory.span_id).decode(), report.results
        earlier = self.last.get(run)
        assert result.revision == (0 if earlier is None else earlier[0] + 1)
        outcome = result.outcome
        what: Any = (
            outcome.value
            if isinstance(outcome, Scored)
            else outcome.explanation
            if isinstance(outcome, Skipped)
            else outcome
        )
        self.last[run] = (result.revision, what, str(report.trajectory.completeness))

    def send(self, *spans: FakeSpan, trace: bytes = TRACE) -> Life:
        """Spans arrive."""
        self.pipeline.spans(
            [
                (trace, s.span_id.encode(), (s.parent.encode(), s, s.resource_scope), 100)
                for s in spans
            ]
        )
        return self

    def wait(self, seconds: float, step: float = 1.0) -> list[tuple[str, int, Any, str]]:
        """Time passes: run, revision, value or reason, and completeness of what is reported."""
        self.reports.clear()
        until = self.now + seconds
        while self.now < until:
            self.now = min(until, self.now + step)
            self.pipeline.step()
        return [
            (bytes.fromhex(r.trajectory.span_id).decode(), *self._said(r))
            for r in self.reports
            if r.no_run is None
        ]

    def _said(self, report: Report) -> tuple[int, Any, str]:
        outcome = report.results[0].outcome
        what: Any = (
            outcome.value
            if isinstance(outcome, Scored)
            else outcome.explanation
            if isinstance(outcome, Skipped)
            else outcome
        )
        return report.revision, what, str(report.trajectory.completeness)

    @property
    def counts(self) -> dict[str, Any]:
        """What the pipeline counts."""
        return self.pipeline.counts()


def part_of(run: str) -> str:
    """What is said of a run inside another."""
    return f"part of run {run.encode().hex()}"


@pytest.mark.parametrize(
    "parents",
    [pytest.param({}, id="no flags"), pytest.param({"remote": False}, id="a local parent")],
)
def test_a_run_under_a_span_that_never_ends_is_evaluated_once_its_subtree_is_quiet(
    parents: dict[str, Any],
):
    """`decision_wait_detached` after its last span, not after `idle_timeout`."""
    life = Life().send(tool("t", "a"), agent("a", "websocket", **parents))
    assert life.wait(59) == []
    assert life.wait(2) == [("a", 0, 1.0, "detached")]
    assert life.wait(4000) == []


@pytest.mark.parametrize("entry", [{"remote": True}, {"kind": 2}, {"kind": 5}])
def test_a_run_with_a_parent_in_another_process_waits_no_longer_than_its_trace(
    entry: dict[str, Any],
):
    """`decision_wait_partial`, also where the rest of the trace goes on."""
    life = Life().send(
        tool("t", "a"), agent("a", "remote", **entry), tool("u", "running", 500, remote=False)
    )
    life.wait(3)
    life.send(tool("v", "running", 500, remote=False))
    assert life.wait(6) == [("a", 0, 1.0, "remote_parent")]


def test_a_run_below_a_span_without_agent_whose_parent_was_dropped():
    """The whole tree is the unit that has to be quiet."""
    life = Life().send(tool("t", "a"), agent("a", "handler"))
    life.wait(50)
    life.send(span("handler", "dropped"))
    assert life.wait(50) == []
    assert life.wait(11) == [("a", 0, 1.0, "detached")]


def test_other_spans_of_the_trace_do_not_delay_a_run():
    """A trace that is never quiet: each run waits for its own spans only."""
    life, seen = Life(), []
    for turn in range(20):
        life.send(
            tool(f"t{turn}", f"a{turn}", turn * 1000 + 1),
            agent(f"a{turn}", "websocket", turn * 1000, turn * 1000 + 9),
        )
        seen += [run for run, *_ in life.wait(10, 0.5)]
    seen += [run for run, *_ in life.wait(70)]
    assert seen == [f"a{turn}" for turn in range(20)]


def test_a_late_span_of_a_detached_run_makes_a_revision():
    """As it does for a whole trace."""
    life = Life().send(agent("a", "websocket"))
    ((run, revision, why, _),) = life.wait(61)
    assert (run, revision, str(why).startswith("calls unknown")) == ("a", 0, True)
    life.send(tool("t", "a"))
    assert life.wait(61) == [("a", 1, 1.0, "detached")]


def test_an_enclosing_agent_that_arrives_later_makes_the_run_a_part_of_its_own():
    """The outermost result is revised; the enclosing run has all calls."""
    life = Life().send(tool("t", "a"), agent("a", "step"))
    assert life.wait(61) == [("a", 0, 1.0, "detached")]
    life.wait(1000)
    life.send(span("step", "outer"), agent("outer", "websocket"))
    assert sorted(life.wait(61)) == [
        ("a", 1, part_of("outer"), "detached"),
        ("outer", 0, 1.0, "detached"),
    ]


def test_where_inner_runs_are_evaluated_too_their_results_stand():
    """`runs: all` reports the inner run as before."""
    life = Life("all").send(tool("t", "a"), agent("a", "outer"))
    assert life.wait(61) == [("a", 0, 1.0, "detached")]
    life.send(agent("outer", "websocket"))
    assert life.wait(61) == [("outer", 0, 1.0, "detached")]


def test_an_enclosing_agent_that_is_the_root_closes_the_trace_as_a_whole():
    """The root's arrival ends the long waits."""
    life = Life().send(tool("t", "a"), agent("a", "root"))
    life.wait(61)
    life.send(agent("root", ""))
    assert sorted(life.wait(2)) == [
        ("a", 1, part_of("root"), "complete"),
        ("root", 0, 1.0, "complete"),
    ]


def test_a_root_that_is_no_agent_changes_nothing():
    """The WebSocket ends at last."""
    life = Life().send(tool("t", "a"), agent("a", "root"))
    life.wait(61)
    life.send(span("root", ""), tool("beside", "root"))
    assert life.wait(400) == []


def test_a_run_of_which_a_part_may_be_missing_is_looked_at_again_when_that_is_known():
    """A fragment within the run's time may belong to it, or to one that runs beside it: the run is
    incomplete until the fragment's own run arrives.
    """
    life = Life().send(tool("t", "a"), agent("a", "worker", 0, 50), tool("u", "b", 20))
    cut = "incomplete: a parent of spans within the run never arrived"
    assert life.wait(100) == [("a", 0, cut, "detached")]
    life.send(agent("b", "worker", 10, 60))
    assert sorted(life.wait(61)) == [("a", 1, 1.0, "detached"), ("b", 0, 1.0, "detached")]


def test_a_run_that_stays_incomplete_is_reported_once():
    """Unknown is never a pass."""
    life = Life().send(
        tool("t", "a"), agent("a", "worker", 0, 50), tool("u", "lost", 20, remote=False)
    )
    ((run, revision, why, _),) = life.wait(61)
    cut = "incomplete: a parent of spans within the run never arrived"
    assert (run, revision, why) == ("a", 0, cut)
    assert life.wait(1000) == []


def test_what_is_beside_a_run_belongs_to_none():
    """Its siblings under the span that never ends."""
    life = Life().send(
        tool("t", "a"),
        agent("a", "websocket"),
        tool("beside", "websocket", 5),
        span("ping", "websocket"),
    )
    life.wait(61)
    assert life.wait(8000) == []
    assert life.counts["open_traces"] == 0


def test_a_trace_that_rests_for_long_is_not_over():
    """A second run after twenty minutes, one that begins the trace with nothing but pings."""
    life = Life().send(span("ping", "websocket"))
    life.wait(1200)
    for turn in range(3):
        life.send(tool(f"t{turn}", f"a{turn}"), agent(f"a{turn}", "websocket"))
        assert life.wait(1200) == [(f"a{turn}", 0, 1.0, "detached")]
    assert life.counts["spans_too_late"] == 0


def test_a_repeated_request_is_no_change():
    """A sender retries after the run was evaluated."""
    spans = (tool("t", "a"), agent("a", "websocket"))
    life = Life().send(*spans)
    life.wait(61)
    life.send(*spans)
    assert life.wait(400) == []
    assert life.counts["spans_duplicate"] == 2


def test_an_enclosing_run_whose_inner_run_was_forgotten_is_incomplete():
    """After `max_age` the spans of the inner one are gone."""
    life = Life().send(tool("t", "a"), agent("a", "outer"))
    life.wait(61)
    life.send(span("ping", "outer"))
    for _ in range(37):
        life.send(span(f"ping {life.now}", "outer"))
        assert life.wait(100, 10) == []
    life.send(agent("outer", "websocket"))
    said = {run: why for run, _, why, _ in life.wait(400)}
    forgotten = (
        "incomplete: a run within it was evaluated and forgotten before the run's own span arrived"
    )
    assert said == {"outer": forgotten}


@pytest.mark.slow
def test_ten_thousand_runs_below_one_root_cost_what_the_last_ones_do():
    """Neither what is held nor the time of a run grows with what is over."""
    limits = replace(LIMITS, max_spans_per_trace=2000)
    life, seconds, held = Life(limits=limits), list[float](), list[int]()
    for part in range(5):
        began = time.process_time()
        for turn in range(2000):
            name, start = f"a{part}.{turn}", (part * 2000 + turn) * 100
            life.send(
                tool(f"t{name}", name, start + 1),
                agent(name, f"m{name}", start, start + 9),
                span(f"m{name}", "websocket"),
            )
            life.wait(1)
        seconds.append(time.process_time() - began)
        held.append(life.counts["held_bytes"])
        life.last.clear()
    assert life.counts["reports"] > 9900
    assert held[-1] <= held[1] * 1.1, held
    assert seconds[-1] < 3 * seconds[0] + 1, seconds


def test_a_result_is_final_when_no_other_run_can_be_around_it_any_more():
    """When its tree is released, or the trace ended; not when an enclosing agent was in time."""
    life = Life().send(tool("t", "a"), agent("a", "websocket"))
    life.wait(3500, 10)
    assert life.final == []
    life.wait(200, 10)
    assert life.final == ["a"]
    life.send(tool("u", "b"), agent("b", "root"), trace=b"u" * 16).wait(61)
    life.send(span("root", ""), trace=b"u" * 16).wait(3)
    assert life.final == ["a", "b"]


def test_results_tell_of_all_spans_of_the_trace_that_were_known():
    """Those of runs that were evaluated before and of what is beside them, each once, whatever is
    kept of them.
    """
    life, known = Life(), list[int]()
    spans = [
        (tool("t", "a"), agent("a", "websocket")),
        (span("ping", "websocket"), agent("b", "websocket")),
        (tool("late", "b"), tool("t", "a")),
        (agent("c", "websocket"),),
    ]
    for batch in spans:
        life.send(*batch).wait(61)
        known += [
            evidence.spans for report in life.reports if (evidence := report.evidence) is not None
        ]
    assert known == [2, 4, 5, 6]
    everything = [each.span_id.encode() for batch in spans for each in batch]
    assert life.reports[-1].evidence == evidence_of(set(everything))


def test_calls_that_are_late_for_a_forgotten_run_give_one_row_that_says_so():
    """No result of the run appears again under an id that was used."""
    limits = replace(LIMITS, keep_s=100)
    life = Life(limits=limits, no_run=True).send(tool("t", "a"), agent("a", "websocket"))
    assert len(life.wait(500)) == 1
    life.send(tool("late", "a"), tool("later", "t"))
    life.wait(1000)
    assert [(each.results, each.no_run and each.no_run.reason) for each in life.reports] == [
        ((), "late")
    ]


def test_a_run_that_another_process_called_is_kept_as_long_as_its_caller_may_take():
    """Its caller may be a tool call that goes on; what is evaluated later finds the same spans."""
    life = Life().send(tool("t", "a"), agent("a", "remote", remote=True))
    assert len(life.wait(7)) == 1
    assert life.wait(3000, 10) == []
    life.send(span("remote", "root", "execute_tool x"), agent("root", ""))
    assert sorted(life.wait(7)) == [
        ("a", 1, part_of("root"), "complete"),
        ("root", 0, 1.0, "complete"),
    ]
    life.wait(31)
    assert life.counts["held_bytes"] == 0


def test_a_call_that_was_a_run_is_withdrawn_when_its_trace_has_an_agent():
    """Until then nothing showed that it is none."""
    life = Life().send(tool("t", "server"), span("server", "remote", kind=2))
    assert life.wait(7) == [("server", 0, 1.0, "remote_parent")]
    life.send(tool("u", "a"), agent("a", "websocket"))
    ((run, revision, why, _), (withdrawn, *rest)) = sorted(life.wait(61))
    assert (run, revision, why, withdrawn, rest[0]) == ("a", 0, 1.0, "server", 1)
    assert rest[1] == "no run: the trace has agent spans, and this span is inside none of them"


def test_a_trace_with_a_root_that_goes_on_is_looked_at_and_waits():
    """A span in each half of `decision_wait`, with the root among them: the check before the trace
    is quiet ends.
    """
    life = Life().send(agent("a", ""))
    for turn in range(10):
        life.send(tool(f"t{turn}", "a", turn))
        assert life.wait(0.6, 0.6) == []
    assert life.wait(2) == [("a", 0, 1.0, "complete")]


def test_a_trace_of_which_every_run_was_forgotten_is_not_reported_as_one_without_a_run():
    """Its root arrives at last."""
    life = Life(limits=replace(LIMITS, keep_s=10), no_run=True).send(
        tool("t", "a"), agent("a", "websocket")
    )
    assert len(life.wait(200)) == 1
    life.send(span("websocket", ""))
    assert life.wait(10) == []
