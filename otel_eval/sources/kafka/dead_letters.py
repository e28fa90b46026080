"""Where records go that cannot be read: a file of JSON Lines, or a topic of their own."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Mapping
from typing import Any, Final, Protocol

from otel_eval.exporters.jsonl import JsonLinesFile
from otel_eval.exporters.kafka import producer_settings
from otel_eval.sources.kafka.records import TopicRecord

__all__ = ["DeadRecords", "DeadRecordsFile", "DeadRecordsTopic"]

_TIMEOUT_S: Final = 5.0


class DeadRecords(Protocol):
    """Takes records that cannot be read, in full."""

    def add(self, topic: str, partition: int, record: TopicRecord, why: str) -> bool:
        """Keep the record; False if that is not possible now."""
        ...

    def close(self) -> None:
        """Release file or connection."""
        ...


class DeadRecordsFile:
    """Appends a line for each record, with key and value in base64.

    Args:
        path: the file.

    Raises:
        ConfigError: it cannot be written.
    """

    def __init__(self, path: str) -> None:
        self._file: Final = JsonLinesFile(path, key="receivers.kafka.dead_letter")

    def add(self, topic: str, partition: int, record: TopicRecord, why: str) -> bool:
        """Append the record and sync the file; False if that failed."""
        content = {"key": _text(record.key), "value": _text(record.value)}
        fields = {"topic": topic, "partition": partition, "offset": record.offset, "why": why, **content}
        try:
            self._file.write(json.dumps(fields).encode() + b"\n")
            self._file.sync()
        except OSError:
            return False
        return True

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def _text(given: bytes | None) -> str | None:
    return None if given is None else b64encode(given).decode("ascii")


class DeadRecordsTopic:
    """Writes records to a topic as they are, with their place and the reason in headers.

    Args:
        settings: of librdkafka, for the cluster.
        topic: the topic.
    """

    def __init__(self, settings: Mapping[str, Any], topic: str) -> None:
        from confluent_kafka import Producer  # deferred: the package is an extra

        self._topic: Final = topic
        self._producer: Final = Producer(producer_settings(settings, _TIMEOUT_S))

    def add(self, topic: str, partition: int, record: TopicRecord, why: str) -> bool:
        """Write the record and wait for the acknowledgement; False if it did not come."""
        from confluent_kafka import KafkaException

        place = {"topic": topic, "partition": str(partition), "offset": str(record.offset), "why": why}
        headers = [(f"otel_eval.{name}", value.encode()) for name, value in place.items()]
        done: list[bool] = []
        try:
            self._producer.produce(
                self._topic, record.value, record.key, headers=headers, on_delivery=lambda error, _: done.append(error is None)
            )
            self._producer.flush(_TIMEOUT_S + 1.0)
        except (BufferError, KafkaException):
            return False
        return done == [True]

    def close(self) -> None:
        """End the connections."""
        self._producer.flush(_TIMEOUT_S)
