"""Counters by name and labels, and warnings that are logged at most once a minute."""

from __future__ import annotations

import logging
import os
import threading
import time
import weakref
from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

__all__ = ["BoundedNames", "Counters", "Outage", "Warnings", "named_count", "renew_after_fork"]

_log = logging.getLogger("otel_eval")

OTHER: Final = "other"
_LONGEST_NAME: Final = 200  # characters: an agent may be called anything, a megabyte too
_ESCAPED: Final = str.maketrans({"\\": r"\\", ",": r"\,"})


class Counters:
    """Counts that only rise, by name and labels."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # guards _counts
        renew_after_fork(self)
        self._counts: Counter[tuple[str, tuple[tuple[str, str], ...]]] = Counter()

    def add(self, name: str, amount: int = 1, **labels: str) -> None:
        """Raise the count of `name` with these labels."""
        with self._lock:
            self._counts[name, tuple(sorted(labels.items()))] += amount

    def get(self, name: str, **labels: str) -> int:
        """The count of `name` over all labels that agree with these."""
        with self._lock:
            rows = list(self._counts.items())
        return sum(count for (counted, told), count in rows if counted == name and labels.items() <= dict(told).items())

    def snapshot(self) -> dict[str, int]:
        """Every count as `name{label=value,…}`."""
        with self._lock:
            rows = list(self._counts.items())
        return {named_count(name, dict(labels)): count for (name, labels), count in sorted(rows)}


def renew_after_fork(holder: Any) -> None:
    """Give `holder` a fresh `_lock` in a child process: another thread of the parent may hold the old one for ever."""
    if not hasattr(os, "register_at_fork"):
        return
    held = weakref.ref(holder)

    def renew() -> None:
        alive = held()
        if alive is not None:
            alive._lock = threading.Lock()

    os.register_at_fork(after_in_child=renew)


def named_count(name: str, labels: Mapping[str, str]) -> str:
    r"""The key of a count: `name{label=value,…}`, labels in order; commas and backslashes in values are escaped.

    >>> named_count("a", {"y": "1,2", "x": ""})
    'a{x=,y=1\\,2}'
    """
    pairs = [f"{key}={value.translate(_ESCAPED)}" for key, value in sorted(labels.items())]
    return f"{name}{{{','.join(pairs)}}}" if pairs else name


class BoundedNames:
    """The first `limit` names as they are, though not longer than 200 characters; further ones are "other"."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._known: Final[set[str]] = set()

    def name(self, name: str) -> str:
        """The name to count under."""
        if len(name) > _LONGEST_NAME:
            name = f"{name[: _LONGEST_NAME - 1]}…"
        if name not in self._known:
            if len(self._known) >= self._limit:
                return OTHER
            self._known.add(name)
        return name


class Warnings:
    """One line per subject, at most once in `every_s` seconds."""

    def __init__(self, every_s: float = 60.0) -> None:
        self._every_s: Final = every_s
        self._said: dict[str, float] = {}

    def say(self, subject: str, message: str, *args: Any) -> None:
        """Log the warning unless one of this subject was logged lately."""
        now = time.monotonic()
        if now - self._said.get(subject, float("-inf")) >= self._every_s:
            self._said[subject] = now
            _log.warning(message, *args)

    def once(self, subject: str, message: str, *args: Any) -> None:
        """Log the warning unless one of this subject was ever logged."""
        if subject not in self._said:
            self._said[subject] = float("inf")
            _log.warning(message, *args)


class Outage:
    """Whether an exporter fails now; logs one line when it works again.

    Counts `exports.outages` and `exports.recovered` by exporter. May be called from any thread.

    Args:
        name: the exporter's name.
    """

    def __init__(self, name: str, counters: Counters) -> None:
        self._name, self._counters = name, counters
        self._since: float | None = None

    def began(self) -> None:
        """An export failed."""
        if self._since is None:
            self._since = time.monotonic()
            self._counters.add("exports.outages", exporter=self._name)

    def over(self, queued: int) -> None:
        """An export was accepted; `queued` items are left."""
        since, self._since = self._since, None
        if since is not None:
            self._counters.add("exports.recovered", exporter=self._name)
            _log.info("export to %s works again after %.1f s; %d queued", self._name, time.monotonic() - since, queued)
