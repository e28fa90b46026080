"""JSON documents that are read a part at a time: the same spans as from the whole document,
wherever the parts end.
"""

from __future__ import annotations

import io
import json
import random
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_eval.otlp.protobuf import SpanBatch
from otel_eval.sources.files.json_stream import BrokenJson, Cursor, stream_documents

RECORDED = sorted(
    (Path(__file__).parents[2] / "traces").glob("*.json"), key=lambda path: path.stat().st_size
)[:12]


def drip(data: bytes, size: int) -> Iterator[bytes]:
    """A few bytes at a time."""
    stream = io.BytesIO(data)
    return iter(lambda: stream.read(size), b"")


def contents(framed: Any) -> list[Any]:
    """The spans and log records of the pieces, sorted."""
    pieces: list[SpanBatch] = list(framed)
    spans = [
        (trace, span, parent, payload, resource_scope.raw)
        for p in pieces
        for trace, span, (parent, payload, resource_scope), _ in p.spans
    ]
    logs = [(trace, span, payload) for p in pieces for trace, span, (payload, _), _ in p.logs]
    return [
        sorted(spans),
        sorted(logs),
        sum(p.rejected for p in pieces),
        sum(p.own for p in pieces),
        sum(p.ignored for p in pieces),
    ]


def shuffled(value: Any, rng: random.Random) -> Any:
    """The value with the keys of every object in another order."""
    if isinstance(value, dict):
        return {key: shuffled(value[key], rng) for key in rng.sample(list(value), len(value))}
    return [shuffled(each, rng) for each in value] if isinstance(value, list) else value


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.stem)
@pytest.mark.parametrize("indent", [None, 2])
def test_recorded_traces_are_read_as_from_the_whole_document(path: Path, indent: int | None):
    """With keys in any order, within a list or a wrapper, and however the text comes; it has a span
    for each that is in it.
    """
    document, rng, problems = json.loads(path.read_text()), random.Random(path.stem), list[str]()
    expected = contents(stream_documents(Cursor([json.dumps(document).encode()]), problems.append))
    for form in (
        document,
        shuffled(document, rng),
        [document],
        {"trace": document},
        {"other": [1, {"a": None}], **document},
    ):
        text = json.dumps(form, indent=indent, ensure_ascii=False).encode()
        for size in (len(text), 5000, 1237):
            assert contents(stream_documents(Cursor(drip(text, size)), problems.append)) == expected
    assert problems == []


def test_several_documents_may_follow_one_another():
    """With or without blanks between them."""
    one = json.loads(RECORDED[0].read_text())
    text = json.dumps(one).encode()
    expected = contents(
        [piece for _ in range(2) for piece in stream_documents(Cursor([text]), pytest.fail)]
    )
    for between in (b"", b"\n\n"):
        assert contents(stream_documents(Cursor([text + between + text]), pytest.fail)) == expected


def test_spans_are_given_some_at_a_time():
    """Long before the document is read."""
    span = {"traceId": "ab" * 16, "spanId": "cd" * 8, "name": "x" * 1000}
    document = {
        "resourceSpans": [{"resource": {}, "scopeSpans": [{"scope": {}, "spans": [span] * 5000}]}]
    }
    stream = io.BytesIO(json.dumps(document).encode())
    pieces = stream_documents(Cursor(iter(lambda: stream.read(2**20), b"")), pytest.fail)
    assert len(next(pieces).spans) == 512
    assert stream.tell() < 3 * 2**20
    assert sum(len(piece.spans) for piece in pieces) == 5000 - 512


def test_a_batch_that_cannot_be_used_does_not_cost_the_others():
    """The place is named; what follows is read on."""
    good = {"scope": {}, "spans": [{"traceId": "ab" * 16, "spanId": "cd" * 8, "name": "a"}]}
    groups = [
        {"resource": {}, "scopeSpans": [good, 5, good]},
        7,
        {"resource": {}, "scopeSpans": [good]},
    ]
    problems: list[str] = []
    spans, *_ = contents(
        stream_documents(Cursor([json.dumps({"resourceSpans": groups}).encode()]), problems.append)
    )
    assert len(spans) == 3
    assert [problem.split(":")[0] for problem in problems] == [
        "resourceSpans[0]",
        "resourceSpans[1]",
    ]


def test_documents_before_an_error_are_given_first():
    """And then where it is."""
    span = {"traceId": "ab" * 16, "spanId": "cd" * 8, "name": "a"}
    group = {"resource": {}, "scopeSpans": [{"scope": {}, "spans": [span]}]}
    text = json.dumps({"resourceSpans": [group, group]}, indent=1)
    pieces = stream_documents(Cursor([text[:-120].encode()]), pytest.fail)
    assert len(next(pieces).spans) == 1
    with pytest.raises(BrokenJson, match=r"line \d+, column \d+: not JSON"):
        list(pieces)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4)
    ),
    max_leaves=12,
)


def walked(cursor: Cursor) -> Any:
    """The value at the cursor, read level by level."""
    if cursor.peek() == "{":
        return {key: walked(cursor) for key in cursor.members()}
    return [walked(cursor) for _ in cursor.elements()] if cursor.peek() == "[" else cursor.value()


@given(json_values, st.sampled_from([None, 1]), st.booleans(), st.integers(1, 40))
def test_any_json_is_read_wherever_its_parts_end(
    value: Any, indent: int | None, ascii_only: bool, size: int
):
    """Walked and decoded at once."""
    text = json.dumps(value, indent=indent, ensure_ascii=ascii_only).encode(
        "utf-8", "surrogatepass"
    )
    try:
        expected = json.loads(text.decode())
    except UnicodeDecodeError:
        return
    for read in (walked, Cursor.value):
        cursor = Cursor(drip(text, size))
        assert read(cursor) == expected
        assert cursor.peek() == ""


@given(json_values, st.data(), st.integers(1, 40))
def test_invalid_json_is_refused(value: Any, data: st.DataObject, size: int):
    """With a character taken out or put in, it is refused exactly where `json` refuses it."""
    text = json.dumps(value)
    place = data.draw(st.integers(0, len(text)))
    broken = (
        text[:place]
        + data.draw(st.sampled_from(["", ",", '"', "}", "]", "{", "1", "\\"]))
        + text[place + 1 :]
    )
    for read in (walked, Cursor.value):
        assert outcome(partial(whole, read, broken.encode(), size)) == outcome(
            partial(json.loads, broken)
        )


def whole(read: Callable[[Cursor], Any], text: bytes, size: int) -> Any:
    """The only value of the text."""
    cursor = Cursor(drip(text, size))
    value = read(cursor)
    if cursor.peek():
        raise ValueError("more follows")
    return value


def outcome(read: Callable[[], Any]) -> Any:
    """The value that is read, or the fact that it cannot be read."""
    try:
        return read()
    except ValueError:
        return ValueError
