"""What of a request that is passed on is still to go, for whoever keeps requests on disk.

Knows two parts: the request without the spans that wait for their scores, and these spans.
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
        rest: whether what need not wait is still to go.
        cut: tells which of its spans waited; 0 if none did.
        left: how many of them are still to go.
        place: where the keeper has the request; None until it has.
    """

    rest: bool = True
    cut: int = 0
    left: int = 0
    place: Any = None


def checksum_of(roots: Sequence[PendingSpan]) -> int:
    """A number that tells these spans from others, whatever the evaluations are after a restart."""
    return zlib.crc32(b"".join([root.trace_id + root.span_id for root in roots])) or 1 if roots else 0


class ForwardJournal(Protocol):
    """Is told what became of requests that it keeps."""

    def passed(self, requests: Sequence[Ack], spans: Sequence[Ack]) -> None:
        """Nothing more is done for these requests but for their spans that wait, nor for one such span of each of the others."""
        ...

    def dropped(self, ack: Ack) -> None:
        """Nothing is to be done for the request: it was not taken, or nobody takes it."""
        ...


@dataclass(frozen=True, slots=True)
class UnsentRequest:
    """A request that was taken before a restart and not passed on, or not whole.

    Attributes:
        signal, body, items, spans: as it was taken then.
        place: where the keeper has it.
        waiting: the `cut` when all the others were passed on; None if these were not.
        held: whether all its spans are some that waited.
        moved: trace and span ids of those that another request has now.
        said: the reports on those of its traces that were judged.
    """

    signal: str
    body: bytes
    items: int
    spans: Spans
    place: Any
    waiting: int | None
    held: bool
    moved: Collection[tuple[bytes, bytes]]
    said: Mapping[bytes, Sequence[Report]]
