"""`${env:NAME}` in values."""

from __future__ import annotations

from typing import Any

import pytest

from otel_eval.config.loader import expand

ENVIRONMENT = {"HOST": "collector", "PORT": "4317", "EMPTY": "", "SWITCH": "on", "NOTHING": "~"}


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("${env:HOST}:${env:PORT}", "collector:4317"),
        ("${env:PORT}", 4317),
        ("${env:SWITCH}", "on"),
        ("${env:NOTHING}", None),
        ("${env:EMPTY}", None),
        ("${env:EMPTY:-x}", "x"),
        ("${env:MISSING:-0.5}", 0.5),
        ("a ${env:MISSING:-b c} d", "a b c d"),
        ("a ${env:MISSING:-} d", "a  d"),
        ("$${env:HOST}", "${env:HOST}"),
        ("${HOST} $HOST", "${HOST} $HOST"),
        (["${env:PORT}", {"a": "${env:HOST}"}], [4317, {"a": "collector"}]),
        (7, 7),
    ],
)
def test_a_reference_becomes_its_value(written: Any, value: Any) -> None:
    """Whole references are typed like scalars of the file; parts of a text stay text."""
    assert expand(written, ENVIRONMENT, {}) == value


def test_a_key_of_digits_stays_text_where_text_is_meant() -> None:
    """A leading zero is part of it."""
    given = {"headers": {"api-key": "${env:KEY}"}, "limit": "${env:KEY}"}
    assert expand(given, {"KEY": "0123"}, {}) == {
        "headers": {"api-key": "0123"},
        "limit": 123,
    }


def test_every_variable_that_is_not_set_is_named_with_its_place() -> None:
    """By its path, so that other problems of the same value can be left out."""
    missing: dict[str, str] = {}
    expand({"a": ["${env:ONE}"], "b": "x${env:TWO}"}, ENVIRONMENT, missing)
    assert missing["a[0]"].startswith("a[0]: the environment variable ONE is not set")
    assert missing["b"].startswith("b: the environment variable TWO is not set")
