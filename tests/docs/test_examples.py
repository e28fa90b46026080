"""The examples and the demonstration run as they are."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from otel_eval.app.server import Server
from otel_eval.config import load
from otel_eval.config.yaml_text import parse
from otel_eval.model import Scored
from otel_eval.testing import trajectory
from tests.support.doc_pages import ROOT, page
from tests.support.fork_server import FORKS
from tests.support.otlp_backend import ANYWHERE

ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"


def run(*words: str) -> subprocess.CompletedProcess[str]:
    """Python in a process of its own."""
    words = words[2:] if words[:2] == ("-m", "otel_eval") else words
    return FORKS.run(words, ROOT, {**os.environ, "PYTHONPATH": str(ROOT)})


def printed(done: subprocess.CompletedProcess[str]) -> list[list[str]]:
    """The words of each line that an example printed, without the times of runs."""
    assert (done.returncode, done.stderr) == (0, "")
    return [
        line.split()[1:] if re.match(r"\d\d:\d\d:\d\dZ ", line) else line.split()
        for line in done.stdout.splitlines()
    ]


def test_the_processor_prints_a_line_for_each_run() -> None:
    """And a row for the score that did not pass, whose reason takes two lines."""
    passed, failed, row, _ = printed(run("examples/processor.py"))
    assert passed == ["support", "3", "calls", "pass", "support"]
    assert failed == ["support", "3", "calls", "not", "passed", "support"]
    assert row[:4] == ["tool_call_order", "0.667", "not", "passed"]


def test_the_exporter_writes_scores_on_the_runs_span() -> None:
    """Three spans, and one event for each of the two scorers on the last of them."""
    done = run("examples/exporter.py")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count('"span_id"') == 3
    assert done.stdout.partition("invoke_agent support")[2].count('"gen_ai.evaluation.result"') == 2


def test_the_receiver_prints_a_line_for_a_run_that_came_over_grpc() -> None:
    assert printed(run("examples/receiver.py")) == [["support", "1", "call", "pass", "support"]]


@pytest.mark.parametrize("name", ["phoenix", "mlflow"])
def test_busy_agents_have_scores_to_look_at(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every scorer of the configurations for dashboards has passes and failures, and one agent
    never passes.
    """
    given = parse((ROOT / f"examples/{name}.yaml").read_text(encoding="utf-8"), where=name)
    results = tmp_path / "results.jsonl"
    server = Server(
        load({**given, "receivers": ANYWHERE, "exporters": {"jsonl": {"path": str(results)}}})
    )
    try:
        monkeypatch.setenv(ENDPOINT, f"http://{server.start().http}")
        done = run("examples/busy_agents.py")
        assert (done.returncode, done.stderr) == (0, "")
    finally:
        server.stop(60.0)
    rows = [json.loads(line) for line in results.read_text(encoding="utf-8").splitlines()]
    found = {(row["scorer"], row["passed"]) for row in rows}
    assert found == {
        (scorer, passed)
        for scorer in ("tool_errors", "redundant_calls", "looks_up_first")
        for passed in (True, False)
    }
    assert {
        row["passed"] for row in rows if (row["agent"], row["scorer"]) == ("archive", "tool_errors")
    } == {False}


def test_the_judges_score_comes_after_the_others() -> None:
    """From a judge that is a script."""
    first, _, second, row = printed(run("examples/judge.py"))
    assert first == ["invoke_agent", "1", "call", "pending", "support"]
    assert second == ["invoke_agent", "1", "call", "pass", "support"]
    assert row[:3] == ["looked-up", "1.000", "pass"]


def test_the_backend_behind_us_receives_scores_on_the_runs_span() -> None:
    """As the page on forwarding shows; ids differ from run to run."""
    done = run("examples/forwarding.py")
    assert (done.returncode, done.stderr) == (0, "")
    assert f"```text\n{masked(done.stdout)}```" in masked(page("forwarding"))


def masked(text: str) -> str:
    """Without what is new in each run."""
    text = re.sub(r"\b(?:[0-9a-f]{32}|[0-9a-f]{16})\b", "<id>", text)
    text = re.sub(r"\d{4}-\d\d-\d\dT[0-9:.]+Z", "<time>", text)
    return re.sub(r"(duration_ms: )[0-9.]+", r"\1<number>", text)


def test_a_scorer_of_ones_own_scores() -> None:
    """By hand: kept, broken, not told; and broken in a traced run."""
    done = run("examples/custom_scorer.py")
    assert (done.returncode, done.stderr) == (0, "")
    *by_hand, _, row = done.stdout.splitlines()
    beginnings = ["Scored(value=1.0,", "Scored(value=0.0,", "Skipped(explanation='an "]
    assert [line[: len(words)] for line, words in zip(by_hand, beginnings, strict=True)] == (
        beginnings
    )
    assert row.split()[:4] == ["asks_before_paying", "0.000", "not", "passed"]


def test_a_table_of_ones_own_is_the_same_in_yaml_and_in_python() -> None:
    """Nothing is understood without it."""
    done = run("examples/custom_convention.py")
    assert (done.returncode, done.stderr) == (0, "")
    nothing, *lines = done.stdout.splitlines()
    assert nothing == "without a table: []"
    understood = [
        "clerk search {'order': 7} -> {'hits': 2} ",
        "clerk refund {'order': 7} -> no such order ToolError(type='_OTHER', message='')",
    ]
    assert lines == [f"{way} {line}" for way in ("in YAML", "in Python") for line in understood]


AGENT = {
    "traceId": "1" * 32,
    "spanId": "1" * 16,
    "name": "invoke_agent travel_agent",
    "startTimeUnixNano": "1700000000000000000",
    "endTimeUnixNano": "1700000002000000000",
    "attributes": [{"key": "gen_ai.operation.name", "value": {"stringValue": "invoke_agent"}}],
}
BOOKED_BLINDLY = {
    "traceId": "1" * 32,
    "spanId": "2" * 16,
    "parentSpanId": "1" * 16,
    "name": "execute_tool book_flight",
    "startTimeUnixNano": "1700000000000000000",
    "endTimeUnixNano": "1700000001000000000",
    "attributes": [
        {"key": "gen_ai.operation.name", "value": {"stringValue": "execute_tool"}},
        {"key": "gen_ai.tool.name", "value": {"stringValue": "book_flight"}},
    ],
}


def test_stored_traces_are_held_against_a_policy(tmp_path: Path) -> None:
    """The exit code tells CI: kept, broken, not to be used, nothing evaluated."""
    empty = tmp_path / "empty.json"
    plain = {**BOOKED_BLINDLY, "attributes": []}
    empty.write_text(
        json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": [plain]}]}]}), encoding="utf-8"
    )
    broken = tmp_path / "broken.json"
    broken.write_text(
        json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": [AGENT, BOOKED_BLINDLY]}]}]}),
        encoding="utf-8",
    )
    done = [
        run("examples/replay_in_ci.py", *files)
        for files in ([], [str(broken)], ["no-such-file.json"], [str(empty)])
    ]
    assert [each.returncode for each in done] == [0, 1, 2, 3]
    assert "precedence 1.00 passed" in done[0].stdout
    assert "required_tools 0.00 did not pass" in done[1].stdout
    assert [each.stderr for each in done] == [
        "",
        "",
        "no-such-file.json: No such file or directory\n",
        "",
    ]


def test_every_example_is_run() -> None:
    """And told of on the page about them."""
    elsewhere = ("tests/flow/zero_code/test_zero_code.py", "tests/frameworks/test_duckdb.py")
    tests = "".join(
        path.read_text(encoding="utf-8")
        for path in (Path(__file__), *(ROOT / name for name in elsewhere))
    )
    names = [path.name for path in (ROOT / "examples").glob("*.py")]
    assert [
        name
        for name in names
        if f"examples/{name}" not in tests or f"../examples/{name})" not in page("examples")
    ] == []


@pytest.mark.parametrize(
    "said",
    ["get_weather", "book_flight", "error ValueError", "weather-before-booking", "travel_agent"],
)
def test_the_demonstration_shows_runs_and_scores(demonstration: str, said: str) -> None:
    """Both runs with their calls and their scores."""
    assert said in demonstration


def test_the_demonstration_ends_with_a_command_that_goes_on(demonstration: str) -> None:
    command = demonstration.splitlines()[-2].split()
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert "1 trace, 1 with an agent run" in done.stdout


def test_busy_agents_fail_in_one_line_if_nothing_was_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    """One server does not answer, the other one takes no spans."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        monkeypatch.setenv(ENDPOINT, f"http://127.0.0.1:{unused.getsockname()[1]}")
        silent = run("examples/busy_agents.py")
    with HTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as refusing:
        threading.Thread(target=refusing.serve_forever, args=(0.05,)).start()
        monkeypatch.setenv(ENDPOINT, f"http://127.0.0.1:{refusing.server_port}")
        refused = run("examples/busy_agents.py", "1")
        refusing.shutdown()
    assert (silent.returncode, refused.returncode) == (1, 1)
    assert silent.stderr.startswith("nothing was sent: http://127.0.0.1:")
    assert refused.stderr.startswith("3 spans were not accepted by http://127.0.0.1:")
    assert [len(done.stderr.splitlines()) for done in (silent, refused)] == [1, 1]


@pytest.fixture(scope="module")
def demonstration() -> str:
    """What `make demo` prints."""
    done = run("examples/demo.py")
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_the_meeting_summarys_tree_is_walked_with_a_judge_of_ones_own() -> None:
    """The three summaries of the example: all good, two headings out of order, one missing."""
    done = run("examples/meeting_summary.py")
    assert (done.returncode, done.stderr) == (0, "")
    assert [line.split()[0] for line in done.stdout.splitlines()] == ["1.0", "0.4", "0.0"]


SUMMARIES = [
    ("Intro\nx\nBody\ny\nConclusion\nz", 1.0),
    ("Body\nx\nIntro\ny\nConclusion\nz", 0.4),
    ("Body\nx\nConclusion\ny\nIntro\nz", 0.2),
    ("Intro\nx\nBody\ny", 0.0),
]


@pytest.mark.parametrize(("summary", "value"), SUMMARIES)
def test_the_meeting_summarys_tree_of_expressions_needs_no_judge(
    summary: str, value: float
) -> None:
    """As it stands in the file."""
    (scorer,) = load(ROOT / "examples/meeting_summary.yaml").evaluations[0].build()
    outcome = scorer(trajectory(output=summary))
    assert isinstance(outcome, Scored)
    assert outcome.value == value


@pytest.mark.parametrize("name", ["meeting_summary", "meeting_summary_judged"])
def test_the_meeting_summarys_trees_are_drawn(name: str) -> None:
    """Neither a judge nor its key is needed for that."""
    done = run("-m", "otel_eval", "dag", f"examples/{name}.yaml")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("%% meeting-summary / format-correctness\nflowchart TD\n")
    assert done.stdout.count("-->") == 5
