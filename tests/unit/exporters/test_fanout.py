"""Sinks side by side."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest

from otel_eval.counters import Counters
from otel_eval.exporters.fanout import Fanout
from otel_eval.model import Report

Reports = Callable[..., Report]


class Noting:
    """A sink that notes what it is asked, breaks or hangs when told to."""

    def __init__(self, name: str, *, breaks: bool = False, hangs: bool = False) -> None:
        self.name, self.breaks, self.hangs = name, breaks, hangs
        self.asked: list[str] = []
        self.released = threading.Event()

    def emit(self, report: Report) -> None:
        if self.breaks:
            raise ValueError("secret content")
        self.asked.append(report.evaluation)

    def flush(self, timeout_s: float) -> bool:
        if self.hangs:
            self.released.wait(5)
        self.asked.append("flush")
        return not self.breaks

    def close(self, timeout_s: float) -> None:
        self.asked.append("close")


def test_a_sink_that_raises_costs_its_own_results_only(report: Reports, caplog: pytest.LogCaptureFixture):
    """They are counted, said in one line a minute, and their content stays where it is."""
    good, bad, tally = Noting("good"), Noting("bad", breaks=True), Counters()
    fanout = Fanout([bad, good], tally)
    for _ in range(3):
        fanout.emit(report("scored", "failed"))
    assert good.asked == ["policy"] * 3
    assert tally.snapshot() == {"results.exported{exporter=good}": 6, "results.export_failed{exporter=bad}": 6}
    assert [record.getMessage() for record in caplog.records] == ["results could not be sent to bad: ValueError"]


def test_what_a_sink_does_not_accept_is_not_counted_as_emitted(report: Reports):
    """The sink counts it itself."""

    class Refusing(Noting):
        def emit(self, report: Report) -> bool:  # type: ignore[override]
            return False

    tally = Counters()
    Fanout([Refusing("no"), Noting("yes")], tally).emit(report("scored"))
    assert tally.snapshot() == {"results.exported{exporter=yes}": 1}


def test_all_sinks_share_one_deadline_and_one_that_hangs_is_left_behind():
    """The others are flushed meanwhile."""
    good, hanging = Noting("good"), Noting("hanging", hangs=True)
    begin = time.monotonic()
    assert Fanout([hanging, good]).flush(0.1) is False
    assert time.monotonic() - begin < 2
    assert good.asked == ["flush"]
    hanging.released.set()


def test_a_flush_succeeds_if_every_sink_delivered():
    """And not if one says it did not."""
    assert Fanout([Noting("one"), Noting("two")]).flush(1.0) is True
    assert Fanout([Noting("one"), Noting("bad", breaks=True)]).flush(1.0) is False
    assert Fanout([]).flush(1.0) is True


def test_close_reaches_every_sink():
    """Side by side."""
    sinks = [Noting("one"), Noting("two")]
    Fanout(sinks).close(1.0)
    assert [sink.asked for sink in sinks] == [["close"], ["close"]]
