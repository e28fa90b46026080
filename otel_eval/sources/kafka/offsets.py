"""Find the offset of a partition that may be committed, and the offset before it at which a new
owner begins to read trace ids.

A trace is finished when it is evaluated and all its results are delivered. The watermark is the
first offset of any unfinished trace. A new owner that begins there reads every unfinished trace
from its first record.

A finished trace may still get late spans after the watermark. The new owner has no record of the
trace: it would evaluate them as a complete trace and give its result another content under the same
id. Therefore it first reads the trace ids of a margin before the watermark: these traces are
finished, and it drops their spans. The margin is a length of record time. It is longer if a
finished trace has records on both sides of the watermark: then it begins no later than that trace.
An owner that commits shortly after a rebalance has read little more than the former owner's margin,
so the metadata of each commit has the offset at which the margin begins.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from otel_eval.counters import Counters, Warnings

_TIMEOUT_S: Final = 10.0


class Watermark:
    """The unfinished traces of a partition by their first offsets.

    Args:
        position: the offset of the next record.
    """

    def __init__(self, position: int) -> None:
        self.position = position
        # Offsets only rise, so the order in which traces are added is the order of their first
        # offsets.
        self._first: dict[bytes, tuple[int, float]] = {}

    def add_record(self, offset: int, time_s: float, trace_ids: Iterable[bytes]) -> int:
        """Add a record with spans of these traces; return the first offset of any of them, or the
        record's own without traces.
        """
        firsts = [self._first.setdefault(trace_id, (offset, time_s))[0] for trace_id in trace_ids]
        self.position = offset + 1
        return min(firsts, default=offset)

    def finish(self, trace_id: bytes) -> None:
        """Mark a trace as finished: the records read so far need not be read again for it."""
        self._first.pop(trace_id, None)

    @property
    def low(self) -> int:
        """The offset to commit: every record before it belongs to finished traces."""
        return next(iter(self._first.values()))[0] if self._first else self.position

    @property
    def oldest_s(self) -> float | None:
        """The record time of the oldest unfinished trace; None if all are finished."""
        return next(iter(self._first.values()))[1] if self._first else None


_STEPS: Final = 100  # samples of a margin, which begins at most one of them too early
_LEAST_STEP_S: Final = 0.1


class Margin:
    """Record times by offset, as far back as a margin may reach. A time that is less than an
    earlier one counts as that one.

    Args:
        length_s: the length of the margin in record time.
        start: the offset of the first record that is read.
    """

    def __init__(self, length_s: float, start: int) -> None:
        self._length_s, self._step_s = length_s, max(length_s / _STEPS, _LEAST_STEP_S)
        self._start = start
        # Offset, greatest time up to it, and the first offset of any trace with a record from there
        # to the next sample.
        self._samples: deque[tuple[int, float, int]] = deque()
        self._latest_s = float("-inf")

    def add_record(self, offset: int, time_s: float, first: int) -> None:
        """Add a record; `first` is the first offset of any of its traces."""
        self._latest_s = max(self._latest_s, time_s)
        if not self._samples or self._latest_s - self._samples[-1][1] >= self._step_s:
            self._samples.append((offset, self._latest_s, first))
        elif first < self._samples[-1][2]:
            self._samples[-1] = (*self._samples[-1][:2], first)

    def start(self, low: int) -> int:
        """Return the offset at which the margin before a watermark begins; the watermarks of later
        calls must not be lower.
        """
        samples = self._samples
        first, at_low = low, None
        for offset, time_s, reach in reversed(samples):
            first = min(first, reach)
            if offset <= low:
                at_low = time_s
                break
        if at_low is None:
            return min(self._start, first)
        while len(samples) > 1 and samples[1][1] < at_low - self._length_s:
            samples.popleft()
        # Until this owner has read a whole margin, the margin begins where the former owner's did.
        if samples[0][1] < at_low - self._length_s:
            self._start = samples[0][0]
        return min(self._start, first)


class CommitNote(NamedTuple):
    """The metadata of a commit.

    Attributes:
        margin: the offset at which the margin begins; None if another program committed.
        partitions: the number of partitions of the topic at the time of the commit; 0 if unknown.
    """

    margin: int | None = None
    partitions: int = 0

    def text(self) -> str:
        """Return the text that Kafka stores.

        >>> CommitNote(17, 6).text()
        '{"margin":17,"partitions":6}'
        """
        return json.dumps(self._asdict(), separators=(",", ":"))

    @classmethod
    def of(cls, text: str | None) -> CommitNote:
        """Parse the metadata of a commit; the metadata of another program has no margin.

        >>> CommitNote.of('{"margin":17,"partitions":6}')
        CommitNote(margin=17, partitions=6)
        >>> CommitNote.of("reset by hand")
        CommitNote(margin=None, partitions=0)
        """
        try:
            note = json.loads(text or "")
            margin, partitions = note["margin"], note["partitions"]
        except (ValueError, TypeError, LookupError, RecursionError):
            return cls()
        is_ours = isinstance(margin, int) and isinstance(partitions, int)
        return cls(margin, partitions) if is_ours else cls()


@dataclass(frozen=True, slots=True)
class Start:
    """Where the reading of a partition begins.

    Attributes:
        low: the first offset whose spans are evaluated.
        margin: the first offset that is read, for its trace ids.
        since_s: the time since which all spans of the topic are read, in Unix seconds; 0 if all are
            read.
    """

    low: int
    margin: int
    since_s: float = 0.0


class OffsetFinder:
    """Finds where reading begins, from commits and the first and last offsets of partitions.

    Args:
        topic: the name of the topic, for log lines.
        initial_offset: `latest` or `earliest`: where a group without commits begins.
        now: returns Unix seconds.
    """

    def __init__(
        self, topic: str, initial_offset: str, counters: Counters, now: Callable[[], float]
    ) -> None:
        self._topic, self._initial, self._counters, self._now = topic, initial_offset, counters, now
        self._warnings: Final = Warnings()

    def find_start(self, consumer: Any, committed: Any, partitions: int) -> Start:
        """Return where the reading of a partition begins: at its commit, after the margin noted in
        the commit, which is read for its trace ids; without a commit at `initial_offset`; at the
        first record if the commit is out of range.

        A number of partitions that differs from the one noted in the commit is logged.

        Args:
            committed: the partition with its committed offset, negative if there is none.
            partitions: the number of partitions of the topic; 0 if unknown.

        Raises:
            KafkaException: the cluster does not answer.
        """
        first, end = consumer.get_watermark_offsets(committed, timeout=_TIMEOUT_S)
        if committed.offset < 0:
            # Reading from the end of the log, the first spans of runs under way are missed: such
            # runs are `joined`.
            if self._initial == "latest":
                return Start(end, end, self._now())
            return Start(first, first, self._now() if first else 0.0)
        note = CommitNote.of(committed.metadata)
        if note.partitions and partitions:
            self.report_partition_change(note.partitions, partitions)
        if not first <= committed.offset <= end:
            return self.restart_out_of_range(committed.partition, committed.offset, first)
        # Retention may have deleted records of the margin; a margin after the commit is an error of
        # another program.
        margin = (
            committed.offset
            if note.margin is None
            else min(max(note.margin, first), committed.offset)
        )
        return Start(committed.offset, margin)

    def restart_out_of_range(self, partition: int, offset: int, first: int) -> Start:
        """Count and log that an offset is out of range; return a start at the first record, where
        earlier runs are `joined`.
        """
        self._counters.add("kafka.offsets_out_of_range", partition=str(partition))
        self._warnings.say(
            f"range {partition}",
            "offset %d of partition %d of %s is out of range: records were deleted before they were"
            " read, or the topic was recreated; reading continues at %d (raise the topic's"
            " retention)",
            *(offset, partition, self._topic, first),
        )
        return Start(first, first, self._now())

    def report_partition_change(self, before: int, partitions: int) -> None:
        """Count and log a change of the number of partitions, if there is one."""
        if before == partitions:
            return
        self._counters.add("kafka.partition_count_changes")
        self._warnings.say(
            "partitions",
            "topic %s has %d partitions and had %d: keys are mapped anew, so traces that were being"
            " written are split; add partitions while no trace is open, or use a new topic",
            *(self._topic, partitions, before),
        )
