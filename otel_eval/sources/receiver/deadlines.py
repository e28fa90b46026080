"""Deadlines for reads from clients: a read that takes too long is cancelled.

Reads that end in time cost two dictionary operations. While many wait at once each gets less time, since every read takes a
thread that others need. While the process grows only the few oldest go on, since what is being read is in memory already.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from otel_eval.sources.receiver.memory import RssMonitor

_LOOK_S: Final = 0.25
_MOMENT_S: Final = 0.25  # in which a usual message arrives as a whole
_PRESSED_LOOK_S: Final = 0.02  # while more wait than can be bounded otherwise: how long the process grows unnoticed


class Deadlines:
    """Ends waits that take too long.

    Args:
        limit_s: how long one may take.
        many: so many waits at once shorten the deadline to `pressed_s`.
        pressed_s: the deadline while there are more than `many`.
        few: up to so many unread messages keep `limit_s`; their size is bounded by the limit of a message.
        rss: of the process. While more than `few` wait and it has grown, all but the `few` oldest get 0.25 s.
    """

    def __init__(self, limit_s: float, many: int, pressed_s: float, few: int, rss: RssMonitor) -> None:
        self._limit_s: Final = limit_s
        self._many: Final = many
        self._pressed_s: Final = min(limit_s, pressed_s)
        self._few: Final = few
        self._rss: Final = rss
        self._numbers = itertools.count()
        self._lock = threading.Lock()  # guards _waits
        self._waits: dict[int, tuple[float, Callable[[], object]]] = {}  # since when, oldest first
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="otel-eval-deadlines", daemon=True)

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
        while not self._over.wait(_PRESSED_LOOK_S if len(self._waits) > self._few else min(_LOOK_S, self._limit_s / 4)):
            for end in self._overdue():
                end()

    def _overdue(self) -> list[Callable[[], object]]:
        """How to end the reads that take too long; they are not watched any more."""
        with self._lock:
            waiting = len(self._waits)
            if waiting <= self._few:
                self._rss.at_ease()
            is_pressed = waiting > self._few and self._rss.has_grown
            found = self._older_than(self._pressed_s if is_pressed or waiting > self._many else self._limit_s)
            if is_pressed:
                found += self._older_than(_MOMENT_S)[max(len(found), self._few) :]
            return self._taken(found)

    def _older_than(self, limit_s: float) -> list[int]:
        before = time.monotonic() - limit_s
        return list(itertools.takewhile(lambda number: self._waits[number][0] <= before, self._waits))

    def _taken(self, numbers: list[int]) -> list[Callable[[], object]]:
        return [self._waits.pop(number)[1] for number in numbers]
