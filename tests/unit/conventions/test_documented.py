"""The page about conventions names every table, and its example can be used."""

from __future__ import annotations

import re
from dataclasses import fields

import yaml

from otel_eval.config.conventions import conventions_from_list
from otel_eval.conventions import TABLES, Convention, EventRow, Field, Mark, MessageRow, Rule
from otel_eval.conventions.message_formats import Wrapper
from tests.support.doc_pages import page

PAGE = page("conventions")
OWN = page("custom-convention")


def test_every_table_is_on_the_page():
    """Users must be able to find each table in the documentation."""
    assert [table.name for table in TABLES if f"`{table.name}`" not in PAGE] == []


def examples(text):
    """The tables in the YAML of a text."""
    return [
        table
        for yaml_text in re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)
        for table in yaml.safe_load(yaml_text)["conventions"]
    ]


def test_each_example_of_a_users_table_is_one():
    """They are what people copy."""
    tables = conventions_from_list(examples(OWN))
    assert [len(table.rules) for table in tables] == [2, 7, 2]


def test_every_key_of_a_users_table_is_documented():
    """Keys of the table and of its rows, and the fields that can be read."""
    keys = {
        key.name
        for shape in (Convention, Rule, Mark, EventRow, MessageRow, Wrapper)
        for key in fields(shape)
    } | {*Field}
    documented = {
        word
        for row in re.findall(r"^\|.*\|$", OWN, re.MULTILINE)
        for word in re.findall(r"`(\w+)`", row)
    }
    assert keys - documented == set()


def test_the_example_of_a_users_table_shows_every_key():
    """A copy of it is complete."""
    (table,) = examples(OWN.partition("## Every key")[2])
    assert {*table} == {key.name for key in fields(Convention)}
