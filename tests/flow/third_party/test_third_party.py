"""A package with a user's own scorers, built and installed as a user would, and used from a
configuration.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.fork_server import FORKS

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
TRACE = ROOT / "tests" / "traces" / "pydantic_ai_v5.json"
PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
OFFLINE = ["--no-deps", "--no-index", "--no-build-isolation"]

if any(importlib.util.find_spec(name) is None for name in ("pip", "setuptools")):
    pytest.skip("pip and setuptools are needed to build a package", allow_module_level=True)


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that the package was installed into."""
    folder = tmp_path_factory.mktemp("third_party")
    shutil.copytree(HERE / "package", folder / "source")
    subprocess.run(
        [*PIP, "install", *OFFLINE, "--target", folder / "site", folder / "source"],
        check=True,
        timeout=300,
    )
    return folder / "site"


def otel_eval(installed: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return FORKS.run(arguments, ROOT, {**os.environ, "PYTHONPATH": str(installed)})


def configured(tmp_path: Path, *scorers: dict[str, object]) -> str:
    path = tmp_path / "eval.yaml"
    path.write_text(json.dumps({"evaluations": [{"name": "theirs", "scorers": list(scorers)}]}))
    return str(path)


def test_an_installed_package_scores_from_a_configuration(installed: Path, tmp_path: Path) -> None:
    """By its name alone, with parameters; and its version travels with each score."""
    config = configured(
        tmp_path, {"type": "few_tools", "most": 1, "name": "strict"}, {"type": "few_tools"}
    )
    ran = otel_eval(installed, "replay", str(TRACE), "--config", config, "--format", "json")
    rows = [json.loads(line) for line in ran.stdout.splitlines()]
    assert ran.stderr == ""
    assert {(row["scorer"], row["type"], row["version"], row["value"]) for row in rows} == {
        ("strict", "few_tools", "1.2.0", 0.0),
        ("few_tools", "few_tools", "1.2.0", 1.0),
    }


def test_it_is_listed_beside_the_others(installed: Path) -> None:
    """`otel-eval scorers` is how a user finds out what there is."""
    ran = otel_eval(installed, "scorers")
    assert ran.returncode == 0, ran.stderr
    assert "few_tools" in ran.stdout
    assert "tool_call_order" in ran.stdout
    # says that it cannot be loaded, and hides none of the others
    assert "broken_tools" in ran.stdout
    assert "cannot be loaded: ModuleNotFoundError" in ran.stdout


def test_a_broken_scorer_of_the_package_costs_only_itself(installed: Path, tmp_path: Path) -> None:
    """One line says which type it is, and the package's other scorer still works."""
    ran = otel_eval(installed, "check", configured(tmp_path, {"type": "broken_tools"}))
    assert ran.returncode == 2
    assert "evaluations[0].scorers[0]" in ran.stderr
    assert (
        "'broken_tools' cannot be loaded (ModuleNotFoundError: no module named"
        " 'polite_scorers.missing'" in ran.stderr
    )
    assert "Traceback" not in ran.stderr
    assert (
        otel_eval(installed, "check", configured(tmp_path, {"type": "few_tools"})).returncode == 0
    )


def test_its_parameters_are_checked_as_those_of_the_others(installed: Path, tmp_path: Path) -> None:
    """A misspelt key is refused, and the right one named."""
    ran = otel_eval(installed, "check", configured(tmp_path, {"type": "few_tools", "mots": 1}))
    assert ran.returncode == 2
    assert "evaluations[0].scorers[0]" in ran.stderr
    assert "most" in ran.stderr
