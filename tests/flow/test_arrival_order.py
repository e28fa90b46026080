"""Recorded traces give each run the same final result in whatever order and however slowly their
spans arrive.
"""

from __future__ import annotations

import random
from collections import defaultdict
from functools import cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from otel_eval.assembly import Limits, TraceBuffer
from otel_eval.conventions.reader import is_local_root
from otel_eval.engine import Engine
from otel_eval.evaluations import ScorerSet
from otel_eval.interfaces import ClosedTrace, Frame
from otel_eval.model import Report, Scored, Skipped
from otel_eval.pipeline import Pipeline
from otel_eval.scorers import create_scorer
from otel_eval.trajectory.classify import Plan, classified
from tests.support import recorded_traces
from tests.support.listening import Listener

LIMITS = Limits(
    decision_wait_s=1,
    decision_wait_partial_s=6,
    decision_wait_detached_s=60,
    grace_period_s=30,
    idle_s=300,
    max_age_s=3600,
    keep_s=3600,
)
Frames = dict[bytes, Frame]


def agents(trace: ClosedTrace) -> tuple[list[bytes], list[bytes]]:
    """Ids of the agent spans: those inside no other, and those inside one."""
    read = classified(trace, Plan())
    read.link()
    ids = read.tree.ids
    outer = [ids[place] for place in read.agents if read.enclosing_agent[place] < 0]
    return outer, [ids[place] for place in read.agents if read.enclosing_agent[place] >= 0]


@cache
def traces() -> dict[str, ClosedTrace]:
    """Every recorded trace that has an agent span, by file and number."""
    found = {}
    for file in recorded_traces.FILES:
        for number, trace in enumerate(recorded_traces.traces(file)):
            if any(agents(trace)):
                found[f"{file}-{number}"] = trace
    return found


@cache
def nested() -> list[str]:
    """Names of the traces in which an agent runs inside another one."""
    return [name for name, trace in traces().items() if agents(trace)[1]]


@cache
def engine() -> Engine:
    """Counts the calls of each outermost run, whatever they are."""
    return Engine([ScorerSet(name="e", scorers=(create_scorer({"type": "loop_detection"}),))])


def said(report: Report) -> Any:
    """The outcome, and over how many calls."""
    (result,) = report.results
    outcome = result.outcome
    what: Any = (
        outcome.value
        if isinstance(outcome, Scored)
        else outcome.explanation
        if isinstance(outcome, Skipped)
        else outcome
    )
    return what, len(report.trajectory.calls), report.trajectory.outermost


def at_once(frames: Frames) -> dict[str, Any]:
    """What is reported of each run where all spans are there."""
    buffer = TraceBuffer(LIMITS)
    buffer.push_many([(b"t" * 16, span_id, frame, 100) for span_id, frame in frames.items()], 0.0)
    return {
        report.trajectory.span_id: said(report)
        for trace in buffer.drain(0.0)
        for report in engine().evaluate(trace)
    }


def arriving(batches: list[tuple[list[bytes], float]], frames: Frames) -> dict[str, Any]:
    """The last report of each run where batches arrive with pauses; each revision follows the one
    before.
    """
    now, last, revisions = [0.0], dict[str, Any](), defaultdict[str, list[int]](list)

    def take(report: Report) -> None:
        last[report.trajectory.span_id] = said(report)
        revisions[report.trajectory.span_id].append(report.revision)

    pipeline = Pipeline(engine(), Listener(take), LIMITS, clock=lambda: now[0])

    def wait(seconds: float) -> None:
        until, step = now[0] + seconds, max(1.0, seconds / 40)
        while now[0] < until:
            now[0] = min(until, now[0] + step)
            pipeline.step()

    for ids, pause in batches:
        pipeline.spans([(b"t" * 16, each, frames[each], 100) for each in ids])
        wait(pause)
    wait(400)
    assert all(each == list(range(len(each))) for each in revisions.values()), revisions
    return last


def check(last: dict[str, Any], expected: dict[str, Any]) -> None:
    """The same of every outermost run; what was reported beside these is no outermost run, or was
    never whole.
    """
    assert {run: what for run, what in last.items() if run in expected} == expected
    others = {run: what for run, what in last.items() if run not in expected}
    assert all(
        not outermost or str(what).startswith("incomplete")
        for what, _, outermost in others.values()
    ), others


def without_root(trace: ClosedTrace) -> Frames:
    """The trace below a span that never arrives."""
    websocket = b"w" * 8
    return {span_id: (frame[0] or websocket, *frame[1:]) for span_id, frame in trace.frames.items()}


@pytest.mark.parametrize(
    "rootless", [True, False], ids=["below a span that never ends", "as recorded"]
)
def test_no_inner_agent_ends_as_an_outermost_run(rootless: bool):
    """The spans of each outermost agent arrive last, long after its inner runs were evaluated."""
    assert len(nested()) > 10
    for name in nested():
        inner_agents_stay_inner(traces()[name], rootless=rootless)


def inner_agents_stay_inner(trace: ClosedTrace, *, rootless: bool) -> None:
    """As the test says, of one trace."""
    frames = without_root(trace) if rootless else dict(trace.frames)
    outer, inner = agents(trace)
    rest, pause = (
        [each for each in frames if each not in outer],
        200.0 if rootless else 20.0,
    )  # after its root a trace is kept 30 s
    last = arriving([(rest, pause), (outer, 100.0)], frames)
    check(last, at_once(frames))
    assert not [each.hex() for each in inner if last.get(each.hex(), (None, 0, False))[2]]


@settings(max_examples=150, deadline=None)
@given(
    st.deferred(lambda: st.sampled_from(sorted(traces()))),
    st.randoms(use_true_random=False),
    st.integers(1, 6),
    st.booleans(),
)
def test_the_order_and_pace_of_arrival_change_no_result(
    name: str, rng: random.Random, parts: int, rootless: bool
):
    """Some spans twice, in any batches, with pauses in which runs are evaluated."""
    trace = traces()[name]
    frames = without_root(trace) if rootless else dict(trace.frames)
    ids = [*frames, *rng.sample(sorted(frames), min(3, len(frames)))]
    rng.shuffle(ids)
    size = -(-len(ids) // parts)
    # see above
    pauses = (0.0, 3.0, 10.0, 25.0 if any(map(is_local_root, frames.values())) else 70.0)
    batches = [(ids[at : at + size], rng.choice(pauses)) for at in range(0, len(ids), size)]
    check(arriving(batches, frames), at_once(frames))
