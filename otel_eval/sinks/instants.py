"""When a run began and how long it took, as every exporter writes it, and the version of what they write."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from otel_eval.model import Trajectory

__all__ = ["SCHEMA", "duration_ms", "rfc3339", "start_time"]

SCHEMA: Final = 1
"""Version of the fields of a result: raised when one is removed or changes its meaning, not when one is added."""


def rfc3339(ns: int | None) -> str | None:
    """Unix nanoseconds as RFC 3339 text in UTC; None if there are none, or no calendar has them.

    >>> rfc3339(1_700_000_000_000_000_001)
    '2023-11-14T22:13:20.000000001Z'
    """
    if ns is None:
        return None
    seconds, rest = divmod(ns, 10**9)
    try:
        return f"{datetime.fromtimestamp(seconds, UTC).isoformat()[:19]}.{rest:09d}Z"
    except (OverflowError, OSError, ValueError):
        return None


def start_time(run: Trajectory) -> str | None:
    """When the run began; None if that was not recorded: spans without times have 0 for both."""
    return rfc3339(run.start_ns) if run.start_ns or run.end_ns else None


def duration_ms(run: Trajectory) -> float | None:
    """How long the run took, in milliseconds; None if that was not recorded, or it ended before it began."""
    start, end = run.start_ns, run.end_ns
    return None if start is None or not end or end < start else (end - start) / 1e6
