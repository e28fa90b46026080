"""Which segments are still needed, and which reports are owed to whom.

Knows which traces have spans in a segment and which reports stand in it. Segments go oldest first, so that what was said
of a trace is never removed before its spans are. Safe to use from any thread.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterable

from otel_eval.storage.journal import Segment

__all__ = ["SegmentRefs"]


class SegmentRefs:
    """What the segments hold that somebody still needs."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # guards what follows
        self._traces: dict[Segment, set[bytes]] = {}
        self._owed: dict[bytes, tuple[Segment, set[str]]] = {}
        self._holds: Counter[Segment] = Counter()

    def taken(self, segment: Segment, trace_ids: Iterable[bytes]) -> None:
        """Spans of these traces stand in the segment."""
        with self._lock:
            self._traces.setdefault(segment, set()).update(trace_ids)

    def owe(self, key: bytes, segment: Segment, sinks: Collection[str]) -> None:
        """A report that stands in the segment is to be delivered to these."""
        if not sinks:
            return
        with self._lock:
            before = self._owed.get(key)
            if before is not None:
                self._holds[before[0]] -= 1
            self._owed[key] = (segment, set(sinks))
            self._holds[segment] += 1

    def hold(self, segment: Segment) -> None:
        """Something else that stands in the segment is needed."""
        with self._lock:
            self._holds[segment] += 1

    def let_go(self, segment: Segment) -> None:
        """It is needed no more."""
        with self._lock:
            self._holds[segment] -= 1

    def settle(self, sink: str, keys: Iterable[bytes]) -> list[bytes]:
        """The sink has these; those of them that were owed to it."""
        settled = []
        with self._lock:
            for key in keys:
                if key not in self._owed or sink not in self._owed[key][1]:
                    continue
                segment, sinks = self._owed[key]
                settled.append(key)
                sinks.discard(sink)
                if not sinks:
                    del self._owed[key]
                    self._holds[segment] -= 1
        return settled

    def owed(self, key: bytes) -> frozenset[str]:
        """Who is still to get the report."""
        with self._lock:
            return frozenset(self._owed[key][1]) if key in self._owed else frozenset()

    @property
    def waiting(self) -> int:
        """Reports that somebody is still to get."""
        return len(self._owed)

    def is_free(self, segment: Segment, held: Callable[[bytes], bool]) -> bool:
        """Whether nobody needs the segment: no trace in it is `held`, every report in it was delivered, and nothing holds it."""
        with self._lock:
            traces = self._traces.get(segment, set())
            while traces:
                trace_id = next(iter(traces))
                if held(trace_id):
                    return False
                traces.discard(trace_id)  # it never comes back: an id that is forgotten is not held again
            if self._holds[segment] > 0:
                return False
            self._traces.pop(segment, None)
            del self._holds[segment]
        return True

    def stragglers(self, segment: Segment) -> set[bytes]:
        """Traces that may still need the segment."""
        with self._lock:
            return set(self._traces.get(segment, ()))

    def moved(self, trace_id: bytes, segment: Segment) -> None:
        """All there is of the trace was written to this segment."""
        with self._lock:
            for traces in self._traces.values():
                traces.discard(trace_id)
            self._traces.setdefault(segment, set()).add(trace_id)
