"""Requests that are passed on, kept on disk until the endpoint has taken all of them.

Knows the journal, its segments and the forwarding stage; decides nothing about traces and sends nothing. One small note is
written for each batch that the endpoint took, and never waited for: what a crash loses of them is passed on once more.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

from otel_eval.storage import Journal, Segment, SegmentRefs
from otel_eval.storage.record_types import ForwardedRequest, RecordKind, pack_forwarded

__all__ = ["AcknowledgedRequest", "ForwardedRequests"]


class AckState(Protocol):
    """What of a request is still to be forwarded, as the forwarding stage keeps it (`forwarding.Ack`)."""

    rest: bool
    cut: int
    left: int
    place: Any


class SpansToForward(Protocol):
    """The forwarding stage, which holds the spans that wait for scores."""

    def waiting(self, trace_id: bytes) -> tuple[Sequence[Any], bytes]:
        """The spans of a trace that wait, and a request that contains them."""
        ...

    def moved(self, roots: Sequence[Any], place: Any) -> bool:
        """Those that still wait belong to the record at this place; False if none waits any more."""
        ...


class AcknowledgedRequest(NamedTuple):
    """A request that is to be passed on as well: what it is, and the ack of what is still to go."""

    origin: Any
    ack: AckState


class ForwardedRequests:
    """The forwarding stage's journal.

    Args:
        journal: where requests stand.
        segment_refs: which segments are needed.
        unwritten: told of a note that could not be written.
    """

    def __init__(self, journal: Journal, segment_refs: SegmentRefs, unwritten: Callable[[OSError], object]) -> None:
        self._journal, self._segment_refs, self._unwritten = journal, segment_refs, unwritten
        self.forward: SpansToForward | None = None
        self._lock = threading.Lock()  # guards all acks

    def kept(self, ack: AckState, segment: Segment, end: int) -> None:
        """The request stands there. Before anybody can pass on anything of it."""
        ack.place = (segment, end)
        self.needed(segment)

    def needed(self, segment: Segment) -> None:
        """A request that is not passed on, or not whole, stands in the segment."""
        self._segment_refs.retain(segment)

    def passed(self, requests: Sequence[AckState], spans: Sequence[AckState]) -> None:
        """Note what was passed on, and let go of the segments that were needed for it."""
        with self._lock:
            for ack in requests:
                ack.rest = False
            for ack in spans:
                ack.left -= 1
            # A request whose spans went first is noted when the rest of it has gone.
            noted = {*requests, *[each for each in spans if not each.left and not each.rest]}
            notes = [(*each.place, each.cut if each.left else 0) for each in noted if each.place is not None]
        self._note(notes)

    def dropped(self, ack: AckState) -> None:
        """Nothing is to be passed on of the request, though its spans may be under way."""
        with self._lock:
            place, ack.place = ack.place, None
        self._note([] if place is None else [(*place, 0)])

    def _note(self, notes: Sequence[tuple[Segment, int, int]]) -> None:
        if not notes:
            return
        try:
            self._journal.append(
                RecordKind.FORWARDED, [pack_forwarded(ForwardedRequest(segment.number, *rest) for segment, *rest in notes)]
            )
        except OSError as error:  # then it is passed on once more after a restart
            self._unwritten(error)
        for segment, _, waiting in notes:
            if not waiting:
                self._segment_refs.release(segment)

    # ------------------------------------------- traces that are written again

    def waiting(self, trace_id: bytes) -> tuple[Sequence[Any], list[tuple[RecordKind, bytes]]]:
        """The spans of the trace that wait to be passed on, and the record of them."""
        roots, request = self.forward.waiting(trace_id) if self.forward is not None else ((), b"")
        return roots, [(RecordKind.PENDING_SPANS, request)] if roots else []

    def moved(self, roots: Sequence[Any], segment: Segment, end: int) -> None:
        """That record stands there."""
        if self.forward is None or not roots:
            return
        self.needed(segment)
        if not self.forward.moved(roots, (segment, end)):
            self._segment_refs.release(segment)  # they left meanwhile
