"""Ids of traces of which nothing else is kept any more, each until an instant.

Recent ids are in a dictionary. Each is a small object somewhere among the spans that came with it, and keeps the memory around
it from being returned to the system. `compact` moves them into one sorted block.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterator
from itertools import islice
from typing import Final

__all__ = ["Tombstones"]

_ID: Final = 16  # bytes of a trace id


class Tombstones:
    """Trace ids, each until an instant. Of more than `most`, recent or compacted, the oldest are forgotten."""

    def __init__(self, most: int) -> None:
        self._most: Final = most
        self._recent: dict[bytes, float] = {}  # in the order in which they expire
        self._ids = b""  # compacted ones in ascending order
        self._until: array[float] = array("d")

    def add(self, trace_id: bytes, until: float) -> None:
        """Remember an id."""
        self._recent[trace_id] = until
        if len(self._recent) > self._most:
            del self._recent[next(iter(self._recent))]

    def holds(self, trace_id: bytes, now: float) -> bool:
        """Whether the id was added and has not expired."""
        if trace_id in self._recent:
            return True
        place = bisect_left(range(len(self._until)), trace_id, key=self._id)
        return place < len(self._until) and self._id(place) == trace_id and self._until[place] > now

    def _id(self, place: int) -> bytes:
        return self._ids[place * _ID : (place + 1) * _ID]

    def expire(self, now: float) -> None:
        """Forget recent ids that have expired; amortised O(1)."""
        while self._recent and (first := next(iter(self._recent.items())))[1] <= now:
            del self._recent[first[0]]

    def items(self) -> Iterator[tuple[bytes, float]]:
        """Every id that is held, and until when; one that was added again may be given twice, the later instant last."""
        yield from ((self._id(place), until) for place, until in enumerate(self._until))
        yield from self._recent.items()

    def compact(self, now: float) -> None:
        """Move the recent ids into the block and forget expired ones: O(n log n)."""
        kept = {trace_id: until for trace_id, until in self.items() if until > now}
        latest = sorted(islice(sorted(kept, key=kept.__getitem__, reverse=True), self._most))
        self._ids, self._until = b"".join(latest), array("d", map(kept.__getitem__, latest))
        self._recent = {}
