"""A reader of the pages on CI and comparisons pastes their commands, in order, in a folder with
traces; the snippets for CI are what the hosts accept.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from importlib import resources
from pathlib import Path

import jsonschema
import pytest

from otel_eval.config.yaml_text import parse
from tests.support.compared_runs import POLICY, write_both_sides
from tests.support.doc_pages import ROOT, page


def paste(name: str, folder: Path) -> tuple[str, str]:
    """What the page shows, and what a terminal shows that gets the same commands."""
    blocks = re.findall(r"^```console\n(.*?)^```", page(name), re.MULTILINE | re.DOTALL)
    shown = "".join(blocks)
    script = "".join(
        f"echo {_quoted(line)}\n{line.removeprefix('$ ')}\n"
        if line != "$ echo $?"
        else "code=$?; echo '$ echo $?'; echo $code\n"
        for line in shown.splitlines()
        if line.startswith("$ ")
    )
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    done = subprocess.run(
        ["bash", "-c", script],
        cwd=folder,
        env={**os.environ, "PATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=300,
    )
    return shown, done.stdout


def _quoted(line: str) -> str:
    return "'" + line.replace("'", "'\\''") + "'"


def test_the_commands_that_compare_show_what_the_page_shows(tmp_path: Path) -> None:
    """With the configuration of the page."""
    write_both_sides(tmp_path)
    shown, printed = paste("compare", tmp_path)
    assert f"```yaml\n{POLICY}```" in page("compare")
    assert printed == shown


def test_the_commands_for_ci_show_what_the_page_shows(tmp_path: Path) -> None:
    """With the scores of the main branch, and the traces of a change."""
    write_both_sides(tmp_path)
    (tmp_path / "today").rename(tmp_path / "traces")
    words = ["replay", "last-week", "--config", "eval.yaml", "--format", "json"]
    subprocess.run(
        [sys.executable, "-m", "otel_eval", *words, "--output", "main.jsonl"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=True,
        stdout=subprocess.DEVNULL,
        timeout=300,
    )
    shown, printed = paste("ci", tmp_path)
    assert printed == shown


@pytest.mark.parametrize(
    ("heading", "host"), [("GitHub Actions", "github-workflows"), ("GitLab", "gitlab-ci")]
)
def test_a_snippet_for_ci_has_the_form_that_its_host_publishes(heading: str, host: str) -> None:
    """As a copy of the published schema says; a misspelt key is refused by it."""
    section = page("ci").partition(f"## {heading}\n")[2]
    (text,) = re.findall(r"^```yaml\n(.*?)^```", section.partition("\n## ")[0], re.M | re.S)
    vendored = resources.files("check_jsonschema.builtin_schemas.vendor")
    schema = json.loads((vendored / f"{host}.json").read_text(encoding="utf-8"))
    validator = jsonschema.validators.validator_for(schema)(schema)
    document = parse(text, where=host)
    assert [error.message for error in validator.iter_errors(document)] == []
    misspelt = text.replace("script:", "scripts:").replace("runs-on:", "run-on:")
    assert [*validator.iter_errors(parse(misspelt, where=host))]
