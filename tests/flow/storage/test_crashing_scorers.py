"""A trace that crashes the process is evaluated at most twice, and other traces are scored as
without it.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.receiver_process import ENVIRONMENT, Served, request, twice, whole
from tests.support.waiting import STAYS_OPEN, wait_until

Make = Callable[..., Served]
SCORERS = [
    {"type": "tool_call_count", "criteria": {"search": "<= 3"}},
    {"type": "lethal:dies", "name": "dies"},
]
POISON = 500


def lethal(trace: int, way: str) -> bytes:
    """Return a run whose scorer ends the process in the given way."""
    return request((trace, 1, 0, ""), (trace, 2, 1, way), (trace, 3, 1, "search"))


@pytest.fixture
def receiver(served: Make) -> Served:
    """A receiver with a scorer that ends the process, and one that does not."""
    return prepared(
        served(evaluations=[{"name": "e", "scorers": SCORERS}], traces={"decision_wait": "500ms"})
    )


def prepared(made: Served) -> Served:
    here = str(Path(__file__).parent)
    made.environment = {
        "PYTHONPATH": os.pathsep.join((ENVIRONMENT["PYTHONPATH"], here)),
        "LETHAL_NOTES": str(made.folder / "asked"),
    }
    return made


def asked(receiver: Served) -> int:
    """Return how often the scorer was called with a run that ends the process."""
    note = receiver.folder / "asked"
    return len(note.read_text().splitlines()) if note.exists() else 0


def dead_letters(receiver: Served) -> list[dict[str, Any]]:
    path = receiver.storage / "dead_letter.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def die(receiver: Served) -> None:
    """Wait until a scorer has ended the process."""
    assert receiver.process is not None
    assert receiver.process.wait(300) != 0


def start_and_die(receiver: Served) -> None:
    """Start a process that may end before it is ready, and wait for its end."""
    try:
        receiver.start()
    except AssertionError:
        """It ended before `start` found it ready."""
    die(receiver)


@pytest.mark.slow
@pytest.mark.parametrize("way", ["sigkill", "exit", "segfault", "abort"])
def test_a_trace_that_ends_the_process_twice_is_a_dead_letter_and_costs_no_other(
    receiver: Served, way: str
) -> None:
    """Thirty other traces arrive before and after it, and each is scored once."""
    before, after = range(1, 16), range(600, 615)
    others = [*before, *after]
    receiver.leave_open(*map(whole, before), lethal(POISON, way), *map(whole, after))
    start_and_die(receiver)
    start_and_die(receiver)
    receiver.start()
    rows = receiver.wait_for(2 * len(others))
    wait_until(lambda: len(dead_letters(receiver)) >= 2)
    assert receiver.process is not None
    assert receiver.process.poll() is None
    assert asked(receiver) == 2
    assert twice(receiver.rows()) == {}
    assert {int(row["trace_id"], 16) for row in receiver.rows()} == set(others)
    assert {(row["scorer"], row["outcome"], row["value"]) for row in rows} == {
        ("tool_call_count", "scored", 1.0),
        ("dies", "scored", 1.0),
    }
    letters = dead_letters(receiver)
    assert [(row["scorer"], row["outcome"], row["error_type"]) for row in letters] == [
        ("tool_call_count", "failed", "crashed"),
        ("dies", "failed", "crashed"),
    ]
    assert {
        (row["trace_id"], row["evaluation"], row["agent"], row["revision"]) for row in letters
    } == {(f"{POISON:032x}", "e", "seller", 0)}
    assert len({row["result_id"] for row in letters}) == 2
    assert (
        sum(
            f"{POISON:032x}" in line
            for line in receiver.said().splitlines()
            if "not evaluated again" in line
        )
        == 1
    )
    # It stays that way: over a kill, a stop, and a span that comes late.
    receiver.end()
    receiver.start()
    assert receiver.post(request((POISON, 9, 1, "search"))) == 200
    assert receiver.post(whole(700)) == 200
    receiver.wait_for(2 * len(others) + 2)
    assert receiver.end(signal.SIGTERM) == 0
    assert asked(receiver) == 2
    assert {row["revision"] for row in dead_letters(receiver)} <= {0, 1}


@pytest.mark.slow
def test_several_lethal_traces_cost_two_crashes_each(receiver: Served) -> None:
    """In any order among the others."""
    ways = {POISON: "exit", POISON + 1: "sigkill", POISON + 2: "exit"}
    traces = [*range(1, 6), POISON, 6, POISON + 1, *range(7, 10), POISON + 2]
    receiver.leave_open(
        *(lethal(trace, ways[trace]) if trace in ways else whole(trace) for trace in traces)
    )
    for _ in range(2 * len(ways)):
        start_and_die(receiver)
    receiver.start()
    receiver.wait_for(2 * (len(traces) - len(ways)))
    wait_until(lambda: len(dead_letters(receiver)) >= 2 * len(ways))
    assert {int(row["trace_id"], 16) for row in dead_letters(receiver)} == ways.keys()
    assert {int(row["trace_id"], 16) for row in receiver.rows()} == {*traces} - ways.keys()
    assert twice(receiver.rows()) == {}


@pytest.mark.slow
def test_an_orderly_stop_during_an_evaluation_does_not_count(receiver: Served) -> None:
    """Nor does a reload of the configuration. The run is evaluated at every start."""
    receiver.config["async_scoring"] = {"scorer_timeout": "1h"}
    receiver.start()
    assert receiver.post(lethal(POISON, "hang")) == 200
    for turn in (1, 2, 3):
        wait_until(lambda turn=turn: asked(receiver) >= turn)
        assert receiver.process is not None
        receiver.process.send_signal(signal.SIGHUP)
        wait_until(lambda: "reload: done" in receiver.said())
        receiver.end(signal.SIGTERM)
        if turn < 3:
            receiver.start()
    assert dead_letters(receiver) == []


@pytest.mark.slow
def test_results_are_exported_where_they_cannot_be_written_to_the_dead_letter_file(
    receiver: Served,
) -> None:
    """They are exported once, as failed."""
    receiver.config["exporters"]["dead_letter"] = "/dev/full"
    receiver.start()
    assert receiver.post(lethal(POISON, "exit")) == 200
    die(receiver)
    start_and_die(receiver)
    receiver.start()
    rows = receiver.wait_for(2)
    assert {(row["scorer"], row["outcome"], row["error_type"]) for row in rows} == {
        ("tool_call_count", "failed", "crashed"),
        ("dies", "failed", "crashed"),
    }


def test_a_kill_during_an_evaluation_counts(receiver: Served) -> None:
    """Like that of an orchestrator which finds the process unhealthy."""
    receiver.config["async_scoring"] = {"scorer_timeout": "1h"}
    receiver.start()
    assert receiver.post(lethal(POISON, "hang")) == 200
    for turn in (1, 2):
        wait_until(lambda turn=turn: asked(receiver) == turn)
        receiver.end()
        receiver.start()
    wait_until(lambda: dead_letters(receiver))
    assert asked(receiver) == 2


@pytest.mark.slow
def test_a_process_that_cannot_handle_sigterm_and_is_killed_counts(receiver: Served) -> None:
    """Like an orchestrator whose liveness probe gets no answer: SIGTERM, a wait, SIGKILL."""
    receiver.leave_open(lethal(POISON, "freeze"), whole(1))
    receiver.start(awaited=False)
    for turn in (1, 2):
        wait_until(lambda turn=turn: asked(receiver) == turn)
        assert receiver.process is not None
        receiver.process.send_signal(signal.SIGTERM)
        assert receiver.process.poll() is None
        receiver.end()
        receiver.start(awaited=turn == 2)
    assert len(receiver.wait_for(2)) == 2
    wait_until(lambda: dead_letters(receiver))
    assert asked(receiver) == 2


def test_a_kill_while_nothing_of_it_is_evaluated_does_not_count(receiver: Served) -> None:
    """Not even if there are many kills."""
    receiver.config["traces"] = STAYS_OPEN
    receiver.start()
    assert receiver.post(whole(1)) == 200
    for _ in range(3):
        receiver.end()
        receiver.start()
    receiver.end()
    receiver.config["traces"] = {"decision_wait": "100ms"}
    receiver.start()
    receiver.wait_for(2)
    assert dead_letters(receiver) == []


@pytest.mark.slow
def test_a_scorer_that_is_waited_for_and_ends_the_process_is_given_up_too(receiver: Served) -> None:
    """Its result goes to the dead-letter file; those of other scorers and traces are exported
    once.
    """
    later = {"type": "lethal:dies_later", "name": "later"}
    receiver.config["evaluations"] = [{"name": "e", "scorers": [SCORERS[0], later]}]
    others = range(1, 11)
    receiver.leave_open(*map(whole, others), lethal(POISON, "exit"))
    start_and_die(receiver)
    start_and_die(receiver)
    receiver.start()
    receiver.wait_for(2 * len(others) + 1)
    wait_until(lambda: dead_letters(receiver))
    for again in (11, 12):  # it stays that way
        receiver.end()
        receiver.start()
        receiver.insist(whole(again))
        receiver.wait_for(2 * again + 1)
    others = range(1, 13)
    rows = receiver.rows()
    assert twice(rows) == {}
    assert asked(receiver) == 2
    expected = {(trace, scorer) for trace in others for scorer in ("tool_call_count", "later")} | {
        (POISON, "tool_call_count")
    }
    assert {(int(row["trace_id"], 16), row["scorer"]) for row in rows} == expected
    assert {row["outcome"] for row in rows} == {"scored"}
    # A kill between writing a dead letter and journaling that has it written again, with the same
    # id.
    letters = {
        (row["result_id"], row["scorer"], row["outcome"], row["error_type"])
        for row in dead_letters(receiver)
    }
    assert [row[1:] for row in letters] == [("later", "failed", "crashed")]


@pytest.mark.parametrize("name", ["dies", "later"])
def test_a_trace_that_ends_the_process_once_is_scored(receiver: Served, name: str) -> None:
    """By `--drain` as by a normal start."""
    kind = {"dies": "lethal:dies", "later": "lethal:dies_later"}[name]
    receiver.config["evaluations"] = [
        {"name": "e", "scorers": [SCORERS[0], {"type": kind, "name": name}]}
    ]
    receiver.leave_open(whole(1), lethal(POISON, "exit once"), whole(2))
    start_and_die(receiver)
    command = [
        sys.executable,
        "-m",
        "otel_eval",
        "serve",
        "--config",
        str(receiver.folder / "eval.json"),
        "--drain",
    ]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=300,
        env=ENVIRONMENT | receiver.environment,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    rows = receiver.rows()
    assert twice(rows) == {}
    assert {(int(row["trace_id"], 16), row["scorer"], row["outcome"]) for row in rows} == {
        (trace, scorer, "scored")
        for trace in (1, 2, POISON)
        for scorer in ("tool_call_count", name)
    }
    assert dead_letters(receiver) == []
    assert asked(receiver) == 2
