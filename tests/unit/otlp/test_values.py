"""Encoded attributes are read by protobuf as what was encoded."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.resource.v1.resource_pb2 import Resource

from otel_eval.otlp.spans import decode_all, encode_attributes, parse_resource

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
PLAIN = (
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False) | TEXT
)
VALUES = st.recursive(
    PLAIN,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(TEXT, VALUES, max_size=5))
def test_values_are_read_as_they_were(attributes: dict[str, Any]) -> None:
    """Of every kind that JSON has, within each other."""
    raw = Resource.FromString(encode_attributes(1, attributes)).SerializeToString()
    found = decode_all(parse_resource(raw).attributes)
    assert found == attributes
    assert repr(found) == repr(attributes)


def test_other_values_become_text() -> None:
    """Numbers beyond 64 bits, and what JSON does not have; half of a surrogate pair is a question
    mark, also in a key.
    """
    raw = encode_attributes(1, {"big": 2**63, "object": 1j, "half\ud800": "a\ud800"})
    found = decode_all(parse_resource(raw).attributes)
    assert found == {"big": "9223372036854775808", "object": "1j", "half?": "a?"}
