"""The evaluation of partitions of Kafka for tests."""

from __future__ import annotations

from collections.abc import Callable

from otel_eval.assembly import Limits
from otel_eval.engine import Engine
from otel_eval.model import Report
from otel_eval.pipeline import Pipeline
from otel_eval.sources.kafka.partition import Partition
from tests.support.listening import Listener


class ReportingEvaluation:
    """Evaluates the traces of partitions, and passes each report to a function."""

    def __init__(self, engine: Engine, report: Callable[[Report], object], limits: Limits) -> None:
        self._engine, self._report, self._limits = engine, report, limits

    def build_pipeline(self, partition: Partition, since_s: float) -> Pipeline:
        """No run is joined, whatever `since_s` is."""
        return Pipeline(
            self._engine,
            Listener(self._report, decided=partition.on_decided),
            self._limits,
            partition.clock,
            evaluator=partition.evaluator,
        )

    def backpressure(self) -> str:
        """Never."""
        return ""
