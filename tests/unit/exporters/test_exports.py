"""Exporters side by side."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

import pytest

from otel_eval.counters import Counters, count_name
from otel_eval.delivery.export_queue import ExportQueue
from otel_eval.delivery.exports import Exports
from otel_eval.exporters import Exporter, ExportResult
from otel_eval.model import Report
from tests.support.waiting import LIMIT_S, wait_until

Reports = Callable[..., Report]


class Noting(Exporter):
    """An exporter that notes its calls, raises or hangs."""

    def __init__(self, name: str, *, breaks: bool = False, hangs: bool = False) -> None:
        self.name, self.breaks, self.hangs = name, breaks, hangs
        self.asked: list[str] = []
        self.released = threading.Event()

    def export(self, batch: Sequence[Report]) -> ExportResult:
        if self.breaks:
            raise ValueError("secret content")
        self.asked += [report.evaluation for report in batch]
        return ExportResult.ok()

    def flush(self, timeout_s: float) -> bool:
        if self.hangs:
            self.released.wait(LIMIT_S)
        self.asked.append("flush")
        return not self.breaks

    def close(self, timeout_s: float) -> None:
        self.asked.append("close")


def test_an_exporter_that_raises_loses_its_own_results_only(
    report: Reports, caplog: pytest.LogCaptureFixture
):
    """They are counted, and logged once a minute without content."""
    good, bad, tally = Noting("good"), Noting("bad", breaks=True), Counters()
    exports = Exports([bad, good], tally)
    for _ in range(3):
        exports.export([report("scored", "failed")])
    assert good.asked == ["policy"] * 3
    assert tally.snapshot() == {
        count_name("results.exported", exporter="good"): 6,
        count_name("results.export_failed", exporter="bad"): 6,
    }
    assert [record.getMessage() for record in caplog.records] == [
        "export to bad failed (ValueError), 2 results are lost"
    ]
    caplog.clear()
    exports.close(LIMIT_S)
    assert [record.getMessage() for record in caplog.records] == ["bad: 4 more results were lost"]


def test_results_after_the_end_are_lost(report: Reports, caplog: pytest.LogCaptureFixture):
    """Scoring may be behind when a program ends."""
    exports = Exports([Noting("bad", breaks=True)])
    exports.close(LIMIT_S)
    exports.export([report("scored")])
    assert [record.getMessage() for record in caplog.records] == [
        "export to bad failed (closed), 1 results are lost"
    ]


def test_results_that_an_exporter_counts_itself_are_not_counted_twice(report: Reports):
    """Its status is `accepted`."""

    class Refusing(Noting):
        def export(self, batch: Sequence[Report]) -> ExportResult:
            return ExportResult("accepted")

    tally = Counters()
    Exports([Refusing("no"), Noting("yes")], tally).export([report("scored")])
    assert tally.snapshot() == {count_name("results.exported", exporter="yes"): 1}


def test_all_exporters_share_one_deadline_and_one_that_hangs_is_abandoned():
    """The others are flushed meanwhile."""
    good, hanging = Noting("good"), Noting("hanging", hangs=True)
    try:
        assert Exports([hanging, good]).flush(0.1) is False
        wait_until(lambda: good.asked == ["flush"])
        assert hanging.asked == []
    finally:
        hanging.released.set()


def test_a_flush_succeeds_if_every_exporter_flushed():
    """And fails if one did not."""
    assert Exports([Noting("one"), Noting("two")]).flush(LIMIT_S) is True
    assert Exports([Noting("one"), Noting("bad", breaks=True)]).flush(LIMIT_S) is False
    assert Exports([]).flush(LIMIT_S) is True


@pytest.mark.parametrize("is_queued", [False, True])
def test_an_exporter_whose_close_hangs_is_left_at_the_deadline(
    report: Reports, caplog: pytest.LogCaptureFixture, is_queued: bool
):
    """On its daemon thread, also behind a queue; that is counted and logged, and the others are
    closed.
    """
    counters, released, good = Counters(), threading.Event(), Noting("good")

    class Unending(Noting):
        def close(self, timeout_s: float) -> None:
            released.wait(LIMIT_S)

    exporter: Exporter = Unending("hanging")
    if is_queued:
        exporter = ExportQueue(exporter, counters)
    exports = Exports([exporter, good], counters)
    exports.start()
    exports.export([report("scored")])
    assert exports.drain(LIMIT_S)
    try:
        assert exports.close(0.2) is False
        assert counters.get("exports.unfinished", exporter="hanging") == 1
        assert "hanging did not deliver its last results before the end" in caplog.messages
        wait_until(lambda: good.asked[-1] == "close")
    finally:
        released.set()
    assert counters.get("results.exported") == 2
    assert counters.get("results.export_failed") == 0


def test_close_reaches_every_exporter():
    """Side by side."""
    exporters = [Noting("one"), Noting("two")]
    Exports(exporters).close(LIMIT_S)
    assert [exporter.asked for exporter in exporters] == [["flush", "close"], ["flush", "close"]]
