"""How long and how much a buffer holds, and what it counts."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass

from otel_eval.records import record


@record
class Limits:
    """How long and how much a buffer holds. Times in seconds, sizes in bytes; the defaults are
    those of the configuration.

    Attributes:
        decision_wait_s: after the last span of a trace whose root has ended, if it is whole.
        decision_wait_partial_s: the same if several services take part or a parent is missing, and
            after the last span of a tree below another process.
        decision_wait_detached_s: after the last span of an agent's tree below a span of its own
            process that has not arrived.
        grace_period_s: how long an evaluated trace is kept for late spans.
        keep_s: the same for a tree that was evaluated while the root of its trace is missing.
        idle_s: after the last span of a trace, for spans of a run whose own span has not arrived.
        max_age_s: how long spans wait at most, and how long the id of a forgotten trace is held.
    """

    _: KW_ONLY
    decision_wait_s: float = 1.0
    decision_wait_partial_s: float = 6.0
    decision_wait_detached_s: float = 60.0
    grace_period_s: float = 600.0
    keep_s: float = 3600.0
    idle_s: float = 900.0
    max_age_s: float = 3600.0
    max_traces: int = 100_000
    max_spans_per_trace: int = 10_000
    max_bytes_per_trace: int = 64 * 2**20
    max_bytes: int = 512 * 2**20


@dataclass(slots=True)
class BufferCounts:
    """What the buffer did, as counters that only increase. From `spans_too_late` on, an increase is
    a loss.
    """

    traces_opened: int = 0
    traces_closed: int = 0
    parts_closed: int = 0  # trees of traces that stay open
    spans_kept: int = 0
    spans_duplicate: int = 0  # one of two spans with the same id was dropped: harmless
    spans_late: int = 0  # arrived after the evaluation and in time to change it
    spans_too_late: int = (
        0  # arrived after their run was forgotten: the trace gets a row that says so
    )
    spans_over_limit: int = 0  # of a trace over max_spans_per_trace or max_bytes_per_trace
    traces_over_limit: int = 0  # closed early: max_traces or max_bytes reached
    late_given_up: int = 0  # forgotten before their time because a limit was reached
