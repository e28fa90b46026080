"""A trace whose root never arrives, over several processes with the same storage."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.crashing_pipeline import Lives

ROOT = 9999  # never arrives
Spans = tuple[tuple[int, int, int, str], ...]


@pytest.mark.timeout(300)  # twelve seconds alone, and a machine may be busy
@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_crashes_change_no_result(tmp_path_factory: pytest.TempPathFactory, seed: int):
    """Consecutive runs below a root that never arrives, late spans, and finally an agent that
    encloses two of the runs.
    """
    rng = random.Random(seed)
    steady, crashing = Lives(tmp_path_factory.mktemp("a")), Lives(tmp_path_factory.mktemp("b"))
    batches: list[Spans] = []
    for run in range(10, 60, 10):
        parent = 5 if run < 30 else ROOT
        spans = [(1, run, parent, ""), (1, run + 1, run, "search")]
        rng.shuffle(spans)
        batches += [tuple(spans)] if rng.random() < 0.5 else [(spans[0],), (spans[1],)]
    batches.append(((1, 5, ROOT, ""),))
    for spans in batches:
        pause = rng.choice((0, 3, 15))
        for lives in (steady, crashing):
            lives.send(*spans)
            lives.wait(pause)
        if rng.random() < 0.5:
            crashing.crash()
    for lives in (steady, crashing):
        lives.wait(100)
    outcomes = {run: outcome for run, (outcome, _) in crashing.last().items()}
    inner = {10, 20}  # after a restart these may become inner runs before they are evaluated
    same = {run: outcome for run, (outcome, _) in steady.last().items() if run not in inner}
    assert {run: outcome for run, outcome in outcomes.items() if run not in inner} == same
    assert outcomes[5] == outcomes[30] == outcomes[40] == outcomes[50] == "Scored"
    assert {outcomes.get(10, "Skipped"), outcomes.get(20, "Skipped")} == {"Skipped"}


def test_a_trace_that_never_ends_does_not_fill_the_disk(tmp_path: Path):
    """Its old requests are removed, its kept trees are compacted, and a crash changes no result."""
    lives = Lives(
        tmp_path, max_size=400_000, segment_bytes=20_000, max_age="2m", max_spans_per_trace=40
    )
    for run in range(100, 40_000, 100):
        lives.send((1, run, ROOT, ""), (1, run + 1, run, "search"))
        lives.wait(5)
        if run % 5000 == 0:
            lives.crash()
    lives.wait(100)
    assert set(lives.last().values()) == {("Scored", 0)}
    assert len(lives.rows) == 399
    assert sum(path.stat().st_size for path in tmp_path.glob("*.journal")) < 500_000
    lives.send((1, ROOT, 0, ""))
    lives.crash()
    lives.wait(100)
    assert lives.last()[ROOT] == ("Skipped", 0)
    assert {run for run, (outcome, _) in lives.last().items() if outcome == "Skipped"} > {ROOT}
