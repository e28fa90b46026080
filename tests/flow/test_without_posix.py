"""In a process, in pytest and over stored traces otel-eval does without what Windows lacks."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from tests.support.waiting import LIMIT_S

PROGRAM = Path(__file__).with_name("without_posix_program.py")
TRACE = Path(__file__).parents[2] / "examples" / "demo_trace.json"


def test_runs_are_scored_without_what_only_posix_systems_have(tmp_path: Path) -> None:
    """With the locks of files, limits, forks, signals and calls of systems taken away; what needs
    them says so.
    """
    shutil.copy(TRACE, tmp_path / "trace.json")
    done = subprocess.run(
        [sys.executable, str(PROGRAM), str(tmp_path)],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        timeout=LIMIT_S,
    )
    assert done.returncode == 0, done.stderr
    for line in (
        "in the process: tool_call_order True",
        "in the process: tool_errors True",
        "after a torn line: 4 True",
        "pytest: 0",
        "replay: 1",
        "explain: 0",
        "storage: 2",
        "workers: 2",
    ):
        assert line in done.stdout.splitlines(), done.stderr
    assert "storage.directory: this system has no flock" in done.stderr
    assert "workers: this system cannot pass connections between processes" in done.stderr
