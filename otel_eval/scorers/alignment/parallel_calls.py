"""Cut calls into groups of parallel calls: calls that could not have known of each other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

__all__ = ["TimedCall", "is_sequential", "is_timed", "parallel_groups"]


class TimedCall(Protocol):
    """What of a call or a span decides its batch, and its name."""

    @property
    def name(self) -> str:
        """As recorded."""
        ...

    @property
    def start_ns(self) -> int | None:
        """Unix nanoseconds, or None."""
        ...

    @property
    def end_ns(self) -> int | None:
        """Unix nanoseconds, or None."""
        ...

    @property
    def span_id(self) -> str:
        """Hexadecimal, or empty."""
        ...

    @property
    def enclosing(self) -> tuple[str, ...]:
        """Span ids of the calls it was made within."""
        ...


def is_timed(visit: TimedCall) -> bool:
    """Whether both ends were recorded. 0 and 0 together mean that no time was recorded; 0 and later is a time."""
    return visit.start_ns is not None and visit.end_ns is not None and (visit.start_ns, visit.end_ns) != (0, 0)


def parallel_groups(visits: Sequence[TimedCall]) -> list[range]:
    """The positions of each batch, in order; every position is in exactly one.

    A call joins the batch before it if none of that batch had ended when it started and none of it encloses the call.
    To start at the very instant of an end is to start after it; equal starts are together. Calls without times follow
    one another.

    >>> from otel_eval.testing import call
    >>> parallel_groups([call("a", start_ns=1, end_ns=4), call("b", start_ns=2, end_ns=3), call("c", start_ns=3, end_ns=9)])
    [range(0, 2), range(2, 3)]
    """
    found: list[range] = []
    first = 0
    latest: int | None = None  # the latest start in the batch; None: nothing can join it
    ended_before = ended_at = 0  # the earliest end of members that started before, and at, that start
    for position, visit in enumerate(visits):
        start, end = visit.start_ns, visit.end_ns
        if start is None or end is None or not (start or end):
            joins, start, end = False, None, 0
        elif latest is None or start < latest:
            joins = False
        else:
            open_until = ended_before if start == latest else min(ended_before, ended_at)
            joins = (start == latest or start < open_until) and not (visit.enclosing and _within(visit, visits[first:position]))
        if not joins:
            if position:
                found.append(range(first, position))
            first, ended_before, ended_at = position, _NEVER, end
        elif start == latest:
            ended_at = min(ended_at, end)
        else:
            ended_before, ended_at = open_until, end
        latest = start
    if visits:
        found.append(range(first, len(visits)))
    return found


def is_sequential(visits: Sequence[TimedCall]) -> bool:
    """Whether every batch certainly holds one visit; quicker than `parallel_groups` for the usual run.

    >>> from otel_eval.testing import call
    >>> is_sequential([call("a", start_ns=1, end_ns=4), call("b", start_ns=4, end_ns=5)])
    True
    """
    free = 1  # the first start that follows
    for visit in visits:
        start, end = visit.start_ns, visit.end_ns
        if start is None or end is None:
            continue
        if start < free:
            return False
        free = end if end > start else start + 1
    return True


_NEVER = 1 << 80


def _within(visit: TimedCall, members: Sequence[TimedCall]) -> bool:
    enclosing = visit.enclosing
    return any(member.span_id in enclosing for member in members if member.span_id)
