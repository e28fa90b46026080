"""Which segments can be removed."""

from __future__ import annotations

from pathlib import Path

from otel_eval.storage.journal import Segment, SegmentRefs

A, B = (Segment(number, Path(str(number))) for number in (1, 2))


def no_trace_is_open(_: bytes) -> bool:
    return False


def test_a_segment_is_needed_while_a_trace_in_it_is_held():
    """One held trace is enough."""
    segment_refs = SegmentRefs()
    segment_refs.add_traces(A, [b"1", b"2", b"3"])
    assert not segment_refs.is_free(A, lambda trace_id: trace_id == b"2")
    assert segment_refs.is_free(A, no_trace_is_open)


def test_a_segment_is_needed_until_every_exporter_has_its_reports():
    """The last acknowledgement frees it, even if others are repeated."""
    segment_refs = SegmentRefs()
    segment_refs.add_unacknowledged(b"r", A, ["x", "y"])
    assert segment_refs.acknowledge("x", [b"r", b"unknown"]) == [b"r"]
    assert segment_refs.acknowledge("x", [b"r"]) == []
    assert not segment_refs.is_free(A, no_trace_is_open)
    assert segment_refs.unacknowledged == 1
    segment_refs.acknowledge("y", [b"r"])
    assert segment_refs.is_free(A, no_trace_is_open)


def test_a_report_that_is_written_again_is_needed_where_it_stands_last():
    """After a disk that could not be written, the same result is written to a later segment."""
    segment_refs = SegmentRefs()
    segment_refs.add_unacknowledged(b"r", A, ["x"])
    segment_refs.add_unacknowledged(b"r", B, ["x"])
    assert segment_refs.is_free(A, no_trace_is_open)
    assert not segment_refs.is_free(B, no_trace_is_open)


def test_a_trace_that_was_moved_needs_only_the_new_place():
    """All its records are there."""
    segment_refs = SegmentRefs()
    segment_refs.add_traces(A, [b"1"])
    segment_refs.reassign(b"1", B)
    assert segment_refs.is_free(A, lambda _: True)
    assert not segment_refs.is_free(B, lambda _: True)
