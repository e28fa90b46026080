"""`replay` for CI: formats, files, pass rates, folders, and what Ctrl-C leaves."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import pytest

Run = Callable[..., "subprocess.CompletedProcess[str]"]
Write = Callable[..., Path]

PASSES = '{type: tool_call_count, criteria: {get_weather: ["==", 2]}}'
FAILS = "{type: tool_errors, threshold: 1.0}"
FORMATS = ["table", "json", "junit", "markdown"]


@pytest.mark.parametrize("form", FORMATS)
def test_every_format_has_the_same_exit_code_in_a_file_too(
    otel_eval: Run, recorded: Path, config: Write, tmp_path: Path, form: str
) -> None:
    """A line on stdout says where the scores are; nothing else is left in the folder."""
    words = ["replay", recorded, "--config", config(PASSES, FAILS), "--format", form]
    printed = otel_eval(*words)
    done = otel_eval(*words, "--output", "report")
    assert (printed.returncode, done.returncode, done.stderr) == (1, 1, "")
    assert done.stdout == "report: written; 1 run, 2 results: 1 passed, 1 did not pass\n"
    lines = [(tmp_path / "report").read_text(encoding="utf-8"), printed.stdout]
    if form == "json":
        rows = [[json.loads(line)["scorer"] for line in text.splitlines()] for text in lines]
        assert rows == [["tool_call_count", "tool_errors"]] * 2
    else:
        assert lines[0] == lines[1]
    if form == "junit":
        assert ElementTree.fromstring(lines[0])[0].get("failures") == "1"
    assert sorted(os.listdir(tmp_path)) == ["eval.yaml", "recorded.json", "report"]


@pytest.mark.parametrize("output", ["missing/report.xml", "."])
def test_an_output_that_cannot_be_written_is_an_error_before_anything_is_scored(
    otel_eval: Run, recorded: Path, tmp_path: Path, output: str
) -> None:
    """One line, exit 2, nothing half-written."""
    before = sorted(os.listdir(tmp_path))
    done = otel_eval("replay", recorded, "--format", "junit", "--output", output)
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (2, "", 1)
    assert done.stderr.startswith(f"otel-eval: {output}: ")
    assert sorted(os.listdir(tmp_path)) == before


@pytest.mark.parametrize("form", FORMATS)
def test_an_invalid_input_is_one_line_in_every_format(
    otel_eval: Run, tmp_path: Path, form: str
) -> None:
    """Empty, foreign, truncated."""
    (tmp_path / "empty.json").touch()
    (tmp_path / "foreign.json").write_text('{"a": 1}')
    (tmp_path / "cut.json").write_text('{"resourceSpans": [{"scopeSpans": [{"spans": [{"trac')
    for name in ("foreign.json", "cut.json", "none.json"):
        done = otel_eval("replay", name, "--format", form)
        assert done.returncode == 2
        assert [line.startswith(f"otel-eval: {name}") for line in done.stderr.splitlines()] == [
            True
        ], done.stderr
    done = otel_eval("replay", "empty.json", "--format", form)
    assert done.returncode in (2, 3)
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("form", [*FORMATS, "html"])
def test_no_report_is_written_if_no_input_can_be_read(
    otel_eval: Run, recorded: Path, tmp_path: Path, form: str
) -> None:
    """What was there before stays; if some input can be read there is a report."""
    words = ["--format", form, "--output", "report"]
    done = otel_eval("replay", "none.json", *words)
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (2, "", 1)
    assert os.listdir(tmp_path) == [recorded.name]
    (tmp_path / "report").write_text("before", encoding="utf-8")
    assert otel_eval("replay", "none.json", *words).returncode == 2
    assert (tmp_path / "report").read_text(encoding="utf-8") == "before"
    done = otel_eval("replay", "none.json", recorded, *words)
    assert (done.returncode, done.stdout[:16]) == (2, "report: written;")
    assert (tmp_path / "report").read_text(encoding="utf-8") != "before"


@pytest.mark.parametrize(("rate", "code"), [("0.66", 0), ("0.67", 1), ("1", 1)])
def test_a_scorer_may_pass_less_often_where_that_is_said(
    otel_eval: Run, traced: Write, config: Write, rate: str, code: int
) -> None:
    """Two of three runs pass; the scorer that passes too rarely is named."""
    agent = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "shop"}
    files = []
    for number, name in enumerate(("search", "pay", "pay")):
        tool = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": name}
        path = traced(("1", "", agent), ("2", "1", tool), name=f"{number}.json")
        path.write_text(path.read_text().replace("ab" * 16, f"{number:x}b" * 16))
        files.append(path)
    words = ["replay", *files, "--config", config("{type: required_tools, patterns: [pay]}")]
    assert otel_eval(*words).returncode == 1
    done = otel_eval(*words, "--min-pass-rate", rate)
    assert done.returncode == code
    said = f"one/required_tools: 66.7 % of 3 scores pass, less than --min-pass-rate {rate}"
    assert (said in done.stderr) == bool(code)


@pytest.mark.parametrize("command", ["replay", "trajectory", "explain", "suggest"])
def test_a_folder_stands_for_the_traces_in_it(
    otel_eval: Run, recorded: Path, tmp_path: Path, command: str
) -> None:
    """Also in subfolders and compressed; other files and hidden ones are left alone."""
    folder = tmp_path / "traces"
    (folder / "deep").mkdir(parents=True)
    (folder / ".hidden").mkdir()
    for name in ("notes.txt", ".cache.json", ".hidden/x.json"):
        (folder / name).write_text("no trace")
    (folder / "deep" / "a.json.gz").write_bytes(gzip.compress(recorded.read_bytes()))
    done = otel_eval(command, folder)
    assert (done.returncode, done.stderr) == (1 if command == "replay" else 0, "")
    assert "get_weather" in done.stdout


@pytest.mark.parametrize("command", ["replay", "trajectory", "explain"])
def test_a_folder_without_traces_is_one_line(otel_eval: Run, tmp_path: Path, command: str) -> None:
    (tmp_path / "none").mkdir()
    done = otel_eval(command, "none")
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (2, "", 1)
    assert done.stderr.startswith("otel-eval: none: the folder has no file")


def test_ctrl_c_prints_the_summary_of_what_was_done_and_leaves_the_output_alone(
    recorded: Path, config: Write, tmp_path: Path
) -> None:
    """Exit 130; here a scorer interrupts the second run as a terminal would."""
    (tmp_path / "interrupting.py").write_text(
        "import os, signal\n"
        "from otel_eval import Scored\n"
        "runs = []\n"
        "def interrupt(run):\n"
        "    runs.append(run)\n"
        "    if len(runs) == 2:\n"
        "        os.kill(os.getpid(), signal.SIGINT)\n"
        "    return Scored(1.0, passed=True)\n",
        encoding="utf-8",
    )
    other = tmp_path / "other.json"
    other.write_text(recorded.read_text().replace("d7a9e833", "00000000"), encoding="utf-8")
    path = config("{type: 'interrupting:interrupt', name: mine}")
    (tmp_path / "report").write_text("as before")

    def interrupted(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [
                sys.executable,
                "-m",
                "otel_eval",
                "replay",
                recorded,
                other,
                "--config",
                path,
                *words,
            ],
            capture_output=True,
            text=True,
            cwd=tmp_path,
            timeout=300,
            env={**os.environ, "PYTHONPATH": os.pathsep.join((str(tmp_path), *sys.path))},
        )

    said = "interrupted; scored before: 1 run, 1 result: 1 passed"
    done = interrupted()
    assert done.returncode == 130
    assert done.stdout.splitlines()[-1] == "1 run, 1 result: 1 passed"
    assert done.stderr.strip() == f"otel-eval: {said}"
    done = interrupted("--format", "junit", "--output", "report")
    assert (done.returncode, done.stdout) == (130, "")
    assert done.stderr.strip() == f"otel-eval: {said}"
    assert (tmp_path / "report").read_text() == "as before"
    assert not [name for name in os.listdir(tmp_path) if name.startswith(".otel-eval")]


def test_a_scorer_that_needs_no_tokens_is_not_shown_those_of_the_summary(
    otel_eval: Run, recorded: Path, config: Write, tmp_path: Path
) -> None:
    """So that its score is the same live, where nobody reads them."""
    text = "def {0}(run):\n    return Scored(1.0, passed=True, explanation=str(run.input_tokens))\n"
    (tmp_path / "own.py").write_text(
        "from otel_eval import Scored, scorer\n"
        + "@scorer('bare', needs=[])\n"
        + text.format("bare")
        + "@scorer('reads', needs=['tokens'])\n"
        + text.format("reads"),
        encoding="utf-8",
    )

    def told(*scorers: str) -> list[str]:
        path = config(*scorers)
        done = otel_eval("replay", recorded, "--config", path, "--format", "json")
        return [json.loads(line)["explanation"] for line in done.stdout.splitlines()]

    assert told("{type: 'own:bare'}") == ["None"]
    with_another = told("{type: 'own:bare'}", "{type: 'own:reads'}")
    assert (with_another[0], with_another[1].isdecimal()) == ("None", True)
    table = otel_eval("replay", recorded).stdout
    assert table.splitlines()[-3].split()[-1] == "389"
