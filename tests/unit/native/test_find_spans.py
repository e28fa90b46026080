"""Looking for spans in C against looking in Python: over any bytes both find the same, or both refuse."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_eval.forwarding.splice import find_spans, find_spans_python
from otel_eval.native import extension
from otel_eval.wire import sized

if extension("_native") is None:
    pytest.skip("installed without a compiler, or to do without", allow_module_level=True)

CONTENT = st.binary(max_size=6)
FIELDS = st.one_of(
    CONTENT.map(lambda content: sized(2, content)),
    CONTENT.map(lambda content: sized(2, content)),
    CONTENT.map(lambda content: sized(1, content)),
    CONTENT.map(lambda content: sized(3, content)),
    CONTENT.map(lambda content: sized(17, content)),
    st.sampled_from([b"\x10\x01", b"\x15\x00\x00\x00\x00", b"\x12\x81\x00a", b"\x12"]),
    st.binary(max_size=4),
)


def outcome(find: Any, *given: Any) -> Any:
    try:
        return find(*given)
    except ValueError:
        return "refused"


@given(st.lists(FIELDS, max_size=8), st.lists(CONTENT, max_size=3), st.data())
def test_both_find_the_same(fields: list[bytes], wanted: list[bytes], data: st.DataObject) -> None:
    """Spans in the order in which they are wanted, what is no span, and how many there are."""
    body = b"before" + b"".join(fields) + b"behind"
    start = data.draw(st.sampled_from([6, 6, 6, 0, 7]))
    stop = data.draw(st.sampled_from([len(body) - 6, len(body) - 6, len(body), max(start, len(body) - 8)]))
    start = min(start, stop)
    assert outcome(find_spans, body, start, stop, wanted) == outcome(find_spans_python, body, start, stop, wanted)


@pytest.mark.parametrize("span", [(-1, 2), (2, 1), (0, 99)])
def test_a_range_outside_the_body_is_refused(span: tuple[int, int]) -> None:
    """Nothing is read that is not there."""
    with pytest.raises(ValueError, match="within the body"):
        find_spans(b"\x12\x01a", *span, [])
