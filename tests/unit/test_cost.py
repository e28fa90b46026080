"""Decoding and assembly do work in proportion to the size of the input, for any input."""

from __future__ import annotations

from functools import partial

import pytest

from otel_eval.assembly import Limits, TraceBuffer
from otel_eval.assembly.tombstones import Tombstones
from otel_eval.otlp.protobuf import read_logs, read_traces
from otel_eval.otlp.spans import LOG_READER, decode_all
from otel_eval.storage.segments import Damage, header_bytes, record_header, scan
from otel_eval.wire import read_varint, sized, varint
from tests.support import cpu_time
from tests.support.counted_work import is_in_proportion
from tests.support.made_spans import span

SMALL = 50_000
TIMES = 8
MOST = 20.0  # where a linear cost gives 8 and a quadratic one 64


def unterminated(place: str, size: int) -> bytes:
    """A `KeyValue` with an unterminated varint as the length of its value or of the text in it."""
    if place == "length of the value":
        return b"\x0a\x08messages\x12" + b"\xff" * size
    return sized(1, b"event.name") + sized(2, b"\x0a" + b"\xff" * size)


def log_record(pair: bytes) -> bytes:
    """An export request with one log record, which is read before the request is acknowledged."""
    record = (
        sized(5, sized(1, b"messages")) + sized(6, pair) + sized(9, b"t" * 16) + sized(10, b"s" * 8)
    )
    return sized(1, sized(2, sized(2, record)))


PLACES = pytest.mark.parametrize("place", ["length of the value", "length of the text"])


@PLACES
def test_an_attribute_with_an_unterminated_number_has_no_value(place: str) -> None:
    """The attributes beside it are kept; a log record with one is ignored."""
    other = sized(1, b"a") + sized(2, sized(1, b"b"))
    assert decode_all([unterminated(place, 100), other]) == {"a": "b"}
    assert read_logs(log_record(unterminated(place, 100))).ignored == 1


@pytest.mark.slow  # what the decoder and Python's numbers do inside shows in CPU time only
@PLACES
def test_an_unterminated_number_in_an_attribute_costs_time_in_proportion_to_its_bytes(
    place: str,
) -> None:
    """The attribute has no value, and the attributes beside it are kept."""
    small, great = unterminated(place, SMALL), unterminated(place, TIMES * SMALL)
    other = sized(1, b"a") + sized(2, sized(1, b"b"))
    assert decode_all([great, other]) == {"a": "b"}
    assert cpu_time.is_in_proportion(lambda: decode_all([small]), lambda: decode_all([great]), MOST)


@pytest.mark.slow  # what the decoder and Python's numbers do inside shows in CPU time only
@PLACES
def test_a_log_record_with_an_unterminated_number_is_framed_in_time_in_proportion_to_its_bytes(
    place: str,
) -> None:
    """Records are read before the request is acknowledged."""
    small, great = (log_record(unterminated(place, size)) for size in (SMALL, TIMES * SMALL))
    assert read_logs(great).ignored == 1
    assert cpu_time.is_in_proportion(lambda: read_logs(small), lambda: read_logs(great), MOST)


@pytest.mark.parametrize("number", [0, 127, 128, 2**32, 2**63, 2**64 - 1])
def test_numbers_of_up_to_ten_bytes_are_read(number: int) -> None:
    """Those of 64 bits have ten."""
    assert read_varint(b"-" + varint(number) + b"-", 1) == (number, 1 + len(varint(number)))


def test_a_number_of_eleven_bytes_is_refused() -> None:
    """One that ends too early is recognised."""
    with pytest.raises(ValueError, match="more than ten bytes"):
        read_varint(b"\x80" * 10 + b"\x01", 0)
    with pytest.raises(IndexError):
        read_varint(b"\x80" * 9, 0)


def test_a_length_in_more_bytes_than_needed_is_read_as_protobuf_reads_it() -> None:
    """Up to ten bytes; beyond that there is no such attribute."""
    long, longer = (
        b"\x0a\x01a\x12" + b"\x83" + b"\x80" * more + b"\x00\x0a\x01b" for more in (3, 9)
    )
    assert decode_all([long]) == {"a": "b"}
    assert decode_all([longer]) == {}


RECORDS = [(b"t" * 16, b"s" * 8, (b"%d" % number, LOG_READER), 8) for number in range(TIMES * 400)]


def pushed(count: int) -> TraceBuffer:
    """A buffer with this number of log records of one span."""
    buffer = TraceBuffer(Limits())
    buffer.push_logs(RECORDS[:count], 0.0)
    return buffer


def test_log_records_of_one_span_cost_time_in_proportion_to_their_number() -> None:
    """They are added while the lock of the buffer is held."""
    assert len(pushed(len(RECORDS)).drain(0.0)[0].logs[b"s" * 8]) == len(RECORDS)
    assert is_in_proportion(
        lambda: pushed(len(RECORDS) // TIMES), lambda: pushed(len(RECORDS)), MOST
    )


def repeated(size: int) -> TraceBuffer:
    """A buffer with a span of this size, and small spans with its id, together a tenth of its
    size.
    """
    buffer = TraceBuffer(Limits())
    spans = [
        sized(1, b"t" * 16)
        + sized(2, b"s" * 8)
        + b"\x41"
        + bytes([200]) * 8
        + sized(9, b"") * (size // 2)
    ]
    spans += [
        sized(1, b"t" * 16) + sized(2, b"s" * 8) + sized(5, b"%d" % number)
        for number in range(size // 300)
    ]
    buffer.push_many(
        read_traces(sized(1, sized(2, b"".join([sized(2, each) for each in spans])))).spans, 0.0
    )
    return buffer


@pytest.mark.slow  # comparing bytes shows in CPU time only
def test_small_repetitions_of_a_great_span_do_not_cost_its_size_each() -> None:
    """What is compared of the buffered span is read once."""
    assert repeated(SMALL).counts.spans_duplicate == SMALL // 300
    assert cpu_time.is_in_proportion(lambda: repeated(SMALL), lambda: repeated(TIMES * SMALL), MOST)


def damaged(count: int) -> bytes:
    """A segment of this number of record pairs, the first of each with a damaged header."""
    salt, payload = b"otel_ev\x9e", b"p" * 60
    record = record_header(salt, 1, [payload]) + payload
    return header_bytes(salt) + (record[:8] + b"?" + record[9:] + record) * count


def test_many_damaged_places_of_a_segment_cost_time_in_proportion_to_their_number() -> None:
    """After each of them the next valid record is searched."""
    small, great = damaged(50), damaged(TIMES * 50)
    assert len(list(scan(great, Damage()))) == TIMES * 50
    assert is_in_proportion(
        lambda: list(scan(small, Damage())), lambda: list(scan(great, Damage())), MOST
    )


ROOT = span("s")
SPANS = [
    (b"%016d" % number, b"s", (b"", ROOT, ROOT.resource_scope), 8) for number in range(TIMES * 500)
]
FEW = Limits(max_traces=100)


def buffer_of(count: int, limits: Limits) -> TraceBuffer:
    """A buffer that received this number of traces of one span at once."""
    buffer = TraceBuffer(limits)
    buffer.push_many(SPANS[:count], 0.0)
    return buffer


def test_traces_beyond_the_limit_cost_time_in_proportion_to_their_number() -> None:
    """All but a few traces of one request are closed at once, while the lock of the buffer is
    held.
    """
    buffer = buffer_of(len(SPANS), FEW)
    assert (len(buffer), buffer.counts.traces_over_limit) == (100, len(SPANS) - 100)
    assert is_in_proportion(
        lambda: buffer_of(len(SPANS) // TIMES, FEW), lambda: buffer_of(len(SPANS), FEW), MOST
    )


def test_traces_that_wait_for_evaluation_cost_time_in_proportion_to_their_number() -> None:
    """A few at a time are handed over, and what is kept of them for late spans is soon too much."""

    def handed_over(count: int) -> int:
        buffer = buffer_of(count, Limits(max_bytes=10 * 1024, max_bytes_per_trace=1024))
        return sum(len(batch) for batch in iter(partial(buffer.due, 10.0, 1), []))

    assert handed_over(len(SPANS)) == len(SPANS)
    assert is_in_proportion(
        lambda: handed_over(len(SPANS) // TIMES), lambda: handed_over(len(SPANS)), MOST
    )


def test_ids_that_expire_at_once_cost_time_in_proportion_to_their_number() -> None:
    """An hour after a burst of traces."""

    def forgotten(count: int) -> bool:
        ids = Tombstones(count)
        for trace_id, *_ in SPANS[:count]:
            ids.add(trace_id, 10.0)
        ids.expire(10.0)
        return not any(ids.items())

    assert forgotten(len(SPANS))
    assert is_in_proportion(
        lambda: forgotten(len(SPANS) // TIMES), lambda: forgotten(len(SPANS)), MOST
    )
