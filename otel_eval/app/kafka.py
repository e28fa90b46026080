"""Builds the Kafka receiver with the pipelines of its partitions; offsets are committed once
results are delivered.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from otel_eval.app.server_wiring import receiver_limits
from otel_eval.app.wiring import limits_of
from otel_eval.config import EvalConfig, KafkaReceiver
from otel_eval.counters import Counters
from otel_eval.engine import Engine
from otel_eval.exporters.delivery import Undelivered
from otel_eval.model import Report
from otel_eval.otlp import Encoding
from otel_eval.pipeline import Pipeline
from otel_eval.sources.kafka.offsets import OffsetFinder
from otel_eval.sources.kafka.partition import RecordClock, Services
from otel_eval.sources.kafka.records import (
    DeadRecords,
    DeadRecordsFile,
    DeadRecordsTopic,
    RecordReader,
)
from otel_eval.sources.kafka.source import KafkaSource

if TYPE_CHECKING:
    from otel_eval.judges import AsyncEvaluator

_ENCODINGS: Final = {"otlp_proto": Encoding.PROTOBUF, "otlp_json": Encoding.JSON}


class KafkaIntake:
    """The Kafka receiver of a server.

    Args:
        config: the whole configuration.
        given: its `receivers.kafka`.
        engine: an engine that nothing else uses, because the receiver evaluates on its own thread.
        later: the evaluator of asynchronous scorers, if there are any.
        counters: counts what the receiver reads.
        backpressure: returns why evaluation must pause, or "".
        emit: called with each report.
        options: arguments of every pipeline beside those that differ between partitions.

    Attributes:
        undelivered: counts the reports that some exporter has not delivered yet.

    Raises:
        ConfigError: the file for dead letters cannot be written.
    """

    def __init__(
        self,
        config: EvalConfig,
        given: KafkaReceiver,
        engine: Engine,
        later: AsyncEvaluator | None,
        counters: Counters,
        backpressure: Callable[[], str],
        emit: Callable[[Report], None],
        **options: Any,
    ) -> None:
        self._engine, self._later, self._emit, self._options = engine, later, emit, options
        self._exporters_pause: Final = backpressure
        self._most_pending: Final = config.async_scoring.max_queue // 2
        self._limits: Final = limits_of(config)
        self.undelivered: Final = Undelivered()
        finder = OffsetFinder(given.topic, given.initial_offset, counters, time.time)
        services = self._services(config, given, counters)
        self.source: Final = KafkaSource(
            given.settings(),
            given.group_id,
            services,
            finder,
            self._pipeline,
            self._limits,
            self._backpressure,
        )

    def _services(self, config: EvalConfig, given: KafkaReceiver, counters: Counters) -> Services:
        limits = given.max_message_size, receiver_limits(config.receivers.otlp).max_attributes
        return Services(
            topic=given.topic,
            reader=RecordReader(
                _ENCODINGS[given.encoding], *limits, needs_key=given.unkeyed == "refuse"
            ),
            counters=counters,
            dead_records=_dead_records(given),
            margin_s=given.margin,
            keep_s=max(given.margin, config.traces.max_age),
            most_ids=config.traces.max_traces,
            undelivered=self.undelivered,
        )

    def _pipeline(
        self, evaluator: str, since_s: float, clock: RecordClock, evaluated: Callable[[bytes], None]
    ) -> Pipeline:
        given: dict[str, Any] = {
            "clock": clock,
            "evaluated": evaluated,
            "later": self._later,
            "evaluator": evaluator,
        }
        return Pipeline(
            self._engine,
            self._emit,
            self._limits,
            since_ns=int(since_s * 1e9),
            **given,
            **self._options,
        )

    def _backpressure(self) -> str:
        if self._later is not None and self._later.counts()["late_pending"] >= self._most_pending:
            return "half of async_scoring.max_queue is pending"
        return self._exporters_pause()

    def is_own(self, report: Report) -> bool:
        """Whether the trace of the report was read from the topic."""
        return report.stamp.evaluator in self.undelivered.evaluators

    def use_engine(self, engine: Engine, later: AsyncEvaluator | None) -> None:
        """Use another engine from the next trace on."""
        self._engine, self._later = engine, self._later or later
        self.source.use_engine(engine, later)


def _dead_records(given: KafkaReceiver) -> DeadRecords | None:
    if given.dead_letter:
        return DeadRecordsFile(given.dead_letter)
    return (
        DeadRecordsTopic(given.settings(), given.dead_letter_topic)
        if given.dead_letter_topic
        else None
    )
