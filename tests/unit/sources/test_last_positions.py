"""Where ids occur last, in bounded memory."""

from __future__ import annotations

from itertools import chain

from hypothesis import given
from hypothesis import strategies as st

from otel_eval.sources.files.whole_traces import TraceIndex

parts = st.lists(
    st.lists(st.tuples(st.integers(0, 40), st.integers(0, 1000)), max_size=12), max_size=20
)


@given(parts)
def test_every_id_is_given_once_by_its_last_position(found):
    """As a dictionary would have it."""
    expected: dict[bytes, int] = {}
    for number, position in chain.from_iterable(found):
        trace_id = number.to_bytes(16)
        expected[trace_id] = max(position, expected.get(trace_id, 0))
    with TraceIndex() as last:
        for part in found:
            last.add((number.to_bytes(16), position) for number, position in part)
        assert list(last.in_order()) == sorted(
            (position, trace_id) for trace_id, position in expected.items()
        )


def test_a_reader_may_stop_early() -> None:
    """The generator is closed after the database; an error would be written to stderr at the end of
    the program.
    """
    with TraceIndex() as last:
        last.add([(bytes(16), 1), (bytes([1] * 16), 2)])
        rows = last.in_order()
        assert next(rows) == (1, bytes(16))
    rows.close()
