"""Expected calls in the forms of other libraries."""

from __future__ import annotations

from typing import Any

import pytest

from otel_eval.scorers import create_scorer
from otel_eval.testing import call, trajectory

RUN = trajectory(call("search", arguments={"q": "rates"}, result="7"))
OTHER = trajectory(call("search", arguments={"q": "weather"}, result="8"))


@pytest.mark.parametrize(
    "expected",
    [
        {"name": "search", "arguments": {"q": "rates"}},
        {"name": "search", "arguments": '{"q": "rates"}'},
        {
            "name": "search",
            "input_parameters": {"q": "rates"},
            "description": "looks up",
            "reasoning": "why not",
        },
        {"name": "search", "args": {"q": "rates"}, "id": "call-1", "type": "tool_call"},
        {"name": "search", "args": {"q": "rates"}},
        {
            "id": "call-1",
            "type": "function",
            "function": {"name": "search", "arguments": '{"q": "rates"}'},
        },
        {"type": "function", "function": {"name": "search", "arguments": {"q": "rates"}}},
    ],
    ids=["own", "json-text", "deepeval", "langchain", "adk-uipath", "openai", "openai-object"],
)
@pytest.mark.parametrize("single", [False, True])
def test_arguments_are_read_in_every_spelling(expected: dict[str, Any], single: bool) -> None:
    """In a list, and a single call without one."""
    scorer = create_scorer(
        {"type": "tool_call_args", "expected": expected if single else [expected]}
    )
    assert [scorer(run).value for run in (RUN, OTHER)] == [1.0, 0.0]


@pytest.mark.parametrize(
    "expected", [{"name": "search", "result": 7}, {"name": "search", "output": "7"}]
)
def test_results_are_read_in_every_spelling(expected: dict[str, Any]) -> None:
    """UiPath and deepeval call them output."""
    scorer = create_scorer({"type": "tool_call_output", "expected": [expected]})
    assert [scorer(run).value for run in (RUN, OTHER)] == [1.0, 0.0]


def test_a_function_without_arguments_expects_none() -> None:
    """OpenAI writes an empty text or an empty object."""
    for text in ("", "{}"):
        scorer = create_scorer(
            {
                "type": "tool_call_args",
                "expected": [{"function": {"name": "now", "arguments": text}}],
            }
        )
        assert scorer(trajectory(call("now", arguments={}))).value == 1.0
