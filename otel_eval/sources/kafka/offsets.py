"""Where the reading of a partition begins: from its last commit, within what the log still holds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from otel_eval.counters import Counters, Warnings
from otel_eval.sources.kafka.partition import Start
from otel_eval.sources.kafka.watermark import CommitNote

__all__ = ["OffsetFinder"]

_TIMEOUT_S: Final = 10.0


class OffsetFinder:
    """Looks up commits and the ends of partitions.

    Args:
        topic: for log lines.
        initial_offset: `latest` or `earliest`: where a group without commits begins.
        now: Unix seconds.
    """

    def __init__(self, topic: str, initial_offset: str, counters: Counters, now: Callable[[], float]) -> None:
        self._topic, self._initial, self._counters, self._now = topic, initial_offset, counters, now
        self._warnings: Final = Warnings()

    def start(self, consumer: Any, committed: Any, partitions: int) -> Start:
        """Where to begin with a partition, given its commit.

        Args:
            partitions: how many the topic has; 0: not known.

        Raises:
            KafkaException: the cluster does not tell.
        """
        first, end = consumer.get_watermark_offsets(committed, timeout=_TIMEOUT_S)
        if committed.offset < 0:
            is_latest = self._initial == "latest"
            return Start(end, end, self._now()) if is_latest else Start(first, first, self._now() if first else 0.0)
        note = CommitNote.of(committed.metadata)
        if note.partitions and partitions:
            self.compare(note.partitions, partitions)
        if not first <= committed.offset <= end:
            return self.out_of_range(committed.partition, committed.offset, first)
        margin = committed.offset if note.margin is None else min(max(note.margin, first), committed.offset)
        return Start(committed.offset, margin)

    def out_of_range(self, partition: int, offset: int, first: int) -> Start:
        """The log does not hold the offset: reading goes on with its first record, and runs that began before are `joined`."""
        self._counters.add("kafka.offsets_out_of_range", partition=str(partition))
        self._warnings.say(
            f"range {partition}",
            "offset %d of partition %d of %s is out of range: records were deleted before they were read, or the topic was made "
            "anew; reading goes on at %d (raise the topic's retention)",
            *(offset, partition, self._topic, first),
        )
        return Start(first, first, self._now())

    def compare(self, before: int, partitions: int) -> None:
        """Count and log a number of partitions that has changed."""
        if before == partitions:
            return
        self._counters.add("kafka.partition_count_changes")
        self._warnings.say(
            "partitions",
            "topic %s has %d partitions and had %d: keys are mapped anew, so traces that were being written are split; add "
            "partitions while no trace is open, or use a new topic",
            *(self._topic, partitions, before),
        )
