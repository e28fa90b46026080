"""Spans from a Kafka topic: offsets are committed when what was read before them is scored and delivered."""

from __future__ import annotations

from otel_eval.sources.kafka.source import KafkaSource

__all__ = ["KafkaSource"]
