"""A first pass over stored traces: after which byte of its input each trace is complete, in bounded memory.

Ids in JSON are found by a pattern, without parsing; other text that looks like one costs nothing but an entry.
"""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from heapq import merge
from itertools import islice
from typing import IO, Any, Final

from otel_eval.sources.files.binary import Readable
from otel_eval.sources.files.documents import hex_of

__all__ = ["LastPositions", "text_ids"]

_TRACE_ID: Final = re.compile(rb'"trace_?[iI][dD]"\s{0,32}:\s{0,32}"([^"]{1,64})"')
_LONGEST: Final = 160  # bytes that the pattern may match
_PIECE: Final = 2**20
_IDS_AT_ONCE: Final = 2**16


def text_ids(stream: Readable) -> Iterator[dict[bytes, int]]:
    """Trace ids in JSON of any of the formats, by the offset at which each was found last; in several parts."""
    found: dict[bytes, int] = {}
    kept, start = b"", 0
    while piece := stream.read(_PIECE):
        text = kept + piece
        for match in _TRACE_ID.finditer(text):
            found[match[1]] = start + match.start()
        kept = text[-_LONGEST:]
        start += len(text) - len(kept)
        if len(found) > _IDS_AT_ONCE:
            yield _decoded(found)
            found = {}
    yield _decoded(found)


def _decoded(found: dict[bytes, int]) -> dict[bytes, int]:
    ids: dict[bytes, int] = {}
    for text, offset in found.items():
        trace_id = _trace_id(text)
        if trace_id is not None:
            ids[trace_id] = max(offset, ids.get(trace_id, 0))
    return ids


def _trace_id(text: bytes) -> bytes | None:
    """The id's 16 bytes, written in hexadecimal, shortened or after "0x", or in base64; None if it is neither."""
    try:
        value = json.loads(b'"' + text + b'"').removeprefix("0x")
        trace_id = bytes.fromhex(hex_of(value).rjust(32, "0"))
    except ValueError:
        return None
    return trace_id if len(trace_id) == 16 else None


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
