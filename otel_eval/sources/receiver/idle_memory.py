"""Return freed memory to the system when a receiver's load is over.

glibc keeps what was freed for later allocations, and `tune_malloc` makes it keep more. After a peak that is most of the
process's memory.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from otel_eval.sources.receiver import resident, trim_malloc

__all__ = ["IdleMemory"]

_LOOK_S: Final = 1.0
_QUIET_S: Final = 2.0  # without a request, and the load is over
_BUSY_S: Final = 60.0  # between two trims where requests never stop
_WORTH: Final = 8 * 2**20  # bytes


class IdleMemory:
    """Trims the heap once memory was freed and requests have stopped, or once a minute if they do not stop.

    Args:
        requests: a count that rises with each request.
        held: bytes of spans held.
        compact: frees what is held only to be quick.
        clock: monotonic seconds.
        size: bytes of the process in memory.
        trim: returns free memory to the system.
    """

    def __init__(
        self,
        requests: Callable[[], int],
        held: Callable[[], int],
        compact: Callable[[], None],
        clock: Callable[[], float] = time.monotonic,
        size: Callable[[], int] = resident,
        trim: Callable[[], bool] = trim_malloc,
    ) -> None:
        self._requests, self._held, self._compact = requests, held, compact
        self._clock, self._size, self._trim = clock, size, trim
        self._looked = self._trimmed = self._since = clock()
        self._seen = 0
        self._most_held, self._size_then = 0, size()

    def look(self) -> None:
        """Trim if that is worth it now. To be called often; it looks once a second."""
        now = self._clock()
        if now - self._looked < _LOOK_S:
            return
        self._looked = now
        if (requests := self._requests()) != self._seen:
            self._seen, self._since = requests, now
        held = self._held()
        self._most_held = max(self._most_held, held)
        over = now - self._since >= _QUIET_S or now - self._trimmed >= _BUSY_S
        if over and (self._most_held - held >= _WORTH or self._size() - self._size_then >= _WORTH):
            self._compact()
            self._trim()
            self._trimmed, self._most_held, self._size_then = now, held, self._size()
