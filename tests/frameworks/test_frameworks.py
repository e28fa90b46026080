"""Real agent frameworks with scripted models: what they record is understood, name by name and
error by error.

Runs in the environment of `make examples`; elsewhere each test says which package it wants.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROGRAMS = {
    "pydantic_ai_agent": "pydantic_ai",
    "langchain_agent": "openinference.instrumentation.langchain",
    "openai_agents_agent": "openinference.instrumentation.openai_agents",
    "mcp_pair": "mcp.server.mcpserver",
}
ERRORS = {
    "pydantic_ai_agent": (
        "(type='pydantic_ai.exceptions.ToolRetryError', message='no such date: 2026-13-40')"
    ),
    "langchain_agent": "(type='ValueError', message='no such date: 2026-13-40')",
    # it tells its traces no more
    "openai_agents_agent": "(type='_OTHER', message=\"Error running tool",
    "mcp_pair": "(type='tool_error', message='')",  # as the conventions of MCP say
}


def is_there(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except ModuleNotFoundError:
        return False


@pytest.fixture(scope="module", params=PROGRAMS)
def ran(request: pytest.FixtureRequest) -> tuple[str, list[str]]:
    """An example by name, and the lines that it printed."""
    name: str = request.param
    if not is_there(PROGRAMS[name]):
        pytest.skip(f"{PROGRAMS[name]} is not installed; run make examples")
    program = f"examples/frameworks/{name}.py"
    kept = {
        key: value for key, value in os.environ.items() if not key.startswith(("OTEL_", "OPENAI_"))
    }
    environment = {**kept, "PYTHONPATH": str(ROOT), "NO_PROXY": "127.0.0.1"}
    done = subprocess.run(
        [sys.executable, program],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=300,
        env=environment,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return name, done.stdout.splitlines()


def calls_of(lines: list[str]) -> list[tuple[str, str, str, str]]:
    """Name, arguments, result and error of each call, as printed."""
    printed = re.compile(r"call (\w+) (\{.*?\}) -> (.*?) ?(ToolError\(.*\))?")
    found = [printed.fullmatch(line) for line in lines if line.startswith("call ")]
    return [(each[1], each[2], each[3], each[4] or "") for each in found if each]


def test_calls_are_reconstructed(ran: tuple[str, list[str]]):
    """Names, arguments and results in order but for what ran side by side, and how the one call
    failed that did.
    """
    name, lines = ran
    *looks, refused, booked = calls_of(lines)
    cities = ["Oslo"] if name == "mcp_pair" else ["Oslo", "Paris"]
    assert sorted(looks) == [
        ("get_weather", str({"city": city}), str({"city": city, "sky": "clear"}), "")
        for city in cities
    ]
    assert booked == (
        "book_flight",
        str({"city": "Oslo", "date": "2026-12-01"}),
        "booking 4711",
        "",
    )
    assert refused[:2] == ("book_flight", str({"city": "Oslo", "date": "2026-13-40"}))
    assert ERRORS[name] in refused[3]


def test_runs_are_scored(ran: tuple[str, list[str]]):
    """One run of the agent called travel; all but one call without an error. Traces without a run
    are listed as such.
    """
    name, lines = ran
    rows = [
        row
        for line in lines
        if line.startswith("{") and (row := json.loads(line))["outcome"] != "no_run"
    ]
    share = pytest.approx(2 / 3 if name == "mcp_pair" else 3 / 4)
    scores = {row["scorer"]: row["value"] for row in rows if row["scorer"] != "show"}
    assert scores == {
        "tool_call_order": 1.0,
        "tool_call_args": 1.0,
        "tool_errors": share,
        "error_recovery": 1.0,
    }
    assert {row["agent"] for row in rows} == {"travel"}
    assert len({row["trace_id"] for row in rows}) == 1


def test_every_program_is_here():
    """An example that nothing runs would rot."""
    assert {path.stem for path in (ROOT / "examples/frameworks").glob("*.py")} == PROGRAMS.keys()
