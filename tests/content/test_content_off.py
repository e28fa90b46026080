"""Content switched off may turn a score into a skip, never into another score:
docs/explanation/reconstruction.md.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from otel_eval.interfaces import ClosedTrace
from otel_eval.model import Outcome, Scored, Skipped, Trajectory
from otel_eval.trajectory.builder import build
from otel_eval.trajectory.classify import ALL_NEEDS, Plan
from tests.support import content_variants
from tests.support.content_scorers import scorers_for
from tests.support.recorded_traces import FILES, SIXTH_OF_FILES, traces

PLAN = Plan(needs=ALL_NEEDS, attributes=frozenset({"steps", "conversation"}))
MANY = 200


def runs_of(trace: ClosedTrace) -> dict[bytes, Trajectory]:
    return {run.span_id: run.trajectory for run in build(trace, PLAN)}


def differs(was: Outcome, now: Outcome) -> bool:
    """A skip is always good; a score only if it is the one from before."""
    if isinstance(now, Skipped):
        return False
    return not (
        isinstance(was, Scored)
        and isinstance(now, Scored)
        and (was.value, was.passed) == (now.value, now.passed)
    )


def spanless(run: Trajectory) -> tuple[list[tuple[str, bool]], bool, str]:
    """What messages show of calls and requests that left no span: with less content they may not be
    seen, or not be seen to have been refused or to wait, the one exemption.
    """
    calls = [(call.name, call.error is None) for call in run.calls if not call.span_id]
    return calls, "was not answered" in run.calls_unknown, run.waiting


def with_spans(run: Trajectory) -> Trajectory:
    """The run without the calls and requests that left no span."""
    calls = tuple(replace(call, message="") for call in run.calls if call.span_id)
    is_open = "was not answered" in run.calls_unknown
    return replace(run, calls=calls, calls_unknown="" if is_open else run.calls_unknown, waiting="")


def check(trace: ClosedTrace, changed: Iterable[tuple[str, ClosedTrace]]) -> int:
    """Score every variant as the trace itself; how many there were."""
    before = runs_of(trace)
    scorers: dict[bytes, list[Any]] = {span_id: scorers_for(run) for span_id, run in before.items()}
    scores = {
        span_id: [scorer(before[span_id]) for scorer in scorers[span_id]] for span_id in before
    }
    number = 0
    for left_out, variant in changed:
        number += 1
        after = runs_of(variant)
        assert after.keys() == before.keys(), left_out
        for span_id, run in after.items():
            if run == before[span_id]:
                continue  # scorers read nothing else
            for scorer, was in zip(scorers[span_id], scores[span_id], strict=True):
                now = scorer(run)
                if differs(was, now) and spanless(run) != spanless(before[span_id]):
                    was, now = scorer(with_spans(before[span_id])), scorer(with_spans(run))
                assert not differs(was, now), (
                    f"without {left_out}: {scorer.name} was {was} and is {now}"
                )
    return number


@pytest.mark.parametrize("file", SIXTH_OF_FILES)
def test_no_score_becomes_another_one(file: str) -> None:
    """Everything off, a scope, a span, a single attribute or event."""
    assert sum(check(trace, content_variants.variants(trace)) for trace in traces(file)) > 0


@pytest.mark.slow
@pytest.mark.parametrize("file", FILES)
def test_no_score_becomes_another_one_whatever_is_left_out(file: str) -> None:
    """Content is off for spans chosen at random."""
    for trace in traces(file):
        assert check(trace, content_variants.samples(trace, Random(file), MANY)) == MANY


@pytest.mark.parametrize("file", SIXTH_OF_FILES)
def test_a_model_call_without_usage_changes_no_score(file: str) -> None:
    """A sum of tokens to which one model call did not contribute is unknown."""
    for trace in traces(file):
        check(trace, content_variants.without_usage(trace))


def test_the_scores_are_there_to_begin_with() -> None:
    """Skips everywhere would hold the law, too."""
    outcomes = [
        scorer(run)
        for file in FILES[::4]
        for trace in traces(file)
        for run in runs_of(trace).values()
        for scorer in scorers_for(run)
    ]
    scored = sum(isinstance(each, Scored) for each in outcomes)
    assert scored > 0.65 * len(outcomes)
