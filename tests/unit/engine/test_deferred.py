"""Runs of a trace without a root: each is reported once it is known, or will never be known,
whether a part of it is missing.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import Any

import pytest

from otel_eval.assembly import Limits, TraceBuffer
from otel_eval.engine import Engine
from otel_eval.evaluations import ScorerSet
from otel_eval.scorers import create_scorer
from otel_eval.trajectory.runs import CUT
from tests.support.made_spans import FakeSpan, frames, span

OP = "gen_ai.operation.name"
DETACHED_WAITS = Limits(
    decision_wait_s=1, decision_wait_partial_s=2, decision_wait_detached_s=4, idle_s=15
)


def parts(
    *arrivals: tuple[float, Sequence[FakeSpan]], until: float = 60, stop: float = inf
) -> list[tuple[str, str]]:
    """Span id and missing evidence of each report on spans that arrive at these times; the process
    ends at `stop`.
    """
    engine = Engine([ScorerSet(name="e", scorers=(create_scorer({"type": "tool_errors"}),))])
    buffer, coming, found = TraceBuffer(DETACHED_WAITS, engine.is_agent), list(arrivals), []
    for now in map(float, range(int(min(until, stop)) + 1)):
        while coming and coming[0][0] <= now:
            buffer.push_many(
                [(b"t" * 16, key, frame, 100) for key, frame in frames(coming.pop(0)[1]).items()],
                now,
            )
        for trace in buffer.due(now):
            found += engine.evaluate(trace)
    for trace in buffer.drain(stop) if stop < until else ():
        found += engine.evaluate(trace)
    return [
        (bytes.fromhex(each.trajectory.span_id).decode(), each.trajectory.incomplete)
        for each in found
    ]


def agent(span_id: str, parent: str, start: int = 10, **fields: Any) -> FakeSpan:
    """An agent span, of which the parent does not arrive."""
    return span(
        span_id,
        parent,
        "invoke_agent",
        start_ns=start,
        end_ns=50,
        attributes={OP: "invoke_agent"},
        **fields,
    )


@pytest.mark.parametrize("stop", [inf, 13])
def test_a_run_that_waits_for_a_missing_part_is_reported_though_no_span_is_open(stop: float):
    """What may be missing of it is a kept tree then; it is reported when it is idle, or at the end
    of the process.
    """
    part, run = agent("part", "lost", 20, remote=False), agent("run", "gone")
    assert parts((0, [part]), (6, [run]), stop=stop) == [("part", ""), ("run", CUT)]


@pytest.mark.parametrize("remote", [None, False])
def test_a_run_in_a_local_root_is_reported_with_the_spans_that_may_be_missing_of_it(
    remote: bool | None,
):
    """Both have waited long enough in the same instant."""
    part = span(
        "part",
        "lost",
        "execute_tool",
        start_ns=20,
        end_ns=30,
        attributes={OP: "execute_tool"},
        remote=remote,
    )
    assert parts((0, [part, agent("run", "gone", remote=True)])) == [("run", CUT)]


def test_siblings_of_another_run_may_still_be_missing_parts_of_this_one():
    """They are kept beside the run with whose missing parent they came, and show what they showed
    before.
    """
    part = span(
        "part", "lost", "execute_tool", start_ns=40, end_ns=45, attributes={OP: "execute_tool"}
    )
    arrivals = (0, [part, agent("other", "lost", 60)]), (10, [agent("run", "gone")])
    assert parts(*arrivals) == [("other", ""), ("run", CUT)]
