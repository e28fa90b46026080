"""An end to waiting: whoever waits for a client longer than so long is told to stop.

Knows deadlines and how to call; knows no protocol. Waits that end in time cost two dictionary operations. While many wait
at once there is less patience with each, since every wait takes a thread that others need; and least while the process grows,
since what is waited for is in memory as far as it came.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from otel_eval.sources.receiver.growth import Growth

__all__ = ["Patience"]

_LOOK_S: Final = 0.25


class Patience:
    """Ends waits that take too long.

    Args:
        limit_s: how long one may take.
        many: how many at once are too many to be patient with.
        pressed_s: how long one may take while there are more than that.
        few: so many may grow without end: that is bounded otherwise.
        growth: of the process; while more than `few` wait and it is much, one may take a quarter of `pressed_s`.
    """

    def __init__(self, limit_s: float, many: int, pressed_s: float, few: int, growth: Growth) -> None:
        self._limit_s: Final = limit_s
        self._many: Final = many
        self._pressed_s: Final = min(limit_s, pressed_s)
        self._few: Final = few
        self._growth: Final = growth
        self._numbers = itertools.count()
        self._lock = threading.Lock()  # guards _waits
        self._waits: dict[int, tuple[float, Callable[[], object]]] = {}  # since when, oldest first
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="otel-eval-patience", daemon=True)

    @contextmanager
    def with_(self, end: Callable[[], object]) -> Iterator[None]:
        """Call `end`, from another thread, if the block takes too long."""
        number = next(self._numbers)
        with self._lock:
            self._waits[number] = (time.monotonic(), end)
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
        while not self._over.wait(min(_LOOK_S, self._limit_s / 4)):
            for end in self._overdue():
                end()

    def _limit(self) -> float:
        waiting = len(self._waits)
        if waiting <= self._few:
            self._growth.at_ease()
            return self._limit_s
        if self._growth.much:
            return self._pressed_s / 4
        return self._pressed_s if waiting > self._many else self._limit_s

    def _overdue(self) -> list[Callable[[], object]]:
        before = time.monotonic() - self._limit()
        with self._lock:
            found = list(itertools.takewhile(lambda item: item[1][0] <= before, self._waits.items()))
            for number, _ in found:
                del self._waits[number]
        return [end for _, (_, end) in found]
