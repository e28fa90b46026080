"""A topic of results that is away: first it is not there at all, later it takes nothing because
replicas are missing.
"""

from __future__ import annotations

import time
from pathlib import Path

from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from tests.faults.fault_rig.books import until
from tests.kafka.kafka_rig.broker import Broker
from tests.kafka.kafka_rig.group import Group, Ledger
from tests.kafka.kafka_rig.results import ResultsReader
from tests.kafka.kafka_rig.traffic import Load

__all__ = ["results_away"]

_QUEUE = 50


def results_away(broker: Broker, topic: str, folder: Path, rate: float, *, away_s: float) -> Ledger:
    """Two members that cannot write results for so long, while the load goes on; the books of what
    was written in the end.
    """
    results = f"{topic}_results"
    exporters = {
        "kafka": {"brokers": [broker.address], "topic": results, "timeout": "2s"},
        "max_queue": _QUEUE,
    }
    with Group(folder, broker.address, {"topic": topic}, exporters) as group:
        group.add(2)
        load = Load(broker.producer(), topic, rate).start()
        assert until(lambda: group.metric("kafka_pauses_total") > 0, 30, every_s=0.5), (
            "a full queue pauses reading"
        )
        broker.create(results, 3)
        with ResultsReader(broker.address, results) as reader:
            assert until(lambda: bool(reader.rows), 30)
            _set(broker, results, "min.insync.replicas", "2")
            time.sleep(away_s)
            _set(broker, results, "min.insync.replicas", "1")
            runs = load.stop()
            caught_up_s = 60.0 + away_s
            assert until(lambda: group.lag() == 0, caught_up_s, every_s=0.5), (
                f"{group.lag()} records are left; {group.said()}"
            )
            ends = sum(broker.ends(results).values())
            assert until(lambda: len(reader.rows) >= ends, 30), (
                f"{len(reader.rows)} of {ends} results were read"
            )
            return group.finish(runs, reader.rows)


def _set(broker: Broker, topic: str, name: str, value: str) -> None:
    entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    admin = broker.admin()
    admin.incremental_alter_configs([resource])[resource].result(20)
