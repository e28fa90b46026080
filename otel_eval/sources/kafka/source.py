"""Read a topic as a member of a consumer group, on one thread: poll, process records, evaluate,
commit.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from otel_eval.assembly import Limits
from otel_eval.counters import CountName, Counts, Warnings, count_name, total_counts
from otel_eval.engine import Engine
from otel_eval.exporters.kafka import ClientLog
from otel_eval.sources.kafka.offsets import CommitNote, OffsetFinder, Start
from otel_eval.sources.kafka.partition import Partition, PartitionEvaluation, Services
from otel_eval.sources.kafka.records import TopicRecord

if TYPE_CHECKING:
    from otel_eval.judges import AsyncEvaluator

T = TypeVar("T")

_log = logging.getLogger("otel_eval")

_AT_ONCE: Final = 500  # records of one poll
_POLL_S: Final = 0.1
_COMMIT_S: Final = 1.0
_CHECK_S: Final = 30.0  # between two checks of the topic
_FAILED_S: Final = 1.0  # of waiting after an unexpected error
_STALLED_S: Final = 60.0
_TIMEOUT_S: Final = 10.0
_SETTINGS: Final = {
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "enable.partition.eof": True,
    # if records are deleted meanwhile; `OffsetFinder` decides where reading begins
    "auto.offset.reset": "earliest",
    "allow.auto.create.topics": False,
}
# of a pipeline
_GAUGES: Final = frozenset({"open_traces", "held_bytes", "oldest_trace_s", "evaluating_s"})


class KafkaSource:
    """A member of a consumer group that reads one topic.

    Args:
        settings: the settings of librdkafka for the cluster.
        group: the group's id.
        services: what all partitions share.
        finder: finds where the reading of a partition begins.
        evaluation: evaluates the traces of the partitions.
        limits: the limits of all partitions together; each gets an equal share, but at least one
            trace of the greatest size.
    """

    def __init__(
        self,
        settings: Mapping[str, Any],
        group: str,
        services: Services,
        finder: OffsetFinder,
        evaluation: PartitionEvaluation,
        limits: Limits,
    ) -> None:
        self._settings: Final = _with_assignment(settings) | {"group.id": group, **_SETTINGS}
        self._group, self._services, self._finder = group, services, finder
        self._evaluation, self._limits = evaluation, limits
        self._counters: Final = services.counters
        self._offsets: Final = f"offsets of {services.topic}"
        self._warnings: Final = Warnings()
        self._partitions: dict[int, Partition] = {}
        self._former: Counts = {}  # counts of partitions that this process owned before
        self._gauges: dict[CountName, float] = {}
        self._number_of_partitions = 0
        self._consumer: Any = None
        self._stopping, self._ending = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="otel-eval-kafka", daemon=True)
        self._progress_at = self._committed_at = self._checked_at = time.monotonic()

    # ------------------------------------------------------- start and end

    def start(self) -> None:
        """Join the group and begin to read.

        Raises:
            KafkaException: a setting cannot be used.
        """
        self._consumer = Consumer(
            self._settings | {"on_commit": self._on_commit, "error_cb": self._warn},
            logger=ClientLog(),
        )
        topics = [self._services.topic]
        self._consumer.subscribe(
            topics,
            on_assign=self._on_assign,
            on_revoke=self._on_revoke,
            on_lost=lambda _, lost: self._release(lost, "lost"),
        )
        self._progress_at = self._checked_at = time.monotonic()
        self._thread.start()

    def stop(self, timeout_s: float) -> None:
        """Stop reading and evaluating. Unfinished traces are read from the topic again by the next
        owner.
        """
        self._stopping.set()
        self._services.undelivered.stop()

    def close(self, timeout_s: float) -> None:
        """Commit what is finished and leave the group; wait at most `timeout_s` seconds."""
        self._stopping.set()
        self._ending.set()
        if self._thread.ident is not None:
            self._thread.join(timeout_s)

    @property
    def is_open(self) -> bool:
        """Whether records are read and evaluated; False if there was no progress for a minute."""
        return (
            self._thread.is_alive()
            and not self._stopping.is_set()
            and time.monotonic() - self._progress_at < _STALLED_S
        )

    def use_engine(self, engine: Engine, later: AsyncEvaluator | None) -> None:
        """Evaluate with another engine from the next trace on."""
        for partition in list(self._partitions.values()):
            partition.pipeline.use_engine(engine, later)

    # ----------------------------------------------------------- the thread

    def _run(self) -> None:
        """Read until the source stops, then commit and leave the group."""
        self._check_topic()
        while not self._stopping.is_set():
            try:
                self._step()
            except Exception as error:  # noqa: BLE001 - the thread must live on
                self._counters.add("kafka.errors", reason=type(error).__name__)
                self._warnings.say(
                    f"step {type(error)}",
                    "reading %s failed: %s",
                    self._services.topic,
                    _describe(error),
                )
                self._stopping.wait(_FAILED_S)
        self._ending.wait()
        self._finish_delivered()
        try:
            self._consumer.close()  # calls `_on_revoke`
        except Exception as error:  # noqa: BLE001 - the process ends
            _log.warning("leaving group %s failed: %s", self._group, _describe(error))
        if self._services.dead_records is not None:
            self._services.dead_records.close()

    def _step(self) -> None:
        """Poll once, and do for each partition what is due."""
        messages = self._consumer.consume(_AT_ONCE, _POLL_S)
        now = time.monotonic()
        elapsed_s, self._progress_at = now - self._progress_at, now
        is_paused = bool(self._evaluation.backpressure())
        # Polling calls the rebalance callbacks, so messages of a partition that was just revoked
        # are dropped here.
        for message in messages:
            if message.error() is None:
                self._enqueue(message)
        for partition in list(self._partitions.values()):
            if not is_paused:
                partition.process()
                partition.idle(elapsed_s)
                partition.evaluate()
        self._handle_ends(messages)
        self._pause_or_resume(is_paused)
        self._finish_delivered()
        if now - self._committed_at >= _COMMIT_S:
            self._committed_at = now
            self._commit(self._partitions.values())
            self._update_gauges()
        if now - self._checked_at >= _CHECK_S:
            self._checked_at = now
            self._check_topic()

    def _handle_ends(self, messages: Sequence[Any]) -> None:
        """Handle messages that are not records: the end of a partition, or an error."""
        for message in messages:
            error, partition = message.error(), self._partitions.get(message.partition())
            if error is None:
                continue
            if error.code() != KafkaError._PARTITION_EOF:
                self._warn(error)
            elif partition is not None:
                partition.is_at_end = True

    def _warn(self, error: Any) -> None:
        reason = error.name().lstrip("_").lower()
        self._counters.add("kafka.errors", reason=reason)
        self._warnings.say(reason, "reading %s: %s", self._services.topic, error.str())

    def _pause_or_resume(self, is_paused: bool) -> None:
        """Pause fetching for partitions with queued records, resume it for others; polling
        continues, to stay in the group.
        """
        for partition in self._partitions.values():
            is_waiting = is_paused or bool(partition.queue)
            if is_waiting is partition.is_paused:
                continue
            partition.is_paused = is_waiting
            if is_waiting:
                self._consumer.pause([self._at(partition.number)])
                self._counters.add("kafka.pauses")
            else:
                self._consumer.resume([self._at(partition.number)])

    def _finish_delivered(self) -> None:
        """Finish the traces whose last results were delivered since the last call."""
        finished = self._services.undelivered.finished
        partitions = {partition.evaluator: partition for partition in self._partitions.values()}
        while not finished.empty():
            evaluator, trace_id = finished.get()
            if (partition := partitions.get(evaluator)) is not None:
                partition.on_delivered(bytes.fromhex(trace_id))

    def _at(self, number: int, *offset: Any) -> Any:
        return TopicPartition(self._services.topic, number, *offset)

    # --------------------------------------------------------------- commits

    def _commit(self, partitions: Iterable[Partition], *, is_last: bool = False) -> None:
        """Commit watermarks that advanced. A commit may fail in a rebalance: then the next owner
        reads more records again.
        """
        offsets = []
        for partition in partitions:
            if partition.commit == partition.committed:
                continue
            partition.committed = low, margin = partition.commit
            note = CommitNote(margin, self._number_of_partitions).text()
            offsets.append(self._at(partition.number, low, note))
        if not offsets:
            return
        try:
            self._consumer.commit(offsets=offsets, asynchronous=not is_last)
        except Exception as error:  # noqa: BLE001 - whatever librdkafka raises
            self._on_commit(error, ())

    def _on_commit(self, error: Any, partitions: Sequence[Any]) -> None:
        """After a failed commit, commit again later."""
        if error is not None or any(partition.error is not None for partition in partitions):
            self._counters.add("kafka.commits_failed")
            for partition in self._partitions.values():
                partition.committed = (
                    None  # so that it is committed again, even if it did not advance
                )

    # ------------------------------------------------------------ rebalances

    def _on_assign(self, consumer: Any, assigned: Sequence[Any]) -> None:
        """Begin to read newly assigned partitions, each at its start."""
        starts = {
            committed.partition: self._start_partition(consumer, committed)
            for committed in self._committed(consumer, assigned)
            if not self._stopping.is_set()
        }
        positions = [self._at(number, start.margin) for number, start in starts.items()]
        if not _is_cooperative(self._settings):
            consumer.assign(positions)
        elif positions:
            consumer.incremental_assign(positions)
        self._divide_limits()
        self._counters.add("kafka.assignments", len(starts), event="assigned")

    def _committed(self, consumer: Any, assigned: Sequence[Any]) -> Sequence[Any]:
        """Return the commits of partitions, retried until the cluster answers: without them nothing
        may be read.
        """

        def request() -> Sequence[Any]:
            commits: Sequence[Any] = consumer.committed(list(assigned), timeout=_TIMEOUT_S)
            for commit in commits:
                if commit.error is not None:
                    raise KafkaException(commit.error)
            return commits

        return self._retried(request, f"commits of group {self._group}") or () if assigned else ()

    def _start_partition(self, consumer: Any, committed: Any) -> Start:
        """Create a partition at its start; if the source stops before that is found, none is
        created.
        """
        start = self._retried(
            lambda: self._finder.find_start(consumer, committed, self._number_of_partitions),
            self._offsets,
        )
        if start is None:
            return Start(committed.offset, committed.offset)
        self._add_partition(committed.partition, start)
        return start

    def _retried(self, request: Callable[[], T], subject: str) -> T | None:
        """Return the answer of the cluster, retried until there is one; None if the source stops
        before.
        """
        while not self._stopping.is_set():
            try:
                return request()
            except Exception as error:  # noqa: BLE001 - whatever librdkafka raises
                self._warnings.say(subject, "the %s cannot be read: %s", subject, _describe(error))
                self._stopping.wait(_FAILED_S)
        return None

    def _add_partition(self, number: int, start: Start) -> None:
        """Create a partition that begins at its start."""
        # Every owner of a partition has the same id, so a rebalance shows one evaluator, and a
        # split trace shows two.
        evaluator = blake2b(
            f"{self._group}\0{self._services.topic}\0{number}".encode(), digest_size=16
        ).hexdigest()
        self._services.undelivered.evaluators.add(evaluator)
        self._partitions[number] = Partition(
            number, evaluator, start, self._services, self._evaluation
        )

    def _enqueue(self, message: Any) -> None:
        """Queue a record. It is polled only once, so nothing may fail before all records of a poll
        are queued.
        """
        self._handle_gap(message.partition(), message.offset())
        if (partition := self._partitions.get(message.partition())) is not None:
            _, time_ms = message.timestamp()
            partition.enqueue(
                (TopicRecord(message.offset(), time_ms / 1000, message.key(), message.value()),)
            )

    def _handle_gap(self, number: int, offset: int) -> None:
        """If records were deleted before they were read, evaluate open traces as incomplete and
        read from the first record.
        """
        partition = self._partitions.get(number)
        if partition is None or offset <= partition.expected:
            return
        ends = self._retried(
            lambda: self._consumer.get_watermark_offsets(self._at(number), timeout=_TIMEOUT_S),
            self._offsets,
        )
        # offsets of transaction markers, or of records that compaction removed
        if ends is None or ends[0] <= partition.expected:
            return
        start = self._finder.restart_out_of_range(number, partition.expected, ends[0])
        partition.drain()
        self._remove_partition(number)
        self._add_partition(number, start)
        self._divide_limits()

    def _on_revoke(self, _: Any, revoked: Sequence[Any]) -> None:
        """Commit what is finished in partitions that are taken away, and drop them."""
        self._finish_delivered()
        self._commit(
            [
                partition
                for topic_partition in revoked
                if (partition := self._partitions.get(topic_partition.partition)) is not None
            ],
            is_last=True,
        )
        self._release(revoked, "revoked")

    def _release(self, partitions: Sequence[Any], event: str) -> None:
        """Drop the state of partitions; their new owner reads the records again."""
        for topic_partition in partitions:
            self._remove_partition(topic_partition.partition)
        self._divide_limits()
        self._counters.add("kafka.assignments", len(partitions), event=event)

    def _remove_partition(self, number: int) -> None:
        """Drop a partition; its counts stay in those of the source."""
        partition = self._partitions.pop(number, None)
        if partition is not None:
            lasting = {
                name: count for name, count in partition.counts().items() if name not in _GAUGES
            }
            self._former = total_counts([self._former, lasting])

    def _divide_limits(self) -> None:
        """Divide the limits equally between the partitions."""
        limits, number = self._limits, max(1, len(self._partitions))
        most_bytes = max(limits.max_bytes // number, limits.max_bytes_per_trace)
        share = replace(
            limits, max_bytes=most_bytes, max_traces=max(1, limits.max_traces // number)
        )
        for partition in self._partitions.values():
            partition.pipeline.use_limits(share)

    # ----------------------------------------------------------- observation

    def _check_topic(self) -> None:
        """Check that the topic exists, and count and log a change of its number of partitions."""
        try:
            topic = self._consumer.list_topics(self._services.topic, timeout=_TIMEOUT_S).topics[
                self._services.topic
            ]
        except Exception as error:  # noqa: BLE001 - whatever librdkafka raises
            self._warnings.say(
                "topic",
                "the cluster of %s does not answer: %s",
                self._services.topic,
                _describe(error),
            )
            return
        if topic.error is not None:
            self._warn(topic.error)
            return
        if self._number_of_partitions:
            self._finder.report_partition_change(self._number_of_partitions, len(topic.partitions))
        self._number_of_partitions = len(topic.partitions)

    def _update_gauges(self) -> None:
        """Set the gauges: number of partitions, and for each its lag in records and the age of its
        oldest unfinished trace.
        """
        gauges: dict[CountName, float] = {"kafka.partitions": len(self._partitions)}
        for number, partition in self._partitions.items():
            _, end = self._consumer.get_watermark_offsets(self._at(number), cached=True)
            oldest_s = partition.watermark.oldest_s
            lag = max(0, end - partition.watermark.position)
            age_s = 0.0 if oldest_s is None else max(0.0, time.time() - oldest_s)
            gauges[count_name("kafka.lag", partition=str(number))] = lag
            gauges[count_name("kafka.watermark_age_s", partition=str(number))] = age_s
        self._gauges = gauges

    def counts(self) -> dict[CountName, Any]:
        """Return the counters of all partitions, former ones included, and the gauges of those
        owned now.
        """
        counts = [partition.counts() for partition in list(self._partitions.values())]
        return total_counts([self._former, *counts]) | self._gauges


def _broker_assigns(settings: Mapping[str, Any]) -> bool:
    return str(settings.get("group.protocol")).lower() == "consumer"


def _is_cooperative(settings: Mapping[str, Any]) -> bool:
    """Whether single partitions are assigned and revoked; otherwise each rebalance revokes all of
    them.
    """
    return _broker_assigns(settings) or "cooperative" in str(
        settings.get("partition.assignment.strategy")
    )


def _with_assignment(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings with the defaults and cooperative assignment, unless the user chose
    others.
    """
    defaults: dict[str, Any] = {"queued.max.messages.kbytes": 8192}  # ahead for each partition
    if not _broker_assigns(settings):
        defaults["partition.assignment.strategy"] = "cooperative-sticky"
    return defaults | dict(settings)


def _describe(error: BaseException) -> str:
    """Return librdkafka's name of an error, or the name of its type."""
    inner: Any = error.args[0] if error.args else None
    return str(inner.name()).lstrip("_").lower() if hasattr(inner, "name") else type(error).__name__
