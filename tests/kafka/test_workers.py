"""`workers` with a topic: each worker is a member of the group, and one that is killed is a member
that is lost.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

from tests.faults.fault_rig.books import until
from tests.kafka.kafka_rig.broker import Broker
from tests.kafka.kafka_rig.group import Group
from tests.kafka.kafka_rig.traffic import Load
from tests.support.waiting import LIMIT_S

RATE = 60.0


def test_a_worker_that_is_killed(broker: Broker, tmp_path: Path) -> None:
    """Its partitions go to the members that are left and to the one that is started in its
    place.
    """
    topic = "read_by_workers"
    broker.create(topic)
    with Group(tmp_path, broker.address, {"topic": topic}, workers=2) as group:
        front = group.add()
        load = Load(broker.producer(), topic, RATE).start()
        assert until(lambda: group.shares() == [3, 3], LIMIT_S), group.shares()
        before = group.consumers()
        assert until(lambda: len({row["evaluator"] for row in group.rows()}) == 6, LIMIT_S), (
            "each partition has an id of its own"
        )
        assert until(lambda: front.metric("kafka_partitions", absent=0) == 6, LIMIT_S)
        os.kill(front.workers()[0], signal.SIGKILL)
        assert until(lambda: front.metric("workers_restarts_total") == 1, LIMIT_S), front.said()
        # the session of the one that was killed is over, and another one has its partitions
        assert until(
            lambda: len(group.consumers() & before) == 1 and group.shares() == [3, 3], LIMIT_S
        ), group.shares()
        records = front.metric("kafka_records")
        assert until(lambda: front.metric("kafka_records") > records, LIMIT_S)
        assert until(lambda: front.metric("kafka_partitions") == 6, LIMIT_S), (
            "what the killed worker held is counted no more"
        )
        ledger = group.finish(load.stop())
    print(ledger)
    assert not ledger.books.examples, ledger.books.examples
    assert ledger.balanced
    assert ledger.books.repeated > 0, "nothing was read twice: the worker had nothing to lose"
    broker.delete(topic)
