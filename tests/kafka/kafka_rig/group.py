"""Members of a consumer group: `otel-eval serve` processes, each with a file of results, and the
books over all of them.
"""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.faults.fault_rig.books import Books, balance, rows_of, until
from tests.faults.fault_rig.reference import CONVENTIONS, EVALUATION
from tests.faults.fault_rig.service import QUICK, Service
from tests.faults.fault_rig.traffic import Run
from tests.support.waiting import LIMIT_S

__all__ = ["ASSIGNMENTS", "Group", "Ledger"]

_TIMEOUTS: Final = {"session.timeout.ms": 3000, "heartbeat.interval.ms": 500}
ASSIGNMENTS: Final[dict[str, dict[str, Any]]] = {
    "cooperative": _TIMEOUTS,
    "eager": {**_TIMEOUTS, "partition.assignment.strategy": "range"},
    # which assigns, and has the timeouts; in any case of letters
    "broker": {"group.protocol": "Consumer"},
}
"""Ways in which a group divides partitions, as options of librdkafka."""

_SCORERS: Final = len(EVALUATION["scorers"])
_OCCASION: Final = ("evaluated_at", "evaluator")


@dataclass(frozen=True, slots=True)
class Ledger:
    """What came of a load.

    Attributes:
        books: lost, duplicated, wrong, repeated.
        contradicted: result ids that were given with two contents.
    """

    runs: int
    books: Books
    contradicted: int
    seconds: float

    @property
    def balanced(self) -> bool:
        """Whether nothing is lost, wrong or contradicted."""
        return self.books.balanced and not self.contradicted

    def __str__(self) -> str:
        books = self.books
        return (
            f"runs {self.runs}, lost {books.lost}, wrong {books.wrong}, duplicated"
            f" {books.duplicated}, ids with two contents {self.contradicted}, repeated"
            f" {books.repeated}, {self.seconds:.0f} s"
        )


class Group:
    """Members that read one topic.

    Args:
        folder: a folder for each member is made in it.
        address: of the broker.
        receiver: keys of `receivers.kafka` beside the rig's own.
        exporters: in place of a file of results.
        config: further keys of each member's configuration.
    """

    def __init__(
        self,
        folder: Path,
        address: str,
        receiver: dict[str, Any] | None = None,
        exporters: dict[str, Any] | None = None,
        **config: Any,
    ) -> None:
        self._folder, self._address, self._exporters = folder, address, exporters
        self._receiver, self._config = receiver or {}, config
        self._begun = time.monotonic()
        self.members: list[Service] = []
        self.topic = self._receiver.get("topic", "otlp_spans")

    def add(self, count: int = 1) -> Service:
        """Start further members; the last one."""
        for _ in range(count):
            folder = self._folder / f"member-{len(self.members)}"
            folder.mkdir()
            self.members.append(Service(self._configured(folder)).start())
        return self.members[-1]

    def _configured(self, folder: Path) -> Path:
        defaults = {
            "initial_offset": "earliest",
            "margin": "20s",
            "options": ASSIGNMENTS["cooperative"],
        }
        kafka = {"brokers": [self._address], **defaults, **self._receiver}
        whole = {
            "traces": QUICK,
            "conventions": CONVENTIONS,
            "evaluations": [EVALUATION],
            "receivers": {"kafka": kafka},
            "telemetry": {"endpoint": "127.0.0.1:0"},
            "exporters": self._exporters or {"jsonl": {"path": str(folder / "results.jsonl")}},
            **self._config,
        }
        path = folder / "eval.json"
        path.write_text(json.dumps(whole))
        return path

    @property
    def alive(self) -> list[Service]:
        """The members that run."""
        return [member for member in self.members if member.alive]

    def pause(self, member: Service, for_s: float) -> None:
        """SIGSTOP for a while: the group goes on without the member, which comes back with stale
        state.
        """
        member.running.send_signal(signal.SIGSTOP)
        time.sleep(for_s)
        member.running.send_signal(signal.SIGCONT)

    def lag(self) -> int:
        """Records between the group's commits and the ends of the partitions."""
        consumer = Consumer(
            {"bootstrap.servers": self._address, "group.id": "otel-eval", "log_level": 0}
        )
        try:
            numbers = consumer.list_topics(self.topic, timeout=10).topics[self.topic].partitions
            places = [TopicPartition(self.topic, number) for number in numbers]
            ends = {
                each.partition: consumer.get_watermark_offsets(each, timeout=10)[1]
                for each in places
            }
            return sum(
                ends[each.partition] - max(0, each.offset)
                for each in consumer.committed(places, timeout=10)
            )
        finally:
            consumer.close()

    def shares(self) -> list[int]:
        """How many partitions each member of the group has, as the broker tells, or none; workers
        are members, too.
        """
        admin = AdminClient({"bootstrap.servers": self._address, "log_level": 0})
        try:
            found = admin.describe_consumer_groups(["otel-eval"])["otel-eval"].result(20)
        except KafkaException:  # the group is not there yet
            return []
        return sorted(len(member.assignment.topic_partitions) for member in found.members)

    def consumers(self) -> set[str]:
        """The ids that the broker has given to the members of the group; workers are members,
        too.
        """
        admin = AdminClient({"bootstrap.servers": self._address, "log_level": 0})
        found = admin.describe_consumer_groups(["otel-eval"])["otel-eval"].result(20)
        return {member.member_id for member in found.members}

    def go_on(self) -> None:
        """Wait until every member that runs has written further results, so that a fault meets a
        group at work.
        """
        before = {member.folder: len(rows_of(member.results)) for member in self.alive}
        assert until(
            lambda: all(
                len(rows_of(member.results)) > before[member.folder] for member in self.alive
            ),
            LIMIT_S,
            every_s=0.2,
        ), self.said()

    def rows(self) -> list[dict[str, Any]]:
        """The results in the files of all members."""
        return [row for member in self.members for row in rows_of(member.results)]

    def finish(
        self,
        runs: Sequence[Run],
        rows: Iterable[dict[str, Any]] | None = None,
        within_s: float = LIMIT_S,
    ) -> Ledger:
        """Wait until everything is read, scored and committed, end the members, and reconcile."""
        assert until(lambda: self.lag() == 0, within_s, every_s=0.5), (
            f"{self.lag()} records are left; {self.said()}"
        )
        for member in self.alive:
            assert member.terminate() == 0
        found = list(self.rows() if rows is None else rows)
        return Ledger(
            len(runs),
            balance(runs, {run.number for run in runs}, found),
            _contradicted(found),
            time.monotonic() - self._begun,
        )

    def metric(self, name: str) -> int:
        """The sum of a metric over the members that run; 0 while none has it."""
        return sum(member.metric(name, absent=0) for member in self.alive)

    def said(self) -> list[str]:
        """What the members logged."""
        return [line for member in self.members for line in member.said()]

    def __enter__(self) -> Group:
        return self

    def __exit__(self, *_: object) -> None:
        for member in self.alive:
            member.kill()


def _contradicted(rows: Iterable[dict[str, Any]]) -> int:
    contents: dict[str, set[str]] = {}
    for row in rows:
        content = json.dumps(
            {key: value for key, value in row.items() if key not in _OCCASION}, sort_keys=True
        )
        contents.setdefault(row["result_id"], set()).add(content)
    return sum(len(each) > 1 for each in contents.values())
