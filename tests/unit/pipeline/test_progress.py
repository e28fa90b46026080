"""An evaluation that hangs is distinguished from one that waits for an exporter or the disk."""

from __future__ import annotations

from otel_eval.counters import Progress


class Clock:
    """Stands still until it is moved."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def states(progress: Progress, paused: str = "", *, is_due: bool = False) -> tuple[str, str]:
    found = progress.state(paused, lambda: is_due)
    return found.state, found.trace_id


def test_an_evaluation_is_stalled_after_a_minute():
    """Not before, and not once it ended."""
    clock = Clock()
    progress = Progress(clock)
    assert states(progress) == ("idle", "")
    progress.begin(b"\1" * 16)
    clock.now += 59
    assert states(progress) == ("evaluating", "01" * 16)
    assert progress.evaluating_s == 59
    clock.now += 2
    assert states(progress) == ("stalled", "01" * 16)
    assert progress.state("", lambda: False).why == "evaluation has made no progress for 61 s"
    progress.note_progress()
    assert states(progress) == ("idle", "")
    assert progress.evaluating_s == 0


def test_many_evaluations_in_a_row_are_progress():
    """However long they take together."""
    clock = Clock()
    progress = Progress(clock)
    for _ in range(10):
        progress.begin(b"\1" * 16)
        clock.now += 40
        assert states(progress)[0] == "evaluating"
        progress.note_progress()


def test_a_thread_that_is_gone_is_stalled_if_work_is_due():
    """And idle if there is none."""
    clock = Clock()
    progress = Progress(clock)
    progress.note_progress()
    clock.now += 61
    assert states(progress, is_due=False) == ("idle", "")
    assert states(progress, is_due=True) == ("stalled", "")


def test_backpressure_is_no_stall():
    """Neither that of exporters nor that of storage."""
    clock = Clock()
    progress = Progress(clock)
    progress.note_progress("the queue of results for otlp.logs is full")
    clock.now += 3600
    assert states(progress, is_due=True) == ("paused", "")
    assert progress.state("", lambda: True).why == "the queue of results for otlp.logs is full"
    progress.note_progress()
    clock.now += 3600
    assert states(progress, "storage cannot be written", is_due=True) == ("paused", "")
