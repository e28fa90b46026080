"""The examples on the pages run."""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path

import pytest
from _pytest.mark import ParameterSet

from otel_eval import config
from otel_eval.config import EvalConfig, load
from otel_eval.config.yaml_text import parse
from tests.support.doc_pages import PAGES, README, ROOT, document, name_of
from tests.support.doc_pages import page as page_named
from tests.support.fork_server import ForkServer

LINKED = [*PAGES, *sorted(ROOT.glob(".github/*.md"))]  # the latter are not in source distributions
WHOLE = [README, document("configuration.md")]  # their YAML is whole configurations, not parts


def blocks(language: str, pages: list[Path] = PAGES) -> list[ParameterSet]:
    """Every fenced block of a language, named by page and line."""
    fenced = re.compile(rf"^```{language}\n(.*?)^```", re.MULTILINE | re.DOTALL)
    texts = {page: page.read_text(encoding="utf-8") for page in pages}
    return [
        pytest.param(found[1], id=f"{name_of(page)}:{text.count(chr(10), 0, found.start()) + 1}")
        for page, text in texts.items()
        for found in fenced.finditer(text)
    ]


@pytest.mark.parametrize("code", blocks("python", [page for page in PAGES if page != README]))
def test_python_on_a_page_runs(code: str, tmp_path: Path, fork_server: ForkServer) -> None:
    """In its own process, with the output that the page shows, and nothing on stderr unless no
    agent ran.
    """
    for name in ("eval.yaml", "clerk.yaml"):
        (tmp_path / name).write_text(
            "exporters: {jsonl: {path: results.jsonl}}\n", encoding="utf-8"
        )
    done = fork_server.run(["-c", code], tmp_path, os.environ)
    idle = "nothing was evaluated before the end: no span arrived;"
    assert (
        done.returncode,
        [line for line in done.stderr.splitlines() if not line.startswith(idle)],
    ) == (0, [])
    assert done.stdout.splitlines() == re.findall(r"^#> (.*)$", code, re.MULTILINE)


@pytest.mark.parametrize("text", blocks("yaml", WHOLE))
def test_yaml_on_a_page_is_a_configuration(text: str, tmp_path: Path) -> None:
    """As it stands."""
    path = tmp_path / "eval.yaml"
    path.write_text(text, encoding="utf-8")
    assert load(path).evaluations


def test_yaml_on_any_page_can_be_read() -> None:
    """Also where it is only a part."""
    for block in blocks("yaml"):
        (text,) = block.values
        assert parse(text, where=str(block.id)), block.id


def test_every_key_is_documented() -> None:
    """Each key of the schema stands in the page of the configuration."""
    text = page_named("configuration")
    schema = EvalConfig.model_json_schema()
    parts = [shape for name, shape in schema["$defs"].items() if name in {*dir(config)}]
    keys = {key for shape in (schema, *parts) for key in shape["properties"]}
    assert sorted(key for key in keys if not re.search(rf"\b{key}\b", text)) == []


def test_links_lead_somewhere() -> None:
    """Each relative link names a file."""
    link = re.compile(r"\]\(([^)#:]+)(?:#[^)]*)?\)")
    assert [
        (name_of(page), target)
        for page in LINKED
        for target in link.findall(page.read_text(encoding="utf-8"))
        if not (page.parent / target).exists()
    ] == []


def test_files_that_a_page_names_exist() -> None:
    """Paths from the root of the repository."""
    named = re.compile(r"(?<![\w/.])(?:tests|examples|otel_eval|collector_config)/[\w./-]*\w")
    assert [
        (name_of(page), path)
        for page in LINKED
        for path in named.findall(page.read_text(encoding="utf-8"))
        if not (ROOT / path).exists()
    ] == []


@pytest.mark.parametrize("language", ["console", "sh", "bash"])
def test_commands_have_no_comments(language: str) -> None:
    """Interactive shells of macOS take a comment for arguments."""
    lines = [
        f"{block.id}: {line}"
        for block in blocks(language, LINKED)
        for line in str(block.values[0]).splitlines()
        if re.search(r"(^\S.*|^)\s#\s", line) and "time    parallel to" not in line
    ]
    assert lines == []


def test_the_first_tutorial_shows_what_commands_print(
    tmp_path: Path, fork_server: ForkServer
) -> None:
    """The calls of its trace, and the scores of its policy."""
    text = page_named("first-evaluation")
    policy = re.findall(r"^```yaml\n(.*?)^```", text, re.MULTILINE | re.DOTALL)[0]
    (tmp_path / "policy.yaml").write_text(policy, encoding="utf-8")
    for command in ("trajectory", "replay"):
        (shown,) = re.findall(
            rf"^\$ otel-eval {command} (.*?)\n(.*?)^(?:```|\$ echo)", text, re.MULTILINE | re.DOTALL
        )[:1]
        words = shlex.split(shown[0].replace("policy.yaml", str(tmp_path / "policy.yaml")))
        done = fork_server.run([command, *words], ROOT, {**os.environ, "COLUMNS": "100"})
        expected = [line for line in shown[1].splitlines() if line.strip(" .")]
        printed = [line for line in done.stdout.splitlines() if line]
        assert [line for line in expected if line not in printed] == []
