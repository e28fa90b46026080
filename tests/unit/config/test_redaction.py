"""How a value that cannot be used is shown: short, on one line, without what is secret."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_eval.config import load
from otel_eval.errors import ConfigError, did_you_mean, redacted_repr
from otel_eval.scorers import create_scorer

SECRET = "hunter2-7f3a"


class Rude:
    """Has nothing to say for itself."""

    def __repr__(self) -> str:
        raise RuntimeError("no")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("a\nb", r"'a\nb'"),
        ({2: "more"}, "{2: 'more'}"),
        (("a", [1.5]), "('a', [1.5])"),
        ({"max_tokens": 5}, "{'max_tokens': 5}"),
        ((10**5000,), "(a number of thousands of digits,)"),
        ({"k": [10**5000]}, "{'k': [a number of thousands of digits]}"),
        ([[[[[1]]]]], "[[[[…]]]]"),
        (Rude(), "<Rude instance at"),
    ],
)
def test_a_value_is_shown_as_python_writes_it(value: Any, expected: str) -> None:
    """As far as there is room."""
    assert redacted_repr(value).startswith(expected)


@given(
    st.recursive(
        st.text() | st.integers() | st.none(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    )
)
def test_a_shown_value_fits_in_one_printable_line(value: Any) -> None:
    """And nothing in it moves a terminal's cursor."""
    assert len(redacted_repr(value)) <= 80
    assert redacted_repr(value).isprintable()


@pytest.mark.parametrize(
    "value",
    [
        {"headers": {"x-tenant": SECRET}},
        [{"otlp": {"Authorization": SECRET}}],
        {"api_key": SECRET, "apiKey": SECRET, "api-key": [SECRET]},
        {"token": SECRET, "client_secret": SECRET, "password": SECRET},
        f"Bearer {SECRET}",
        f"authorization: basic {SECRET}",
        f"https://user:{SECRET}@models.example/v1",
        f"https://user:p@{SECRET}@models.example/v1",
        f"https://user:p/{SECRET}@models.example/v1",
        f"https://user:p?{SECRET}@models.example/v1",
        {"endpoint": f"https://models.example/v1?key={SECRET}"},
        f"https://models.example/v1#{SECRET}",
        ["x" * 40, f"sk-{SECRET}"],
    ],
)
def test_a_secret_is_not_shown(value: Any) -> None:
    """Where its key says that it is one, or its own beginning does."""
    assert SECRET not in redacted_repr(value)
    assert "***" in redacted_repr(value)


@pytest.mark.parametrize(
    "given",
    [
        {"exporters": [{"otlp": {"endpoint": "http://h", "headers": {"x": SECRET}}}]},
        {"exporters": {"otlp": {"endpoint": f"http://u:{SECRET}@", "headers": [SECRET]}}},
        {"exporters": {"forward": {"endpoint": f"http://u:{SECRET}@h", "tls": {"ca_file": "x"}}}},
        {"exporters": {"forward": {"endpoint": f"u:{SECRET}@h:4317"}}},
        {"exporters": {"otlp": {"endpoint": f"h:4317?key={SECRET}"}}},
        {"telemetry": {"otlp": {"endpoint": f"ftp://h:4317?key={SECRET}"}}},
        {"judges": {"main": SECRET}},
        {"judges": {"main": f"http://u:{SECRET}@h"}},
        {
            "evaluations": [
                {
                    "name": "e",
                    "scorers": [
                        {"type": "llm_judge", "criteria": "x", "judge": f"http://u:{SECRET}@h"}
                    ],
                }
            ]
        },
        {"judges": [{"base_url": "http://h", "api_key": SECRET}]},
        {
            "judges": {
                "main": {
                    "base_url": f"http://u:{SECRET}@h",
                    "api_key": SECRET,
                    "api_key_env": SECRET,
                }
            }
        },
        {
            "evaluations": [
                {
                    "name": "e",
                    "scorers": [
                        {"type": "llm_judge", "criteria": "x", "judge": [{"api_key": SECRET}]}
                    ],
                }
            ]
        },
        {"evaluations": [{"name": "e", "scorers": [[{"headers": SECRET}]]}]},
        {"receivers": {"otlp": {"auth": [{"token": SECRET}]}}},
        {"telemetry": {"otlp": f"http://u:{SECRET}@h"}},
        {"conventions": [[{"token": SECRET}]]},
    ],
)
def test_no_error_of_a_configuration_shows_a_secret(given: Any) -> None:
    """Whatever it stands in."""
    with pytest.raises(ConfigError) as caught:
        load(given)
    assert SECRET not in str(caught.value)


def test_control_characters_are_escaped() -> None:
    """In keys too, which are shown as they are."""
    with pytest.raises(ConfigError) as caught:
        create_scorer({"type": "tool_errors", "a\n\x1b[31mb": 1})
    assert r"a\n\x1b[31mb: unknown key" in str(caught.value)


def test_a_near_name_is_suggested() -> None:
    """Else all there is to choose from."""
    assert did_you_mean("serach", ["search", "open"]) == "did you mean 'search'?"
    assert did_you_mean("xyzzy", ["search", "open"]) == "choose one of open, search"
    assert did_you_mean(3, ["search", "open"]) == "choose one of open, search"


def test_a_word_in_capitals_is_near_to_the_same_word_in_small_letters() -> None:
    """As other systems spell theirs; one of the same case is nearer."""
    assert did_you_mean("IN_ORDER", ["in_order", "exact"]) == "did you mean 'in_order'?"
    assert did_you_mean("F1", ["recall", "f1"]) == "did you mean 'f1'?"
    assert did_you_mean("OPENED", ["opened", "OPEN"]) == "did you mean 'opened'?"
