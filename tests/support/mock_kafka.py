"""librdkafka's mock cluster: brokers in this process that other clients reach over sockets; four
partitions a topic, no disk.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

from tests.support.waiting import LIMIT_S


@contextmanager
def mock_cluster(brokers: int = 1) -> Iterator[str]:
    """`bootstrap.servers` of a cluster that lives as long as the context."""
    owner = Producer({"test.mock.num.brokers": brokers, "log_level": 2})
    yield ",".join(
        f"{each.host}:{each.port}" for each in owner.list_topics(timeout=300).brokers.values()
    )


def consumed(servers: str, topic: str, count: int, timeout_s: float = LIMIT_S) -> list[Any]:
    """So many records of a topic, from its beginning."""
    settings = {"bootstrap.servers": servers, "group.id": "reader", "enable.auto.commit": False}
    consumer = Consumer(settings)
    partitions = consumer.list_topics(topic, timeout=300).topics[topic].partitions
    # without the group's protocol
    consumer.assign([TopicPartition(topic, each, OFFSET_BEGINNING) for each in partitions])
    found: list[Any] = []
    try:
        while len(found) < count:
            messages = consumer.consume(count, timeout_s)
            assert messages, f"{len(found)} of {count} records came"
            found += [each for each in messages if each.error() is None]
    finally:
        consumer.close()
    return found
