"""Count the spans of closed traces that wait for the worker, and their bytes."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from threading import RLock
from typing import Final

from otel_eval.sources.inprocess.entries import Handed, Open
from otel_eval.sources.inprocess.limits import Limits

__all__ = ["WaitingSpans"]


class WaitingSpans:
    """What is on its way to the worker: traces that may be closed, and spans that were given over.

    Args:
        limits: how much may wait.
        lock: held by the caller of every method but `unmeasured` and `add_size`.
    """

    def __init__(self, limits: Limits, lock: RLock) -> None:
        self._limits, self._lock = limits, lock
        self._count = 0
        self._unmeasured: Final[deque[Handed]] = deque()
        self.size = 0  # bytes, as far as they are measured

    def is_full(self, count: int) -> bool:
        """Whether so many spans more may not wait."""
        return self._count + count > self._limits.max_waiting_spans or self.size > self._limits.max_waiting_bytes

    def put(self, entry: Open, count: int) -> None:
        """A trace with so many spans waits."""
        entry.counted, entry.counted_bytes = count, entry.size
        self._count += count
        self.size += entry.size

    def take(self, entry: Open) -> None:
        """It does no longer."""
        self._count -= entry.counted
        self.size -= entry.counted_bytes
        entry.counted = entry.counted_bytes = 0

    def grew(self, entry: Open, size: int) -> None:
        """So many bytes more of a trace were measured."""
        if entry.counted:
            entry.counted_bytes += size
            self.size += size

    def hand(self, handed: Handed) -> None:
        """Spans that were given over wait."""
        handed.waits = True
        self._count += len(handed.spans)
        self.size += handed.size
        if handed.measured < len(handed.spans):
            self._unmeasured.append(handed)

    def arrived(self, handed: Handed) -> None:
        """They do no longer."""
        handed.waits = False
        self._count -= len(handed.spans)
        self.size -= handed.size

    def unmeasured(self) -> Iterator[Handed]:
        """What was given over and has spans that were not measured, each once."""
        while self._unmeasured:
            handed = self._unmeasured.popleft()
            if handed.waits:
                yield handed

    def add_size(self, handed: Handed, size: int) -> None:
        """The spans that were not measured take so many bytes."""
        with self._lock:
            if handed.waits:
                handed.size += size
                self.size += size
