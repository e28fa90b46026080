"""Tell from parent links what a trace still waits for.

Knows frames; knows no instant and no limit. Reads a span only if its parent is missing.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any, NamedTuple

from otel_eval.conventions.local_root import is_local_root
from otel_eval.interfaces import Frame
from otel_eval.model import Completeness

__all__ = ["Version", "Wait", "outlook", "rank"]


class Wait(Enum):
    """How long to wait for more of a trace."""

    SETTLE = "settle"
    PARTIAL = "partial"
    OPEN = "open"


class Version(NamedTuple):
    """The version that is held of a span which arrived more than once.

    Attributes:
        rank: see `rank`; kept, because a span may be great and each of its repetitions small.
        size: in bytes, 0 for the version that arrived first, whose size is not known and stays counted.
    """

    rank: tuple[Any, ...]
    size: int


def outlook(frames: Mapping[bytes, Frame]) -> tuple[Wait, Completeness]:
    """What a trace waits for, and what it is called if it closes so."""
    tops = [frame for frame in frames.values() if frame[0] not in frames]
    if (len(tops) == 1 and not tops[0][0]) or (tops and not any(frame[0] for frame in tops)):
        envelopes = {frame[2] for frame in frames.values()}  # far fewer than spans
        services = {envelope.service for envelope in envelopes} if len(envelopes) > 1 else envelopes
        return (Wait.SETTLE if len(services) == 1 else Wait.PARTIAL), Completeness.COMPLETE
    return (Wait.PARTIAL if any(map(is_local_root, tops)) else Wait.OPEN), Completeness.ORPHANED


def rank(frame: Frame) -> tuple[Any, ...]:
    """Total order on the versions of one span: the greatest counts, whichever came first."""
    parent, payload, envelope = frame
    return (*envelope.rank(payload), parent, envelope.service, envelope.scope_name)
