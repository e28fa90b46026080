"""A quick first pass over stored traces: after which byte of its input each trace is complete.

Ids in JSON are found by a pattern, without parsing. Whatever else looks like one costs nothing but an entry.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Final

from otel_eval.sources.files.binary import Readable
from otel_eval.sources.files.tempo import hex_of

__all__ = ["text_ids"]

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
