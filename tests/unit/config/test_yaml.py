"""YAML as version 1.2 means it, and what is refused."""

from __future__ import annotations

import contextlib
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_eval.config.yaml_text import parse, typed
from otel_eval.errors import ConfigError


@pytest.mark.parametrize(
    ("written", "value"),
    [
        *(
            (word, word)
            for word in (
                "yes",
                "Yes",
                "no",
                "No",
                "on",
                "off",
                "y",
                "=",
                "1:30",
                "2026-11-20",
                "1_000",
                "0b1",
                "tru",
                "<<",
            )
        ),
        *((word, True) for word in ("true", "True", "TRUE")),
        *((word, None) for word in ("~", "null", "")),
        ("false", False),
        ("010", 10),
        ("0o10", 8),
        ("0x1F", 31),
        ("-5", -5),
        ("1e3", 1000.0),
        (".5", 0.5),
        ("-.inf", -math.inf),
        ('"3"', "3"),
        ("<= 3", "<= 3"),
        ("== 1", "== 1"),
        ("[==, 1]", ["==", 1]),
        ("[<, 1]", ["<", 1]),
        ("{a: [1, b]}", {"a": [1, "b"]}),
    ],
)
def test_a_value_is_what_yaml_1_2_says(written: str, value: Any) -> None:
    """Verdicts, tools, operators and dates stay text."""
    found = parse(f"key: {written}\n", where="eval.yaml")["key"]
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("text", "line", "operator"),
    [
        ("search: >= 3", 1, ">="),
        ("search: > 3", 1, ">"),
        ("a: 1\nsearch: >3", 2, ">"),
        ("search: >\nother: 1", 1, ">"),
        ("search: != 2", 1, "!="),
        ("search: [>, 1]", 1, ">"),
        ("a: 1\nb: 2\nsearch: [>=, 1]", 3, ">="),
        ("search: [!=, 1]", 1, "!="),
        ("criteria: {search: >= 3}", 1, ">="),
        ("- >= 3", 1, ">="),
    ],
)
def test_an_unquoted_operator_is_reported_with_its_line(
    text: str, line: int, operator: str
) -> None:
    """YAML has uses of its own for > and !, and its own message would not help."""
    with pytest.raises(ConfigError) as caught:
        parse(text, where="eval.yaml")
    assert str(caught.value).startswith(f"eval.yaml line {line}: an unquoted {operator} ")
    assert f'quote it, e.g. "{operator} 3"' in str(caught.value)


@pytest.mark.parametrize(
    ("text", "text_of_error"),
    [
        ("a: 1\nb: 2\na: 3", "line 3, column 1: the key 'a' is there twice"),
        (
            "a: !!python/object/apply:os.getcwd []",
            "line 1, column 4: could not determine a constructor for the tag",
        ),
        ("a: !own x", "could not determine a constructor for the tag '!own'"),
        ("a: [1", "line 1"),
        ("a: {b: c}: d", "line 1, column 10"),
        ("? [a]\n: b", "unhashable key"),
        ("a: &x [*x]", "recursive"),
        ("a: *unknown", "undefined alias"),
        ("a: 1\n---\nb: 2", "another document"),
        ("a: " + "9" * 5000, "check the numbers"),
        ("[" * 5000, "nested deeper than 50 levels"),
        ("a: \x00", "special characters"),
        ("\ta: 1", "line 1, column 1"),
    ],
)
def test_unreadable_yaml_is_reported_in_one_line(text: str, text_of_error: str) -> None:
    """It names the place and never shows a traceback."""
    with pytest.raises(ConfigError) as caught:
        parse(text, where="eval.yaml")
    assert text_of_error in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_few_aliases_are_welcome() -> None:
    """An anchor may be used again."""
    assert parse("a: &x [1]\nb: *x", where="eval.yaml") == {"a": [1], "b": [1]}


@pytest.mark.parametrize("text", ["", "3", "on", "1.5", "true", "0o17", "~", "a b"])
def test_a_text_is_typed_as_the_same_scalar_in_a_file(text: str) -> None:
    """The environment and the file agree."""
    assert typed(text) == parse(f"- {text}", where="")[0]


@given(st.text(max_size=60))
def test_any_text_is_a_value_or_a_configuration_error(text: str) -> None:
    """Nothing else comes out."""
    with contextlib.suppress(ConfigError):
        parse(text, where="eval.yaml")


@pytest.mark.parametrize(
    ("text", "remedy"),
    [
        *(
            (
                text,
                (
                    "indented by blanks, that a blank follows each colon, that brackets and quotes"
                    " close"
                ),
            )
            for text in ("a: 1\n---\nb: 2", "a: 'b", "a: {{ b }}", "a: [b")
        ),
        ("a:\n\t- b", "indent with blanks instead of tabs"),
        ("a: *b", 'a value that begins with * or & needs quotes, e.g. "*"'),
        ("a: {b: *}", 'a value that begins with * or & needs quotes, e.g. "*"'),
        ("a: @b", "put the value in quotes"),
        ("a:\n  b: 1\n c: 2", "begin the lines of one level in the same column"),
        ("a: b: c", "put a value that contains a colon in quotes"),
        ("a: 1\nb\nc: 2", "write a colon and a blank after each key"),
        ("a: &a [*a]", "special characters are quoted"),
        ("[" * 51, "flatten it"),
        ("a: &a {b: 1}\nc:\n  <<: *a", "write the keys out"),
    ],
)
def test_invalid_yaml_is_reported_with_its_line_and_a_remedy(text: str, remedy: str) -> None:
    """In one line; the parser itself says only what it met."""
    with pytest.raises(ConfigError) as caught:
        parse(text, where="eval.yaml")
    text_of_error = str(caught.value)
    assert text_of_error.startswith("eval.yaml line ")
    assert remedy in text_of_error.partition("; ")[2]
    assert "\n" not in text_of_error


def test_a_quoted_key_of_two_angles_is_a_key() -> None:
    """Only the bare one would merge."""
    assert parse('"<<": 1', where="eval.yaml") == {"<<": 1}
