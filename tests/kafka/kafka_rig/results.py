"""Reads all records of a topic of results while a test goes on."""

from __future__ import annotations

import json
import threading
from typing import Any, Self

from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

__all__ = ["ResultsReader"]


class ResultsReader:
    """Follows a topic from its beginning, outside of any group.

    Args:
        parsed: whether values are JSON.

    Attributes:
        keys: of the records, in the order in which they were read.
        rows: their values.
        ends: the offset behind the last record that was read, by partition.
    """

    def __init__(self, address: str, topic: str, *, parsed: bool = True) -> None:
        self._consumer = Consumer(
            {
                "bootstrap.servers": address,
                "group.id": "reader",
                "enable.auto.commit": False,
                "log_level": 0,
            }
        )
        self._topic, self._parsed = topic, parsed
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.keys: list[bytes] = []
        self.rows: list[Any] = []
        self.ends: dict[int, int] = {}

    def _run(self) -> None:
        while not (numbers := self._partitions()) and not self._stopping.wait(0.05):
            pass
        self._consumer.assign(
            [TopicPartition(self._topic, number, OFFSET_BEGINNING) for number in numbers]
        )
        while not self._stopping.is_set():
            for message in self._consumer.consume(500, 0.1):
                if message.error() is None:
                    self.keys.append(message.key())
                    self.rows.append(
                        json.loads(message.value()) if self._parsed else message.value()
                    )
                    self.ends[message.partition()] = message.offset() + 1
        self._consumer.close()

    def _partitions(self) -> list[int]:
        """None at first: a broker may learn of a topic after the controller has acknowledged that
        it was created.
        """
        return list(
            self._consumer.list_topics(self._topic, timeout=20).topics[self._topic].partitions
        )

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join(20)
