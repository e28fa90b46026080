"""The pytest plugin, in sessions of pytest of their own."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[3]
AGENT = """
import threading
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider

TOOL = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.call.arguments": '{"city": "Rome"}'}

def agent(*tools, tracer=None, gate=None, begun=None):
    tracer = tracer or trace.get_tracer("agent")
    named = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "clerk"}
    with tracer.start_as_current_span("invoke_agent clerk", attributes=named):
        if begun is not None:
            begun.set()
        if gate is not None:
            gate.wait(300)
        for tool in tools:
            tracer.start_span("tool", attributes={**TOOL, "gen_ai.tool.name": tool}).end()
"""


class Session:
    """A finished session of pytest.

    Attributes:
        code: its exit code.
        out: what it printed on both streams.
        documents: the lines of its report.
    """

    def __init__(self, folder: Path, *options: str, content: str = "") -> None:
        (folder / "agents.py").write_text(AGENT, encoding="utf-8")
        if content:
            (folder / "test_agents.py").write_text(
                "import asyncio, threading, pytest\nfrom agents import *\n" + content,
                encoding="utf-8",
            )
        report = folder / "report.jsonl"
        environment = {**os.environ, "PYTHONPATH": f"{folder}{os.pathsep}{ROOT}"}
        plugins = ["-p", "otel_eval.pytest_plugin", "-p", "no:cacheprovider"]
        words = ["-q", *plugins, "--otel-eval-report", str(report), *options]
        done = subprocess.run(
            [sys.executable, "-m", "pytest", *words],
            cwd=folder,
            env={**environment, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
        self.code, self.out = done.returncode, done.stdout + done.stderr
        self.documents: list[dict[str, Any]] = (
            [json.loads(line) for line in report.read_text(encoding="utf-8").splitlines()]
            if report.exists()
            else []
        )


def test_runs_are_recorded_compared_and_reported(tmp_path: Path) -> None:
    """What fails shows both sides, and no content; the report has a document for each score."""
    (tmp_path / "golden.jsonl").write_text(
        '{"id": "good", "expected": ["search", "refund"]}\n{"id": "bad", "expected": ["notify"]}\n',
        encoding="utf-8",
    )
    session = Session(
        tmp_path,
        content="""
def test_passes(otel_eval_runs):
    agent("search", "refund")
    otel_eval_runs.assert_tools(["search", "refund"])
    otel_eval_runs.assert_scores({"type": "tool_errors"})

def test_differs(otel_eval_runs):
    agent("search", "notify", "refund")
    otel_eval_runs.assert_tools([{"name": "search", "arguments": {"city": "Oslo"}}, "close"])

def test_none(otel_eval_runs):
    otel_eval_runs.one()

def test_two(otel_eval_runs):
    asyncio.run(asyncio.to_thread(agent, "a"))
    agent("b")
    otel_eval_runs.one()

@pytest.mark.otel_eval_cases("golden.jsonl")
def test_case(otel_eval_runs, otel_eval_case):
    agent("search", "refund")
    otel_eval_runs.assert_tools(otel_eval_case["expected"])
""",
    )
    assert session.code == 1
    assert "4 failed, 2 passed" in session.out
    assert re.search(r"^E\s+! close +notify$", session.out, re.MULTILINE)
    assert "tools: 0, at least 1 passes: 0 of 2 expected calls matched" in session.out
    assert "no span was recorded" in session.out
    assert "2 runs were recorded, not one" in session.out
    assert "pytest/tools        2 of 4 passed" in session.out
    assert "Rome" not in session.out
    cases = [document["case"] for document in session.documents]
    assert cases == [
        "test_agents.py::test_passes",
        "test_agents.py::test_passes",
        "test_agents.py::test_differs",
        "test_agents.py::test_case[good]",
        "test_agents.py::test_case[bad]",
    ]
    verdicts = [document["verdict"] for document in session.documents]
    assert verdicts == ["pass", "pass", "not_passed", "pass", "not_passed"]
    assert "Rome" not in json.dumps(session.documents)


def test_a_span_belongs_to_the_test_in_which_its_trace_began(tmp_path: Path) -> None:
    """Also if that test has ended; a provider of one's own can be attached and shut down."""
    session = Session(
        tmp_path,
        content="""
gate, begun = threading.Event(), threading.Event()
thread = threading.Thread(target=agent, args=("late",), kwargs={"gate": gate, "begun": begun})

def test_ends_while_its_agent_runs(otel_eval_runs):
    thread.start()
    assert begun.wait(300)
    with pytest.raises(AssertionError, match="1 span still open after 0.01 s: invoke_agent clerk"):
        otel_eval_runs.all(timeout=0.01)

def test_gets_nothing_of_the_test_before(otel_eval_runs):
    gate.set()
    thread.join()
    agent("mine")
    assert [call.name for call in otel_eval_runs.one().calls] == ["mine"]

def test_waits_for_an_agent_in_a_thread(otel_eval_runs):
    gate, begun = threading.Event(), threading.Event()
    other = threading.Thread(target=agent, args=("a",), kwargs={"gate": gate, "begun": begun})
    other.start()
    assert begun.wait(300)
    threading.Timer(0.05, gate.set).start()
    assert [call.name for call in otel_eval_runs.one(timeout=300).calls] == ["a"]

def test_own_provider(otel_eval_runs):
    provider = TracerProvider()
    otel_eval_runs.attach(provider)
    otel_eval_runs.attach(provider)
    agent("a", tracer=provider.get_tracer("agent"))
    provider.shutdown()
    assert [call.name for call in otel_eval_runs.one().calls] == ["a"]

def test_within_a_span_of_its_own(otel_eval_runs):
    with trace.get_tracer("test").start_as_current_span("the test"):
        agent("a")
        assert [call.name for call in otel_eval_runs.one().calls] == ["a"]
""",
    )
    assert session.code == 0, session.out
    assert "5 passed" in session.out


def test_skipped_scores_fail_unless_allowed(tmp_path: Path) -> None:
    """A scorer that does not apply to the run is no failure."""
    session = Session(
        tmp_path,
        content="""
RESULTS = {"type": "tool_call_output", "expected": [{"name": "search", "result": 1}]}

def test_skipped(otel_eval_runs):
    agent("search")
    otel_eval_runs.assert_scores(RESULTS)

def test_allowed(otel_eval_runs):
    agent("search")
    otel_eval_runs.assert_scores([RESULTS, {"type": "error_recovery"}], allow_skipped=True)

def test_no_evaluation_matches(otel_eval_runs):
    agent("search")
    other = {"name": "other", "match": {"agent": "nobody"}, "scorers": [{"type": "tool_errors"}]}
    otel_eval_runs.assert_scores({"evaluations": [other]})
""",
    )
    assert "2 failed, 1 passed" in session.out
    assert "tool_call_output: skipped: " in session.out
    assert "no evaluation of the policy matches the run clerk" in session.out


def test_workers_of_xdist_hand_their_runs_to_one_report(tmp_path: Path) -> None:
    pytest.importorskip("xdist")
    session = Session(
        tmp_path,
        "-p",
        "xdist",
        "-n",
        "2",
        content="""
@pytest.mark.parametrize("index", range(6))
def test_passes(otel_eval_runs, index):
    agent("search")
    otel_eval_runs.assert_tools(["search"])
""",
    )
    assert session.code == 0, session.out
    assert len({document["case"] for document in session.documents}) == 6
    assert "pytest/tools  6 of 6 passed" in session.out


def test_wrong_options_end_the_session_with_one_line(tmp_path: Path) -> None:
    missing = Session(tmp_path, "--otel-eval-report", "missing/report.jsonl", content="")
    assert missing.code == 4
    assert "the folder is missing or cannot be written to" in missing.out
    (tmp_path / "cases.jsonl").write_text('{"other": 1}\n', encoding="utf-8")
    dataset = Session(
        tmp_path,
        content="""
@pytest.mark.otel_eval_cases("cases.jsonl", key="id")
def test_case(otel_eval_case):
    pass
""",
    )
    assert dataset.code != 0
    assert "line 1 has no key 'id'" in dataset.out
    assert "Traceback" not in dataset.out


def test_a_session_that_does_not_use_it_loads_and_prints_nothing(tmp_path: Path) -> None:
    """Only the package itself, which loads what is used."""
    session = Session(
        tmp_path,
        content="""
import sys

def test_plain():
    names = [name for name in sys.modules if name.startswith("otel_eval")]
    assert set(names) <= {
        "otel_eval", "otel_eval.native", "otel_eval.pytest_plugin", "otel_eval._otlp"
    }, names
""".replace("from agents import *\n", ""),
    )
    # agents.py imports the SDK, not the plugin
    assert session.code == 0, session.out
    assert "otel-eval" not in session.out
