"""Whatever is done to members, broker and topics: no result is lost or wrong, and no result id has
two contents.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.faults.fault_rig.books import until
from tests.kafka.kafka_rig.broker import Broker
from tests.kafka.kafka_rig.group import ASSIGNMENTS, Group, Ledger
from tests.kafka.kafka_rig.outage import results_away
from tests.kafka.kafka_rig.results import ResultsReader
from tests.kafka.kafka_rig.traffic import Load
from tests.support.waiting import LIMIT_S

RATE = 60.0


@pytest.fixture
def topic(broker: Broker, request: pytest.FixtureRequest) -> Iterator[str]:
    """A topic of its own, and no commits of another test's group."""
    name = re.sub(r"\W", "_", request.node.name)
    broker.create(name)
    yield name
    broker.delete(name)


def balanced(ledger: Ledger) -> bool:
    print(ledger)
    assert not ledger.books.examples, ledger.books.examples
    return ledger.balanced


@pytest.mark.parametrize("assignment", ASSIGNMENTS)
def test_members_that_are_killed_added_and_paused(
    broker: Broker, topic: str, tmp_path: Path, assignment: str
) -> None:
    with Group(
        tmp_path, broker.address, {"topic": topic, "options": ASSIGNMENTS[assignment]}
    ) as group:
        group.add(3)
        load = Load(broker.producer(), topic, RATE).start()
        group.go_on()
        group.members[0].kill()
        group.go_on()
        group.add()
        group.go_on()
        group.pause(group.members[1], 5.0)
        group.go_on()
        group.members[2].terminate()
        ledger = group.finish(load.stop())
        assert balanced(ledger)
        assert ledger.books.repeated > 0, "nothing was read twice: the faults did not hit"


def test_two_handovers_within_the_margin(broker: Broker, topic: str, tmp_path: Path) -> None:
    """The second owner commits before it has read as much as the margin, and late spans of traces
    of the first one come.
    """
    with Group(tmp_path, broker.address, {"topic": topic}) as group:
        load = Load(broker.producer(), topic, RATE, spread_s=(2.0, 4.0)).start()
        for _ in range(3):
            group.add()
            group.go_on()
            group.members[-1].kill()
        group.add()
        assert balanced(group.finish(load.stop()))


def test_a_broker_that_restarts(broker: Broker, topic: str, tmp_path: Path) -> None:
    with Group(tmp_path, broker.address, {"topic": topic}) as group:
        group.add(2)
        load = Load(broker.producer(), topic, RATE).start()
        group.go_on()
        broker.stop()
        written = len(load.runs)
        assert until(lambda: len(load.runs) > written + 3 * RATE, LIMIT_S)
        broker.start()
        group.go_on()
        assert balanced(group.finish(load.stop()))


def test_a_topic_of_results_that_is_away(broker: Broker, topic: str, tmp_path: Path) -> None:
    """The long form leaves it away for a minute."""
    assert balanced(results_away(broker, topic, tmp_path, RATE, away_s=6.0))


@pytest.mark.parametrize("kind", ["file", "topic"])
def test_poison_among_the_records(broker: Broker, topic: str, tmp_path: Path, kind: str) -> None:
    """Half a message and other bytes; each is kept, and the offsets go on."""
    dead: dict[str, Any] = (
        {"dead_letter": str(tmp_path / "dead.jsonl")}
        if kind == "file"
        else {"dead_letter_topic": f"{topic}_dead"}
    )
    if kind == "topic":
        broker.create(f"{topic}_dead", 1)
    with Group(tmp_path, broker.address, {"topic": topic, **dead}) as group:
        group.add()
        load = Load(broker.producer(), topic, RATE, poison=50).start()
        assert until(lambda: load.poisoned > 5, 120)
        runs = load.stop()
        assert until(lambda: group.lag() == 0, 40)
        malformed = group.metric("kafka_records_total")
        assert balanced(group.finish(runs))
    assert malformed == load.records + load.poisoned
    if kind == "file":
        assert len((tmp_path / "dead.jsonl").read_text().splitlines()) == load.poisoned
    else:
        with ResultsReader(broker.address, f"{topic}_dead", parsed=False) as reader:
            assert until(lambda: len(reader.rows) == load.poisoned, 20)
        broker.delete(f"{topic}_dead")
