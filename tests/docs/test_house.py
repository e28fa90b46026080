"""Rules of this project that no linter checks."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MODULES = sorted((ROOT / "otel_eval").rglob("*.py"))

# The names of the outside world live in tables and in what we send; the demonstration plays an
# instrumentation.
SPELLERS = ("conventions/", "exporters/attributes.py", "sources/")
SPELLED = re.compile(r"^(gen_ai|openinference|llm|traceloop|mcp)\.[a-z]")


def place(path: Path) -> str:
    """A module by its path within the package."""
    return path.relative_to(ROOT / "otel_eval").as_posix()


@pytest.mark.parametrize("path", MODULES, ids=place)
def test_a_module_has_a_docstring(path: Path) -> None:
    """It says what it is for."""
    assert ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))


def test_a_class_name_stands_once_and_no_function_shadows_its_module():
    """A name means one thing, and `from package import name` has one meaning."""
    modules = [(path, ast.parse(path.read_text(encoding="utf-8"))) for path in MODULES]
    classes = Counter(
        node.name
        for _, module in modules
        for node in ast.walk(module)
        if isinstance(node, ast.ClassDef)
    )
    functions = [
        (path, node.name)
        for path, module in modules
        for node in module.body
        if isinstance(node, ast.FunctionDef)
    ]
    assert [name for name, count in classes.items() if count > 1] == []
    assert [place(path) for path, name in functions if name == path.stem] == []


@pytest.mark.parametrize(
    "path", [path for path in MODULES if not place(path).startswith(SPELLERS)], ids=place
)
def test_names_of_the_outside_world_live_in_tables(path: Path) -> None:
    """One more spelling is one more row, not one more `if`."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    texts = [
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]
    assert [text for text in texts if SPELLED.match(text) and "\n" not in text] == []


def test_importing_the_package_loads_nothing_heavy() -> None:
    """An agent that adds a processor pays for what it uses."""
    script = (
        "import sys, otel_eval\n"
        "heavy = ('grpc', 'google.protobuf', 'pydantic', 'yaml', 'click')\n"
        "print([name for name in heavy if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, cwd=ROOT, timeout=300
    )
    assert done.stdout.strip() == "[]", done.stderr


def test_every_public_name_is_there() -> None:
    """`from otel_eval import ...` as the pages say."""
    script = (
        "from otel_eval import ConfigError, EvalSpanProcessor, Failed, Scored, Skipped,"
        " create_scorer, trajectories\nfrom otel_eval.testing import call, trajectory"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, cwd=ROOT, timeout=300
    )
    assert (done.returncode, done.stderr) == (0, "")
