"""The page about scorers says what the code does."""

from __future__ import annotations

import re

import pytest
import yaml
from doc_pages import page

from otel_eval.scorers import create_scorer, get_scorer, list_scorers
from otel_eval.scorers.spec.base_scorer import BaseScorer
from otel_eval.scorers.spec.build import parameters_of

PAGE = page("scorers")
SECTIONS = dict(re.findall(r"^## `(\w+)`\n(.*?)(?=^## |\Z)", PAGE, re.DOTALL | re.MULTILINE))
BUILT_IN = [name for name in list_scorers() if isinstance(get_scorer(name), type) and issubclass(get_scorer(name), BaseScorer)]


def test_every_scorer_has_a_section():
    """And no section is about one that does not exist."""
    assert {*SECTIONS} == {*BUILT_IN}


@pytest.mark.parametrize("name", BUILT_IN)
def test_the_table_of_a_scorer_has_every_parameter_with_its_default(name):
    """Those of its own; the common ones have a table of theirs."""
    common = parameters_of(BaseScorer)
    rows = dict(re.findall(r"^\| `(\w+)` \| (.*?) \| ", SECTIONS[name], re.MULTILINE))
    own = {key: each for key, each in parameters_of(get_scorer(name)).items() if key not in common}
    assert {*rows} == {*own}
    for key, each in own.items():
        if isinstance(each.default, str | int | float):
            assert rows[key] == f"`{str(each.default).lower()}`"


@pytest.mark.parametrize("name", BUILT_IN)
def test_the_example_of_a_scorer_can_be_built(name):
    """As YAML."""
    (example,) = re.findall(r"```yaml\n(.*?)```", SECTIONS[name], re.DOTALL)
    assert create_scorer(yaml.safe_load(example)).type == name


def test_the_python_on_the_page_prints_what_it_says(capsys):
    """Each block runs by itself."""
    for block in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL):
        exec(compile(block, "scorers.md", "exec"), {})
        assert capsys.readouterr().out.splitlines() == re.findall(r"^#> (.*)$", block, re.MULTILINE)
