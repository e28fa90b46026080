"""Where each of any number of trace ids occurs last, in bounded memory: an external merge sort of fixed-size records."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from heapq import merge
from itertools import islice
from typing import IO, Any, Final

__all__ = ["LastPositions"]

_ID: Final = 16
_POSITION: Final = 8
_RECORD: Final = _ID + _POSITION
_IN_MEMORY: Final = 2**18  # ids; about 50 MiB


class LastPositions:
    """Takes ids of 16 bytes with positions; gives each id once, with the last of its positions.

    Args:
        in_memory: ids that are kept in memory; more are sorted and written to temporary files.
    """

    def __init__(self, in_memory: int = _IN_MEMORY) -> None:
        self._most: Final = in_memory
        self._last: dict[bytes, int] = {}
        self._runs: Final[list[IO[bytes]]] = []
        self._files: Final = ExitStack()

    def __enter__(self) -> LastPositions:
        return self

    def __exit__(self, *_: Any) -> None:
        self._files.close()

    def add(self, found: Iterable[tuple[bytes, int]]) -> None:
        """Take ids and positions, in any order."""
        last = self._last
        for trace_id, position in found:
            last[trace_id] = max(position, last.get(trace_id, 0))
        if len(last) > self._most:
            self._runs.append(self._written(self._records()))

    def in_order(self) -> Iterator[tuple[int, bytes]]:
        """Every id after its last position, in the order of these positions. The ids are given up meanwhile."""
        if not self._runs:
            yield from sorted((position, trace_id) for trace_id, position in self._last.items())
            return
        by_id = _last_of_each(merge(self._records(), *map(_read, self._runs)))
        turned = (record[_ID:] + record[:_ID] for record in by_id)
        runs = []
        while some := sorted(islice(turned, self._most)):
            runs.append(self._written(some))
        for record in merge(*map(_read, runs)):
            yield int.from_bytes(record[:_POSITION]), record[_POSITION:]

    def _records(self) -> list[bytes]:
        """The ids in memory as records in order; nothing is left in memory."""
        last, self._last = self._last, {}
        return sorted(trace_id + position.to_bytes(_POSITION) for trace_id, position in last.items())

    def _written(self, records: list[bytes]) -> IO[bytes]:
        file: IO[bytes] = self._files.enter_context(tempfile.TemporaryFile())  # noqa: SIM115 - closed with the others
        file.write(b"".join(records))
        return file


def _read(file: IO[bytes]) -> Iterator[bytes]:
    file.seek(0)
    while record := file.read(_RECORD):
        yield record


def _last_of_each(records: Iterable[bytes]) -> Iterator[bytes]:
    """Of sorted records the last one of each id."""
    before = b""
    for record in records:
        if before and before[:_ID] != record[:_ID]:
            yield before
        before = record
    if before:
        yield before
