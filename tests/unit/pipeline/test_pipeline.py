"""The pipeline with a clock that the test moves: when traces are closed and evaluated, and what
limits and shutdown do.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import pytest

from otel_eval import pipeline as pipeline_module
from otel_eval.assembly import Limits
from otel_eval.engine import Engine
from otel_eval.errors import Overloaded
from otel_eval.evaluations import ScorerSet
from otel_eval.interfaces import Scorer
from otel_eval.model import Completeness, Report, Scored, Trajectory
from otel_eval.pipeline import Pipeline
from otel_eval.scorers import create_scorer
from tests.support.listening import Listener
from tests.support.made_spans import FakeSpan, span
from tests.support.waiting import wait_until

OP = "gen_ai.operation.name"
SIZE = 100


class Clock:
    """Stands still until it is moved."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Rig:
    """A pipeline, its clock, and the reports that it emitted as (agent, revision, calls)."""

    def __init__(self, *scorers: Scorer, limits: Limits | None = None, **options: Any) -> None:
        self.clock, self.reports, self.done = Clock(), list[Report](), list[bytes]()
        scorers = scorers or (create_scorer({"type": "tool_errors"}),)
        self.engine = Engine([ScorerSet(name="e", scorers=scorers)])
        self.pipeline = Pipeline(
            self.engine,
            Listener(self.reports.append, decided=self.done.append, **options),
            limits or Limits(),
            clock=self.clock,
        )

    def send(self, trace: int, *spans: FakeSpan, size: int = SIZE) -> None:
        items = [
            (
                bytes([trace]) * 16,
                each.span_id.encode(),
                (each.parent.encode(), each, each.resource_scope),
                size,
            )
            for each in spans
        ]
        self.pipeline.spans(items)

    def wait(self, seconds: float) -> None:
        """Time passes, tick by tick."""
        for _ in range(round(seconds * 10)):
            self.clock.now += 0.1
            while self.pipeline.step():
                pass

    def rows(self) -> list[tuple[str, int, int]]:
        """What was emitted since the last look."""
        found = [
            (each.trajectory.agent, each.revision, len(each.trajectory.calls))
            for each in self.reports
        ]
        self.reports.clear()
        return found


def agent(span_id: str = "a", parent: str = "", **fields: Any) -> FakeSpan:
    return span(
        span_id, parent, attributes={OP: "invoke_agent", "gen_ai.agent.name": span_id}, **fields
    )


def tool(span_id: str, parent: str = "a") -> FakeSpan:
    return span(
        span_id, parent, attributes={OP: "execute_tool", "gen_ai.tool.name": "search"}, remote=False
    )


def test_a_trace_is_evaluated_once_its_root_and_the_decision_wait_are_over():
    """Spans that arrive until then belong to it."""
    rig = Rig()
    rig.send(1, agent())
    rig.wait(0.8)
    assert (rig.rows(), rig.done) == ([], [])
    rig.send(1, tool("t"))
    rig.wait(0.8)
    assert rig.rows() == []
    rig.wait(0.4)
    assert (rig.rows(), rig.done) == ([("a", 0, 1)], [b"\1" * 16])


def test_a_trace_without_its_root_is_closed_when_it_is_idle():
    """Marked as such."""
    rig = Rig(limits=Limits(idle_s=10))
    rig.send(1, tool("t", "gone"))
    rig.wait(9)
    assert rig.rows() == []
    rig.wait(2)
    (report,) = rig.reports
    assert report.trajectory.completeness is Completeness.IDLE


def test_a_span_within_the_grace_period_gives_the_next_revision():
    """A later one is counted and changes nothing."""
    rig = Rig(limits=Limits(grace_period_s=5))
    rig.send(1, agent())
    rig.wait(1.5)
    assert rig.rows() == [("a", 0, 0)]
    rig.send(1, tool("t"))
    rig.wait(1.5)
    assert rig.rows() == [("a", 1, 1)]
    rig.wait(6)
    rig.send(1, tool("u"))
    rig.wait(10)
    assert rig.rows() == []
    assert rig.pipeline.counts()["spans_too_late"] == 1


def test_a_span_that_arrives_twice_counts_once():
    """In one request, in the next one, and after the evaluation."""
    rig = Rig()
    rig.send(1, agent(), tool("t"), tool("t"))
    rig.send(1, tool("t"))
    rig.wait(1.5)
    assert rig.rows() == [("a", 0, 1)]
    rig.send(1, tool("t"))
    rig.wait(5)
    assert rig.rows() == []
    assert rig.pipeline.counts()["spans_duplicate"] == 3


def test_an_exporter_that_is_full_pauses_evaluation_and_refuses_spans():
    """Clients get a retryable error, the refused spans are counted, and everything goes on
    afterwards.
    """
    full = [""]
    rig = Rig(backpressure=lambda: full[0])
    rig.send(1, agent())
    full[0] = "the queue of jsonl is full"
    rig.wait(5)
    with pytest.raises(Overloaded, match="the queue of jsonl is full"):
        rig.send(2, agent(), tool("t"))
    assert rig.rows() == []
    assert rig.pipeline.evaluation().state == "paused"
    full[0] = ""
    rig.wait(0.1)
    assert rig.rows() == [("a", 0, 0)]
    rig.send(2, agent())
    rig.wait(1.5)
    assert rig.rows() == [("a", 0, 0)]
    assert rig.pipeline.counts()["spans_refused"] == 2


def test_a_full_buffer_refuses_until_what_is_due_was_evaluated():
    """No trace that closes soon is cut short."""
    rig = Rig(limits=Limits(max_bytes=20_000, max_bytes_per_trace=20_000))
    for sent in range(15):
        rig.send(sent, agent(), size=1000)
    with pytest.raises(Overloaded, match="retry later"):
        rig.send(15, agent(), size=1000)
    rig.wait(1.5)
    assert len(rig.rows()) == 15
    rig.send(200, agent())
    assert rig.pipeline.counts()["traces_over_limit"] == 0


def test_of_too_many_open_traces_the_oldest_is_closed_early():
    """And reported as cut by a limit."""
    rig = Rig(limits=Limits(max_traces=2))
    for trace in (1, 2, 3):
        rig.send(trace, agent("a", "gone", remote=False), tool("t"))
        rig.wait(0.2)
    assert rig.pipeline.counts()["traces_over_limit"] == 1
    assert [each.trajectory.completeness for each in rig.reports] == [Completeness.OVERFLOW]
    assert rig.pipeline.counts()["open_traces"] == 2


def test_shutdown_evaluates_what_is_left_and_takes_nothing_more():
    """The runs are marked, because spans of them may have been on their way."""
    rig = Rig()
    rig.send(1, agent())
    rig.send(2, agent("b", "gone", remote=False))
    assert rig.pipeline.stop()
    assert {each.trajectory.agent for each in rig.reports} == {"a", "b"}
    assert {each.trajectory.completeness for each in rig.reports} == {Completeness.SHUTDOWN}
    with pytest.raises(Overloaded, match="the process is ending"):
        rig.send(3, agent())


def test_shutdown_with_work_left_ends_in_time_and_counts_it():
    """The traces beyond the deadline are counted as failed and logged."""
    rig: Rig

    class Slow:
        type = version = name = "slow"
        needs: frozenset[str] = frozenset()

        def __call__(self, run: Trajectory) -> Scored:
            rig.clock.now += 1
            return Scored(1.0, passed=True)

    rig = Rig(Slow())
    for trace in range(600):
        rig.pipeline.spans(
            [(trace.to_bytes(16, "big"), b"a", (b"", agent(), agent().resource_scope), SIZE)]
        )
    assert not rig.pipeline.stop(timeout_s=10)
    counts = rig.pipeline.counts()
    assert counts["reports"] == len(rig.reports) == 256  # a batch that began is finished
    assert counts["traces_failed"] == 600 - 256


def test_a_trace_that_cannot_be_read_costs_itself_alone(caplog: pytest.LogCaptureFixture):
    """It is counted and logged by the type of the error, without content."""
    broken = agent()
    broken.attributes = lambda wanted: 1 / 0  # type: ignore[method-assign, assignment, return-value]
    rig = Rig()
    rig.send(1, broken)
    rig.send(2, agent("b"))
    rig.wait(1.5)
    assert rig.rows() == [("b", 0, 0)]
    assert rig.pipeline.counts()["traces_failed"] == 1
    assert "ZeroDivisionError" in caplog.text


def test_other_evaluations_hold_from_the_next_trace_on():
    """Traces that are open are evaluated by the new ones."""
    rig = Rig()
    rig.send(1, agent())
    count = create_scorer({"type": "tool_call_count", "criteria": {"search": "== 0"}})
    rig.pipeline.use_engine(Engine([ScorerSet(name="new", scorers=(count,))]), None)
    rig.wait(1.5)
    assert [(each.evaluation, each.results[0].scorer) for each in rig.reports] == [
        ("new", "tool_call_count")
    ]


def test_closing_one_trace_now_does_not_wait_for_the_decision_wait():
    """A source within a process passes a complete trace, because it knows which spans are open."""
    rig = Rig()
    spans: Sequence[FakeSpan] = (agent(), tool("t"))
    rig.pipeline.close_and_evaluate(
        b"\1" * 16,
        [
            (
                b"\1" * 16,
                each.span_id.encode(),
                (each.parent.encode(), each, each.resource_scope),
                1,
            )
            for each in spans
        ],
    )
    assert (rig.rows(), rig.done) == ([("a", 0, 1)], [b"\1" * 16])


def test_undecided_traces_are_those_that_are_not_evaluated():
    """Forwarding calls this before it releases spans."""
    rig = Rig()
    rig.send(1, agent())
    rig.send(2, agent())
    first, second, never = (bytes([number]) * 16 for number in (1, 2, 3))
    assert rig.pipeline.undecided([first, second, never]) == {first, second}
    rig.wait(1.5)
    assert rig.pipeline.undecided([first, second, never]) == set()


def test_the_worker_closes_traces_by_itself():
    """With the real clock, in a thread that ends with `stop`."""
    reports: list[Report] = []
    engine = Engine([ScorerSet(name="e", scorers=(create_scorer({"type": "tool_errors"}),))])
    pipeline = Pipeline(engine, Listener(reports.append), Limits(decision_wait_s=0.05))
    pipeline.start()
    each = agent()
    pipeline.spans([(b"t" * 16, b"a", (b"", each, each.resource_scope), SIZE)])
    wait_until(lambda: bool(reports))
    assert pipeline.stop()
    assert not [
        thread
        for thread in threading.enumerate()
        if thread.name == "otel-eval" and not thread.is_alive()
    ]
    assert pipeline.evaluation().state == "idle"


def test_the_worker_rests_while_nothing_is_held_and_is_woken_by_spans(
    monkeypatch: pytest.MonkeyPatch,
):
    """Spans that arrive meanwhile are evaluated at once, not after the rest: it would not end
    within this test.
    """
    monkeypatch.setattr(pipeline_module, "_REST_S", 1e6)
    rig = Rig(limits=Limits(decision_wait_s=0.0, grace_period_s=0.0))
    rig.pipeline.start()
    try:
        for trace in range(1, 4):
            wait_until(lambda: rig.pipeline._wakes_at > 1e5)
            rig.send(trace, agent())
            wait_until(lambda count=trace: len(rig.reports) == count)
            rig.clock.now += 10.0  # the grace period is over
        wait_until(lambda: rig.pipeline._wakes_at > 1e5)
    finally:
        rig.pipeline.stop(None)


def test_the_worker_rests_until_a_trace_is_due(monkeypatch: pytest.MonkeyPatch):
    """It is woken only by spans that are due before."""
    monkeypatch.setattr(pipeline_module, "_REST_S", 1e6)
    rig = Rig(limits=Limits(decision_wait_s=50.0, decision_wait_partial_s=80.0))
    rig.pipeline.start()
    try:
        rig.send(1, agent())
        wait_until(lambda: rig.pipeline._wakes_at == rig.clock.now + 50.0)
    finally:
        rig.pipeline.stop(None)
