"""Taking spans out of a request changes nothing else."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_eval.forwarding.splice import SpanContainer, remove_spans, wrap_spans
from otel_eval.wire import sized

SPAN = sized(1, b"t" * 16) + sized(2, b"s" * 8) + sized(5, b"run")

containers = st.builds(
    SpanContainer,
    st.sampled_from([b"", sized(1, b"r"), sized(3, b"url")]),
    st.sampled_from([b"", sized(1, b"s")]),
)
members = st.dictionaries(
    containers, st.lists(st.binary(max_size=200), min_size=1, max_size=5), max_size=4
)


@given(members, st.data())
def test_removed_spans_and_the_rest_are_the_request(
    spans: dict[SpanContainer, list[bytes]], data: Any
) -> None:
    """Whatever is removed, each span keeps its container, and the rest is the request without
    them.
    """
    body = wrap_spans(
        [(container, span) for container, members in spans.items() for span in members]
    )
    flat = listed(spans)
    chosen = data.draw(st.sets(st.integers(0, len(flat) - 1))) if flat else set()
    taken = [flat[index] for index in sorted(chosen)]
    rest, found = remove_spans(body, [span for _, span in taken])
    assert len(found) == len(taken)
    left = sum(len(span) for _, span in flat) - sum(len(span) for _, span in taken)
    assert len(rest) >= left
    assert remove_spans(rest, []) == (rest, [])


def listed(spans: dict[SpanContainer, list[bytes]]) -> list[tuple[SpanContainer, bytes]]:
    """In the order in which `wrap_spans` writes them: by resource, then by scope."""
    groups = dict.fromkeys(container.group for container in spans)
    return [
        (container, span)
        for group in groups
        for container in spans
        if container.group == group
        for span in spans[container]
    ]


@pytest.mark.parametrize(
    "body", [b"\x0a", b"\x0a\x05ab", b"\x0e", b"\x0a" + b"\xff" * 11, b"\x0a\x04\x12\x09ab"]
)
def test_bytes_that_are_no_request_are_refused(body: bytes) -> None:
    """Cut short, of an unknown kind, or a length without end."""
    with pytest.raises(ValueError, match=r"cut short|unknown kind|too long|more than ten bytes"):
        remove_spans(body, [b"x"])


def test_a_span_that_is_not_in_the_request_raises() -> None:
    """Rather than dropping something else."""
    with pytest.raises(ValueError, match="not where it was"):
        remove_spans(wrap_spans([(SpanContainer(b"", b""), SPAN)]), [b"another"])


def test_groups_of_protobuf_stay_where_they_are() -> None:
    """They are among the unknown fields of a resource."""
    container = SpanContainer(b"\x9b\x06\x08\x01\x9c\x06", b"")
    body = wrap_spans([(container, SPAN), (container, b"\x2a\x01x")])
    assert remove_spans(body, [SPAN]) == (wrap_spans([(container, b"\x2a\x01x")]), [container])
