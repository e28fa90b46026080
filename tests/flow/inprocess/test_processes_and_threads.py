"""Programs with many processes, threads and loops, servers that fork, errors, and processes that
are killed.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider

from otel_eval import EvalSpanProcessor

HERE = Path(__file__).parent
unix = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")


def live(how: str, results: Path, *, code: int = 0) -> tuple[list[dict[str, Any]], str]:
    """The program of `concurrent_program.py`; rows of its results and what it says on stderr."""
    command = [
        sys.executable,
        "-W",
        "ignore",
        str(HERE / "concurrent_program.py"),
        how,
        str(results),
    ]
    path = str(HERE.parents[2])
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=300, env={**os.environ, "PYTHONPATH": path}
    )
    assert done.returncode == code, done.stderr
    return [json.loads(line) for line in results.read_text().splitlines()], done.stderr


def agents(rows: list[dict[str, Any]]) -> list[str]:
    """Whose runs were scored, and that each was whole."""
    assert {(row["outcome"], row["value"], row["completeness"]) for row in rows} == {
        ("scored", 1.0, "complete")
    }
    return sorted(row["agent"] for row in rows)


@unix
@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
@pytest.mark.slow
def test_every_process_of_multiprocessing_scores_its_own_runs(method: str, tmp_path: Path):
    """Each once: those before and after of the parent, and each child's."""
    rows, errors = live(method, tmp_path / "results.jsonl")
    assert agents(rows) == ["after", "before", "child 0", "child 1", "child 2"]
    assert errors == ""


def test_scoring_loads_no_module(tmp_path: Path):
    """A process that forks while a thread imports leaves a child with half a module."""
    rows, loaded = live("imports", tmp_path / "results.jsonl")
    assert agents(rows) == ["first"]
    assert loaded.split() == []


@unix
def test_workers_that_a_server_forks_score_what_they_serve(tmp_path: Path):
    """What is set up before the fork works after it; the last scores arrive without a flush."""
    rows, errors = live("prefork", tmp_path / "results.jsonl")
    assert agents(rows) == [
        "after",
        "before",
        *(f"worker {n} turn {m}" for n in range(3) for m in range(4)),
    ]
    assert errors == ""


@unix
def test_a_child_scores_its_runs_below_a_span_of_the_parent(tmp_path: Path):
    """It does not wait for the end of that span, which the child never sees."""
    rows, errors = live("fork_inside", tmp_path / "results.jsonl")
    scored = [
        (row["agent"], row["outcome"], row["completeness"])
        for row in rows
        if row["outcome"] != "no_run"
    ]
    assert scored == [("child", "scored", "detached")]
    assert "Traceback" not in errors


@unix
def test_a_child_that_is_forked_while_a_file_is_written_uses_what_the_parent_read(tmp_path: Path):
    """One warning; the child shares no lock with the parent."""
    rows, errors = live("fork_amid_change", tmp_path / "results.jsonl")
    assert [(row["agent"], row["value"]) for row in rows] == [("child", 1.0)]
    assert len(errors.splitlines()) == 1
    assert errors.rstrip().endswith(
        "line 1 is not JSON; write one object a line; this child process keeps what its parent read"
    )


@unix
def test_a_fork_amid_busy_threads_leaves_no_lock_held(tmp_path: Path):
    """Ten children, forked while three threads run agents."""
    rows, errors = live("forked_amid_threads", tmp_path / "results.jsonl")
    assert [name for name in agents(rows) if name.startswith("child")] == [
        f"child {n}" for n in range(10)
    ]
    assert len({row["result_id"] for row in rows}) == len(rows)
    assert errors == ""


def test_loops_and_threads_together_keep_their_runs_apart(tmp_path: Path):
    """Tools in threads belong to the run of the loop that sent them there."""
    rows, errors = live("threads", tmp_path / "results.jsonl")
    assert agents(rows) == sorted(f"{where} {n}" for where in ("loop", "thread") for n in range(10))
    assert {row["details"]["total"] for row in rows} == {5}
    assert errors == ""


def test_a_sudden_end_loses_what_was_not_flushed_and_does_not_hang(tmp_path: Path):
    """The exit code is the program's."""
    rows, errors = live("at_once", tmp_path / "results.jsonl", code=7)
    assert agents(rows) == ["flushed"]
    assert errors == ""


def test_an_agent_that_raises_is_scored_and_its_error_is_its_own(tmp_path: Path):
    """The traceback names no line of ours."""
    rows, errors = live("raises", tmp_path / "results.jsonl", code=1)
    assert agents(rows) == ["fails"]
    assert errors.rstrip().endswith("LookupError: the agent's own")
    assert "otel_eval" not in errors


def processor(results: Path) -> EvalSpanProcessor:
    """One that writes into a file."""
    return EvalSpanProcessor(
        {
            "evaluations": [{"name": "e", "scorers": [{"type": "tool_errors"}]}],
            "exporters": {"jsonl": {"path": str(results)}},
        }
    )


def act(provider: TracerProvider, *names: str) -> None:
    """Runs of the agents."""
    tracer = provider.get_tracer("agent")
    for name in names:
        agent_attributes = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": name}
        with tracer.start_as_current_span(f"invoke_agent {name}", attributes=agent_attributes):
            call = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "search"}
            with tracer.start_as_current_span("execute_tool search", attributes=call):
                pass


def scored(results: Path) -> list[str]:
    return [json.loads(line)["agent"] for line in results.read_text().splitlines()]


def test_providers_of_one_process_do_not_know_each_other(tmp_path: Path):
    """Three, each with a processor of its own; ending one ends no other."""
    files = [tmp_path / f"{n}.jsonl" for n in range(3)]
    providers = [TracerProvider(shutdown_on_exit=False) for _ in files]
    for provider, file in zip(providers, files, strict=True):
        provider.add_span_processor(processor(file))
    for number, provider in enumerate(providers):
        act(provider, f"first {number}")
    providers[0].shutdown()
    for number, provider in enumerate(providers):
        act(provider, f"second {number}")
        provider.shutdown()
    assert [scored(file) for file in files] == [
        ["first 0"],
        ["first 1", "second 1"],
        ["first 2", "second 2"],
    ]


def test_one_processor_may_serve_several_providers(tmp_path: Path):
    """Runs of both are scored; it ends with the first that ends, and takes that in silence."""
    shared, results = processor(tmp_path / "results.jsonl"), tmp_path / "results.jsonl"
    providers = [TracerProvider(shutdown_on_exit=False) for _ in range(2)]
    for number, provider in enumerate(providers):
        provider.add_span_processor(shared)
        act(provider, f"of {number}")
    providers[0].shutdown()
    act(providers[1], "too late")
    providers[1].shutdown()
    assert sorted(scored(results)) == ["of 0", "of 1"]


def test_a_processor_added_late_scores_what_begins_then(tmp_path: Path):
    """What ended before is not its business."""
    provider, results = TracerProvider(shutdown_on_exit=False), tmp_path / "results.jsonl"
    act(provider, "before")
    provider.add_span_processor(processor(results))
    act(provider, "after")
    provider.shutdown()
    assert scored(results) == ["after"]


def test_a_processor_that_was_removed_lets_go_of_the_program(tmp_path: Path):
    """Taken out of the provider's list and shut down: what it had is scored, what comes is not, and
    a new one may follow.
    """
    provider, first, second = (
        TracerProvider(shutdown_on_exit=False),
        tmp_path / "first.jsonl",
        tmp_path / "second.jsonl",
    )
    ours = processor(first)
    provider.add_span_processor(ours)
    act(provider, "with it")
    everybody = provider._active_span_processor
    everybody._span_processors = tuple(
        each for each in everybody._span_processors if each is not ours
    )
    ours.shutdown()
    act(provider, "without it")
    provider.add_span_processor(processor(second))
    act(provider, "with another")
    provider.shutdown()
    assert (scored(first), scored(second)) == (["with it"], ["with another"])
    assert "spans_after_shutdown" not in ours.counts()


def test_a_second_shutdown_does_nothing(tmp_path: Path):
    """Nor does a flush after it, or a span."""
    provider, results = TracerProvider(shutdown_on_exit=False), tmp_path / "results.jsonl"
    ours = processor(results)
    provider.add_span_processor(ours)
    act(provider, "once")
    ours.shutdown()
    ours.shutdown()
    assert ours.force_flush(300_000)
    act(provider, "after")
    provider.shutdown()
    assert scored(results) == ["once"]
    assert ours.counts()["spans_after_shutdown"] == 2
