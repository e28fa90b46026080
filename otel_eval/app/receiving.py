"""Builds the evaluation of what a receiver accepts, and the exports of its results."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from otel_eval.app.exporting import export_queues_of, metrics_of
from otel_eval.app.live import EvaluationParts, LiveEvaluation
from otel_eval.app.wiring import limits_of
from otel_eval.config import EvalConfig
from otel_eval.counters import Counters
from otel_eval.engine import Engine
from otel_eval.exporters import Exporter, names_of_exporters
from otel_eval.exporters.delivery import ExportQueues, Undelivered
from otel_eval.exporters.fanout import Fanout, FinalResults
from otel_eval.forwarding.stage import Forwarder
from otel_eval.heap import IdleMemory
from otel_eval.interfaces import Scorer, SpanFrame
from otel_eval.model import Report
from otel_eval.pipeline import Pipeline
from otel_eval.storage.durable import Durable
from otel_eval.ui.held_runs import HeldRuns

if TYPE_CHECKING:
    from otel_eval.exporters.cases import CaseFolder

STORED_S: Final = 3.0
"""For delivery before the end if undelivered results are on disk."""
_CLOSING_S: Final = 1.5  # of the time for stopping, for closing the journal, sockets and so on


class ReceiverExports:
    """Where the results of a receiver go: the queues of its exporters; and at once to the spans
    that are forwarded, the metrics, the cases and the page.

    Args:
        config: the configuration.
        counters: counts results.
        exporters: the exporters that get a queue.
        durable: journals what was delivered.
        forward, cases, held_runs: get every report, if they are there.
        undelivered: counts the reports on traces of Kafka.

    Attributes:
        queues: the queues of the exporters.
        metrics: the instruments of results; None if they are neither pushed nor scraped.

    Raises:
        ConfigError: an exporter cannot be opened.
    """

    def __init__(
        self,
        config: EvalConfig,
        counters: Counters,
        *,
        exporters: Sequence[Exporter],
        durable: Durable | None,
        forward: Forwarder | None,
        cases: CaseFolder | None,
        held_runs: HeldRuns | None,
        undelivered: Undelivered | None,
    ) -> None:
        self._durable, self._held_runs, self._undelivered = durable, held_runs, undelivered
        self._exporters: Final = exporters
        self.queues: Final = export_queues_of(config, exporters, counters, self._record_delivery)
        self.metrics: Final = metrics_of(config, counters)
        # Results of detached runs are measured when they are final.
        metrics = FinalResults(self.metrics) if self.metrics else None
        at_once = [exporter for exporter in (forward, metrics, cases) if exporter is not None]
        self._at_once: Final = Fanout(at_once, counters) if at_once else None

    def export(self, report: Report) -> None:
        """Export a report everywhere."""
        if self._held_runs:
            self._held_runs.add(report)
        if self._at_once:
            self._at_once.export(report)
        if self._undelivered:
            self._undelivered.made(report, len(names_of_exporters(self._exporters, report)))
        self.queues.put(report)

    def _record_delivery(self, exporter: str, reports: Sequence[Report]) -> None:
        if self._held_runs:
            self._held_runs.note_export()
        if self._undelivered:
            self._undelivered.delivered(reports)
        if self._durable:
            self._durable.delivered(exporter, reports)

    def final(self, runs: Sequence[tuple[str, str]]) -> None:
        """Measure the results of these runs: they are final."""
        if self._at_once:
            self._at_once.final(runs)

    def expect(self, evaluation: str, scorers: Sequence[Scorer], service: str, agent: str) -> None:
        """Start the counters of these results at 0."""
        if self._at_once:
            self._at_once.expect(evaluation, scorers, service, agent)

    def close(self, deadline: float) -> bool:
        """Deliver what is queued until `deadline` (monotonic seconds), and close every exporter;
        False if something was not delivered.
        """
        self.queues.stop()
        left_s = max(0.1, deadline - time.monotonic())
        # With storage, results that no endpoint accepts now are delivered after the next start.
        delivered = (
            self.queues.flush(min(left_s, STORED_S) if self._durable else left_s)
            or self._durable is not None
        )
        flushed = True
        if self._at_once:
            flushed = self._at_once.flush(max(0.1, deadline - time.monotonic()))
            self._at_once.close(max(0.1, deadline - time.monotonic()))
        # an export may not return: the other parts need time to close, too
        self.queues.close(max(0.1, deadline - _CLOSING_S - time.monotonic()))
        return delivered and flushed


class ReceiverEvaluation(LiveEvaluation):
    """The evaluation of what a receiver accepts, with its storage, forwarding and memory.

    Args:
        parts: its parts.
        queues: the queues of the exporters.
        counters: counts results that are set aside.
        durable: the journal.
        forward: releases the spans of decided traces.
        undelivered: knows the evaluators of partitions of Kafka.
        clock: monotonic seconds, by which traces are closed.
    """

    def __init__(
        self,
        parts: EvaluationParts,
        *,
        queues: ExportQueues,
        counters: Counters,
        durable: Durable | None,
        forward: Forwarder | None,
        undelivered: Undelivered | None,
        clock: Callable[[], float],
    ) -> None:
        super().__init__(parts)
        self._queues, self._counters = queues, counters
        self._durable, self._forward, self._undelivered = durable, forward, undelivered
        self._batches = 0  # that were accepted
        self.pipeline: Final = Pipeline(
            self.engine,
            self,
            limits_of(parts.config),
            clock,
            later=self.later,
            journal=durable,
            evaluator=durable.identity.evaluator if durable else None,
            since_ns=durable.identity.since_ns if durable else time.time_ns(),
        )
        self._memory: Final = IdleMemory(
            lambda: self._batches, lambda: self.pipeline.held_bytes, self.pipeline.compact
        )

    def use(self, engine: Engine, config: EvalConfig) -> None:
        """Evaluate with another engine from now on, also open traces."""
        super().use(engine, config)
        if self._forward:
            self._forward.use_engine(engine)
        self.pipeline.use_engine(engine, self.later)

    def on_spans_accepted(self, spans: Sequence[SpanFrame]) -> None:
        """Note that requests arrive."""
        self._batches += 1
        super().on_spans_accepted(spans)

    def on_tick(self) -> None:
        """Free memory and open renamed files anew, from time to time."""
        self._memory.look()
        self._queues.reopen()
        super().on_tick()

    def on_decided(self, trace_id: bytes) -> None:
        """Forward the spans that were held for scores."""
        if self._forward:
            self._forward.evaluated(trace_id)

    def on_resting(self, trace_id: bytes) -> None:
        """Forward the spans that were held for scores."""
        self.on_decided(trace_id)

    def backpressure(self) -> str:
        """Why evaluation must pause, or ""."""
        return self._queues.backpressure()

    def on_late_report(self, report: Report) -> None:
        """Journal and export asynchronous results, unless they are computed again after the next
        start.
        """
        if self._undelivered and self._undelivered.counts(report):
            # after the end the next owner of its partition evaluates the trace again
            if not self._undelivered.is_stopped:
                self.on_report(report)
        elif self._durable is None or self._durable.late(report):
            self.on_report(report)

    def set_aside(self, reports: Sequence[Report], why: str) -> bool:
        """Write failed results to the dead-letter file, and count them; False if that is not
        possible.
        """
        if not self._queues.write_dead_letters(reports, "evaluation", why):
            return False
        for report in reports:
            self.diagnostics.count(report)
            self._counters.add("results.dead_letters", len(report.results), exporter="evaluation")
        return True
