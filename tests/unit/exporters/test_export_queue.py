"""Export queues: order, retries, dead letters, limits, and what is left at the end."""

from __future__ import annotations

import json
import resource
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from otel_eval import create_scorer
from otel_eval.counters import Counters, count_name
from otel_eval.delivery import queue as queue_module
from otel_eval.delivery.export_queue import ExportQueue, start_queue
from otel_eval.delivery.exports import Exports
from otel_eval.exporters import Exporter, ExportResult
from otel_eval.exporters.jsonl import DeadLetterFile, JsonLinesExporter
from otel_eval.model import Report
from otel_eval.retry import RetryPolicy
from otel_eval.testing import call, trajectory
from tests.support.virtual_time import RecordedWaits
from tests.support.waiting import LIMIT_S, wait_until

Reports = Callable[..., Report]
SENT, LATER, NEVER = (
    ExportResult("ok"),
    ExportResult("retryable", "away"),
    ExportResult("permanent", "INVALID_ARGUMENT"),
)
UNSUPPORTED = ExportResult("unsupported", "404")


class Scripted(Exporter):
    """An exporter whose results a function decides; remembers what it was given and what it
    exported by result id.
    """

    name = "otlp.logs"

    def __init__(self, answer: Callable[[list[str]], ExportResult]) -> None:
        self.answer = answer
        self.given: list[list[str]] = []
        self.taken: list[str] = []

    def export(self, batch: Sequence[Report]) -> ExportResult:
        ids = [report.results[0].result_id for report in batch]
        self.given.append(ids)
        answer = self.answer(ids)
        if answer.status == "ok":
            self.taken += [each for place, each in enumerate(ids) if place not in answer.failed]
        return answer


@contextmanager
def delivering(
    exporter: Any, *, close_s: float = 5.0, **options: Any
) -> Iterator[tuple[Exports, ExportQueue, Counters]]:
    tally = Counters()
    queue = ExportQueue(exporter, tally, **({"max_reports": 100} | options))
    delivery = Exports([queue], tally)
    delivery.start()
    try:
        yield delivery, queue, tally
    finally:
        delivery.close(close_s)


@pytest.fixture
def numbered(report: Reports) -> Callable[[int], Report]:
    """Reports whose result ids are numbers."""

    def make(number: int) -> Report:
        made = report("scored")
        return replace(made, results=(replace(made.results[0], result_id=f"{number:032x}"),))

    return make


def ids(*numbers: int) -> list[str]:
    return [f"{number:032x}" for number in numbers]


def test_reports_are_retried_in_order(
    numbered: Callable[[int], Report],
):
    """Nothing overtakes what waits."""
    answers = iter([LATER, SENT])
    exporter = Scripted(lambda _: next(answers, SENT))
    with delivering(exporter) as (delivery, _, tally):
        for number in range(300):
            delivery.export([numbered(number)])
        assert delivery.drain(LIMIT_S)
    assert exporter.taken == ids(*range(300))
    assert tally.snapshot() == {
        count_name("exports.outages", exporter="otlp.logs"): 1,
        count_name("exports.recovered", exporter="otlp.logs"): 1,
        count_name("results.exported", exporter="otlp.logs"): 300,
        count_name("results.retries", exporter="otlp.logs"): 1,
    }


def test_one_report_that_is_refused_costs_the_others_nothing(
    numbered: Callable[[int], Report], tmp_path: Path
):
    """The batch is halved until it is found; it is written to the dead-letter file with the reason,
    and acknowledged.
    """
    exporter = Scripted(lambda given: NEVER if ids(13)[0] in given else SENT)
    acknowledged: list[str] = []
    logs: dict[str, Any] = {
        "acknowledge": lambda _, reports: acknowledged.extend(
            each.results[0].result_id for each in reports
        )
    }
    with delivering(exporter, dead_letters=DeadLetterFile(tmp_path / "dead.jsonl"), **logs) as (
        delivery,
        _,
        tally,
    ):
        for number in range(20):
            delivery.export([numbered(number)])
        assert delivery.drain(LIMIT_S)
    assert exporter.taken == ids(*(number for number in range(20) if number != 13))
    assert sorted(acknowledged) == ids(*range(20))
    (row,) = [json.loads(line) for line in (tmp_path / "dead.jsonl").read_text().splitlines()]
    assert (row["result_id"], row["exporter"], row["why"]) == (
        ids(13)[0],
        "otlp.logs",
        "INVALID_ARGUMENT",
    )
    assert (
        tally.get("results.export_failed"),
        tally.get("results.dead_letters"),
        tally.get("results.exported"),
    ) == (1, 1, 19)


def test_all_reports_of_a_partial_success_without_ids_are_dead_letters(
    report: Reports, tmp_path: Path
):
    """The answer does not say which."""
    exporter = Scripted(lambda _: ExportResult("ok", rejected=1))
    with delivering(exporter, dead_letters=DeadLetterFile(tmp_path / "dead.jsonl")) as (
        delivery,
        _,
        tally,
    ):
        delivery.export([report("scored", "failed", "skipped")])
        assert delivery.drain(LIMIT_S)
    rows = [json.loads(line) for line in (tmp_path / "dead.jsonl").read_text().splitlines()]
    assert [(row["rejected"], row["of"], row["scorer"]) for row in rows] == [
        (1, 3, "scored"),
        (1, 3, "failed"),
        (1, 3, "skipped"),
    ]
    assert (tally.get("results.export_failed"), tally.get("results.exported")) == (1, 2)


def test_results_wait_for_an_endpoint_that_lacks_the_signal(
    numbered: Callable[[int], Report], caplog: pytest.LogCaptureFixture
):
    """One is tried again each minute. When it is accepted, all are delivered in their order."""
    now, lacks = [0.0], [True]
    exporter = Scripted(lambda _: UNSUPPORTED if lacks[0] else SENT)
    caplog.set_level("INFO")
    with delivering(exporter, max_reports=5, retry=RetryPolicy(clock=lambda: now[0])) as (
        delivery,
        queue,
        tally,
    ):
        for number in range(4):
            delivery.export([numbered(number)])
            assert not queue.flush(LIMIT_S)
        now[0] += 60
        delivery.export([numbered(4)])
        wait_until(lambda: exporter.given == [ids(0), ids(0)])
        assert not queue.flush(LIMIT_S)
        assert (delivery.backpressure(), len(queue), tally.snapshot()) == ("", 0, {})
        assert queue.counts()[count_name("results.queued", exporter="otlp.logs")] == 5
        assert queue.counts()[count_name("exports.unsupported", exporter="otlp.logs")] == 1
        lacks[0] = False
        now[0] += 60
        assert queue.drain(LIMIT_S)
        assert count_name("exports.unsupported", exporter="otlp.logs") not in queue.counts()
    assert exporter.taken == ids(*range(5))
    assert tally.snapshot() == {count_name("results.exported", exporter="otlp.logs"): 5}
    assert [line.getMessage() for line in caplog.records] == [
        (
            "the endpoint of otlp does not support logs (404): results wait for 900 s, then they"
            " are dropped; one is tried again every 60 s"
        ),
        "the endpoint of otlp supports logs now",
    ]


def test_results_are_given_up_after_the_time_and_when_too_many_wait(
    numbered: Callable[[int], Report], tmp_path: Path
):
    """The oldest first. Each is in the dead-letter file, counted and acknowledged, and evaluation
    never pauses.
    """
    now, acknowledged = [0.0], list[str]()
    exporter = Scripted(lambda _: UNSUPPORTED)
    dead = tmp_path / "dead.jsonl"

    def acknowledge(_: str, reports: Sequence[Report]) -> None:
        acknowledged.extend(report.results[0].result_id for report in reports)

    def dead_ids() -> list[str]:
        return [json.loads(line)["result_id"] for line in dead.read_text().splitlines()]

    with delivering(
        exporter,
        max_reports=5,
        retry=RetryPolicy(clock=lambda: now[0]),
        dead_letters=DeadLetterFile(dead),
        acknowledge=acknowledge,
    ) as (delivery, queue, tally):
        for number in range(8):
            delivery.export([numbered(number)])
            assert not queue.flush(LIMIT_S)
            assert delivery.backpressure() == ""
        wait_until(lambda: acknowledged == ids(0, 1, 2))
        now[0] += 10
        delivery.export([numbered(8)])
        wait_until(lambda: acknowledged == ids(0, 1, 2, 3))
        now[0] += 890
        assert not queue.flush(LIMIT_S)
        wait_until(lambda: acknowledged == ids(*range(8)))
        assert dead_ids() == ids(*range(8))
        counted = ("results.given_up", "results.dead_letters", "results.export_failed")
        assert [tally.get(name) for name in counted] == [8, 8, 8]
    assert dead_ids() == ids(*range(9))  # the last one at the end


def test_results_that_wait_for_support_get_a_last_attempt_at_the_end(
    numbered: Callable[[int], Report],
):
    """The endpoint may have the signal since the last one."""
    lacks = [True]
    exporter = Scripted(lambda _: UNSUPPORTED if lacks[0] else SENT)
    with delivering(exporter) as (delivery, queue, tally):
        for number in range(3):
            delivery.export([numbered(number)])
        assert not queue.flush(LIMIT_S)
        lacks[0] = False
        queue.stop()
        assert delivery.drain(LIMIT_S)
    assert exporter.taken == ids(0, 1, 2)
    assert tally.get("results.exported") == 3


def test_an_end_is_not_delayed_by_results_that_wait_for_support(
    numbered: Callable[[int], Report],
):
    """After one more attempt nothing can be expected."""
    with delivering(Scripted(lambda _: UNSUPPORTED)) as (delivery, queue, _):
        delivery.export([numbered(1)])
        assert not queue.flush(LIMIT_S)
        queue.stop()
        assert not delivery.drain(10_000.0)


def test_a_flush_after_the_end_returns_at_once(numbered: Callable[[int], Report]):
    """Nothing sends what is left."""
    with delivering(Scripted(lambda _: LATER)) as (delivery, queue, _):
        delivery.export([numbered(1)])
        wait_until(lambda: queue._failures)
        queue._end_threads(LIMIT_S)
        assert not queue.flush(10_000.0)
        assert not queue.drain(10_000.0)


def test_an_endpoint_that_accepted_the_signal_is_tried_again(numbered: Callable[[int], Report]):
    """A 404 in the middle is an outage: nothing is lost, and nothing is marked."""
    answers = iter([SENT, UNSUPPORTED, UNSUPPORTED, SENT])
    exporter = Scripted(lambda _: next(answers, SENT))
    with delivering(exporter, retry=RetryPolicy(first_s=0.001)) as (delivery, queue, tally):
        for number in range(303):
            delivery.export([numbered(number)])
            if not number:
                assert delivery.drain(LIMIT_S)
        assert delivery.drain(LIMIT_S)
        assert not any(queue.counts().values())
    assert exporter.taken == ids(*range(303))
    assert (
        tally.get("results.exported"),
        tally.get("results.retries"),
        tally.get("results.export_failed"),
    ) == (303, 2, 0)


def test_a_full_queue_is_reported_until_its_exporter_is_back(numbered: Callable[[int], Report]):
    """And loses nothing of what it was given beyond."""
    away = [True]
    exporter = Scripted(lambda _: LATER if away[0] else SENT)
    with delivering(exporter, max_reports=5) as (delivery, queue, _):
        for number in range(7):
            assert bool(delivery.backpressure()) == (number >= 5)
            delivery.export([numbered(number)])
        away[0] = False
        assert delivery.drain(LIMIT_S)
        assert (delivery.backpressure(), len(queue)) == ("", 0)
    assert exporter.taken == ids(*range(7))


def test_dead_letters_that_cannot_be_written_wait(
    numbered: Callable[[int], Report], tmp_path: Path
):
    """A refusal is not forgotten because the disk is full."""
    dead = DeadLetterFile(tmp_path / "dead.jsonl")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    with delivering(Scripted(lambda _: NEVER), dead_letters=dead) as (delivery, _queue, tally):
        try:
            resource.setrlimit(resource.RLIMIT_FSIZE, (10, hard))
            delivery.export([numbered(1)])
            assert not delivery.drain(0.4)
            assert (tmp_path / "dead.jsonl").read_bytes() == b""
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        assert delivery.drain(LIMIT_S)
    assert tally.get("results.dead_letters") == 1


def test_a_partly_accepted_batch_is_not_sent_again_while_dead_letters_cannot_be_written(
    numbered: Callable[[int], Report], tmp_path: Path
):
    """An endpoint that has no ids for log records would store it once more at each attempt."""
    dead = DeadLetterFile(tmp_path / "dead.jsonl")
    exporter = Scripted(lambda _: ExportResult("ok", rejected=1))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    with delivering(exporter, dead_letters=dead, retry=RetryPolicy(first_s=0.001)) as (
        delivery,
        _,
        tally,
    ):
        try:
            resource.setrlimit(resource.RLIMIT_FSIZE, (10, hard))
            delivery.export([numbered(1)])
            assert not delivery.drain(0.4)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        assert delivery.drain(LIMIT_S)
    assert exporter.given == [ids(1)]
    assert tally.get("results.dead_letters") == 1


def test_lines_that_do_not_fit_leave_the_file_as_it_was_and_are_retried(
    numbered: Callable[[int], Report], tmp_path: Path
):
    """No half line, no line twice."""
    path = tmp_path / "results.jsonl"
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    with delivering(JsonLinesExporter(path, sync=True)) as (delivery, _, _tally):
        delivery.export([numbered(1)])
        assert delivery.drain(LIMIT_S)
        before = path.read_bytes()
        try:
            resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + 100, hard))
            delivery.export([numbered(2)])
            assert not delivery.drain(0.4)
            assert path.read_bytes() == before
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        assert delivery.drain(LIMIT_S)
    assert [json.loads(line)["result_id"] for line in path.read_text().splitlines()] == ids(1, 2)


def test_lines_of_an_earlier_life_are_looked_for_before_they_are_written_again(
    numbered: Callable[[int], Report], tmp_path: Path
):
    """Only what is not there is added; both are acknowledged."""
    acknowledged: list[int] = []
    exporter = JsonLinesExporter(tmp_path / "results.jsonl")
    exporter.export([numbered(1)])
    logs: dict[str, Any] = {"acknowledge": lambda _, reports: acknowledged.append(len(reports))}
    with delivering(exporter, **logs) as (delivery, _, _tally):
        delivery.requeue(
            [(numbered(1), {"jsonl"}), (numbered(2), {"jsonl"}), (numbered(3), {"another"})]
        )
        assert delivery.drain(LIMIT_S)
    rows = [
        json.loads(line)["result_id"]
        for line in (tmp_path / "results.jsonl").read_text().splitlines()
    ]
    assert (rows, sum(acknowledged)) == (ids(1, 2), 2)


def test_a_queue_ends_while_its_exporter_fails(numbered: Callable[[int], Report]):
    """What is left is counted once."""
    with delivering(Scripted(lambda _: LATER)) as (delivery, queue, tally):
        delivery.export([numbered(1)])
        queue.stop()
        assert not delivery.drain(0.3)
        delivery.close(0.2)
        assert len(queue) == 0
    assert (tally.get("results.export_failed"), tally.get("results.dropped")) == (1, 1)


@pytest.mark.parametrize("rest", [SENT, NEVER])
def test_an_attempt_that_ends_while_the_queue_closes_is_counted_once(
    numbered: Callable[[int], Report], tmp_path: Path, rest: ExportResult
):
    """An attempt that ends after the time for delivery; the dead-letter file has only what was not
    delivered.
    """
    entered, tally = threading.Event(), Counters()

    def answer(given: list[str]) -> ExportResult:
        if given == ids(1, 2):
            return NEVER  # so that each is sent alone
        if given == ids(2):
            entered.set()
            wait_until(lambda: queue._closed)
            return rest
        return SENT

    dead = DeadLetterFile(tmp_path / "dead.jsonl")
    queue = ExportQueue(Scripted(answer), tally, dead_letters=dead, linger_s=0.0)
    queue.export([numbered(1), numbered(2)])
    queue.start()
    assert entered.wait(LIMIT_S)
    queue._end_threads(LIMIT_S)  # as `close` does when the time for delivery is over
    queue.discard_rest()
    dead.close()
    exported = 1 + (rest is SENT)
    assert (tally.get("results.exported"), tally.get("results.dead_letters")) == (
        exported,
        2 - exported,
    )
    assert len((tmp_path / "dead.jsonl").read_text().splitlines()) == 2 - exported


def test_a_refusal_after_the_end_is_no_error(numbered: Callable[[int], Report], tmp_path: Path):
    """The dead-letter file is closed by then, and has the result."""
    entered, end = threading.Event(), threading.Event()

    def answer(_: list[str]) -> ExportResult:
        entered.set()
        assert end.wait(LIMIT_S)
        return NEVER

    queue = ExportQueue(
        Scripted(answer),
        Counters(),
        dead_letters=DeadLetterFile(tmp_path / "dead.jsonl"),
        linger_s=0.0,
    )
    queue.export([numbered(1)])
    queue.start()
    assert entered.wait(LIMIT_S)
    queue.close(0.2)
    end.set()
    queue._threads[0].join(LIMIT_S)  # an exception in it would fail the test
    assert len((tmp_path / "dead.jsonl").read_text().splitlines()) == 1


def test_reports_after_the_end_are_lost_and_logged(
    numbered: Callable[[int], Report], caplog: pytest.LogCaptureFixture
):
    """Nothing would export or count it in the queue: a scorer returned after the program had closed
    its processor.
    """
    tally = Counters()
    fanout = Exports([start_queue(Scripted(lambda _: SENT), tally, None)], tally)
    fanout.close(LIMIT_S)
    fanout.export([numbered(1)])
    assert tally.get("results.export_failed") == 1
    assert not any(fanout.counts().values())
    assert "export to otlp.logs failed (closed), 1 results are lost" in caplog.text


def test_results_that_an_exporter_adds_are_queued_and_counted_too(report: Reports):
    """As the one about a whole evaluation: what enters the queue leaves it."""

    class Adding(Scripted):
        def prepared(self, report: Report) -> Report:
            return replace(report, results=report.results * 2)

    away = [True]
    exporter = Adding(lambda _: LATER if away[0] else SENT)
    with delivering(exporter, retry=RetryPolicy(first_s=0.001, longest_s=0.01)) as (
        delivery,
        queue,
        tally,
    ):
        delivery.export([report("scored")])
        assert queue.counts()[count_name("results.queued", exporter="otlp.logs")] == 2
        away[0] = False
        assert delivery.drain(LIMIT_S)
        assert queue.counts()[count_name("results.queued", exporter="otlp.logs")] == 0
    assert tally.get("results.exported") == 2


def test_deferred_results_that_are_always_due_do_not_stop_the_queue(
    numbered: Callable[[int], Report],
):
    """As when there are so many that retrying each takes longer than their waits."""
    deferred = ids(*range(3))

    def answer(given: list[str]) -> ExportResult:
        return (
            ExportResult("ok", deferred=tuple(range(len(given)))) if given[0] in deferred else SENT
        )

    always = RetryPolicy(first_s=0.0, longest_s=0.0, last_s=0.0)
    options = {"retry": always, "linger_s": 0.0, "close_s": 0.1}
    with delivering(Scripted(answer), **options) as (delivery, queue, tally):
        for number in range(3):
            delivery.export([numbered(number)])
        wait_until(lambda: tally.get("results.retries") > 3)
        delivery.export([numbered(3)])
        wait_until(lambda: tally.get("results.exported") == 1)
        assert queue.counts()[count_name("results.queued", exporter="otlp.logs")] == 3
    assert tally.get("results.dropped") == 3


def test_the_end_of_an_outage_names_what_is_queued(
    numbered: Callable[[int], Report], caplog: pytest.LogCaptureFixture
):
    """Deferred results are not in the queue."""
    answers = iter([ExportResult("ok", deferred=(0,), reason="missing"), LATER, SENT])
    caplog.set_level("INFO")
    with delivering(Scripted(lambda _: next(answers)), retry=RetryPolicy(first_s=0.001)) as (
        delivery,
        _,
        _tally,
    ):
        delivery.export([numbered(1)])
        assert delivery.drain(LIMIT_S)
    assert [
        line.getMessage().rpartition("; ")[2]
        for line in caplog.records
        if "works again" in line.getMessage()
    ] == ["0 queued"]


def test_a_result_that_waits_holds_nothing_of_its_run(report: Reports) -> None:
    """Arguments and results may be large, and an endpoint away for hours."""
    run = trajectory(call("search", arguments={"q": "x" * 100}), call("open"))
    outcome = create_scorer({"type": "tool_call_order", "expected": ["open"]})(run)
    waiting = report("scored")
    waiting = replace(
        waiting, trajectory=run, results=(replace(waiting.results[0], outcome=outcome),)
    )
    with delivering(Scripted(lambda _: LATER)) as (delivery, queue, _):
        delivery.export([waiting])
        assert len(queue) == 1
        assert getattr(outcome, "tell", None) is None
        assert outcome.explanation == "1 of 1 expected call matched; extra: call 1 (search)"


def test_the_wait_that_an_endpoint_asks_for_is_used(numbered: Callable[[int], Report]):
    """It is longer than the queue's own."""
    answers = iter([ExportResult("retryable", "429", after_s=7.0), SENT])
    exporter, waits = Scripted(lambda _: next(answers)), RecordedWaits()
    queue = ExportQueue(exporter, Counters(), retry=RetryPolicy(first_s=0.001))
    queue._stopping = waits  # type: ignore[misc]
    queue.export([numbered(1)])
    queue.start()
    assert queue.drain(LIMIT_S)
    queue.close(LIMIT_S)
    assert waits.durations_s == [7.0]
    assert exporter.given == [ids(1), ids(1)]


def test_queued_reports_are_delivered_when_the_process_ends(numbered: Callable[[int], Report]):
    """More than one batch of it, without waiting for others to be sent with it."""
    exporter = Scripted(lambda _: SENT)
    with delivering(exporter, max_reports=1000, linger_s=60.0) as (delivery, queue, _):
        for number in range(600):
            delivery.export([numbered(number)])
        queue.stop()
        assert delivery.drain(LIMIT_S)
        assert len(queue) == 0
    assert exporter.taken == ids(*range(600))


def test_only_the_rejected_reports_of_a_partial_success_are_refused(
    numbered: Callable[[int], Report], tmp_path: Path
):
    """The exporter returns their places."""
    exporter = Scripted(
        lambda given: (
            ExportResult.partial([given.index(ids(2)[0])], "too long")
            if ids(2)[0] in given
            else SENT
        )
    )
    with delivering(exporter, dead_letters=DeadLetterFile(tmp_path / "dead.jsonl")) as (
        delivery,
        _,
        tally,
    ):
        for number in range(4):
            delivery.export([numbered(number)])
        assert delivery.drain(LIMIT_S)
    (row,) = [json.loads(line) for line in (tmp_path / "dead.jsonl").read_text().splitlines()]
    assert (row["result_id"], row["why"], "rejected" in row) == (ids(2)[0], "too long", False)
    assert (tally.get("results.exported"), tally.get("results.dead_letters")) == (3, 1)


@pytest.mark.parametrize(
    ("error", "exported", "dropped"),
    [
        (ConnectionRefusedError(111, "Connection refused"), 1, 0),
        (RuntimeError("secret"), 1, 0),
        (KeyError("secret"), 0, 1),
    ],
)
def test_exceptions_are_retried_unless_a_defect_causes_them(
    numbered: Callable[[int], Report],
    error: Exception,
    exported: int,
    dropped: int,
    caplog: pytest.LogCaptureFixture,
):
    """No text of an exception is logged, because it may quote content."""
    errors = iter([error])

    def answer(_: list[str]) -> ExportResult:
        if (raised := next(errors, None)) is not None:
            raise raised
        return SENT

    with delivering(Scripted(answer), retry=RetryPolicy(first_s=0.001)) as (delivery, _, tally):
        delivery.export([numbered(1)])
        assert delivery.drain(LIMIT_S)
    assert (tally.get("results.exported"), tally.get("results.dropped")) == (exported, dropped)
    assert "secret" not in caplog.text
    if isinstance(error, OSError):
        assert "export to otlp.logs failed (connection refused), 1 queued, retrying" in caplog.text


def test_a_full_queue_that_may_wait_drops_nothing_while_results_are_exported(
    numbered: Callable[[int], Report],
):
    """As in a replay, which makes results faster than an endpoint accepts them."""
    tally = Counters()
    exporter = Scripted(lambda _: SENT)
    queue = ExportQueue(exporter, tally, max_results=3, room_s=LIMIT_S, linger_s=30.0)
    queue.start()
    for number in range(40):
        queue.export([numbered(number)])
    queue.close(LIMIT_S)
    assert exporter.taken == ids(*range(40))
    assert (tally.get("results.exported"), tally.get("results.refused")) == (40, 0)


def test_a_full_queue_waits_once_while_nothing_is_exported(numbered: Callable[[int], Report]):
    """Then results are dropped and counted at once, until the exporter accepts results again: a
    second wait would take longer than the test may.
    """
    tally, away = Counters(), [True]
    exporter = Scripted(lambda _: LATER if away[0] else SENT)
    queue = ExportQueue(
        exporter, tally, max_results=2, room_s=0.2, retry=RetryPolicy(first_s=0.001, longest_s=0.01)
    )
    queue.start()
    for number in range(3):
        queue.export([numbered(number)])
    queue._room_s = 10_000.0
    for number in range(3, 30):
        queue.export([numbered(number)])
    assert tally.get("results.refused") == 28
    away[0] = False
    for number in range(30, 40):
        assert queue.drain(LIMIT_S)
        queue.export([numbered(number)])
    queue.close(LIMIT_S)
    assert tally.get("results.exported") == 12


def test_an_export_that_does_not_return_shows(
    report: Reports, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By its age and that of the oldest result, and in the log."""
    may_return = threading.Event()

    def hang(_: list[str]) -> ExportResult:
        assert may_return.wait(LIMIT_S)
        return SENT

    queue = ExportQueue(Scripted(hang), Counters())
    queues = Exports([queue])
    queues.start()
    queues.export([report("scored")])
    ages = (
        count_name("results.oldest_s", exporter="otlp.logs"),
        count_name("exports.running_s", exporter="otlp.logs"),
    )
    wait_until(lambda: all(queues.counts()[age] > 0 for age in ages))
    queues.reopen()
    assert caplog.text == ""
    monkeypatch.setattr(queue_module, "_STUCK_S", 0.0)
    queues.reopen()
    assert "export to otlp.logs has been under way for" in caplog.text
    may_return.set()
    assert queues.drain(LIMIT_S)
    assert [queues.counts()[age] for age in ages] == [0.0, 0.0]
    queues.close(LIMIT_S)


class Unclosable(Scripted):
    """Refuses for now, and raises where it is closed."""

    def close(self, timeout_s: float) -> None:
        raise RuntimeError("secret content")


def test_an_exporter_that_cannot_be_closed_hides_no_loss_and_leaves_the_others_to_be_closed(
    numbered: Callable[[int], Report], caplog: pytest.LogCaptureFixture
):
    closed = threading.Event()

    class Next(Scripted):
        def close(self, timeout_s: float) -> None:
            closed.set()

    tally = Counters()
    broken = ExportQueue(Unclosable(lambda _: LATER), tally)
    delivery = Exports([broken, ExportQueue(Next(lambda _: SENT), Counters())])
    delivery.export([numbered(1)])
    delivery.close(0.1)  # the first one is retried for as long
    assert closed.wait(LIMIT_S)
    wait_until(lambda: tally.get("results.dropped") == 1)
    wait_until(lambda: "close of otlp.logs failed (RuntimeError)" in caplog.messages)
