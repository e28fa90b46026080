"""Examples in docstrings of the package."""

from __future__ import annotations

import doctest
import importlib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MODULES = [
    ".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
    for file in sorted(ROOT.glob("otel_eval/**/*.py"))
    if ">>> " in file.read_text(encoding="utf-8")
]


@pytest.mark.parametrize("module", MODULES)
def test_an_example_prints_what_the_docstring_shows(module: str):
    """Each in the names of its module."""
    results = doctest.testmod(importlib.import_module(module))
    assert results.attempted
    assert not results.failed
