"""Adds up what several pipelines counted and hold."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

__all__ = ["added", "lasting"]

_GAUGES: Final = frozenset({"open_traces", "held_bytes"})
_GREATEST: Final = frozenset({"oldest_trace_s", "evaluating_s"})


def added(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """The sums of counts by name; of times the greater.

    >>> added({"spans_kept": 1, "oldest_trace_s": 2.0}, {"spans_kept": 3, "oldest_trace_s": 1.0, "kafka.lag": 5})
    {'spans_kept': 4, 'oldest_trace_s': 2.0, 'kafka.lag': 5}
    """
    found = dict(one)
    for name, value in other.items():
        found[name] = max(found.get(name, value), value) if name in _GREATEST else found.get(name, 0) + value
    return found


def lasting(counts: Mapping[str, Any]) -> dict[str, Any]:
    """Those of the counts that only rise: what is left of a pipeline that ended."""
    return {name: count for name, count in counts.items() if name not in _GAUGES | _GREATEST}
