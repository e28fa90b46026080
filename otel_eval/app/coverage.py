"""How much of the stored traces was evaluated: traces without a run, runs without an evaluation, unused records."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from otel_eval.datasets import Dataset
from otel_eval.engine import Engine
from otel_eval.evaluations import ScorerSet
from otel_eval.interfaces import ClosedTrace
from otel_eval.model import Report, Stamp, Trajectory
from otel_eval.scorers.tool_names import ToolNameCheck
from otel_eval.scorers.values import Reference, references_of
from otel_eval.trajectory import Plan, Run, build

__all__ = ["Coverage", "UnusedRecords"]

_MOST_SCOPES: Final = 1000


@dataclass(frozen=True, slots=True)
class UnusedRecords:
    """Records of a dataset file whose key no evaluated run carried: line and key of each, of `total` records."""

    path: Path
    records: tuple[tuple[int, str], ...]
    total: int


@dataclass(slots=True)
class Coverage:
    """Counts of one pass over stored traces.

    Attributes:
        traces, spans: what was read.
        runs: agent runs found, nested ones included.
        matched: runs that at least one evaluation matched.
        traces_without_run, spans_without_run: traces in which no run was found, and their spans.
        scopes_without_run: instrumentation scopes of these spans, with the number of spans of each.
        evaluations: those that were asked for.
    """

    traces: int = 0
    spans: int = 0
    runs: int = 0
    matched: int = 0
    traces_without_run: int = 0
    spans_without_run: int = 0
    scopes_without_run: Counter[str] = field(default_factory=Counter)
    evaluations: Sequence[ScorerSet] = ()
    _tool_names: ToolNameCheck | None = None
    _keys: dict[int, set[str]] = field(default_factory=dict)  # id of a dataset → keys that runs carried

    def evaluate(self, engine: Engine, trace: ClosedTrace) -> list[Report]:
        """The reports of a trace, counted. They name no evaluator: stored traces give the same results wherever they are read."""
        if self._tool_names is None:
            self._tool_names = ToolNameCheck({each.name: each.scorers for each in engine.evaluations}, live=False)
        self.evaluations, before = engine.evaluations, self.runs
        reports = engine.evaluate(trace, Stamp(at_ns=time.time_ns()), self._run)
        self._trace(trace, self.runs - before)
        return reports

    def build(self, trace: ClosedTrace, plan: Plan) -> tuple[Run, ...]:
        """The runs of a trace, counted, where nothing is evaluated."""
        runs = build(trace, plan)
        self.runs += len(runs)
        self._trace(trace, len(runs))
        return runs

    def _trace(self, trace: ClosedTrace, runs: int) -> None:
        if not trace.frames:  # log records of a trace that is elsewhere
            return
        self.traces += 1
        self.spans += len(trace.frames)
        if runs:
            return
        self.traces_without_run += 1
        self.spans_without_run += len(trace.frames)
        for frame in trace.frames.values():
            scope = frame[2].scope_name
            if scope in self.scopes_without_run or len(self.scopes_without_run) < _MOST_SCOPES:
                self.scopes_without_run[scope] += 1

    def _run(self, trajectory: Trajectory, matching: Sequence[ScorerSet]) -> None:
        self.runs += 1
        self.matched += bool(matching)
        if self._tool_names is not None:
            self._tool_names.observe(trajectory, [each.name for each in matching])
        for dataset, reference, _ in _files(matching):
            key = reference.key_of(trajectory)
            if key is not None:
                self._keys.setdefault(id(dataset), set()).add(key)

    def tool_name_warnings(self) -> list[str]:
        """Names of tools in policies that no run called: those that are required, and those that may be misspelt."""
        return [] if self._tool_names is None else self._tool_names.finish()

    def unused_records(self) -> list[UnusedRecords]:
        """The records whose key no run carried, by file; none of files that a sampled evaluation or scorer reads."""
        datasets = {id(dataset): dataset for dataset, _, _ in _files(self.evaluations)}
        sampled = {id(dataset) for dataset, _, share in _files(self.evaluations) if share < 1}
        found = []
        for key, dataset in datasets.items():
            keys, used = dataset.record_keys(), self._keys.get(key, set())
            unused = tuple((dataset.line_of(each), each) for each in keys if key not in sampled and each not in used)
            if unused:
                found.append(UnusedRecords(dataset.path, unused, len(keys)))
        return found


def _files(evaluations: Sequence[ScorerSet]) -> Iterator[tuple[Dataset, Reference, float]]:
    """Each dataset file that a scorer reads, the reference to it, and the share of traces that is looked up in it."""
    for evaluation in evaluations:
        for scorer in evaluation.scorers:
            for reference in references_of(scorer):
                if isinstance(reference.records, Dataset):
                    yield reference.records, reference, min(evaluation.sample, getattr(scorer, "sample", 1.0))
