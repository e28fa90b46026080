"""The examples and the demonstration run as they are."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def run(*words: str) -> subprocess.CompletedProcess[str]:
    """Python in a process of its own."""
    return subprocess.run(
        [sys.executable, *words],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=55,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )


def test_the_processor_writes_scores_to_the_log_pipeline() -> None:
    """One event for each of its two scorers."""
    done = run("examples/processor.py")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count('"gen_ai.evaluation.result"') == 2
    assert '"tool_call_order"' in done.stdout


def test_the_exporter_writes_scores_on_the_runs_span() -> None:
    """Three spans, and one event for each of the two scorers on the last of them."""
    done = run("examples/exporter.py")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count('"span_id"') == 3
    assert done.stdout.partition("invoke_agent support")[2].count('"gen_ai.evaluation.result"') == 2


def test_the_receiver_prints_a_line_for_each_score() -> None:
    """From spans that came over gRPC."""
    done = run("examples/receiver.py")
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert (done.returncode, done.stderr) == (0, "")
    assert [(row["scorer"], row["outcome"], row["value"] > 0.5) for row in rows] == [
        ("tool_errors", "scored", True),
        ("time_cost", "scored", True),
    ]


@pytest.mark.parametrize("said", ["get_weather", "book_flight", "error ValueError", "weather-before-booking", "travel_agent"])
def test_the_demonstration_shows_runs_and_scores(demonstration: str, said: str) -> None:
    """Both runs with their calls and their scores."""
    assert said in demonstration


@pytest.fixture(scope="module")
def demonstration() -> str:
    """What `make demo` prints."""
    done = run("-m", "otel_eval.demo")
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout
