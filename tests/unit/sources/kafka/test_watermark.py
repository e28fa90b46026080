"""Watermarks and margins, compared with a search through everything that was read."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from otel_eval.sources.kafka.offsets import CommitNote, Margin, Watermark

STEP_S = 0.1


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 7)), max_size=80))
def test_the_watermark_is_the_first_offset_of_any_unfinished_trace(
    happened: list[tuple[bool, int]],
) -> None:
    """A step is a record of a trace, or the end of one; a trace may begin again after its end."""
    watermark, first, offset = Watermark(5), dict[bytes, int](), 5
    for is_record, number in happened:
        trace_id = bytes([number])
        if is_record:
            watermark.add_record(offset, float(offset), [trace_id])
            first.setdefault(trace_id, offset)
            offset += 1
        else:
            watermark.finish(trace_id)
            first.pop(trace_id, None)
        assert watermark.low == min(first.values(), default=offset)
        assert watermark.oldest_s == (min(first.values()) if first else None)


def test_a_record_that_nothing_depends_on_moves_the_position() -> None:
    watermark = Watermark(0)
    watermark.add_record(0, 1.0, [])
    assert (watermark.low, watermark.position) == (1, 1)


times = st.lists(st.floats(0, 3, allow_nan=False), min_size=1, max_size=60)


@given(times, st.data())
def test_a_margin_begins_before_every_record_of_its_time_and_at_most_a_step_too_early(
    gaps: list[float], data: st.DataObject
) -> None:
    """Record times may fall back; the watermark rises in steps of any size."""
    length_s, now, latest = 5.0, 100.0, []
    margin, low = Margin(length_s, 0), 0
    for offset, gap in enumerate(gaps):
        now += gap - (2.0 if gap > 2.9 else 0.0)
        margin.add_record(offset, now, offset)
        latest.append(max(now, latest[-1] if latest else now))
        low = data.draw(st.integers(low, offset + 1))
        start, at_low = margin.start(low), latest[min(low, offset)]
        wanted = next(at for at in range(offset + 1) if latest[at] >= at_low - length_s - 1e-9)
        assert start <= min(wanted, low)
        later = [each for each in latest[start:] if each >= latest[start] + STEP_S + 1e-9]
        assert not later or later[0] >= at_low - length_s - 2 * STEP_S, "a later sample would do"
        assert len(margin._samples) <= (latest[-1] - latest[0]) / STEP_S + 2, (
            "memory does not follow the number of records"
        )


@given(times, st.integers(1, 6), st.data())
def test_a_margin_is_handed_on_over_any_number_of_owners(
    gaps: list[float], owners: int, data: st.DataObject
) -> None:
    """Each owner knows only what it has read since its own margin began, and commits at any moment
    after its start.
    """
    length_s, now, latest = 5.0, 100.0, []
    for gap in gaps:
        now += gap
        latest.append(now)
    low = start = 0
    for _ in range(owners):
        margin, since = Margin(length_s, start), start
        read = data.draw(st.integers(low, len(latest)))
        for offset in range(since, read):
            margin.add_record(offset, latest[offset], offset)
        if read == since:
            continue
        low = data.draw(st.integers(low, read))
        start = margin.start(low)
        wanted = next(
            (
                at
                for at in range(len(latest))
                if latest[at] >= latest[min(low, len(latest) - 1)] - length_s - 1e-9
            ),
            0,
        )
        assert start <= min(wanted, low)


@given(st.text(max_size=40))
def test_any_metadata_of_a_commit_is_read(text: str) -> None:
    note = CommitNote.of(text)
    assert note.margin is None or isinstance(note.margin, int)


@given(st.integers(0, 2**62), st.integers(0, 1000))
def test_a_note_is_read_as_it_was_written(margin: int, partitions: int) -> None:
    assert CommitNote.of(CommitNote(margin, partitions).text()) == (margin, partitions)
    assert (
        CommitNote.of(None)
        == CommitNote.of("[]")
        == CommitNote.of('{"margin": "x", "partitions": 1}')
        == CommitNote()
    )
