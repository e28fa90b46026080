"""The example on the page of the pytest plugin runs, and fails as the page shows."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.support.doc_pages import ROOT, page


def test_the_example_passes_but_for_the_case_that_shows_a_failure(tmp_path: Path) -> None:
    text = page("pytest")
    (code,) = re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    (records,) = re.findall(r"^```json\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    (tmp_path / "test_agent.py").write_text(code, encoding="utf-8")
    (tmp_path / "golden.jsonl").write_text(records, encoding="utf-8")
    plugins = ["-p", "otel_eval.pytest_plugin", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *plugins],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert "1 failed, 3 passed" in done.stdout, done.stdout + done.stderr
    lines = [line.split("trace")[0].rstrip() for line in done.stdout.splitlines()]
    (shown,) = re.findall(r"^```\n(E .*?)^```", text, re.MULTILINE | re.DOTALL)
    for line in shown.splitlines():
        start = line.split("trace")[0].split("…")[0].rstrip()
        assert any(each.startswith(start) for each in lines), (line, done.stdout)
