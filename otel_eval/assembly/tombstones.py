"""Remember the ids of traces of which nothing else is held."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Iterator
from itertools import islice
from typing import Final

_ID: Final = 16  # bytes of a trace id


class Tombstones:
    """Ids of traces of which nothing else is kept, each until an instant.

    At most `most` recent and `most` compacted ids are held; the oldest are dropped first.
    """

    def __init__(self, limit: int) -> None:
        self._most: Final = limit
        self._recent = OrderedDict[bytes, float]()  # in the order in which they expire
        self._ids = b""  # compacted ids in ascending order
        self._until: array[float] = array("d")

    def add(self, trace_id: bytes, until: float) -> None:
        """Hold an id until an instant."""
        self._recent[trace_id] = until
        if len(self._recent) > self._most:
            self._recent.popitem(last=False)

    def holds(self, trace_id: bytes, now: float) -> bool:
        """Whether the id is held at this instant; recent ids expire only in `expire`."""
        if trace_id in self._recent or not self._ids:
            return trace_id in self._recent
        index = bisect_left(range(len(self._until)), trace_id, key=self._id)
        return index < len(self._until) and self._id(index) == trace_id and self._until[index] > now

    def _id(self, index: int) -> bytes:
        return self._ids[index * _ID : (index + 1) * _ID]

    def expire(self, now: float) -> None:
        """Drop recent ids that have expired; amortised O(1)."""
        while self._recent and (first := next(iter(self._recent.items())))[1] <= now:
            del self._recent[first[0]]

    def items(self) -> Iterator[tuple[bytes, float]]:
        """Yield every id and until when it is held; an id that was added again may be yielded
        twice, the later instant last.
        """
        yield from ((self._id(index), until) for index, until in enumerate(self._until))
        yield from self._recent.items()

    def compact(self, now: float) -> None:
        """Move the recent ids into the compacted block and drop expired ids; O(n log n)."""
        until_of = {trace_id: until for trace_id, until in self.items() if until > now}
        latest = sorted(
            islice(sorted(until_of, key=until_of.__getitem__, reverse=True), self._most)
        )
        self._ids, self._until = b"".join(latest), array("d", map(until_of.__getitem__, latest))
        self._recent.clear()
