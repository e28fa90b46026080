"""What of a forwarded request is not yet acknowledged by the backend, for the journal.

A request has two parts: the request without the spans that are held, and these spans.
"""

from __future__ import annotations

import zlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from otel_eval.forwarding.pending_spans import PendingSpan
from otel_eval.interfaces import Frame
from otel_eval.model import Report

__all__ = ["Ack", "ForwardJournal", "Spans", "UnsentRequest", "checksum_of"]

Spans = Sequence[tuple[bytes, bytes, Frame, int]]


@dataclass(slots=True, eq=False)
class Ack:
    """Of one request.

    Attributes:
        rest: whether the part without the held spans is still to be forwarded.
        cut: a checksum of the spans that were held; 0 if none was.
        left: how many of them are still to be forwarded.
        place: where the request is journaled; None until it is.
    """

    rest: bool = True
    cut: int = 0
    left: int = 0
    place: Any = None


def checksum_of(roots: Sequence[PendingSpan]) -> int:
    """A number that tells these spans from others, also when the evaluations are others after a restart."""
    return zlib.crc32(b"".join([root.trace_id + root.span_id for root in roots])) or 1 if roots else 0


class ForwardJournal(Protocol):
    """Keeps requests until they were forwarded."""

    def passed(self, requests: Sequence[Ack], spans: Sequence[Ack]) -> None:
        """The first parts of these requests were forwarded or refused, and one held span of each of the others."""
        ...

    def dropped(self, ack: Ack) -> None:
        """The request was not accepted, or its signal is not forwarded."""
        ...


@dataclass(frozen=True, slots=True)
class UnsentRequest:
    """A request that was accepted before a restart and not forwarded, or only in part.

    Attributes:
        signal, body, items, spans: as it was accepted.
        place: where it is journaled.
        waiting: the `cut` when all the others were passed on; None if these were not.
        held: whether all its spans were held.
        moved: trace and span ids of those that another request has now.
        evaluated: the reports on those of its traces that were evaluated.
    """

    signal: str
    body: bytes
    items: int
    spans: Spans
    place: Any
    waiting: int | None
    held: bool
    moved: Collection[tuple[bytes, bytes]]
    evaluated: Mapping[bytes, Sequence[Report]]
