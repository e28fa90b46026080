"""A user's scorer that fails or cannot be imported: what the user sees, without any content."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.fork_server import ForkServer

Run = Callable[..., subprocess.CompletedProcess[str]]
Write = Callable[..., Path]

SCORERS = """
def broken(run):
    secret = run.calls[0].arguments["nothing"]  # line 3
    return 1.0

def listed(run):
    return [run.calls[0].arguments]
"""
PROGRAM = """
import sys
from opentelemetry.sdk.trace import TracerProvider
from otel_eval import EvalSpanProcessor
provider = TracerProvider()
provider.add_span_processor(EvalSpanProcessor(sys.argv[1]))
tracer = provider.get_tracer("app")
for _ in range(2):
    agent = {"gen_ai.operation.name": "invoke_agent"}
    with tracer.start_as_current_span("invoke_agent a", attributes=agent):
        tool = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "search"}
        tool["gen_ai.tool.call.arguments"] = '{"q": "SECRET"}'
        tracer.start_span("execute_tool search", attributes=tool).end()
"""


def test_replay_tells_type_file_and_line(
    otel_eval: Run, recorded: Path, config: Write, tmp_path: Path
) -> None:
    """Once for all runs, on standard error; a failed scorer is exit code 1."""
    (tmp_path / "mine.py").write_text(SCORERS)
    done = otel_eval(
        "replay",
        recorded,
        "--config",
        config("{type: mine:broken, name: mine}"),
        PYTHONPATH=_path(tmp_path),
    )
    assert done.returncode == 1
    assert (
        f"otel-eval: scorer mine failed 1 time: KeyError ({tmp_path}/mine.py:3)"
        in done.stderr.splitlines()
    )


def test_replay_tells_what_was_returned_that_is_no_outcome(
    otel_eval: Run, recorded: Path, config: Write, tmp_path: Path
) -> None:
    """By its type, because its values may be content."""
    (tmp_path / "mine.py").write_text(SCORERS)
    done = otel_eval(
        "replay",
        recorded,
        "--config",
        config("{type: mine:listed, name: mine}"),
        PYTHONPATH=_path(tmp_path),
    )
    why = "TypeError (mine:listed returned a list, not an outcome, a number or a bool)"
    assert f"otel-eval: scorer mine failed 1 time: {why}" in done.stderr.splitlines()


@pytest.mark.parametrize("debug", ["0", "1"])
def test_a_failing_scorer_is_logged_and_where_only_if_asked_for(
    debug: str, config: Write, tmp_path: Path, fork_server: ForkServer
) -> None:
    """One line a minute; OTEL_EVAL_DEBUG=1 adds the place in the code."""
    (tmp_path / "mine.py").write_text(SCORERS)
    path = config(
        "{type: mine:broken, name: mine}",
        more=f"exporters: {{jsonl: {{path: {tmp_path / 'out.jsonl'}}}}}",
    )
    environment = {"PYTHONPATH": _path(tmp_path), "OTEL_EVAL_DEBUG": debug}
    done = fork_server.run(["-c", PROGRAM, str(path)], tmp_path, environment)
    assert done.returncode == 0
    place = f" ({tmp_path}/mine.py:3)" if debug == "1" else ""
    assert done.stderr == f"scorer mine failed: KeyError{place}; 1 so far\n"
    assert (tmp_path / "out.jsonl").read_text().count('"KeyError"') == 2


def test_a_scorer_that_cannot_be_imported_names_what_is_missing_and_the_line(
    otel_eval: Run, config: Write, tmp_path: Path
) -> None:
    """In one line."""
    (tmp_path / "mine.py").write_text("\n\nimport pandaz\n")
    done = otel_eval("check", config("{type: mine:broken}"), PYTHONPATH=_path(tmp_path))
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert "'mine:broken' cannot be imported" in line
    assert f"(ModuleNotFoundError: no module named 'pandaz', line 3 of {tmp_path}/mine.py)" in line


@pytest.mark.parametrize(
    ("code", "why"),
    [
        ("def broken(:\n", "(SyntaxError, line 1 of {path})"),
        ("x = 1\ny = z\n", "(NameError, line 2 of {path})"),
        (
            "from otel_eval import scorer\n@scorer('x')\ndef broken(run) -> str: ...\n",
            "(ValueError, line 2 of {path}: x: is declared to return str; ",
        ),
        ("other = 1\n", "(AttributeError: mine has no broken)"),
    ],
)
def test_what_else_keeps_a_scorer_from_being_imported(
    otel_eval: Run, config: Write, tmp_path: Path, code: str, why: str
) -> None:
    """The kind of error, and the line."""
    (tmp_path / "mine.py").write_text(code)
    done = otel_eval("check", config("{type: mine:broken}"), PYTHONPATH=_path(tmp_path))
    assert why.format(path=tmp_path / "mine.py") in done.stderr


def _path(folder: Path) -> str:
    return f"{folder}:{Path(__file__).parents[3]}"
