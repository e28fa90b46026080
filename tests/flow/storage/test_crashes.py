"""Acknowledged spans are scored once, however the process ends."""

from __future__ import annotations

import random
import signal
import threading
import time
from collections.abc import Callable

import pytest

from tests.support.receiver_process import Served, request, twice, whole
from tests.support.waiting import STAYS_OPEN, wait_until

Make = Callable[..., Served]


def test_a_trace_that_was_acknowledged_is_scored_after_a_kill(served: Make) -> None:
    """Killed before the trace closed; the next process scores it. It is older than the directory:
    completeness `joined`.
    """
    receiver = served(traces=STAYS_OPEN)
    receiver.start()
    assert receiver.post(whole(1)) == 200
    receiver.end()
    assert receiver.rows() == []
    receiver.config["traces"] = {"decision_wait": "100ms"}
    receiver.start()
    (row,) = receiver.wait_for(1)
    assert (row["trace_id"], row["value"], row["completeness"], row["revision"]) == (
        f"{1:032x}",
        1.0,
        "joined",
        0,
    )


def test_spans_on_both_sides_of_a_kill_are_one_run(served: Make) -> None:
    """Four calls, two of them before the kill: their number is over the limit."""
    receiver = served()
    receiver.start()
    assert receiver.post(request((7, 2, 1, "search"), (7, 3, 1, "search"))) == 200
    receiver.end()
    receiver.start()
    assert receiver.post(request((7, 1, 0, ""), (7, 4, 1, "search"), (7, 5, 1, "search"))) == 200
    (row,) = receiver.wait_for(1)
    assert (row["value"], row["revision"]) == (0.0, 0)


def test_what_was_scored_is_not_scored_again(served: Make) -> None:
    """After a kill, and after a second one without anything new."""
    receiver = served()
    receiver.start()
    for trace in range(1, 6):
        assert receiver.post(whole(trace)) == 200
    receiver.wait_for(5)
    for later in (6, 7):
        receiver.end()
        receiver.start()
        receiver.insist(whole(later))
        receiver.wait_for(later)
    assert len(receiver.rows()) == 7


def test_a_span_that_comes_late_after_a_restart_makes_the_next_revision(served: Make) -> None:
    """There is never a second revision 0."""
    receiver = served()
    receiver.start()
    assert receiver.post(whole(1)) == 200
    receiver.wait_for(1)
    receiver.end()
    receiver.start()
    assert receiver.post(request((1, 9, 1, "search"))) == 200
    first, second = receiver.wait_for(2)
    assert [(row["revision"], row["value"]) for row in (first, second)] == [(0, 1.0), (1, 0.0)]


def test_a_span_that_comes_when_only_its_id_is_remembered_is_dropped_after_a_restart_too(
    served: Make,
) -> None:
    """It forms no run of its own; a row says that it was too late."""
    receiver = served(traces={"decision_wait": "50ms", "grace_period": "0s"})

    def results() -> list[tuple[int, int]]:
        rows = [row for row in receiver.rows() if row["reason"] != "late"]
        return [(int(row["trace_id"], 16), row["revision"]) for row in rows]

    receiver.start()
    assert receiver.post(whole(1)) == 200
    wait_until(lambda: results() == [(1, 0)])
    for other in (2, 3):  # the second start finds no segment with its spans
        receiver.end()
        receiver.start()
        receiver.insist(whole(other))
        wait_until(lambda: (other, 0) in results())  # noqa: B023
        assert receiver.post(request((1, 9, 0, ""))) == 200
    receiver.insist(whole(4))
    wait_until(lambda: (4, 0) in results())
    assert results() == [(trace, 0) for trace in range(1, 5)]
    assert {int(row["trace_id"], 16) for row in receiver.rows() if row["reason"] == "late"} == {1}


@pytest.mark.slow
def test_kills_at_any_moment_under_load_lose_nothing_and_double_nothing(served: Make) -> None:
    """Every acknowledged run has one result, and the right one."""
    receiver = served(
        traces={"decision_wait": "50ms", "decision_wait_partial": "100ms", "grace_period": "2s"}
    )
    rng = random.Random(3)
    taken: dict[int, int] = {}
    over = threading.Event()

    def load() -> None:
        trace = 0
        while not over.is_set():
            trace += 1
            tools = rng.randrange(1, 6)
            receiver.insist(whole(trace, tools))
            taken[trace] = tools

    receiver.start()
    sender = threading.Thread(target=load)
    sender.start()
    for _ in range(5):
        time.sleep(rng.uniform(0.1, 0.7))
        receiver.end()
        receiver.start()
    over.set()
    sender.join()
    rows = receiver.wait_for(len(taken))
    assert receiver.end(signal.SIGTERM) == 0
    assert twice(rows) == {}
    assert {int(row["trace_id"], 16): row["passed"] for row in rows} == {
        trace: tools <= 3 for trace, tools in taken.items()
    }
