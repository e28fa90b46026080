"""What a process observes of itself: counters, warnings at most once a minute, outages, and whether
evaluation makes progress.
"""

from __future__ import annotations

import logging
import os
import threading
import time
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Literal, NamedTuple, TypeVar

from otel_eval.records import record

_T = TypeVar("_T")
_log = logging.getLogger("otel_eval")

OTHER: Final = "other"
_LONGEST_NAME: Final = 200  # characters: senders choose agents' names, which may be megabytes long
_GREATEST: Final = frozenset(
    {
        "oldest_trace_s",
        "evaluating_s",
        "results.oldest_s",
        "exports.running_s",
        "exports.unsupported",
        "forward.oldest_s",
    }
)
_ESCAPED: Final = str.maketrans({"\\": r"\\", ",": r"\,"})


class LabelledName(NamedTuple):
    r"""The name of a count with labels, in their order; as text `name{label=value,…}`, with commas
    and backslashes in values escaped.

    >>> str(count_name("a", y="1,2", x=""))
    'a{x=,y=1\\,2}'
    """

    name: str
    labels: tuple[tuple[str, str], ...]

    def __str__(self) -> str:
        pairs = [f"{label}={value.translate(_ESCAPED)}" for label, value in self.labels]
        return f"{self.name}{{{','.join(pairs)}}}"


CountName = str | LabelledName
"""The name of a count, as text if it has no labels."""
Counts = Mapping[CountName, Any]
"""Counts by name: a number, or a number for each transport."""


def count_name(name: str, /, **labels: str) -> CountName:
    """Return the name of a count with these labels."""
    return LabelledName(name, tuple(sorted(labels.items()))) if labels else name


def without_labels(name: CountName) -> str:
    """Return the name without its labels."""
    return name if isinstance(name, str) else name.name


def labels_of(name: CountName) -> dict[str, str]:
    """Return the labels of a name."""
    return {} if isinstance(name, str) else dict(name.labels)


def counts_as_text(counts: Counts) -> dict[str, Any]:
    """Return the counts with their names as text."""
    return {str(name): count for name, count in counts.items()}


class Counters:
    """Counts that only rise, by name and labels."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # guards _counts
        renew_after_fork(self)
        self._counts: Counter[LabelledName] = Counter()

    def add(self, name: str, amount: int = 1, **labels: str) -> None:
        """Raise the count of `name` with these labels."""
        with self._lock:
            self._counts[LabelledName(name, tuple(sorted(labels.items())))] += amount

    def get(self, name: str, **labels: str) -> int:
        """The sum of the counts of `name` whose labels include these."""
        with self._lock:
            rows = list(self._counts.items())
        return sum(
            count
            for (counted, counted_labels), count in rows
            if counted == name and labels.items() <= dict(counted_labels).items()
        )

    def snapshot(self) -> dict[CountName, int]:
        """Every count."""
        with self._lock:
            rows = sorted(self._counts.items())
        return {name if name.labels else name.name: count for name, count in rows}


def in_each_child(holder: _T, act: Callable[[_T], object]) -> None:
    """Call `act` with `holder` in every child process that is forked while `holder` is alive."""
    if hasattr(os, "register_at_fork"):
        # callbacks cannot be unregistered, so they must not keep the object alive
        reference = weakref.ref(holder)
        os.register_at_fork(
            after_in_child=lambda: act(target) if (target := reference()) is not None else None
        )


def renew_after_fork(holder: Any) -> None:
    """Give `holder` a fresh `_lock` in a child process: another thread of the parent may hold the
    old one forever.
    """
    in_each_child(holder, lambda alive: setattr(alive, "_lock", threading.Lock()))


def total_counts(several: Iterable[Mapping[Any, Any]]) -> dict[CountName, Any]:
    """Merge the counts of several processes: their sums, by transport where there are several; the
    greatest of ages and flags.
    """
    total: dict[CountName, Any] = {}
    for counts in several:
        for key, value in counts.items():
            before = total.get(key)
            if before is None:
                total[key] = value
            elif isinstance(value, Mapping):
                total[key] = total_counts((before, value))
            else:
                total[key] = (
                    max(before, value) if without_labels(key) in _GREATEST else before + value
                )
    return total


class BoundedNames:
    """Limits the number of names: the first `limit` names stay, cut to 200 characters; further ones
    become "other".
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._known: Final[set[str]] = set()

    def name(self, name: str) -> str:
        """The name to count under."""
        if len(name) > _LONGEST_NAME:
            name = f"{name[: _LONGEST_NAME - 1]}…"
        if name not in self._known:
            # Senders choose names, and each one becomes a series in the metrics backend.
            if len(self._known) >= self._limit:
                return OTHER
            self._known.add(name)
        return name


_EVERY_S: Final = 60.0


class Warnings:
    """Logs at most one warning a minute for each subject."""

    def __init__(self) -> None:
        self._logged_at: dict[str, float] = {}

    def say(self, subject: str, message: str, *args: Any) -> bool:
        """Log the warning unless one of this subject was logged in the last minute; return whether
        it was logged.
        """
        now = time.monotonic()
        is_due = now - self._logged_at.get(subject, float("-inf")) >= _EVERY_S
        if is_due:
            self._logged_at[subject] = now
            _log.warning(message, *args)
        return is_due

    def once(self, subject: str, message: str, *args: Any) -> None:
        """Log the warning unless one of this subject was ever logged."""
        if subject not in self._logged_at:
            self._logged_at[subject] = float("inf")
            _log.warning(message, *args)


class Outage:
    """Tracks whether an exporter fails now; logs one line when it works again.

    Counts `exports.outages` and `exports.recovered` by exporter. May be called from any thread.

    Args:
        name: the exporter's name.
    """

    def __init__(self, name: str, counters: Counters) -> None:
        self._name, self._counters = name, counters
        self._since: float | None = None

    def begin(self) -> None:
        """Record that an export failed."""
        if self._since is None:
            self._since = time.monotonic()
            self._counters.add("exports.outages", exporter=self._name)

    def end(self, queued: int) -> None:
        """Record that an export was accepted; `queued` items are left in the queue."""
        since, self._since = self._since, None
        if since is not None:
            self._counters.add("exports.recovered", exporter=self._name)
            _log.info(
                "export to %s works again after %.1f s; %d queued",
                self._name,
                time.monotonic() - since,
                queued,
            )


_STALLED_S: Final = 60.0


@record
class ProgressState:
    """Whether evaluation makes progress, for `/readyz` and `/status`.

    Attributes:
        state: `stalled` if work is due and nothing was finished for a minute; `paused` if
            evaluation waits for exporters or storage (backpressure).
        for_s: seconds since the current evaluation began, or since the last one ended or was not
            needed.
        why: what a stalled or paused evaluation waits for.
        trace_id: the trace that is evaluated now, in hexadecimal, or "".
    """

    state: Literal["idle", "evaluating", "paused", "stalled"]
    for_s: float
    why: str = ""
    trace_id: str = ""


class Progress:
    """Follows the thread that evaluates; read from any thread.

    Args:
        clock: monotonic seconds.

    Attributes:
        stalled_after_s: how long an evaluation may take before it counts as stalled.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock: Final = clock
        self._progress_at: float | None = None  # None: evaluation has not begun
        self._trace_id: bytes | None = None
        self._paused = ""
        self.stalled_after_s = _STALLED_S

    def begin(self, trace_id: bytes) -> None:
        """Record that the evaluation of a trace begins."""
        self._progress_at, self._trace_id, self._paused = self._clock(), trace_id, ""

    def note_progress(self, paused: str = "") -> None:
        """Record that an evaluation ended, or that none is due; `paused`: why none may begin."""
        self._progress_at, self._trace_id, self._paused = self._clock(), None, paused

    @property
    def evaluating_s(self) -> float:
        """Seconds since the evaluation of the current trace began; 0 if none is evaluated."""
        return self._for_s() if self._trace_id is not None else 0.0

    def _for_s(self) -> float:
        return 0.0 if self._progress_at is None else max(0.0, self._clock() - self._progress_at)

    def state(self, paused: str, is_due: Callable[[], bool]) -> ProgressState:
        """Whether evaluation makes progress now.

        Args:
            paused: why the end of the last evaluation waits, or "".
            is_due: whether traces are due; called only if there was no progress for
                `stalled_after_s`.
        """
        for_s, trace_id, paused = self._for_s(), self._trace_id, paused or self._paused
        shown = "" if trace_id is None else trace_id.hex()
        if paused:
            return ProgressState("paused", for_s, paused, shown)
        if for_s > self.stalled_after_s and (trace_id is not None or is_due()):
            return ProgressState(
                "stalled", for_s, f"evaluation has made no progress for {for_s:.0f} s", shown
            )
        return ProgressState("evaluating" if shown else "idle", for_s, "", shown)
