"""The page about scorers agrees with the code."""

from __future__ import annotations

import re

import pytest
import yaml

from otel_eval.scorers import create_scorer
from tests.support.doc_pages import page
from tests.support.scorer_reference import built_in, generated

PAGE = page("scorers")
SECTIONS = dict(re.findall(r"^## `(\w+)`\n(.*?)(?=^## |^<!-- |\Z)", PAGE, re.DOTALL | re.MULTILINE))


def test_the_sections_of_scorers_are_made_from_their_docstrings():
    """Each scorer has a section; `python -m tests.support.scorer_reference` writes them."""
    assert generated(PAGE) == PAGE
    assert {*SECTIONS} == {*built_in()}


def test_the_example_of_a_scorer_can_be_built(subtests: pytest.Subtests) -> None:
    """The example is YAML."""
    for name in sorted(built_in()):
        with subtests.test(name=name):
            (example,) = re.findall(r"```yaml\n(.*?)```", SECTIONS[name], re.DOTALL)
            assert create_scorer(yaml.safe_load(example)).type == name


def test_the_python_on_the_page_prints_what_it_says(capsys):
    """Each block runs by itself."""
    for block in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL):
        exec(compile(block, "scorers.md", "exec"), {})
        assert capsys.readouterr().out.splitlines() == re.findall(r"^#> (.*)$", block, re.MULTILINE)
