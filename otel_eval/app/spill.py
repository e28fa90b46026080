"""Open traces that do not fit into memory, in a file."""

from __future__ import annotations

from collections.abc import Iterator
from typing import IO, Final

from otel_eval.interfaces import ClosedTrace
from otel_eval.otlp import SpanBatch, read_logs, read_traces, reserialize_logs, reserialize_traces

__all__ = ["Spill"]

_NUMBER: Final = 8  # bytes
_NONE: Final = 2**64 - 1


class Spill:
    """Parts of traces. Each is written after the place of the part of the same trace before it, so that memory holds only
    the place of the last one.
    """

    def __init__(self, file: IO[bytes]) -> None:
        self._file: Final = file
        self._last: Final[dict[bytes, int]] = {}

    def __contains__(self, trace_id: bytes) -> bool:
        return trace_id in self._last

    def put(self, trace: ClosedTrace) -> None:
        """Write what is held of a trace."""
        bodies = (
            reserialize_traces(trace.frames.values()),
            reserialize_logs(record for records in trace.logs.values() for record in records),
        )
        before = self._last.get(trace.trace_id, _NONE)
        self._last[trace.trace_id] = self._file.seek(0, 2)
        self._file.write(b"".join(each.to_bytes(_NUMBER) for each in (before, *map(len, bodies))) + b"".join(bodies))

    def take(self, trace_id: bytes) -> Iterator[SpanBatch]:
        """The parts of a trace in the order in which they were written; nothing is known of it afterwards."""
        places = []
        place = self._last.pop(trace_id, _NONE)
        while place != _NONE:
            places.append(place)
            self._file.seek(place)
            place = int.from_bytes(self._file.read(_NUMBER))
        for each in reversed(places):
            self._file.seek(each + _NUMBER)
            spans, logs = (int.from_bytes(self._file.read(_NUMBER)) for _ in range(2))
            yield read_traces(self._file.read(spans))
            yield read_logs(self._file.read(logs))

    def ids(self) -> list[bytes]:
        """The traces of which parts are here."""
        return list(self._last)
