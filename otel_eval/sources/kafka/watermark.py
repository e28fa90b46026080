"""Which offset of a partition may be committed, and from where a new owner has to look for trace ids before it.

The watermark is the first offset of any trace that is not finished, which means evaluated with all its results delivered. A new
owner that begins there reads every unfinished trace from its first record.

A trace that is finished may still get late spans behind the watermark. The new owner has no record of the trace, would take
them for a whole one and give its result another content under the same id. Therefore it reads the ids of a margin before the
watermark first: they belong to finished traces, and it drops their records. The margin is a length of record time. It has to be
handed on: an owner that commits shortly after a handover has itself read little but the former owner's margin. So where the
margin begins is written into the metadata of each commit.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterable
from typing import Final, NamedTuple

__all__ = ["CommitNote", "Margin", "Watermark"]


class Watermark:
    """The unfinished traces of a partition by their first offsets.

    Args:
        position: the offset that is read next.
    """

    def __init__(self, position: int) -> None:
        self.position = position
        # Offsets only rise, so the order in which traces are added is the order of their first offsets.
        self._first: dict[bytes, tuple[int, float]] = {}

    def read(self, offset: int, time_s: float, trace_ids: Iterable[bytes]) -> None:
        """A record was read that holds spans of these traces; none: nothing depends on it."""
        for trace_id in trace_ids:
            self._first.setdefault(trace_id, (offset, time_s))
        self.position = offset + 1

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

    def __contains__(self, trace_id: bytes) -> bool:
        return trace_id in self._first


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
        self._samples: deque[tuple[int, float]] = deque()  # offset, greatest time up to it
        self._latest_s = float("-inf")

    def read(self, offset: int, time_s: float) -> None:
        """A record was read."""
        self._latest_s = max(self._latest_s, time_s)
        if not self._samples or self._latest_s - self._samples[-1][1] >= self._step_s:
            self._samples.append((offset, self._latest_s))

    def start(self, low: int) -> int:
        """Where the margin before a watermark begins; watermarks only rise."""
        samples = self._samples
        at_low = next((time_s for offset, time_s in reversed(samples) if offset <= low), None)
        if at_low is None:
            return min(self._start, low)
        while len(samples) > 1 and samples[1][1] < at_low - self._length_s:
            samples.popleft()
        if samples[0][1] < at_low - self._length_s:
            self._start = samples[0][0]
        return min(self._start, low)


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
