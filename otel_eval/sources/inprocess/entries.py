"""What the recorder holds of a trace, and what it puts into the worker's queue."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan

__all__ = ["OWN_SCOPE", "Handed", "Look", "Open", "is_to_be_seen"]

OWN_SCOPE: Final = "otel_eval"
_SAMPLED: Final = 1


@dataclass(slots=True, eq=False)
class Handed:
    """Spans of one trace on their way to the worker, and why: closed, detached, idle, aged, overflow or shutdown.

    `below`: ids of spans that are handed over as if they hung from another span. `early`: some of the trace started before
    we looked. `size`: bytes of the first `measured` spans. `waits`: it is in the worker's queue.
    """

    trace_id: int
    spans: list[ReadableSpan]
    why: str
    below: Mapping[int, int] = field(default_factory=dict)
    early: bool = False
    size: int = 0
    measured: int = 0
    waits: bool = False


class Look(NamedTuple):
    """A trace on its way to the worker, which may have spans that can be handed over; None for all traces."""

    entry: Open | None = None


class Open:
    """A trace with a span that has not ended.

    `open` holds span ids, `live` the spans of those that we saw start, `spans` what ended. `early`: some of it started before
    we looked. `queued`: it is on its way to the worker, its spans `counted` as waiting. `seen` and `still_since` are the
    sweep's: how much it saw last time and since when nothing changed. `looked`: so many spans had ended when those were
    looked for that can be handed over. `rests`: some were, so that it stays known, however long nothing of it ends. `room`:
    more spans than so many call for a look; below 0 every further span is dropped.

    Bytes: `size` is what the first `measured` of `spans` take, and `counted_bytes` what of it counts as waiting; `draws`
    counts how often spans were taken out. `live_size` is what the `live_measured` open spans took when they were measured,
    which happens again at `live_due`. `asked`: a `Look` for it is queued, because of its bytes.
    """

    __slots__ = (
        *("trace_id", "room", "open", "live", "looked", "rests", "spans", "closed", "queued", "early", "cut"),
        *("since", "still_since", "seen", "counted"),
        *("size", "measured", "counted_bytes", "draws", "live_size", "live_measured", "live_due", "asked"),
    )

    def __init__(self, trace_id: int, now: float, room: int) -> None:
        self.trace_id, self.room = trace_id, room
        self.open: set[int] = set()
        self.live: dict[int, Any] = {}
        self.looked, self.rests = 0, False
        self.spans: deque[ReadableSpan] = deque()
        self.closed = self.queued = self.early = self.cut = self.asked = False
        self.since = self.still_since = self.live_due = now
        self.seen = (0, 0)
        self.counted = self.counted_bytes = 0
        self.size = self.measured = self.draws = 0
        self.live_size = self.live_measured = 0

    def forget_size(self) -> None:
        """Spans were taken out: those that are left are measured again."""
        self.size = self.measured = 0
        self.draws += 1


def is_to_be_seen(span: Any) -> bool:
    """Whether a span is to be looked at: sampled, and not one that we emitted."""
    scope = span.instrumentation_scope
    return bool(span.context.trace_flags & _SAMPLED) and (scope is None or scope.name != OWN_SCOPE)
