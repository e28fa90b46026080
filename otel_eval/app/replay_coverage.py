"""Evaluates single stored traces, and counts what was found in them."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from otel_eval.datasets import Dataset
from otel_eval.diagnostics import Coverage
from otel_eval.engine import Engine
from otel_eval.errors import InputError
from otel_eval.evaluations import RunMatch, ScorerSet
from otel_eval.interfaces import ClosedTrace
from otel_eval.model import Report, Stamp, Trajectory
from otel_eval.scorers.base_scorer import references_of
from otel_eval.scorers.references import Reference
from otel_eval.sources.files import ReadingListener
from otel_eval.sources.files.translation import NO_SCOPES, lacks_scopes

if TYPE_CHECKING:
    from otel_eval.exporters.cases import CaseFolder

T = TypeVar("T")


class ReplayCoverage(Coverage):
    """Counts what one pass over stored traces found, including which records of datasets were
    used.
    """

    def __init__(self) -> None:
        super().__init__(live=False)
        # keys that runs carried, by dataset
        self._keys: defaultdict[Dataset, set[str | None]] = defaultdict(set)

    def evaluate(
        self, engine: Engine, trace: ClosedTrace, *, cases: CaseFolder | None = None
    ) -> list[Report]:
        """Evaluate a trace, and count its runs; `cases` observes them."""
        built = engine.build(trace, Stamp(at_ns=time.time_ns()))
        scored = engine.score(built)
        trace.history.record(scored.evaluations)
        self.note(trace, built.matches)
        if cases is not None:
            cases.observe(trace, scored.reports)
        return list(scored.reports)

    def evaluate_run(self, engine: Engine, run: Trajectory) -> list[Report]:
        """Evaluate a run that has no trace, and count it."""
        built = engine.build_run(run, Stamp(at_ns=time.time_ns()))
        self.note(built.trace, built.matches)
        return list(engine.score(built).reports)

    def note(self, trace: ClosedTrace, runs: Sequence[RunMatch]) -> None:
        """Count an evaluated trace with its runs."""
        self.observe(trace, runs)
        for run, matching in runs:
            for dataset, reference, _ in _dataset_references(matching):
                self._keys[dataset].add(reference.key_of(run))

    def unused_records(self) -> Iterator[tuple[Dataset, list[str]]]:
        """Keys of records that no evaluated run carried, by dataset; datasets of sampled
        evaluations or scorers are excluded.
        """
        sampled = {
            dataset for dataset, _, share in _dataset_references(self.evaluations) if share < 1
        }
        for dataset in dict.fromkeys(
            dataset for dataset, _, _ in _dataset_references(self.evaluations)
        ):
            unused = [key for key in dataset.record_keys() if key not in self._keys[dataset]]
            if unused and dataset not in sampled:
                yield dataset, unused


def _dataset_references(
    evaluations: Sequence[ScorerSet],
) -> Iterator[tuple[Dataset, Reference, float]]:
    """Each dataset file that a scorer reads, with its reference, and the share of traces for which
    the scorer runs.
    """
    for evaluation in evaluations:
        for scorer in evaluation.scorers:
            for reference in references_of(scorer):
                if isinstance(reference.records, Dataset):
                    yield (
                        reference.records,
                        reference,
                        min(evaluation.sample, getattr(scorer, "sample", 1.0)),
                    )


def attempt(
    trace: ClosedTrace,
    evaluate: Callable[[ClosedTrace], Iterable[T]],
    listener: ReadingListener,
) -> Iterable[T]:
    """Return `evaluate(trace)`; if it raises, report the error and return (), so that only this
    trace is skipped.
    """
    try:
        return evaluate(
            replace(trace, cut=trace.cut or NO_SCOPES) if lacks_scopes(trace) else trace
        )
    except (
        InputError,
        ValueError,
        TypeError,
        LookupError,
        ArithmeticError,
        RecursionError,
    ) as error:
        listener.problem(
            f"trace {trace.trace_id.hex()}: cannot be evaluated: {type(error).__name__}"
        )
        return ()
