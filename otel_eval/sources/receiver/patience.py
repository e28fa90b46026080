"""An end to waiting: whoever waits for a client longer than so long is told to stop.

Knows deadlines and how to call; knows no protocol. Waits that end in time cost two dictionary operations.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

__all__ = ["Patience"]


class Patience:
    """Ends waits that take longer than `limit_s` seconds."""

    def __init__(self, limit_s: float) -> None:
        self._limit_s: Final = limit_s
        self._numbers = itertools.count()
        self._lock = threading.Lock()  # guards _waits
        self._waits: dict[int, tuple[float, Callable[[], object]]] = {}  # oldest first
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="otel-eval-patience", daemon=True)

    @contextmanager
    def with_(self, end: Callable[[], object]) -> Iterator[None]:
        """Call `end`, from another thread, if the block takes too long."""
        number = next(self._numbers)
        with self._lock:
            self._waits[number] = (time.monotonic() + self._limit_s, end)
        try:
            yield
        finally:
            with self._lock:
                self._waits.pop(number, None)

    def start(self) -> None:
        """Watch, on a thread of its own."""
        self._thread.start()

    def stop(self) -> None:
        """Watch no more."""
        self._over.set()

    def _watch(self) -> None:
        while not self._over.wait(min(1.0, self._limit_s / 4)):
            for end in self._overdue():
                end()

    def _overdue(self) -> list[Callable[[], object]]:
        now = time.monotonic()
        with self._lock:
            found = list(itertools.takewhile(lambda item: item[1][0] <= now, self._waits.items()))
            for number, _ in found:
                del self._waits[number]
        return [end for _, (_, end) in found]
