"""Runs as records: each in several, over one to three seconds, its own span last."""

from __future__ import annotations

import heapq
import random
import threading
import time
from typing import Any, Final

from confluent_kafka import Producer

from tests.faults.fault_rig.traffic import Run, body, run_of, trace_id

__all__ = ["Load"]

_PARTS: Final = 3  # records of a run, at most


class Load:
    """Writes runs at a steady rate on a thread of its own.

    Args:
        rate: runs that begin in a second.
        poison: an unreadable record is written after each so many records; 0: none.
        spread_s: from the first to the last record of a run, at most and at least.
    """

    def __init__(
        self,
        producer: Producer,
        topic: str,
        rate: float,
        *,
        poison: int = 0,
        spread_s: tuple[float, float] = (1.0, 3.0),
    ) -> None:
        self._producer, self._topic, self._rate, self._poison, self._spread_s = (
            producer,
            topic,
            rate,
            poison,
            spread_s,
        )
        self._rng = random.Random(7)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.runs: list[Run] = []
        self.records = self.poisoned = 0
        self.refused: list[Any] = []

    def start(self) -> Load:
        """Begin."""
        self._thread.start()
        return self

    def stop(self) -> list[Run]:
        """Finish the runs that have begun: all runs, once every record is acknowledged."""
        self._stopping.set()
        self._thread.join(60)
        assert self._producer.flush(120) == 0
        assert not self.refused, self.refused[:3]
        return self.runs

    def _run(self) -> None:
        due: list[tuple[float, bytes, bytes]] = []
        begun = time.monotonic()
        while not self._stopping.is_set() or due:
            now = time.monotonic()
            while not self._stopping.is_set() and len(self.runs) < (now - begun) * self._rate:
                self._begin(now, due)
            while due and due[0][0] <= now:
                _, key, value = heapq.heappop(due)
                self._write(key, value)
            self._producer.poll(0)
            time.sleep(0.02)

    def _begin(self, now: float, due: list[tuple[float, bytes, bytes]]) -> None:
        run = run_of(len(self.runs))
        self.runs.append(run)
        key, spans = trace_id(run.number).hex().encode(), run.spans()
        cuts = (
            sorted(self._rng.sample(range(1, len(spans)), min(len(spans), _PARTS) - 1))
            if len(spans) > 1
            else []
        )
        parts = [spans[a:b] for a, b in zip([0, *cuts], [*cuts, len(spans)], strict=True)]
        over_s = self._rng.uniform(*self._spread_s)
        for place, part in enumerate(parts):
            heapq.heappush(due, (now + over_s * place / max(1, len(parts) - 1), key, body(part)))

    def _write(self, key: bytes, value: bytes) -> None:
        self._produce(key, value)
        self.records += 1
        if self._poison and self.records % self._poison == 0:
            self.poisoned += 1
            self._produce(key, value[: len(value) // 2] if self.poisoned % 2 else b"\xff poison")

    def _produce(self, key: bytes, value: bytes) -> None:
        while True:
            try:
                return self._producer.produce(self._topic, value, key, on_delivery=self._note)
            except BufferError:
                self._producer.poll(0.1)

    def _note(self, error: Any, _: Any) -> None:
        if error is not None:
            self.refused.append(error)
