"""The page about conventions names every table, and its example can be used."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

from otel_eval.conventions import TABLES, convention_from_mapping

PAGE = (Path(__file__).parents[3] / "docs" / "conventions.md").read_text()


def test_every_table_is_on_the_page():
    """A table that nobody finds is of no use."""
    assert [table.name for table in TABLES if f"`{table.name}`" not in PAGE] == []


def test_the_example_of_a_users_table_is_one():
    """It is what people copy."""
    (example,) = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    (given,) = yaml.safe_load(example)["conventions"]
    assert convention_from_mapping(given).rules
