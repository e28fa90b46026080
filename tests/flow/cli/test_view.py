"""`otel-eval view` as a process: the page of stored runs, until it is interrupted."""

from __future__ import annotations

import json
import os
import re
import signal
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import ProxyHandler, Request, build_opener

import pytest

from tests.support.fork_server import FORKS, ForkServer
from tests.support.waiting import LIMIT_S

ROOT = Path(__file__).parents[3]
TRACE = ROOT / "tests" / "traces" / "langgraph_supervisor_openinference.json"


def page_of(*words: str) -> tuple[dict[str, Any], int]:
    """The data of the page, and the exit code after Ctrl-C."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with FORKS.start_piped(["view", *words], ROOT, environment) as process:
        line = process.stdout.readline()
        assert line, process.stderr.read()
        address = line.split()[0]
        opener = build_opener(ProxyHandler({}))
        with opener.open(address, timeout=300) as answer:
            page = answer.read().decode()
        with pytest.raises(HTTPError, match="421"):
            opener.open(Request(address, headers={"Host": "evil.example"}), timeout=300)
        with pytest.raises(HTTPError, match="404"):
            opener.open(f"{address}events", timeout=300)
        process.send_signal(signal.SIGINT)
        return data_of(page), process.wait(LIMIT_S)


def data_of(page: str) -> dict[str, Any]:
    """What the page has in it."""
    (text,) = re.findall(r'<script id="data" type="application/json">(.*?)</script>', page, re.S)
    found: dict[str, Any] = json.loads(text)
    return found


def test_traces_are_scored_and_shown_with_their_calls(tmp_path: Path) -> None:
    config = tmp_path / "eval.yaml"
    config.write_text("evaluations: [{name: e, scorers: [{type: tool_errors}]}]\n")
    data, code = page_of(str(TRACE), "--config", str(config))
    assert code == 0
    assert TRACE.name in data["title"]
    (run,) = data["runs"]
    assert "calls" in run[0]
    assert "start_ms" in json.dumps(run)


def test_results_are_shown_without_a_configuration(tmp_path: Path, fork_server: ForkServer) -> None:
    done = fork_server.run(["replay", str(TRACE), "--format", "json"], tmp_path, os.environ)
    results = tmp_path / "results.jsonl"
    results.write_text(done.stdout)
    data, code = page_of(str(results))
    (run,) = data["runs"]
    assert (code, run[1 + run[0].index("calls")]) == (0, None)


def test_traces_need_a_configuration(tmp_path: Path, fork_server: ForkServer) -> None:
    words = ["view", str(TRACE)]
    done = fork_server.run(words, tmp_path, os.environ)
    assert done.returncode == 2
    assert "--config" in done.stderr
    done = fork_server.run([*words, "--endpoint", "0.0.0.0:0"], tmp_path, os.environ)
    assert done.returncode == 2
    assert "other machines" in done.stderr


def test_a_report_is_one_file_with_the_runs_in_it(tmp_path: Path, fork_server: ForkServer) -> None:
    report = tmp_path / "report.html"
    words = ["replay", str(TRACE), "--format", "html", "--output", str(report)]
    done = fork_server.run(words, tmp_path, os.environ)
    assert done.returncode in (0, 1), done.stderr
    data = data_of(report.read_text())
    (run,) = data["runs"]
    assert data["title"] == TRACE.name
    assert "start_ms" in json.dumps(run)
    fork_server.run([*words, "--max-runs", "0", "--not-passed"], tmp_path, os.environ)
    runs = json.dumps(data_of(report.read_text())["runs"])
    assert ("not_passed" in runs) == ("start_ms" in runs)
