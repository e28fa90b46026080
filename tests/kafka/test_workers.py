"""`workers` with a topic: each worker is a member of the group, and one that is killed is a member that is lost."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from fault_rig.books import until
from kafka_rig.broker import Broker
from kafka_rig.group import Group
from kafka_rig.traffic import Load

RATE = 60.0


def test_a_worker_that_is_killed(broker: Broker, tmp_path: Path) -> None:
    """The other one takes its partitions over, and hands them back when it was started again."""
    topic = "read_by_workers"
    broker.create(topic)
    with Group(tmp_path, broker.address, {"topic": topic}, workers=2) as group:
        front = group.add()
        load = Load(broker.producer(), topic, RATE).start()
        assert until(lambda: front.metric("kafka_partitions", absent=0) == 6, 30), front.said()
        assert until(lambda: len({row["evaluator"] for row in group.rows()}) == 6, 30), "each partition has an id of its own"
        victim = front.workers()[0]
        os.kill(victim, signal.SIGKILL)
        assert until(lambda: front.metric("kafka_assignments_total") >= 9, 30), "its partitions are assigned again"
        assert until(lambda: front.metric("workers_restarts_total") == 1, 30), front.said()
        time.sleep(4)
        assert until(lambda: front.metric("kafka_partitions") == 6, 30), "what the killed worker held is counted no more"
        ledger = group.finish(load.stop())
    print(ledger)
    assert not ledger.books.examples, ledger.books.examples
    assert ledger.balanced
    assert ledger.books.repeated > 0, "nothing was read twice: the worker had nothing to lose"
    broker.delete(topic)
