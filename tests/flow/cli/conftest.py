"""The command line as a user or a script runs it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.fork_server import ForkServer
from tests.support.made_spans import json_document, json_span

ROOT = Path(__file__).parents[3]

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def otel_eval(fork_server: ForkServer, tmp_path: Path) -> Run:
    """Runs `otel-eval ...` in an empty folder, in a fork of a process that has imported it."""

    def run(
        *words: object, stdin: str = "", **environment: str
    ) -> subprocess.CompletedProcess[str]:
        return fork_server.run([*map(str, words)], tmp_path, {**os.environ, **environment}, stdin)

    return run


@pytest.fixture
def otel_eval_process(tmp_path: Path) -> Run:
    """Runs `python -m otel_eval ...` in an empty folder, where the start of the process itself is
    tested.
    """

    def run(
        *words: object, stdin: str = "", **environment: str
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "otel_eval", *map(str, words)],
            capture_output=True,
            text=True,
            input=stdin,
            cwd=tmp_path,
            timeout=300,
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[3]), **environment},
        )

    return run


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    """A recorded trace: two look-ups side by side, a booking that fails, one that succeeds."""
    path = tmp_path / "recorded.json"
    path.write_bytes((ROOT / "examples/demo_trace.json").read_bytes())
    return path


@pytest.fixture
def config(tmp_path: Path) -> Callable[..., Path]:
    """Writes a configuration of one evaluation."""

    def write(*scorers: str, more: str = "") -> Path:
        path = tmp_path / "eval.yaml"
        lines = [
            "evaluations:",
            "  - name: one",
            "    scorers:",
            *(f"      - {scorer}" for scorer in scorers),
            more,
        ]
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
        return path

    return write


@pytest.fixture
def traced(tmp_path: Path) -> Callable[..., Path]:
    """Writes a file of one trace: spans as (id, parent, attributes); an id is 16 times one hex
    digit.
    """

    def write(
        *spans: tuple[str, str, dict[str, str]], scope: str = "my.agent", name: str = "trace.json"
    ) -> Path:
        made = [
            json_span(
                *(int("ab" * 16, 16), int(span_id * 16, 16), 0, f"step {span_id}"),
                start_ns=1_700_000_000_000_000_000 + place,
                end_ns=1_700_000_001_000_000_000 - place,
                attributes=attributes,
                parentSpanId=parent * 16,
            )
            for place, (span_id, parent, attributes) in enumerate(spans)
        ]
        document = json_document(made, scope={"name": scope})
        (tmp_path / name).write_text(json.dumps(document), encoding="utf-8")
        return tmp_path / name

    return write
