"""Records each evaluation before it begins, so that a trace whose evaluation ends the process is
not evaluated forever.

`InProgress` is a file that outlives the process. It holds which traces are being evaluated, and the
number of crashes that happened during the evaluation of each. It is mapped into memory, so writing
an entry is a copy in memory. An entry survives any end of the process. It survives a crash of the
machine only if it was synced, which is done for traces that were recovered after the machine
crashed. The file gets its full size when it is created, so that a full disk cannot make these
copies fail. `RecordedAttempts` uses the file for one receiver.
"""

from __future__ import annotations

import logging
import mmap
import os
import struct
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import ExitStack, contextmanager, suppress
from hashlib import blake2b
from itertools import groupby
from pathlib import Path
from typing import Final, Protocol

from otel_eval.assembly import TraceBuffer
from otel_eval.engine import Engine, TraceReports
from otel_eval.interfaces import ClosedTrace, Crashes
from otel_eval.model import Failed, Report, Stamp
from otel_eval.storage.directory import NO_LINK, DirectoryLock

_log = logging.getLogger("otel_eval")

_BYTES: Final = 16384
_FORMAT: Final = b"oe-eval1"
_HEAD: Final = struct.Struct("<8s16sB")
_STOPPED_AT: Final = _HEAD.size - 1
_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
_ENTRY: Final = struct.Struct("<B24sBI34x")
_FREE, _BUILDING, _SCORING = range(3)

SLOTS: Final = 64
"""Evaluations that can be in progress at one time; the rest of the file holds the counts of
crashes.
"""
_MOST_COUNTS: Final = _BYTES // _ENTRY.size - 1 - SLOTS

Key = bytes
"""The 16 bytes of a trace id, then 8 bytes that identify which part of the trace is evaluated."""


_NONE: Final = Crashes()


def key_of_trace(trace_id: bytes, parts: tuple[bytes, ...] = ()) -> Key:
    """Return the key of the evaluation of a whole trace, or of the given parts of it."""
    return trace_id + (blake2b(b"".join(parts), digest_size=8).digest() if parts else bytes(8))


class InProgress:
    """The evaluations in progress. Each slot is used by one thread at a time.

    Args:
        directory: the storage directory.
        sync: whether `durable` entries are synced to the disk.

    Attributes:
        crashed: whether the previous process ended without a request to stop.
        rebooted: whether it crashed and the machine may have been started again since.
    """

    def __init__(self, directory: DirectoryLock, *, sync: bool) -> None:
        self._sync: Final = sync
        self._file: Final = _map_file(directory.path / "evaluating")
        form, boot, stopped = _HEAD.unpack_from(self._file)
        self._boot: Final = _boot_id()
        self._is_crash_counted = False  # whether the crash of the previous process was counted
        self.crashed: Final = form == _FORMAT and not stopped
        self.rebooted: Final = self.crashed and (boot != self._boot or not any(boot))
        self._counts = {
            key: Crashes(count, state == _SCORING)
            for state, key, count in self._entries(SLOTS, _MOST_COUNTS)
        }

    def _entries(self, first: int, number: int) -> Iterator[tuple[int, Key, int]]:
        for state, key, count, check in _ENTRY.iter_unpack(
            self._file[_at(first) : _at(first + number)]
        ):
            if state != _FREE and check == _check(key, count):
                yield state, key, count

    def recover(self, needed: Callable[[bytes], bool]) -> Mapping[Key, Crashes]:
        """Count the crash of the previous process, if it crashed, and start with empty slots.

        Args:
            needed: whether the trace with an id is still to be evaluated; the counts of other
                traces are removed.

        Returns:
            The evaluations that were in progress at the crash, with their new counts.
        """
        under_way = (
            {key: state == _SCORING for state, key, _ in self._entries(0, SLOTS)}
            if self.crashed
            else {}
        )
        for key, scoring in under_way.items():
            self._counts[key] = Crashes(min(255, self.crashes(key).times + 1), scoring)
        counts = [(key, crashes) for key, crashes in self._counts.items() if needed(key[:16])]
        self._counts = dict(counts[-_MOST_COUNTS:])
        head = _HEAD.pack(_FORMAT, self._boot, 0).ljust(_at(0), b"\0")
        self._file[:] = head + bytes(SLOTS * _ENTRY.size) + self._packed_counts()
        self._is_crash_counted = True
        self._flush()
        return {key: self._counts[key] for key in under_way if key in self._counts}

    def crashes(self, key: Key) -> Crashes:
        """Return how often the process crashed during the evaluation with this key."""
        return self._counts.get(key, _NONE)

    def begin(self, slot: int, key: Key, *, durable: bool = False) -> None:
        """Record that an evaluation begins; `durable`: the entry survives a crash of the machine,
        too.
        """
        at = _at(slot)
        self._file[at : at + _ENTRY.size] = _entry(_BUILDING, key, 0)
        if durable:
            self._flush()

    def mark_scoring(self, slot: int) -> None:
        """Record that the trajectories are built and scorers run."""
        self._file[_at(slot)] = _SCORING

    def end(self, slot: int) -> None:
        """Record that the evaluation ended."""
        self._file[_at(slot)] = _FREE

    def forget(self, key: Key) -> None:
        """Remove the crash count of an evaluation that succeeded."""
        if self._counts.pop(key, None) is not None:
            self._file[_at(SLOTS) :] = self._packed_counts()

    def stop(self) -> None:
        """Record that the process was asked to stop, so that its end is not a crash. Safe in a
        signal handler.
        """
        # before that, the next start still has to count the crash of the previous process
        if self._is_crash_counted:
            self._file[_STOPPED_AT] = 1

    def close(self) -> None:
        """Record the stop. The file stays mapped, because an evaluation may still be running."""
        self.stop()
        self._flush()

    def _flush(self) -> None:
        if self._sync:
            # the journal reports a failing disk; a lost entry costs one more attempt
            with suppress(OSError):
                self._file.flush()

    def _packed_counts(self) -> bytes:
        rows = [
            _entry(_SCORING if crashes.scoring else _BUILDING, key, crashes.times)
            for key, crashes in self._counts.items()
        ]
        return b"".join(rows).ljust(_MOST_COUNTS * _ENTRY.size, b"\0")


def _boot_id() -> bytes:
    """Return 16 bytes that differ after each start of the machine; zeros if they are not known."""
    try:
        return bytes.fromhex(_BOOT_ID.read_text(encoding="ascii").replace("-", "").strip())[
            :16
        ].ljust(16, b"\0")
    except (OSError, ValueError):  # not Linux
        return bytes(16)


def _at(slot: int) -> int:
    return (slot + 1) * _ENTRY.size


def _check(key: Key, count: int) -> int:
    # Not of the state: that byte is overwritten alone while the rest of the entry stays.
    return zlib.crc32(key, count)


def _entry(state: int, key: Key, count: int) -> bytes:
    return _ENTRY.pack(state, key, count, _check(key, count))


def _map_file(path: Path) -> mmap.mmap:
    """Map the file into memory; if it cannot be written, return memory that is lost with the
    process.
    """
    try:
        # Not blocking: the path may be a pipe, and opening that would wait for its other end.
        handle = os.open(
            path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK | NO_LINK, 0o600
        )
        with open(handle, "r+b", buffering=0) as file:
            missing = _BYTES - os.fstat(handle).st_size
            if missing > 0 and os.pwrite(handle, bytes(missing), _BYTES - missing) < missing:
                raise OSError(None, "the disk is full")
            return mmap.mmap(file.fileno(), _BYTES)
    except OSError as error:
        _log.warning(
            "storage.directory: %s cannot be written (%s): crashes are not counted by trace",
            path,
            error.strerror,
        )
        return mmap.mmap(-1, _BYTES)


_PIPELINE: Final = 0
"""The slot of the pipeline, which evaluates one trace at a time."""

_ASYNC_RESULTS: Final = (b"later",)
"""In the place of parts in a key: the asynchronous results of the trace."""

REASON: Final = "the process crashed twice while the trace was evaluated"
_CRASHED: Final = Failed("crashed", REASON)


class DeadLetters(Protocol):
    """Takes results that are not exported."""

    def set_aside(self, reports: Sequence[Report], why: str) -> bool:
        """Write results to the dead-letter file; False if there is none or it cannot be written."""


class RecordedAttempts:
    """Records the evaluations of one receiver, and fails traces whose evaluation crashed the
    process twice.

    Args:
        in_progress: the file in which they are recorded.
    """

    def __init__(self, in_progress: InProgress) -> None:
        self._in_progress: Final = in_progress
        self._recovered: set[bytes] = set()  # recovered after a crash and not evaluated since
        # free slots for asynchronous results
        self._slots: Final = list(range(_PIPELINE + 1, SLOTS))

    def recover(
        self, buffer: TraceBuffer, closed: Sequence[ClosedTrace], needed: Set[bytes]
    ) -> list[ClosedTrace]:
        """Count the crash of the previous process, if it crashed.

        Args:
            buffer: holds the open traces.
            closed: traces that were closed and not evaluated.
            needed: traces that may be evaluated although the buffer does not hold them.

        Returns:
            The closed traces, those that were being evaluated at a crash last.
        """
        under_way = self._in_progress.recover(
            lambda trace_id: trace_id in needed or buffer.holds(trace_id)
        )
        for key, crashes in under_way.items():
            _log.warning(
                "the process crashed while it evaluated trace %s, %d times by now",
                key[:16].hex(),
                crashes.times,
            )
        if self._in_progress.crashed:
            self._recovered = buffer.undecided().union(trace.trace_id for trace in closed)
        suspected = {trace.trace_id for trace in closed if self._crashes(trace).times}
        return sorted(closed, key=lambda trace: trace.trace_id in suspected)

    def batches(self, closed: Sequence[ClosedTrace]) -> Iterator[Sequence[ClosedTrace]]:
        """Yield the traces to journal together. After a crash each recovered trace is journaled
        before the next is evaluated.
        """
        for alone, traces in groupby(closed, lambda trace: trace.trace_id in self._recovered):
            batch = list(traces)
            yield from ([trace] for trace in batch) if alone else [batch]

    def begin(self, trace: ClosedTrace) -> Crashes:
        """Record that the evaluation of a trace begins; return how often the process crashed during
        it before.
        """
        durable = self._in_progress.rebooted and trace.trace_id in self._recovered
        self._in_progress.begin(_PIPELINE, _key(trace), durable=durable)
        return self._crashes(trace)

    def mark_scoring(self) -> None:
        """Record that the trajectories are built and scorers run."""
        self._in_progress.mark_scoring(_PIPELINE)

    def end(self, trace: ClosedTrace) -> None:
        """Record that the evaluation ended."""
        self._in_progress.end(_PIPELINE)
        self._recovered.discard(trace.trace_id)

    def forget_crashes(self, trace: ClosedTrace) -> None:
        """Remove the crash count of a trace, because it was evaluated."""
        self._in_progress.forget(_key(trace))

    @contextmanager
    def computing_result(self, trace_id: str) -> Iterator[None]:
        """Record that an asynchronous result is computed in the block; if 63 are already, this one
        is not recorded.
        """
        with ExitStack() as stack:
            if self._slots:
                slot = self._slots.pop()
                stack.callback(self._slots.append, slot)
                stack.callback(self._in_progress.end, slot)  # runs first
                self._in_progress.begin(slot, key_of_trace(bytes.fromhex(trace_id), _ASYNC_RESULTS))
                self._in_progress.mark_scoring(slot)
            yield

    def crashes_later(self, trace_id: bytes) -> int:
        """Return how often the process crashed while asynchronous results of the trace were
        computed.
        """
        return self._in_progress.crashes(key_of_trace(trace_id, _ASYNC_RESULTS)).times

    def give_up(
        self,
        engine: Engine,
        trace: ClosedTrace,
        stamp: Stamp,
        crashes: Crashes,
        dead_letters: DeadLetters,
    ) -> TraceReports:
        """Fail a trace instead of evaluating it again: write its failed results to the dead-letter
        file.

        The results are those of its runs if these could be built at the last attempt, else of the
        trace alone.

        Returns:
            The reports to export: without those in the dead-letter file.
        """
        scored = (
            self._failed_reports(engine, trace, stamp)
            if crashes.scoring
            else engine.report_unbuilt(trace, stamp, _CRASHED)
        )
        failed = [report for report in scored.reports if report.results]
        aside = bool(failed) and dead_letters.set_aside(failed, REASON)
        _log.warning(
            "trace %s is not evaluated again: %s; its results are failed and %s",
            trace.trace_id.hex(),
            REASON,
            "in the dead-letter file" if aside else "exported",
        )
        if not aside:
            return scored
        return scored._replace(reports=[report for report in scored.reports if not report.results])

    def _failed_reports(self, engine: Engine, trace: ClosedTrace, stamp: Stamp) -> TraceReports:
        try:
            built = engine.build(trace, stamp)
            self.mark_scoring()
            return engine.score(built, _CRASHED)
        except Exception as error:  # noqa: BLE001
            # the trace must be completed, whatever it contains
            _log.warning(
                "the runs of trace %s could not be built: %s",
                trace.trace_id.hex(),
                type(error).__name__,
            )
            return engine.report_unbuilt(trace, stamp, _CRASHED)

    def _crashes(self, trace: ClosedTrace) -> Crashes:
        return self._in_progress.crashes(_key(trace))


def _key(trace: ClosedTrace) -> bytes:
    return key_of_trace(trace.trace_id, trace.part.roots if trace.part else ())
