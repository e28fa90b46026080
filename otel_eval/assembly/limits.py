"""How long and how much may be held, and the counts of what the limits did."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["BufferCounts", "Limits"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How long and how much a buffer holds. Times in seconds, sizes in bytes; the defaults are the configuration's.

    `keep_s`: how long a part of a trace that was evaluated while the trace is open is kept for an enclosing agent.
    """

    decision_wait_s: float = 1.0
    decision_wait_partial_s: float = 6.0
    decision_wait_detached_s: float = 60.0
    keep_s: float = 3600.0
    grace_period_s: float = 30.0
    idle_s: float = 300.0
    max_age_s: float = 3600.0
    max_traces: int = 100_000
    max_spans_per_trace: int = 10_000
    max_bytes_per_trace: int = 64 * 2**20
    max_bytes: int = 512 * 2**20


@dataclass(slots=True)
class BufferCounts:
    """What the buffer did, as counts that only rise. Each rising count but the first three means something was lost."""

    traces_opened: int = 0
    traces_closed: int = 0
    parts_closed: int = 0  # trees of traces that stay open
    spans_kept: int = 0
    spans_duplicate: int = 0  # one of two spans with the same id was put aside: harmless
    spans_late: int = 0  # arrived after the evaluation and in time to change it
    spans_too_late: int = 0  # arrived when only the id was remembered: they form no run
    spans_over_limit: int = 0  # of a trace over max_spans_per_trace or max_bytes_per_trace
    traces_over_limit: int = 0  # closed early: max_traces or max_bytes reached
    late_given_up: int = 0  # closed traces forgotten before grace_period_s because room was short
