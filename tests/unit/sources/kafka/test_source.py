"""The source when the cluster refuses or does not answer: a cluster in memory that fails on
request.
"""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from otel_eval.app.build import build_engine
from otel_eval.assembly import Limits
from otel_eval.config import load
from otel_eval.counters import Counters
from otel_eval.delivery.undelivered import Undelivered
from otel_eval.model import Report
from otel_eval.otlp import Encoding
from otel_eval.sources.kafka.offsets import CommitNote, OffsetFinder, Start
from otel_eval.sources.kafka.partition import Services
from otel_eval.sources.kafka.records import RecordReader
from otel_eval.sources.kafka.source import KafkaSource
from tests.faults.fault_rig.reference import CONVENTIONS, EVALUATION
from tests.faults.fault_rig.traffic import body, run_of, trace_id
from tests.support.partition_evaluation import ReportingEvaluation

ENGINE = build_engine(load({"evaluations": [EVALUATION], "conventions": CONVENTIONS}))


class Message:
    def __init__(self, offset: int, number: int, span: bytes) -> None:
        self._offset, self._key, self._value = offset, trace_id(number).hex().encode(), body([span])

    def offset(self) -> int:
        return self._offset

    def key(self) -> bytes:
        return self._key

    def value(self) -> bytes:
        return self._value

    def partition(self) -> int:
        return 0

    def timestamp(self) -> tuple[int, int]:
        return 1, 1_700_000_000_000 + self._offset * 100

    def error(self) -> None:
        return None


class Cluster:
    """One partition, read through the consumer's methods."""

    def __init__(self) -> None:
        self.polls: list[list[Message]] = []
        self.first, self.failures = 0, 0
        self.commits: list[int] = []
        self.is_awaited = False

    def consume(self, _: int, __: float) -> list[Message]:
        return self.polls.pop(0) if self.polls else []

    def get_watermark_offsets(self, *_: Any, cached: bool = False, **__: Any) -> tuple[int, int]:
        self.failures -= not cached
        if self.failures >= 0 and not cached:
            raise KafkaException(KafkaError(KafkaError._TRANSPORT))
        return self.first, 1000

    def commit(self, offsets: list[TopicPartition], *, asynchronous: bool) -> None:
        self.commits.append(offsets[0].offset)
        self.is_awaited = not asynchronous

    def committed(self, partitions: list[TopicPartition], **_: Any) -> list[TopicPartition]:
        return partitions

    def incremental_assign(self, _: Any) -> None: ...

    def pause(self, _: Any) -> None: ...

    def resume(self, _: Any) -> None: ...


Made = tuple[KafkaSource, Cluster, list[Report]]


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Made:
    """A source that reads from the beginning, its cluster, and what it evaluated."""
    monkeypatch.setattr("otel_eval.sources.kafka.source._FAILED_S", 0.01)
    monkeypatch.setattr("otel_eval.sources.kafka.source._COMMIT_S", 0.0)
    counters, undelivered, reports, cluster = Counters(), Undelivered(), list[Report](), Cluster()
    reader = RecordReader(Encoding.PROTOBUF, 100_000, 100, needs_key=True)
    services = Services("t", reader, counters, None, 30.0, 300.0, 1000, undelivered)
    limits = Limits(decision_wait_s=0.2, decision_wait_partial_s=0.3)
    evaluation = ReportingEvaluation(ENGINE, reports.append, limits)
    finder = OffsetFinder("t", "earliest", counters, lambda: 0.0)
    source = KafkaSource({}, "g", services, finder, evaluation, limits)
    source._consumer = cluster
    source._on_assign(cluster, [TopicPartition("t", 0)])
    return source, cluster, reports


def messages(number: int, offset: int) -> list[Message]:
    return [
        Message(offset + place, number, span)
        for place, span in enumerate(run_of(number, calls=2).spans())
    ]


def evaluated(reports: list[Report]) -> dict[str, str]:
    return {report.trajectory.trace_id: report.trajectory.completeness for report in reports}


def test_a_commit_that_failed_is_repeated(made: Made) -> None:
    """Even if no watermark advanced since: otherwise the next owner would read all of it again."""
    source, cluster, _ = made
    cluster.polls = [messages(1, 0), messages(2, 50)]
    source._step()
    source._step()
    before = list(cluster.commits)
    source._step()
    assert cluster.commits == before, "nothing moved"
    source._on_commit(KafkaError(KafkaError.REQUEST_TIMED_OUT), ())
    source._step()
    assert cluster.commits == [*before, before[-1]]


def test_records_behind_a_gap_are_read_although_the_cluster_does_not_answer_at_first(
    made: Made,
) -> None:
    """They come once: where nothing was deleted, offsets are left out by markers of
    transactions.
    """
    source, cluster, reports = made
    cluster.failures = 3
    cluster.polls = [messages(1, 40), messages(2, 80)]
    source._step()
    source._step()
    assert evaluated(reports) == {trace_id(1).hex(): "complete"}


def test_records_that_were_deleted_are_noticed_within_one_poll(made: Made) -> None:
    """A run that began before the gap is not complete, and queued records are evaluated."""
    source, cluster, reports = made
    cluster.first = 80
    cluster.polls = [[*messages(1, 0)[1:], *messages(2, 80)], messages(3, 120)]
    cluster.polls[0][0]._offset = 0
    source._step()
    assert evaluated(reports) == {trace_id(1).hex(): "overflow"}


def test_the_last_commit_of_a_partition_is_awaited(made: Made) -> None:
    """The next owner reads it; the others may take their time."""
    source, cluster, _ = made
    cluster.polls = [messages(1, 0)]
    source._step()
    assert not cluster.is_awaited
    source._on_commit(KafkaError(KafkaError.REQUEST_TIMED_OUT), ())
    source._on_revoke(cluster, [TopicPartition("t", 0)])
    assert cluster.is_awaited


@pytest.mark.parametrize(
    ("committed", "metadata", "start"),
    [
        (50, CommitNote(20, 1).text(), Start(50, 20)),
        (50, CommitNote(5, 1).text(), Start(50, 10)),
        (50, CommitNote(60, 1).text(), Start(50, 50)),
        (50, "by hand", Start(50, 50)),
        (5, CommitNote(3, 1).text(), Start(10, 10, 7.0)),
        (1001, "", Start(10, 10, 7.0)),
        (-1001, "", Start(10, 10, 7.0)),
    ],
    ids=["margin", "margin deleted", "margin behind", "no margin", "deleted", "made anew", "none"],
)
def test_reading_begins_at_the_committed_offset_or_its_margin(
    committed: int, metadata: str, start: Start
) -> None:
    """The cluster has the records from 10 up to 1000; a group without commits begins with the
    earliest.
    """
    cluster = Cluster()
    cluster.first = 10
    finder = OffsetFinder("t", "earliest", Counters(), lambda: 7.0)
    assert (
        finder.find_start(cluster, TopicPartition("t", 0, committed, metadata=metadata), 1) == start
    )
