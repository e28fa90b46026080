"""Content switched off may turn a score into a skip, never into another score: docs/explanation/completeness.md, "Content"."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterable
from pathlib import Path
from random import Random
from types import ModuleType
from typing import Any

import pytest

from otel_eval.model import Outcome, Scored, Skipped, Trajectory
from otel_eval.ports import ClosedTrace
from otel_eval.trajectory import ALL_NEEDS, Plan, build

HERE = Path(__file__).parent
FILES = sorted(each.name for each in (HERE.parent / "traces").glob("*.json") if each.name != "truth.json")
PLAN = Plan(needs=ALL_NEEDS, asked=frozenset({"steps", "conversation"}))
MANY = 200


def _module(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"recorded_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


LOADER, VARIANTS, SCORERS = (
    _module(path) for path in (HERE.parent / "traces" / "loader.py", HERE / "variants.py", HERE / "scorers.py")
)


def runs_of(trace: ClosedTrace) -> dict[bytes, Trajectory]:
    return {run.span_id: run.trajectory for run in build(trace, PLAN)}


def differs(was: Outcome, now: Outcome) -> bool:
    """A skip is always good; a score only if it is the one from before."""
    if isinstance(now, Skipped):
        return False
    return not (isinstance(was, Scored) and isinstance(now, Scored) and (was.value, was.passed) == (now.value, now.passed))


def check(trace: ClosedTrace, changed: Iterable[tuple[str, ClosedTrace]]) -> int:
    """Score every variant as the trace itself; how many there were."""
    before = runs_of(trace)
    scorers: dict[bytes, list[Any]] = {span_id: SCORERS.scorers_for(run) for span_id, run in before.items()}
    scores = {span_id: [scorer(before[span_id]) for scorer in scorers[span_id]] for span_id in before}
    number = 0
    for left_out, variant in changed:
        number += 1
        after = runs_of(variant)
        assert after.keys() == before.keys(), left_out
        for span_id, run in after.items():
            for scorer, was in zip(scorers[span_id], scores[span_id], strict=True):
                now = scorer(run)
                assert not differs(was, now), f"without {left_out}: {scorer.name} was {was} and is {now}"
    return number


@pytest.mark.parametrize("file", FILES)
def test_no_score_becomes_another_one(file: str) -> None:
    """Everything off, a scope, a span, a single attribute or event."""
    assert sum(check(trace, VARIANTS.variants(trace)) for trace in LOADER.traces(file)) > 0


@pytest.mark.slow
@pytest.mark.parametrize("file", FILES)
def test_no_score_becomes_another_one_whatever_is_left_out(file: str) -> None:
    """Content is off for spans chosen at random."""
    for trace in LOADER.traces(file):
        assert check(trace, VARIANTS.samples(trace, Random(file), MANY)) == MANY


@pytest.mark.parametrize("file", FILES)
def test_a_model_call_without_usage_changes_no_score(file: str) -> None:
    """A sum of tokens to which one model call did not contribute is unknown."""
    for trace in LOADER.traces(file):
        check(trace, VARIANTS.without_usage(trace))


def test_the_scores_are_there_to_begin_with() -> None:
    """Skips everywhere would hold the law, too."""
    outcomes = [
        scorer(run)
        for file in FILES
        for trace in LOADER.traces(file)
        for run in runs_of(trace).values()
        for scorer in SCORERS.scorers_for(run)
    ]
    scored = sum(isinstance(each, Scored) for each in outcomes)
    assert scored > 0.7 * len(outcomes)
