"""Which segments are still needed: by traces with spans in them, and by reports that were not acknowledged.

Segments are removed oldest first, so that what was recorded of a trace is never removed before its spans are. Safe to use from
any thread.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterable

from otel_eval.storage.journal import Segment

__all__ = ["SegmentRefs"]


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
