"""Which offset of a partition may be committed, and from where a new owner has to look for trace ids before it.

The watermark is the first offset of any trace that is not finished, which means evaluated with all its results delivered. A new
owner that begins there reads every unfinished trace from its first record.

Late spans of a finished trace may come after the watermark. A new owner does not know that trace: it would take them for a whole
trace and give its result another content under the same id. Therefore it first reads the trace ids of a margin before the
watermark, and drops later records of these finished traces. The margin is a length of record time. If a finished trace has
records on both sides of the watermark, the margin begins no later than that trace. The start of the margin is written into the
metadata of each commit, because an owner that commits shortly after a handover has itself read little but the former owner's
margin.
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
        position: the offset that is read next.
    """

    def __init__(self, position: int) -> None:
        self.position = position
        # Offsets only rise, so the order in which traces are added is the order of their first offsets.
        self._first: dict[bytes, tuple[int, float]] = {}

    def read(self, offset: int, time_s: float, trace_ids: Iterable[bytes]) -> int:
        """A record was read that holds spans of these traces; none: nothing depends on it. The first offset of any of them."""
        firsts = [self._first.setdefault(trace_id, (offset, time_s))[0] for trace_id in trace_ids]
        self.position = offset + 1
        return min(firsts, default=offset)

    def finish(self, trace_id: bytes) -> None:
        """Nothing read so far of the trace is needed again."""
        self._first.pop(trace_id, None)

    @property
    def low(self) -> int:
        """The offset to commit: every record before it belongs to finished traces."""
        return next(iter(self._first.values()))[0] if self._first else self.position

    @property
    def oldest_s(self) -> float | None:
        """The record time of the oldest unfinished trace; None if all are finished."""
        return next(iter(self._first.values()))[1] if self._first else None


_STEPS: Final = 100  # of a margin: it begins at most one of them too early
_LEAST_STEP_S: Final = 0.1


class Margin:
    """Record times by offset, as far back as a margin may reach. Times that fall back count as the greatest before.

    Args:
        length_s: of record time.
        start: the first offset that is known.
    """

    def __init__(self, length_s: float, start: int) -> None:
        self._length_s, self._step_s = length_s, max(length_s / _STEPS, _LEAST_STEP_S)
        self._start = start
        # Offset, greatest time up to it, and the first offset of any trace with a record from there to the next sample.
        self._samples: deque[tuple[int, float, int]] = deque()
        self._latest_s = float("-inf")

    def read(self, offset: int, time_s: float, first: int) -> None:
        """A record was read of traces of which the first record is at the offset `first`."""
        self._latest_s = max(self._latest_s, time_s)
        if not self._samples or self._latest_s - self._samples[-1][1] >= self._step_s:
            self._samples.append((offset, self._latest_s, first))
        elif first < self._samples[-1][2]:
            self._samples[-1] = (*self._samples[-1][:2], first)

    def start(self, low: int) -> int:
        """Where the margin before a watermark begins; watermarks only rise."""
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
        # Until a whole margin was read here, it begins where the former owner's did.
        if samples[0][1] < at_low - self._length_s:
            self._start = samples[0][0]
        return min(self._start, first)


class CommitNote(NamedTuple):
    """The metadata of a commit.

    Attributes:
        margin: the offset where the margin begins; None: a commit of another program.
        partitions: of the topic, when it was committed; 0: unknown.
    """

    margin: int | None = None
    partitions: int = 0

    def text(self) -> str:
        """As Kafka stores it.

        >>> CommitNote(17, 6).text()
        '{"margin":17,"partitions":6}'
        """
        return json.dumps(self._asdict(), separators=(",", ":"))

    @classmethod
    def of(cls, text: str | None) -> CommitNote:
        """The metadata of a commit; that of another program is no margin.

        >>> CommitNote.of('{"margin":17,"partitions":6}')
        CommitNote(margin=17, partitions=6)
        >>> CommitNote.of("reset by hand")
        CommitNote(margin=None, partitions=0)
        """
        try:
            found = json.loads(text or "")
            margin, partitions = found["margin"], found["partitions"]
        except (ValueError, TypeError, LookupError, RecursionError):
            return cls()
        return cls(margin, partitions) if isinstance(margin, int) and isinstance(partitions, int) else cls()


@dataclass(frozen=True, slots=True)
class Start:
    """Where the reading of a partition begins.

    Attributes:
        low: the first offset whose spans are evaluated.
        margin: the first offset that is read, for its trace ids.
        since_s: since when all spans of the topic are read, in Unix seconds; 0: always.
    """

    low: int
    margin: int
    since_s: float = 0.0


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
            KafkaException: the cluster does not answer.
        """
        first, end = consumer.get_watermark_offsets(committed, timeout=_TIMEOUT_S)
        if committed.offset < 0:
            # From the end of the log on, runs that are under way are `joined`: their first spans are not read.
            is_latest = self._initial == "latest"
            return Start(end, end, self._now()) if is_latest else Start(first, first, self._now() if first else 0.0)
        note = CommitNote.of(committed.metadata)
        if note.partitions and partitions:
            self.compare(note.partitions, partitions)
        if not first <= committed.offset <= end:
            return self.out_of_range(committed.partition, committed.offset, first)
        # What retention has deleted of a margin cannot be learned; a margin behind the commit is another program's mistake.
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
