"""Lists of words: each of them is known, and told where one is near it; and what holds where
nothing is written.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from otel_eval.errors import ConfigError
from otel_eval.model import ToolError
from otel_eval.scorers import create_scorer
from otel_eval.testing import call, trajectory

FUNCTIONS = (
    "size all exists exists_one filter map has contains startsWith endsWith matches int uint double"
    " string bool bytes type timestamp duration dyn split join replace trim lowerAscii"
)
RESERVED = (
    "run calls reference input output as break const continue else false for function if import in"
    " let loop package namespace null return true var void while bool bytes double dyn int list map"
    " null_type string type uint"
)


def refusal(spec):
    """What is said of a specification."""
    with pytest.raises(ConfigError) as refused:
        create_scorer(spec)
    return str(refused.value)


def test_a_misspelt_function_gets_a_suggestion(subtests: pytest.Subtests) -> None:
    """Of CEL and of the further ones."""
    for name in FUNCTIONS.split():
        with subtests.test(name=name):
            said = refusal({"type": "expression", "expression": f"{name}x(1)"})
            assert said.endswith(f"'{name}x' is not known; did you mean '{name}'?")


@pytest.mark.parametrize("variable", ["run", "calls", "reference"])
def test_a_misspelt_variable_gets_a_suggestion(variable):
    """Each of them."""
    said = refusal({"type": "expression", "expression": f"{variable}x == 1"})
    assert said.endswith(f"'{variable}x' is not known; did you mean '{variable}'?")


def test_a_word_of_expressions_cannot_be_the_label_of_a_task(subtests: pytest.Subtests) -> None:
    """The expression would look at something else, or be none."""
    for word in RESERVED.split():
        with subtests.test(word=word):
            task = {"type": "task", "cel": "1", "output_label": word, "children": ["b"]}
            end = [{"verdict": True, "score": 1}, {"verdict": False, "score": 0}]
            nodes = {"a": task, "b": {"type": "binary", "cel": "true", "children": end}}
            message = refusal({"type": "dag", "root": "a", "nodes": nodes})
            assert f"nodes.a.output_label: '{word}' is not a name of letters, digits" in message


@pytest.mark.parametrize("kind", ["binary", "choice"])
def test_a_decision_whose_verdicts_are_no_list_gets_an_example(kind):
    """Of verdicts with scores."""
    nodes = {"a": {"type": kind, "cel": "true", "children": "b"}}
    assert "write e.g. [{verdict: …, score: 10}, " in refusal(
        {"type": "dag", "root": "a", "nodes": nodes}
    )


MEANT = {
    "=<": "<=",
    "=>": ">=",
    "=!": "!=",
    "<>": "!=",
    "===": "==",
    "!==": "!=",
    "≤": "<=",
    "≥": ">=",
    "≠": "!=",
    "eq": "==",
    "ne": "!=",
    "lt": "<",
    "lte": "<=",
    "le": "<=",
    "gt": ">",
    "gte": ">=",
    "ge": ">=",
}


def test_operators_of_other_languages_get_a_suggestion(subtests: pytest.Subtests) -> None:
    """Before a number, and alone."""
    for written, meant in MEANT.items():
        with subtests.test(written=written, meant=meant):
            for criterion in (f"{written} 3", [written, 3]):
                said = refusal({"type": "tool_call_count", "criteria": {"a": criterion}})
                assert said.endswith(f"did you mean {meant!r}?")


@pytest.mark.parametrize("criterion", ["<= -3", "<= three", "3", ["~ ", 3]])
def test_an_unknown_operator_gets_an_example(criterion):
    """The operator is right, or nothing is like it."""
    assert refusal({"type": "tool_call_count", "criteria": {"a": criterion}}).endswith(
        "operators in quotes"
    )


@pytest.mark.parametrize(
    ("sign", "holds"),
    [("=", "=="), ("==", "=="), ("!=", "<>"), ("<", "<"), ("<=", "<="), (">", ">"), (">=", ">=")],
)
def test_each_operator_compares_as_it_says(sign, holds):
    """With one call fewer, as many, and one more."""
    expected = {
        "==": [0, 1, 0],
        "<>": [1, 0, 1],
        "<": [1, 0, 0],
        "<=": [1, 1, 0],
        ">": [0, 0, 1],
        ">=": [0, 1, 1],
    }[holds]
    scorer = create_scorer({"type": "tool_call_count", "criteria": {"a": f"{sign} 2"}})
    assert [scorer(trajectory(*[call("a")] * number)).value for number in (1, 2, 3)] == expected


def test_every_field_of_a_call_can_be_required(subtests: pytest.Subtests) -> None:
    """As a run holds it."""
    for key, recorded in [
        ("name", {"name": "a"}),
        ("arguments", {"arguments": {}}),
        ("result", {"result": 1}),
        ("error", {"error": ToolError("Timeout")}),
        ("call_id", {"call_id": "c"}),
        ("span_id", {"span_id": "s"}),
        ("start_ns", {"start_ns": 1}),
        ("end_ns", {"end_ns": 1}),
        ("agent_path", {"agent_path": ("a",)}),
    ]:
        with subtests.test(key=key, recorded=recorded):
            structure = create_scorer({"type": "trajectory_structure", "required_keys": [key]})
            made = trajectory(replace(call("a"), **recorded))
            assert structure(made).value == 1


@pytest.mark.parametrize("kind", ["llm_judge", "answer_accuracy", "tool_correctness", "dag"])
def test_a_judge_is_asked_about_every_run_unless_a_share_is_written(kind):
    """All of them, not more than all."""
    leaf = [{"verdict": True, "score": 1}, {"verdict": False, "score": 0}]
    own = {
        "llm_judge": {"criteria": "Good?"},
        "answer_accuracy": {},
        "tool_correctness": {"expected": ["a"]},
        "dag": {"root": "a", "nodes": {"a": {"type": "binary", "cel": "true", "children": leaf}}},
    }
    assert create_scorer({"type": kind, "judge": unused_judge, **own[kind]}).sample == 1


async def unused_judge(prompt):
    """A judge that is not asked."""
    raise AssertionError(prompt)


def test_calls_matched_by_their_names_have_no_weight():
    """Where arguments were not recorded either."""
    outcome = create_scorer({"type": "tool_call_order", "expected": ["a"]})(trajectory(call("a")))
    assert outcome.details["matched"] == [[0, 0]]
