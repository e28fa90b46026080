"""A trace whose root never arrives, over several lives of a receiver with storage."""

from __future__ import annotations

import random
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from storage_served import request

from otel_eval.app.compose import engine_of, limits_of
from otel_eval.app.durable import Durable
from otel_eval.app.recovery import Recovery
from otel_eval.config import load
from otel_eval.model import Completeness, Report
from otel_eval.pipeline import Pipeline
from otel_eval.sources.otlp import frame_traces
from otel_eval.sources.receiver import Origin

ROOT = 9999  # never arrives
Spans = tuple[tuple[int, int, int, str], ...]


class Lives:
    """A pipeline with storage and a clock of its own, that can end at any moment and begin again."""

    def __init__(self, folder: Path, *, max_size: int = 2**30, segment_bytes: int = 3000, **traces: Any) -> None:
        self.segment_bytes = segment_bytes
        waits = {"settle": "1s", "settle_partial": "2s", "settle_detached": "10s", "idle_timeout": "60s", "max_age": "1h"}
        self.now = 1000.0
        self.config = load(
            {
                "traces": waits | traces,
                "evaluations": [{"name": "e", "scorers": [{"type": "tool_call_count", "criteria": {"search": "== 1"}}]}],
                "storage": {"directory": str(folder), "max_size": max_size, "sync": False},
            }
        )
        self.rows: defaultdict[int, list[tuple[int, Any, Completeness]]] = defaultdict(list)
        self.begin()

    def begin(self) -> None:
        """A life begins."""
        assert self.config.storage is not None
        self.durable = Durable(
            self.config.storage, now=lambda: self.now, clock=lambda: self.now, segment_bytes=self.segment_bytes
        )
        self.durable.sinks = ("all",)
        limits = limits_of(self.config)
        self.pipeline = Pipeline(engine_of(self.config), self.tell, limits, clock=lambda: self.now, keeper=self.durable)
        owed: list[Any] = []
        self.pipeline.recover(Recovery(self.durable, owed.extend))
        for report, _ in owed:
            self.tell(report)

    def tell(self, report: Report) -> None:
        """Delivered."""
        run, (result,) = int(report.trajectory.span_id, 16), report.results
        row = (report.revision, type(result.outcome).__name__, report.trajectory.completeness)
        if row not in self.rows[run]:
            self.rows[run].append(row)
        self.durable.delivered("all", [report])

    def send(self, *spans: tuple[int, int, int, str]) -> None:
        """A request arrives."""
        body = request(*spans)
        self.pipeline.spans(frame_traces(body).spans, Origin("traces", "protobuf", body))

    def wait(self, seconds: int) -> None:
        """Time passes."""
        for _ in range(seconds):
            self.now += 1
            self.pipeline.step()

    def crash(self) -> None:
        """The process ends, and the next one begins."""
        self.durable.journal.close()
        self.durable._claim.release()
        self.begin()

    def last(self) -> dict[int, tuple[str, int]]:
        """Of each run the last outcome and revision; each revision follows the one before."""
        for run, rows in self.rows.items():
            assert [revision for revision, *_ in rows] == list(range(len(rows))), (run, rows)
        return {run: (rows[-1][1], rows[-1][0]) for run, rows in self.rows.items()}


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_crashes_change_no_result(tmp_path_factory: pytest.TempPathFactory, seed: int):
    """Runs one after another below a root that never arrives, late spans, and an agent around two of them at last."""
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
    inner = {10, 20}  # which a life that begins anew may not evaluate before they are found to be that
    same = {run: outcome for run, (outcome, _) in steady.last().items() if run not in inner}
    assert {run: outcome for run, outcome in outcomes.items() if run not in inner} == same
    assert outcomes[5] == outcomes[30] == outcomes[40] == outcomes[50] == "Scored"
    assert {outcomes.get(10, "Skipped"), outcomes.get(20, "Skipped")} == {"Skipped"}


def test_a_trace_that_never_ends_does_not_fill_the_disk(tmp_path: Path):
    """Its old requests go, what is kept of it is written again, and a crash changes nothing."""
    lives = Lives(tmp_path, max_size=400_000, segment_bytes=20_000, max_age="2m", max_spans_per_trace=40)
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
