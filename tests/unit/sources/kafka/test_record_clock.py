"""The clock of a partition: record time while records come, wall time at the end, never back and
never ahead.
"""

from __future__ import annotations

from otel_eval.sources.kafka.partition import RecordClock


def test_the_clock_shows_the_greatest_record_time() -> None:
    clock = RecordClock(lambda: 1000.0)
    assert [clock.record(at) for at in (10.0, 12.0, 11.0)] == [10.0, 12.0, 11.0]
    assert clock() == 12.0


def test_a_time_in_the_future_counts_as_now() -> None:
    clock = RecordClock(lambda: 1000.0)
    assert clock.record(5_000_000.0) == 1000.0
    assert clock() == 1000.0


def test_a_record_without_a_time_has_that_of_the_one_before() -> None:
    clock = RecordClock(lambda: 1000.0)
    assert clock.record(-0.001) == 1000.0
    clock = RecordClock(lambda: 1000.0)
    clock.record(7.0)
    assert clock.record(-0.001) == 7.0


def test_idle_time_counts_up_to_now_and_little_of_a_long_gap() -> None:
    """A process that was stopped for a minute does not know what arrived in it."""
    clock = RecordClock(lambda: 1000.0)
    clock.idle(0.1)
    assert clock() == 0.0, "before the first record there is nothing to wait for"
    clock.record(10.0)
    clock.idle(0.1)
    assert clock() == 10.1
    clock.idle(60.0)
    assert clock() == 10.6
    clock.record(999.9)
    clock.idle(0.4)
    assert clock() == 1000.0
