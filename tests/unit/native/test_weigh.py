"""Weighing a request in C against weighing it in Python: over any bytes both say the same."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from otel_eval.native import extension
from otel_eval.otlp import decoded_size as weight
from otel_eval.otlp.json_fields import sized, varint

native = extension("_native")
if native is None:
    pytest.skip("installed without a compiler, or to do without", allow_module_level=True)

PLAIN = st.one_of(
    st.integers(0, 2**64 - 1).map(lambda number: b"\x08" + varint(number)),
    st.sampled_from([b"\x09" + bytes(8), b"\x0d" + bytes(4), b"\x0b", b"\x0c", b"\x0e", b"\x92\x00\x01a", b"\x12\x81\x00a"]),
    st.sampled_from([b"\x08" + b"\xff" * 9 + b"\x01", b"\x08" + b"\xff" * 9 + b"\x02", b"\x80" * 12, b"\x12\xff\x01"]),
    st.integers(128, 40_000).map(lambda size: sized(2, bytes(size))),
    st.binary(max_size=4),
)
FIELDS = st.recursive(
    PLAIN, lambda inner: st.builds(lambda number, parts: sized(number, b"".join(parts)), st.integers(1, 4), st.lists(inner))
)


@given(st.lists(FIELDS).map(b"".join), st.sampled_from(sorted(weight._COSTS)), st.sampled_from([0, 700, 10_000, 10**12]))
@example(b"\x0a\x06\x12\x04\x12\x01a\x12", "traces", 10**12)
@example(b"\x0a\x07\x12\x05\x12\x01a\x12\x02", "traces", 10**12)
def test_both_weigh_the_same(body: bytes, signal: str, enough: int) -> None:
    """Up to where the bytes are broken, or to where it is enough."""
    costs = weight._COSTS[signal]
    assert native.weigh(body, costs, enough) == weight._weigh(body, costs, enough)
