"""Builds the evaluation of live traces, in a process, a receiver, its workers and for a topic of
Kafka: engine, judges, diagnostics, cases, and the pipelines that tell them of evaluated traces.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import KW_ONLY
from typing import TYPE_CHECKING, Any, Final

from otel_eval.app.build import build_async_evaluator
from otel_eval.config import EvalConfig
from otel_eval.delivery.exports import Exports
from otel_eval.diagnostics import DiagnosedProcess, Diagnostics
from otel_eval.engine import Engine
from otel_eval.evaluations import RunMatch
from otel_eval.globs import glob_matcher
from otel_eval.interfaces import ClosedTrace, Deployment, RunSource, SpanFrame, SpanReader
from otel_eval.model import Report
from otel_eval.pipeline import PipelineListener
from otel_eval.records import record

if TYPE_CHECKING:
    from otel_eval.exporters.cases import CaseFolder
    from otel_eval.sources.kafka.partition import Partition
    from otel_eval.storage.in_progress import RecordedAttempts


# queued between two calls of `examine_queued`, which come ten times a second
_MOST_SPANS: Final = 64
_MOST_BYTES: Final = 64 * 1024  # of a span that is queued
_MOST_SEEN: Final = 10_000
_WILD: Final = frozenset("*?[")


class ExpectedResults:
    """Starts counters of results at 0 before the first result, because a rate ignores the first
    value of a series.

    That is done for the services and agents that the configuration names, and for each agent when
    its first span arrives. Only a limited number of spans a second is examined, on the worker: an
    agent that is missed under load is found with a later span or result.

    Args:
        exporters: the exporters whose counters start at 0.
        engine: recognises agents, and has the evaluations.
    """

    def __init__(self, exporters: Exports, engine: Engine) -> None:
        self._exporters: Final = exporters
        self._spans: deque[Any] = deque()
        self.use_engine(engine)

    def use_engine(self, engine: Engine) -> None:
        """Expect the results of these evaluations from now on."""
        self._engine = engine
        self._seen: set[RunSource] = set()
        self._expected = [
            (
                evaluation,
                glob_matcher(evaluation.match.service),
                glob_matcher(evaluation.match.agent),
            )
            for evaluation in engine.evaluations
        ]

    def start(self) -> None:
        """Start the counters of what the configuration names; a service or agent that it names by a
        pattern becomes no label.
        """
        for evaluation, _, _ in self._expected:
            source = RunSource(_literal(evaluation.match.service), _literal(evaluation.match.agent))
            self._exporters.expect(evaluation.name, evaluation.scorers, source)

    def queue(self, spans: Iterable[SpanFrame]) -> None:
        """Queue the first of the spans that arrived until the queue is full; called by the threads
        of requests.
        """
        for _, _, frame, size in spans:
            if len(self._spans) >= _MOST_SPANS:
                return
            if size <= _MOST_BYTES:
                self._spans.append(frame)

    def examine_queued(self) -> None:
        """Examine the queued spans; called by the worker."""
        while self._spans:
            _, payload, resource_scope = self._spans.popleft()
            self.examine(
                resource_scope.reader(payload),
                resource_scope.scope_name,
                resource_scope.service,
                resource_scope.deployment,
            )

    def examine(
        self, span: SpanReader, scope_name: str, service: str, deployment: Deployment
    ) -> None:
        """Start the counters of the agent that a span, ended or still open, describes, if any."""
        agent = self._engine.agent_of(span, scope_name)
        if agent is None:
            return
        source = RunSource(service, agent, deployment)
        if source in self._seen:
            return
        if len(self._seen) < _MOST_SEEN:
            self._seen.add(source)
        for evaluation, for_service, for_agent in self._expected:
            if for_service(service) and for_agent(agent):
                self._exporters.expect(evaluation.name, evaluation.scorers, source)


def _literal(pattern: str) -> str:
    return pattern if _WILD.isdisjoint(pattern) else ""


@record
class EvaluationParts:
    """What a live evaluation is made of.

    Attributes:
        config: the configuration.
        engine: evaluates traces.
        exports: gets the reports.
        process: knows the counters of all parts, and why no span may have arrived.
        cases: the folder of runs that become test cases.
        expects_results: whether counters of results start at 0 before the first result.
        one_process: whether every span is of this process.
        attempts: records that an asynchronous result is computed.
    """

    _: KW_ONLY
    config: EvalConfig
    engine: Engine
    exports: Exports
    process: DiagnosedProcess
    cases: CaseFolder | None = None
    expects_results: bool = False
    one_process: bool = False
    attempts: RecordedAttempts | None = None


class LiveEvaluation(PipelineListener):
    """Evaluates live traces: the engine, and everything that is told of evaluated traces.

    Attributes:
        engine: the engine that evaluates now.
        later: computes the results of asynchronous scorers; None if there are none.
    """

    def __init__(self, parts: EvaluationParts) -> None:
        engine = self.engine = parts.engine
        self.diagnostics: Final = Diagnostics(
            parts.process, engine.evaluations, one_process=parts.one_process
        )
        expects = parts.expects_results
        self.expected: Final = ExpectedResults(parts.exports, engine) if expects else None
        self._exports, self._cases, self._attempts = parts.exports, parts.cases, parts.attempts
        self.later = build_async_evaluator(parts.config, engine, self)

    def use(self, engine: Engine, config: EvalConfig) -> None:
        """Evaluate with another engine from now on. Pipelines are changed by the caller."""
        self.later = self.later or build_async_evaluator(config, engine, self)
        self.diagnostics.use(engine.evaluations)
        if self._cases is not None:
            self._cases.use_plan(engine.plan)
        if self.expected is not None:
            self.expected.use_engine(engine)
            self.expected.start()
        self.engine = engine

    def on_spans_accepted(self, spans: Sequence[SpanFrame]) -> None:
        """Look for agents whose results are expected."""
        if self.expected is not None:
            self.expected.queue(spans)

    def on_tick(self) -> None:
        """Expect the results of agents that were found."""
        if self.expected is not None:
            self.expected.examine_queued()

    def on_evaluated(
        self, trace: ClosedTrace, runs: Sequence[RunMatch], reports: Sequence[Report]
    ) -> None:
        """Diagnose the trace, and store those of its runs that are cases."""
        self.diagnostics.examine(trace, runs, reports)
        if self._cases is not None:
            self._cases.observe(trace, reports)

    def on_reports(self, reports: Sequence[Report]) -> None:
        """Count and export reports."""
        for report in reports:
            self.diagnostics.count(report)
        self._exports.export(reports)

    def on_late_report(self, report: Report) -> None:
        """Export asynchronous results."""
        self.on_reports((report,))

    def computing(self, trace_id: str) -> AbstractContextManager[None]:
        """Return a context that records on disk, if there is a journal, that an asynchronous result
        of the trace is computed.
        """
        return (
            nullcontext() if self._attempts is None else self._attempts.computing_result(trace_id)
        )

    def on_final(self, runs: Sequence[tuple[str, str]]) -> None:
        """Export what waited until these runs were final."""
        self._exports.final(runs)


class PartitionListener(PipelineListener):
    """Tells a live evaluation of the traces of one partition of Kafka.

    Args:
        live: is told of everything but that a trace is decided.
        partition: is told which traces are decided.
    """

    def __init__(self, live: LiveEvaluation, partition: Partition) -> None:
        self._live, self._partition = live, partition

    def on_spans_accepted(self, spans: Sequence[SpanFrame]) -> None:
        """As `LiveEvaluation`."""
        self._live.on_spans_accepted(spans)

    def on_evaluated(
        self, trace: ClosedTrace, runs: Sequence[RunMatch], reports: Sequence[Report]
    ) -> None:
        """As `LiveEvaluation`."""
        self._live.on_evaluated(trace, runs, reports)

    def on_reports(self, reports: Sequence[Report]) -> None:
        """As `LiveEvaluation`."""
        self._live.on_reports(reports)

    def on_decided(self, trace_id: bytes) -> None:
        """Tell the partition, which commits its offsets."""
        self._partition.on_decided(trace_id)

    def on_final(self, runs: Sequence[tuple[str, str]]) -> None:
        """As `LiveEvaluation`."""
        self._live.on_final(runs)
