"""Builds the Kafka receiver with the pipelines of its partitions; offsets are committed once
results are delivered.
"""

from __future__ import annotations

import time
from typing import Final

from otel_eval.app.build import build_limits
from otel_eval.app.live import LiveEvaluation, PartitionListener
from otel_eval.app.receiving import receiver_limits
from otel_eval.config import EvalConfig, KafkaReceiver
from otel_eval.counters import Counters
from otel_eval.delivery.undelivered import Undelivered
from otel_eval.engine import Engine
from otel_eval.otlp import Encoding
from otel_eval.pipeline import Pipeline
from otel_eval.sources.kafka.offsets import OffsetFinder
from otel_eval.sources.kafka.partition import Partition, Services
from otel_eval.sources.kafka.records import (
    DeadRecords,
    DeadRecordsFile,
    DeadRecordsTopic,
    RecordReader,
)
from otel_eval.sources.kafka.source import KafkaSource

_ENCODINGS: Final = {"otlp_proto": Encoding.PROTOBUF, "otlp_json": Encoding.JSON}


class KafkaIntake:
    """The Kafka receiver of a server.

    Args:
        config: the whole configuration.
        options: its `receivers.kafka`.
        engine: an engine that nothing else uses, because the receiver evaluates on its own thread.
        live: is told of evaluated traces, and gets their reports.
        counters: counts what the receiver reads.
        undelivered: counts the reports that some exporter has not delivered yet.

    Raises:
        ConfigError: the file for dead letters cannot be written.
    """

    def __init__(
        self,
        config: EvalConfig,
        options: KafkaReceiver,
        engine: Engine,
        live: LiveEvaluation,
        counters: Counters,
        undelivered: Undelivered,
    ) -> None:
        self._engine = engine
        self._live: Final = live
        self._most_pending: Final = config.async_scoring.max_queue // 2
        self._limits: Final = build_limits(config)
        self._undelivered: Final = undelivered
        finder = OffsetFinder(options.topic, options.initial_offset, counters, time.time)
        services = self._services(config, options, counters)
        self.source: Final = KafkaSource(
            settings=options.settings(),
            group=options.group_id,
            services=services,
            finder=finder,
            evaluation=self,
            limits=self._limits,
        )

    def _services(self, config: EvalConfig, options: KafkaReceiver, counters: Counters) -> Services:
        limits = options.max_message_size, receiver_limits(config.receivers.otlp).max_attributes
        return Services(
            topic=options.topic,
            reader=RecordReader(
                _ENCODINGS[options.encoding], *limits, needs_key=options.unkeyed == "refuse"
            ),
            counters=counters,
            dead_records=_dead_records(options),
            margin_s=options.margin,
            keep_s=max(options.margin, config.traces.max_age),
            most_ids=config.traces.max_traces,
            undelivered=self._undelivered,
        )

    def build_pipeline(self, partition: Partition, since_s: float) -> Pipeline:
        """Return the pipeline of a partition; `since_s`: Unix seconds since which all its spans are
        read.
        """
        return Pipeline(
            self._engine,
            PartitionListener(self._live, partition),
            self._limits,
            partition.clock,
            later=self._live.later,
            evaluator=partition.evaluator,
            since_ns=int(since_s * 1e9),
        )

    def backpressure(self) -> str:
        """Return why evaluation must pause, or ""."""
        later = self._live.later
        if later is not None and later.counts()["late_pending"] >= self._most_pending:
            return "half of async_scoring.max_queue is pending"
        return self._live.backpressure()

    def use_engine(self, engine: Engine) -> None:
        """Use another engine from the next trace on, which nothing else uses."""
        self._engine = engine
        self.source.use_engine(engine, self._live.later)


def _dead_records(options: KafkaReceiver) -> DeadRecords | None:
    if options.dead_letter:
        return DeadRecordsFile(options.dead_letter)
    return (
        DeadRecordsTopic(options.settings(), options.dead_letter_topic)
        if options.dead_letter_topic
        else None
    )
