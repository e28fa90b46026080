"""Which segments are still needed: by traces with spans in them, by reports that were not acknowledged, by requests to forward.

Segments are removed oldest first, so that what was recorded of a trace is never removed before its spans are. Safe to use from
any thread.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, NamedTuple, Protocol

from otel_eval.storage.journal import Journal, Segment
from otel_eval.storage.record_types import ForwardedRequest, RecordKind, pack_forwarded


class SegmentRefs:
    """References to segments."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # guards what follows
        self._traces: dict[Segment, set[bytes]] = {}
        self._unacknowledged: dict[bytes, tuple[Segment, set[str]]] = {}
        self._retained: Counter[Segment] = Counter()

    def add_traces(self, segment: Segment, trace_ids: Iterable[bytes]) -> None:
        """Spans of these traces were written to the segment."""
        with self._lock:
            self._traces.setdefault(segment, set()).update(trace_ids)

    def add_unacknowledged(self, key: bytes, segment: Segment, exporters: Collection[str]) -> None:
        """A report in the segment is to be acknowledged by these exporters; an earlier record of it no longer counts."""
        if not exporters:
            return
        with self._lock:
            before = self._unacknowledged.get(key)
            if before is not None:
                self._retained[before[0]] -= 1
            self._unacknowledged[key] = (segment, set(exporters))
            self._retained[segment] += 1

    def retain(self, segment: Segment) -> None:
        """Something else in the segment is needed."""
        with self._lock:
            self._retained[segment] += 1

    def release(self, segment: Segment) -> None:
        """What was retained is no longer needed."""
        with self._lock:
            self._retained[segment] -= 1

    def acknowledge(self, exporter: str, keys: Iterable[bytes]) -> list[bytes]:
        """The exporter has delivered these reports; returned are those that it had not acknowledged before."""
        acknowledged = []
        with self._lock:
            for key in keys:
                if key not in self._unacknowledged or exporter not in self._unacknowledged[key][1]:
                    continue
                segment, exporters = self._unacknowledged[key]
                acknowledged.append(key)
                exporters.discard(exporter)
                if not exporters:
                    del self._unacknowledged[key]
                    self._retained[segment] -= 1
        return acknowledged

    @property
    def unacknowledged(self) -> int:
        """The number of reports that some exporter has not acknowledged."""
        return len(self._unacknowledged)

    def is_free(self, segment: Segment, is_open: Callable[[bytes], bool]) -> bool:
        """Whether the segment can be removed: no trace in it `is_open`, all reports are acknowledged, nothing is retained."""
        with self._lock:
            traces = self._traces.get(segment, set())
            while traces:
                trace_id = next(iter(traces))
                if is_open(trace_id):
                    return False
                traces.discard(trace_id)  # for ever: an id that is forgotten is not opened again
            if self._retained[segment] > 0:
                return False
            self._traces.pop(segment, None)
            del self._retained[segment]
        return True

    def traces_in(self, segment: Segment) -> set[bytes]:
        """Traces that may still need the segment."""
        with self._lock:
            return set(self._traces.get(segment, ()))

    def moved(self, trace_id: bytes, segment: Segment) -> None:
        """All records of the trace were written again, to this segment."""
        with self._lock:
            for traces in self._traces.values():
                traces.discard(trace_id)
            self._traces.setdefault(segment, set()).add(trace_id)


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
