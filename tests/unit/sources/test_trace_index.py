"""Ids that are found without parsing."""

from __future__ import annotations

import io
import json
from base64 import b64encode, urlsafe_b64encode

import pytest

from otel_eval.sources.files.whole_traces import text_ids

ID = bytes([0, 255, 62, 63, *range(12)])

WRITTEN = {
    "hexadecimal": f'"traceId":"{ID.hex()}"',
    "capitals": f'"traceId":"{ID.hex().upper()}"',
    "over two lines": f'"traceId" :\n  "{ID.hex()}"',
    "snake case": f'"trace_id": "{ID.hex()}"',
    "Jaeger, without leading zeros": f'"traceID":"{ID.hex().lstrip("0")}"',
    "the console exporter's": f'"trace_id": "0x{ID.hex()}"',
    "base64": f'"traceId":"{b64encode(ID).decode()}"',
    "base64, its slash escaped": '"traceId":'
    + json.dumps(b64encode(ID).decode()).replace("/", "\\/"),
    "base64 for addresses": f'"traceId":"{urlsafe_b64encode(ID).decode().rstrip("=")}"',
}


@pytest.mark.parametrize("text", WRITTEN.values(), ids=WRITTEN)
def test_every_way_to_write_an_id_is_known(text: str):
    """By the offset of its key."""
    assert list(text_ids(io.BytesIO(b"{" + text.encode()))) == [{ID: 1}]


@pytest.mark.parametrize("before", [2**20 - 60, 2**20 - 10, 2**20, 2**21 - 20])
def test_an_id_between_two_pieces_is_found(before: int):
    """The input is read in pieces of 1 MiB."""
    text = b" " * before + WRITTEN["hexadecimal"].encode()
    assert list(text_ids(io.BytesIO(text))) == [{ID: before}]


def test_the_last_of_several_places_counts():
    """Whichever way they are written; what is no id is left out."""
    text = f'{WRITTEN["capitals"]}, {WRITTEN["base64"]}, "traceId": "none", "traceId": ""'.encode()
    assert list(text_ids(io.BytesIO(text))) == [{ID: text.index(b', "traceId"') + 2}]
