"""What the specification of the scorers decides, where a naive implementation of its text gave another score."""

from __future__ import annotations

import pytest

from otel_eval.model import Unnamed
from otel_eval.scorers import create_scorer
from otel_eval.testing import call, trajectory


def agreement(mode, expected, actual):
    """The value of `tool_call_args` for one expected and one actual call."""
    spec = {"type": "tool_call_args", "arguments": mode, "expected": [{"name": "search", "arguments": expected}]}
    return create_scorer(spec)(trajectory(call("search", arguments=actual))).value


@pytest.mark.parametrize("mode", ["exact", "subset", "superset", "overlap", ["q"]])
@pytest.mark.parametrize("text", ['{"q": "rates"}', '"rates"', "[1, 2]", "7"])
def test_arguments_given_as_json_text_agree_with_the_same_text(mode, text):
    """Both sides are decoded alike, as results are; only the expected side was."""
    assert agreement(mode, text, text) == 1.0


@pytest.mark.parametrize("mode", ["exact", "subset", "superset", "overlap", ["q"]])
def test_arguments_given_as_json_text_are_what_they_spell(mode):
    """On either side."""
    assert agreement(mode, {"q": "rates"}, '{"q": "rates"}') == agreement(mode, '{"q": "rates"}', {"q": "rates"}) == 1.0
    assert agreement(mode, {"q": "rates"}, '{"q": "other"}') == 0.0


@pytest.mark.parametrize("mode", ["exact", "subset", "superset", "overlap"])
@pytest.mark.parametrize("value", ["rates", 7, [1, 2], True])
def test_a_bare_value_that_was_recorded_without_a_name_equals_the_expected_one(mode, value):
    """Exactly as well: the name `__value__` is added when the call is read, it was not recorded."""
    assert agreement(mode, value, Unnamed({"__value__": value})) == 1.0
    assert agreement(mode, value, Unnamed({"__value__": "another"})) == 0.0


@pytest.mark.parametrize("mode", ["exact", "subset", "superset", "overlap", ["q"]])
def test_many_calls_with_text_agree_as_few_do(mode):
    """Beyond a hundred pairs equal values are found by hashing."""
    texts = [f'{{"q": {number}}}' for number in range(12)]
    expected = [{"name": "search", "arguments": text} for text in texts]
    made = trajectory(*[call("search", arguments=text) for text in reversed(texts)])
    assert create_scorer({"type": "tool_call_args", "arguments": mode, "expected": expected})(made).value == 1.0
