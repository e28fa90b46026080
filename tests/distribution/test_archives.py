"""What is in the source distribution and in the wheel, and what their metadata say."""

from __future__ import annotations

import email.message
import email.parser
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from otel_eval import __version__
from tests.support.doc_pages import PAGES, ROOT, document, name_of

PARTS = (".github", "otel_eval", "tests", "docs", "examples", "collector_config")
FILES = (
    "pyproject.toml",
    "setup.py",
    "MANIFEST.in",
    "README.md",
    "CHANGELOG.md",
    "LICENSE",
    "Makefile",
    "constraints.txt",
)
URL = "https://files.example/v1"


@pytest.fixture(scope="module")
def archives(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[str], zipfile.ZipFile]:
    """The names in the source distribution, and a wheel that was built from it without a
    compiler.
    """
    source, built = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("built")
    for name in PARTS:
        shutil.copytree(
            ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__", "*.so", ".*")
        )
    for name in FILES:
        shutil.copy(ROOT / name, source / name)
    _build("sdist", source, built)
    with tarfile.open(next(built.glob("*.tar.gz"))) as archive:
        names = archive.getnames()
        archive.extractall(built / "unpacked", filter="data")
    _build("wheel", next((built / "unpacked").iterdir()), built)
    return names, zipfile.ZipFile(next(built.glob("*.whl")))


def _build(what: str, source: Path, out: Path) -> None:
    script = f"from setuptools import build_meta; build_meta.build_{what}({str(out)!r})"
    env = os.environ | {"OTEL_EVAL_FILES_URL": URL, "CC": "false"}
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=source,
        env=env,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert "Deprecat" not in done.stderr


@pytest.fixture(scope="module")
def metadata(archives: tuple[list[str], zipfile.ZipFile]) -> email.message.Message:
    """Of the wheel; the text is the README."""
    _, wheel = archives
    name = next(each for each in wheel.namelist() if each.endswith(".dist-info/METADATA"))
    return email.parser.Parser().parsestr(wheel.read(name).decode())


def test_the_source_distribution_has_what_is_needed_to_test_it(
    archives: tuple[list[str], zipfile.ZipFile],
) -> None:
    """The tests, the changelog, the pages and the sources in C."""
    names = {name.partition("/")[2] for name in archives[0]}
    wanted = [
        *FILES,
        "tests/conftest.py",
        "tests/sdk_range/__main__.py",
        *(name_of(path) for path in PAGES),
        "examples/processor.py",
    ]
    assert [name for name in wanted if name not in names] == []
    headers = {path.relative_to(ROOT).as_posix() for path in (ROOT / "otel_eval").rglob("*.[ch]")}
    assert headers - names == set()
    assert [name for name in names if "__pycache__" in name or name.endswith(".so")] == []


def test_the_wheel_has_the_package_alone(archives: tuple[list[str], zipfile.ZipFile]) -> None:
    """Every module and data file, no source in C, no test."""
    names = set(archives[1].namelist())
    kinds = (".py", ".json", ".yaml", ".typed", ".html", ".css", ".js")
    wanted = {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "otel_eval").rglob("*")
        if path.suffix in kinds
    }
    assert wanted - names == set()
    assert [name for name in names - wanted if ".dist-info/" not in name] == []


def test_the_metadata_are_those_of_the_standard(metadata: email.message.Message) -> None:
    """The licence as an SPDX expression, the version of the package, Pythons that are supported,
    addresses.
    """
    assert (metadata["License-Expression"], metadata["Version"]) == ("Apache-2.0", __version__)
    classifiers = metadata.get_all("Classifier", [])
    assert not any(each.startswith("License ::") for each in classifiers)
    assert "Programming Language :: Python :: 3.11" in classifiers
    assert f"Changelog, {URL}/CHANGELOG.md" in metadata.get_all("Project-URL", [])


def test_links_of_the_readme_are_absolute(metadata: email.message.Message) -> None:
    """A package index shows it without the files beside it."""
    links = re.findall(r"\]\(([^)]+)\)", str(metadata.get_payload()))
    assert f"{URL}/{name_of(document('configuration.md'))}" in links
    assert [link for link in links if not link.startswith("https://")] == []
