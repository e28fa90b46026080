"""The machinery of delivery: a queue, and the threads that send what is in it.

It sends items in batches, waits between attempts, halves batches that are refused, and keeps what
the endpoint cannot take yet. Subclasses know what an item is, how a batch is sent, and what becomes
of items that were accepted or refused.

The life of an item:

    queued ──> in flight ──> accepted, or refused alone ──> settled
      ^         │  ^
      │         │  └ failed (no connection, 429, 5xx): sent again after a wait, for as long as it
      │         │    takes; refused together with others: sent again in halves
      │         ├──> deferred by the exporter: in flight again after a wait of its own
      │         v
      └─────── parked: the endpoint does not support the signal and never accepted it. The oldest is
               sent every `recheck_s`; all are queued again when the endpoint gives another
               response. After `give_up_s`, or if too many are parked: settled as refused

*Settled* is counted, written to the dead-letter file or dropped if it was refused, and
acknowledged. Items in flight and queued count towards the limit of the queue; deferred and parked
ones do not, so that they never pause evaluation.
"""

from __future__ import annotations

import sys
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from math import inf
from typing import ClassVar, Final, Generic, TypeVar

from otel_eval.counters import Counters, CountName, Outage, Warnings, count_name, in_each_child
from otel_eval.retry import (
    Attempts,
    ExportResult,
    RetryPolicy,
    delays,
    in_halves,
    reason_of,
    suppress_instrumentation,
)

Item = TypeVar("Item")

_STUCK_S: Final = 30.0  # after which a request under way is logged
_DEFECTS: Final = (TypeError, ValueError, LookupError, AttributeError)


@dataclass(slots=True, eq=False)
class Entry(Generic[Item]):
    """An item in a queue.

    Attributes:
        item: what is to be sent: the part that was not accepted yet.
        original: the item as it was queued, for its acknowledgement.
        size: of the item, in the unit of the queue's limit.
        queued_at: the monotonic time.
        parked_at: by the clock of the retry policy; None: it was never parked.
        attempted_at: the monotonic time of the attempt after which it was deferred.
        delay_s: seconds from then to the next attempt.
        delays: the waits before later attempts, in seconds; None: it was never deferred.
    """

    item: Item
    original: Item
    size: int
    queued_at: float
    parked_at: float | None = None
    attempted_at: float = 0.0
    delay_s: float = 0.0
    delays: Iterator[float] | None = None


def _parking_order(entry: Entry[Item]) -> tuple[float, float]:
    return entry.parked_at or 0.0, entry.queued_at


class DeliveryQueue(ABC, Generic[Item]):
    """Sends items on threads of its own until each is settled.

    After a fork the child begins with an empty queue and threads of its own; the parent delivers
    what was queued before.

    Args:
        name: of the exporter and signal, in log lines.
        attempts: makes the attempts, and knows whether the endpoint supports the signal.
        retry: how long to wait between attempts.
        labels: of the counters of this queue, whose names begin with `family`.
        threads: how many batches may be in flight at once. With one, items leave in order.
        max_parked: the most items that may be parked.
        max_parked_size: the most that parked items may measure together.
    """

    family: ClassVar[str]

    def __init__(
        self,
        name: str,
        attempts: Attempts,
        counters: Counters,
        *,
        retry: RetryPolicy,
        labels: Mapping[str, str],
        threads: int = 1,
        max_parked: int = sys.maxsize,
        max_parked_size: int = sys.maxsize,
    ) -> None:
        self.name = name
        self._attempts: Final = attempts
        self._counters: Final = counters
        self._retry: Final = retry
        self._labels: Final = dict(labels)
        self._thread_count: Final = threads
        self._max_parked, self._max_parked_size = max_parked, max_parked_size
        self._warnings: Final = Warnings()
        self._started = False
        self._begin()
        in_each_child(self, lambda queue: queue._begin())

    def _begin(self) -> None:
        """Begin with an empty queue, at the start and in a child process."""
        self._outage = Outage(self.name, self._counters)
        self._lock = threading.RLock()  # guards what follows
        self._work = threading.Condition(self._lock)  # for the threads of the queue
        self._progress = threading.Condition(self._lock)  # for those that wait for them
        self._queue: deque[Entry[Item]] = deque()
        self._in_flight: dict[int, Entry[Item]] = {}  # by `id`
        self._queued_size = self._in_flight_size = 0
        self._popped_at = -inf  # the monotonic time at which the last batch left the queue
        self._deferred: list[Entry[Item]] = []  # in order of the last attempts
        self._parked: deque[Entry[Item]] = deque()  # the oldest first
        self._failures = 0  # attempts that failed, and refusals
        self._last_failure = ""
        self._hurry = self._closed = False
        self._stopping = threading.Event()
        # by thread, the monotonic time at which its request or its write to a file began
        self._busy_since: dict[int, float] = {}
        self._threads = [
            threading.Thread(target=self._run, name=f"otel-eval-{self.name}", daemon=True)
            for _ in range(self._thread_count)
        ]
        if self._started:
            self.start()

    def start(self) -> None:
        """Begin to send."""
        self._started = True
        # no thread can be started: items are counted when the queue is full, and at the end
        with suppress(RuntimeError):
            for thread in self._threads:
                thread.start()

    # ------------------------------------------------------------ for subclasses

    @abstractmethod
    def _send(self, items: Sequence[Item]) -> ExportResult:
        """Make one attempt."""

    @abstractmethod
    def _settle(self, result: ExportResult, entries: Sequence[Entry[Item]]) -> bool:
        """Count and acknowledge entries that were accepted or refused permanently; those to retry
        by themselves are passed to `_defer`. False if that has to be tried again.
        """

    @abstractmethod
    def _due_in_s(self) -> float:
        """Seconds until the queued entries are sent: they wait for others, to be sent together.
        Called if there are any.
        """

    @abstractmethod
    def _batch_length(self) -> int:
        """How many of the queued entries are to be sent together."""

    @property
    def _max_batch(self) -> int:
        """The most deferred entries that are sent together."""
        return sys.maxsize

    def _count(self, event: str, amount: int = 1) -> None:
        self._counters.add(f"{self.family}.{event}", amount, **self._labels)

    # ---------------------------------------------------------------------- in

    def _add(self, item: Item, size: int) -> None:
        """Queue an item; called with the lock held."""
        self._queue.append(Entry(item, item, size, time.monotonic()))
        self._queued_size += size
        # Waking a thread for every item would cost more than sending it.
        if len(self._queue) == 1 or self._due_in_s() <= 0:
            self._work.notify()

    def __len__(self) -> int:
        """The number of items that are queued or in flight."""
        return len(self._queue) + len(self._in_flight)

    @property
    def _size(self) -> int:
        """Of the items that are queued or in flight."""
        return self._queued_size + self._in_flight_size

    @property
    def _is_empty(self) -> bool:
        """Whether nothing is left but what is parked."""
        return not (self._queue or self._in_flight or self._deferred)

    # --------------------------------------------------------------------- out

    def _run(self) -> None:
        while not self._closed:
            with self._lock:
                self._park_or_unpark()
                hopeless = self._pop_hopeless()
                # each of them, so that many deferred entries do not keep the queue from going on
                batches = [self._pop_deferred(), self._pop_probe(), self._pop_queued()]
                if not (hopeless or any(batches) or self._closed):
                    self._work.wait(self._idle_s())
            if hopeless:
                self._finish(ExportResult("unsupported", self._attempts.unsupported), hopeless)
            for entries in filter(None, batches):
                self._deliver(entries)

    def _park_or_unpark(self) -> None:
        """Park what is queued while the endpoint does not support the signal; else queue again what
        is parked.
        """
        if self._attempts.unsupported and self._queue:
            self._park(self._pop(self._queue, len(self._queue)))
        elif self._parked and not self._attempts.unsupported:
            self._queued_size += sum([entry.size for entry in self._parked])
            self._queue.extendleft(reversed(self._parked))
            self._parked.clear()

    def _pop_hopeless(self) -> list[Entry[Item]]:
        """The entries that have been parked for too long, and the oldest of too many."""
        expired_at = self._retry.clock() - self._retry.give_up_s
        size = sum([entry.size for entry in self._parked])
        length = 0
        for entry in self._parked:
            is_in_bounds = (
                len(self._parked) - length <= self._max_parked and size <= self._max_parked_size
            )
            if is_in_bounds and (entry.parked_at is None or entry.parked_at > expired_at):
                break
            length, size = length + 1, size - entry.size
        return self._pop(self._parked, length)

    def _pop_deferred(self) -> list[Entry[Item]]:
        now = time.monotonic()
        due = deque([entry for entry in self._deferred if self._retry_at(entry) <= now])
        entries = self._pop(due, min(len(due), self._max_batch))
        if entries:
            popped = set(map(id, entries))
            self._deferred = [entry for entry in self._deferred if id(entry) not in popped]
        return entries

    def _pop_probe(self) -> list[Entry[Item]]:
        """The oldest parked entry, if an attempt is due: one is enough to see whether the endpoint
        supports the signal by now.
        """
        is_due = bool(self._parked) and not self._attempts.allowed_in_s
        return self._pop(self._parked, int(is_due))

    def _pop_queued(self) -> list[Entry[Item]]:
        is_due = bool(self._queue) and self._due_in_s() <= 0
        entries = self._pop(self._queue, self._batch_length() if is_due else 0)
        self._popped_at = time.monotonic() if entries else self._popped_at
        if self._queue and self._due_in_s() <= 0:
            self._work.notify()  # another thread can send the rest
        return entries

    def _pop(self, entries: deque[Entry[Item]], length: int) -> list[Entry[Item]]:
        """Move the first entries to those in flight, and return them."""
        popped = [entries.popleft() for _ in range(length)]
        size = sum([entry.size for entry in popped])
        self._in_flight.update([(id(entry), entry) for entry in popped])
        self._in_flight_size += size
        if entries is self._queue:
            self._queued_size -= size
        return popped

    def _land(self, entries: Iterable[Entry[Item]]) -> None:
        """Remove entries from those in flight, if they are among them."""
        for entry in entries:
            if self._in_flight.pop(id(entry), None) is not None:
                self._in_flight_size -= entry.size
        self._progress.notify_all()

    def _retry_at(self, entry: Entry[Item]) -> float:
        return entry.attempted_at + (self._retry.last_s if self._hurry else entry.delay_s)

    def _idle_s(self) -> float | None:
        """Seconds until something is due; None if that depends on what is queued next."""
        waits = [self._retry_at(entry) - time.monotonic() for entry in self._deferred]
        waits += [self._due_in_s()] if self._queue else []
        if self._parked and (parked_at := self._parked[0].parked_at) is not None:
            expires_in_s = parked_at + self._retry.give_up_s - self._retry.clock()
            waits += [self._attempts.allowed_in_s, expires_in_s]
        return max(0.0, min(waits)) if waits else None

    def _deliver(self, entries: Sequence[Entry[Item]]) -> None:
        """Send entries until each is settled, parked or deferred, or the queue is closed."""
        for part, result in in_halves(entries, self._send_until_answered):
            if result.status == "unsupported":
                with self._lock:
                    self._last_failure = result.reason
                    self._park(part)
            elif result.status != "retryable":  # else the queue is closed, with these in flight
                self._finish(result, part)

    def _send_until_answered(self, entries: Sequence[Entry[Item]]) -> ExportResult:
        """Make attempts until one does not fail, or the queue is closed."""
        backoff, result = self._attempts.backoff(self._stopping), ExportResult("retryable")
        items = [entry.item for entry in entries]
        while not self._closed:
            result = self._attempts.make(lambda: self._attempt(items))
            if result.status != "retryable":
                break
            self._outage.begin()
            self._count("retries")
            self._record_failure(result.reason)
            if not self._stopping.is_set():
                self._warnings.say(
                    "later",
                    "export to %s failed (%s), %d queued, retrying",
                    self.name,
                    result.reason,
                    len(self),
                )
            backoff.wait(result.after_s)
        return result

    def _attempt(self, items: Sequence[Item]) -> ExportResult:
        try:
            # instrumentations of the host program must not trace our own requests
            with suppress_instrumentation(), self._busy():
                return self._send(items)
        except Exception as error:  # noqa: BLE001 - the thread must go on
            # closed files and channels raise ValueError
            is_defect = isinstance(error, _DEFECTS) and not self._closed
            return ExportResult("permanent" if is_defect else "retryable", reason_of(error))

    def _finish(self, result: ExportResult, entries: Sequence[Entry[Item]]) -> None:
        """Settle entries; what was refused may have to wait until it can be written to a file."""
        backoff = self._attempts.backoff(self._stopping)
        with self._lock:  # the end of the process may have settled them meanwhile
            entries = [entry for entry in entries if id(entry) in self._in_flight]
        while entries and not self._settle(result, entries):
            self._record_failure(result.reason)
            if self._closed:
                return
            backoff.wait()
        with self._lock:
            self._land(entries)
        if result.status == "ok":
            self._outage.end(len(self))

    def _park(self, entries: Sequence[Entry[Item]]) -> None:
        """Park entries in flight, in the order in which they were parked first; called with the
        lock held.
        """
        self._land(entries)
        for entry in entries:
            if entry.parked_at is None:
                entry.parked_at = self._retry.clock()
        self._parked.extend(entries)
        self._parked = deque(sorted(self._parked, key=_parking_order))

    def _defer(self, entry: Entry[Item], item: Item, size: int) -> None:
        """Let an entry in flight wait for an attempt of its own.

        Args:
            item: the part of it that is to be sent again.
            size: of that part.
        """
        with self._lock:
            self._land([entry])
            if entry.delays is None:
                entry.delays = delays(self._retry)
            entry.item, entry.size = item, size
            entry.attempted_at, entry.delay_s = time.monotonic(), next(entry.delays)
            self._deferred.append(entry)

    def _record_failure(self, reason: str) -> None:
        with self._lock:
            self._failures, self._last_failure = self._failures + 1, reason
            self._progress.notify_all()

    # ------------------------------------------------------------------ gauges

    @contextmanager
    def _busy(self) -> Iterator[None]:
        """A context in which an exporter or a file has the thread, which may not return."""
        self._busy_since[threading.get_ident()] = time.monotonic()
        try:
            yield
        finally:
            self._busy_since.pop(threading.get_ident(), None)

    @property
    def busy_s(self) -> float:
        """Seconds since the oldest request under way began; 0 if there is none."""
        now = time.monotonic()
        return now - min(list(self._busy_since.values()), default=now)

    def warn_if_stuck(self) -> None:
        """Log a request that has been under way for half a minute. To be called often."""
        if (busy_s := self.busy_s) >= _STUCK_S:
            self._warnings.say(
                "stuck",
                "export to %s has been under way for %.0f s (a lock, a disk or a server that does"
                " not respond), %d queued",
                self.name,
                busy_s,
                len(self),
            )

    def counts(self) -> dict[CountName, float]:
        """The age of the oldest item and of the request under way in seconds, and 1 if the endpoint
        does not support the signal.
        """
        with self._lock:
            firsts = [*self._in_flight.values(), *self._deferred]
            firsts += [entries[0] for entries in (self._queue, self._parked) if entries]
            now = time.monotonic()
            oldest_s = now - min([entry.queued_at for entry in firsts], default=now)
        gauges: dict[CountName, float] = {
            count_name(f"{self.family}.oldest_s", **self._labels): round(oldest_s, 3),
            count_name("exports.running_s", exporter=self.name): round(self.busy_s, 3),
        }
        if self._attempts.unsupported:
            gauges[count_name("exports.unsupported", exporter=self.name)] = 1
        return gauges

    # --------------------------------------------------------------------- end

    def _hurry_until(self, condition: Callable[[], bool], timeout_s: float) -> None:
        """Send without waiting for further items until the condition is met or the queue is closed,
        for at most `timeout_s` seconds; called with the lock held.
        """
        self._hurry = True
        self._work.notify_all()
        self._progress.wait_for(lambda: self._closed or condition(), timeout_s)
        self._hurry = self._stopping.is_set()

    def drain(self, timeout_s: float) -> bool:
        """Send what is queued, with retries; False if something is left after `timeout_s` seconds.

        Once the process shuts down, parked items are waited for until one more attempt was made.
        """

        def is_over() -> bool:
            is_final = self._stopping.is_set() and self._attempts.allowed_in_s > 0
            return self._is_empty and (is_final or not self._parked)

        with self._lock:
            self._hurry_until(is_over, timeout_s)
            return self._is_empty and not self._parked

    def flush(self, timeout_s: float) -> bool:
        """Try to send what is queued at once; False if an attempt failed, an item was refused or is
        parked, or time ran out.
        """
        with self._lock:
            failures = self._failures
            # set for an instant, it interrupts a wait between two attempts
            if not self._stopping.is_set():
                self._stopping.set()
                self._stopping.clear()
            self._hurry_until(lambda: self._is_empty or self._failures > failures, timeout_s)
            return self._is_empty and not self._parked and self._failures == failures

    def stop(self) -> None:
        """Retry without long waits from now on: the process shuts down."""
        with self._lock:
            self._hurry = True
            self._stopping.set()
            self._attempts.allow_now()
            self._work.notify_all()

    def _end_threads(self, timeout_s: float) -> None:
        """Make no further attempt; what is left stays in the queue."""
        self.stop()
        with self._lock:
            self._closed = True
            self._work.notify_all()
            self._progress.notify_all()
        deadline = time.monotonic() + timeout_s
        for thread in self._threads:
            if thread.ident is not None:
                thread.join(max(0.0, deadline - time.monotonic()))

    def _pop_rest(self) -> tuple[list[Entry[Item]], str]:
        """Remove and return what is left, after `_end_threads`, and why it is."""
        with self._lock:
            reason = self._why_left()
            entries_left = [
                *self._deferred,
                *self._parked,
                *self._in_flight.values(),
                *self._queue,
            ]
            for entries in (self._deferred, self._parked, self._in_flight, self._queue):
                entries.clear()
            self._queued_size = self._in_flight_size = 0
        return entries_left, reason

    def _why_left(self) -> str:
        """Return the last error of the endpoint, and that time was over, unless all that is left
        is parked.
        """
        error = self._last_failure
        if error and self._is_empty:
            return error
        return f"time was over; last error: {error}" if error else "time was over"
