"""Cases in which a naive implementation of the specification of the scorers gives a wrong score."""

from __future__ import annotations

from typing import get_args

import pytest

from otel_eval.model import Failed, Skipped, SkipReason, Unnamed
from otel_eval.scorers import create_scorer, scorer
from otel_eval.testing import call, trajectory


def agreement(mode, expected, actual):
    """The value of `tool_call_args` for one expected and one actual call."""
    spec = {
        "type": "tool_call_args",
        "arguments": mode,
        "expected": [{"name": "search", "arguments": expected}],
    }
    return create_scorer(spec)(trajectory(call("search", arguments=actual))).value


def test_arguments_given_as_json_text_agree_with_the_same_text(subtests: pytest.Subtests) -> None:
    """Both sides are decoded; a former version decoded only the expected one."""
    for mode in ["exact", "subset", "superset", "overlap", ["q"]]:
        for text in ['{"q": "rates"}', '"rates"', "[1, 2]", "7"]:
            with subtests.test(mode=mode, text=text):
                assert agreement(mode, text, text) == 1.0


@pytest.mark.parametrize("mode", ["exact", "subset", "superset", "overlap", ["q"]])
def test_arguments_given_as_json_text_are_what_they_spell(mode):
    """It holds for both sides."""
    assert (
        agreement(mode, {"q": "rates"}, '{"q": "rates"}')
        == agreement(mode, '{"q": "rates"}', {"q": "rates"})
        == 1.0
    )
    assert agreement(mode, {"q": "rates"}, '{"q": "other"}') == 0.0


def test_a_bare_value_that_was_recorded_without_a_name_equals_the_expected_one(
    subtests: pytest.Subtests,
) -> None:
    """It holds for `exact`, too: the name `__value__` is added when the call is read and was not
    recorded.
    """
    for mode in ["exact", "subset", "superset", "overlap"]:
        for value in ["rates", 7, [1, 2], True]:
            with subtests.test(mode=mode, value=value):
                assert agreement(mode, value, Unnamed({"__value__": value})) == 1.0
                assert agreement(mode, value, Unnamed({"__value__": "another"})) == 0.0


@pytest.mark.parametrize("mode", ["exact", "subset", "superset", "overlap", ["q"]])
def test_many_calls_with_text_agree_as_few_do(mode):
    """Beyond a hundred pairs equal values are found by hashing."""
    texts = [f'{{"q": {number}}}' for number in range(12)]
    expected = [{"name": "search", "arguments": text} for text in texts]
    made = trajectory(*[call("search", arguments=text) for text in reversed(texts)])
    assert (
        create_scorer({"type": "tool_call_args", "arguments": mode, "expected": expected})(
            made
        ).value
        == 1.0
    )


@scorer("test.skips")
def skips(trajectory, reason):
    """A scorer that skips for the given reason."""
    return Skipped("why", reason=reason)


@pytest.mark.parametrize("reason", get_args(SkipReason))
def test_a_function_may_skip_for_each_reason_there_is(reason):
    """Reasons are those of the built-in scorers."""
    assert create_scorer({"type": "test.skips", "reason": reason})(trajectory()) == Skipped(
        "why", reason=reason
    )


@pytest.mark.parametrize("reason", ["", "no such order", "Not_Recorded", None, 3, ["not_recorded"]])
def test_a_skip_for_another_reason_is_no_outcome(reason):
    """The reason is a label of metrics, one of seven words; specifics belong to the text."""
    outcome = create_scorer({"type": "test.skips", "reason": reason})(trajectory())
    assert isinstance(outcome, Failed)
    assert outcome.error_type == "TypeError"
    assert (
        outcome.message
        == f"test.skips returned a reason that is not one of {', '.join(get_args(SkipReason))}"
    )
