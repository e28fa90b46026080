"""Limits of a buffer, and the rules for one trace: what it waits for by its parent links, and which
version of a span is kept.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from hashlib import blake2b
from struct import unpack
from typing import Any, Final, NamedTuple

from otel_eval.conventions.reader import is_local_root
from otel_eval.interfaces import ClosedTrace, Frame, LogFrame
from otel_eval.model import Completeness, Evidence


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How long and how much a buffer holds. Times in seconds, sizes in bytes; the defaults are
    those of the configuration.

    `keep_s`: how long a tree that was evaluated while its trace is open is kept for an enclosing
    agent that arrives later.
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
    """What the buffer did, as counters that only increase. From `spans_too_late` on, an increase is
    a loss.
    """

    traces_opened: int = 0
    traces_closed: int = 0
    parts_closed: int = 0  # trees of traces that stay open
    spans_kept: int = 0
    spans_duplicate: int = 0  # one of two spans with the same id was dropped: harmless
    spans_late: int = 0  # arrived after the evaluation and in time to change it
    # arrived when only the id or a run's own span was left: they form no run
    spans_too_late: int = 0
    spans_over_limit: int = 0  # of a trace over max_spans_per_trace or max_bytes_per_trace
    traces_over_limit: int = 0  # closed early: max_traces or max_bytes reached
    # evaluated traces or trees evicted before their time because a limit was reached
    late_given_up: int = 0


class Closing(NamedTuple):
    """A closed trace and the reason, or the roots of those of its trees that are closed while the
    trace stays open.
    """

    trace_id: bytes
    reason: Completeness
    roots: tuple[bytes, ...] = ()

    @classmethod
    def of(cls, trace: ClosedTrace) -> Closing:
        """Return the closing by which this trace, or this part of one, was closed."""
        return cls(trace.trace_id, trace.reason, trace.part.roots if trace.part else ())


class Wait(Enum):
    """How long a trace waits for further spans: each value is the name of a field of `Limits`."""

    COMPLETE = "decision_wait_s"
    PARTIAL = "decision_wait_partial_s"
    OPEN = "idle_s"


class Version(NamedTuple):
    """The version that is kept of a span that arrived more than once.

    Attributes:
        rank: see `rank`; stored, because the kept version may be large and is compared with each
            repetition.
        size: its payload in bytes; 0 for the version that arrived first: its size is not known and
            stays in `OpenTrace.size`.
    """

    rank: tuple[Any, ...]
    size: int


def closing_state(frames: Mapping[bytes, Frame]) -> tuple[Wait, Completeness]:
    """Return what a trace waits for by its parent links, and its completeness if it closes after
    that wait.
    """
    roots = [frame for frame in frames.values() if frame[0] not in frames]
    if (len(roots) == 1 and not roots[0][0]) or (roots and not any(frame[0] for frame in roots)):
        resource_scopes = {frame[2] for frame in frames.values()}  # far fewer than spans
        services = (
            {resource_scope.service for resource_scope in resource_scopes}
            if len(resource_scopes) > 1
            else resource_scopes
        )
        return (Wait.COMPLETE if len(services) == 1 else Wait.PARTIAL), Completeness.COMPLETE
    return (
        Wait.PARTIAL if any(map(is_local_root, roots)) else Wait.OPEN
    ), Completeness.REMOTE_PARENT


def rank(frame: Frame) -> tuple[Any, ...]:
    """Return the sort key of a version of a span: the greatest version is kept, whatever the order
    of arrival.
    """
    parent, payload, resource_scope = frame
    return (
        *resource_scope.rank(payload),
        parent,
        resource_scope.service,
        resource_scope.scope_name,
    )


_MODULUS: Final = 2**64
NOTHING: Final = Evidence(0, "0" * 16)
"""The evidence of no spans."""


_FRESH: Final = blake2b(digest_size=8)  # copying it takes two thirds of the time of creating one


def evidence_of(span_ids: Collection[bytes]) -> Evidence:
    """Return the number of spans, and the sum modulo 2**64 of the 64-bit blake2b of their ids as 16
    hex digits.

    The sum does not depend on the order and can be computed in parts. Ids are hashed so that
    consecutive ids do not add up to the same sum.

    >>> evidence_of([b"12345678", b"abcdefgh"]) == evidence_of([b"abcdefgh", b"12345678"])
    True
    """
    hashes = []
    for span_id in span_ids:
        one = _FRESH.copy()
        one.update(span_id)
        hashes.append(one.digest())
    total = sum(unpack(f">{len(span_ids)}Q", b"".join(hashes)))
    return Evidence(len(span_ids), f"{total % _MODULUS:016x}")


def joined(some: Evidence, others: Evidence) -> Evidence:
    """Return the evidence of two disjoint sets of spans together.

    >>> joined(evidence_of([b"12345678"]), evidence_of([b"abcdefgh"])) == evidence_of(
    ...     [b"12345678", b"abcdefgh"]
    ... )
    True
    """
    total = int(some.digest, 16) + int(others.digest, 16)
    return Evidence(some.spans + others.spans, f"{total % _MODULUS:016x}")


RECORDS_PER_SPAN: Final = 10
"""Log records that a trace may have for each span of `max_spans_per_trace`: each message of a model
call can be one.
"""

Logs = dict[bytes, dict[LogFrame, None]]
"""Span id → log records joined to it in order of arrival, without duplicates. Adding one takes
constant time.
"""


def listed(logs: Logs, span_ids: Iterable[bytes]) -> dict[bytes, tuple[LogFrame, ...]]:
    """Return copies of the log records of these spans: more may be added while the trace is
    evaluated.
    """
    return {each: tuple(logs[each]) for each in span_ids if each in logs} if logs else {}
