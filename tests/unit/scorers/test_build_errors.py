"""Building scorers: the parameters that all of them take, and every problem of a specification at
once.
"""

from __future__ import annotations

from dataclasses import fields

import pytest

from otel_eval.errors import ConfigError
from otel_eval.interfaces import Scorer
from otel_eval.scorers import create_scorer
from tests.support.configurations import BUILT_IN, MINIMAL

COMMON = {
    "name": "mine",
    "threshold": 1,
    "strict": False,
    "tools": {"include": ["*"]},
    "failed_calls": "exclude",
}


@pytest.mark.parametrize("kind", BUILT_IN)
def test_every_scorer_takes_the_common_parameters_and_its_defaults(kind):
    """It satisfies the protocol `Scorer`, and the default of a choice is one of its words."""
    scorer = create_scorer({**MINIMAL[kind], **COMMON})
    assert isinstance(scorer, Scorer)
    assert (scorer.name, scorer.type, scorer.version) == ("mine", kind, "1")
    by_default = create_scorer(MINIMAL[kind])
    assert by_default.name == kind
    words = {
        key.name: key.default
        for key in fields(by_default)
        if key.default and isinstance(key.default, str)
    }
    again = create_scorer({**MINIMAL[kind], **words})
    assert {key: getattr(again, key) for key in words} == words


SEVERAL = [
    # a specification, and how each problem of it begins
    (
        {
            "type": "tool_call_count",
            "treshold": 1,
            "strict": "yes",
            "criteria": {"a": 3, "b": "=> 1", "c": ["~", 1]},
        },
        [
            "treshold: unknown",
            "strict: 'yes'",
            "criteria.a: 3",
            "criteria.b: '=> 1'",
            "criteria.c[0]: '~'",
        ],
    ),
    (
        {
            "type": "tool_call_args",
            "expected": [{"nam": "a"}, 3, ["b", {"argumnts": {}}]],
            "arguments": "some",
        },
        [
            "expected[0].nam: unknown",
            "expected[1]: 3",
            "expected[2][1].argumnts: unknown",
            "expected[2][1].name: is missing",
            "arguments: 'some'",
        ],
    ),
    (
        {"type": "tool_call_order", "expectd": ["a"]},
        ["expectd: unknown key; did you mean 'expected'?"],
    ),
    ({"type": "tool_call_order", "expected": "a"}, ["expected: 'a'"]),
    (
        {"type": "tool_call_count", "criterias": {"a": "> 0"}},
        ["criterias: unknown key; did you mean 'criteria'?"],
    ),
    ({"type": "forbidden_tools", "a": 1}, ["a: unknown key", "patterns: is missing"]),
    ({"type": "forbidden_tools", "threshold": 2}, ["patterns: is missing", "threshold: 2"]),
    ({"type": "step_efficiency", "max_calls": 0}, ["max_calls: 0"]),
    ({"type": "step_efficiency", 1: 0}, ["1: unknown key"]),
    (
        {"type": "precedence", "rules": ["a befor b", "a before b", 3]},
        ["rules[0]: 'a befor b'", "rules[2]: 3"],
    ),
    (
        {"type": "tool_errors", "tools": {"includes": ["a"], "exclude": "b"}},
        ["tools.includes: unknown", "tools.exclude: 'b'"],
    ),
    (
        {"type": "trajectory_structure", "required_keys": ["argument", "result", "outcome"]},
        ["required_keys: no call can have 'argument'", "required_keys: no call can have 'outcome'"],
    ),
    (
        {
            "type": "trajectory_pattern",
            "pattern": [
                3,
                "a",
                {"choice": [4, {"any_order": ["b", 5, 6]}]},
                {"repeat": 7, "mim": 1},
            ],
        },
        [
            "pattern[0]: 3",
            "pattern[2].choice[0]: 4",
            "pattern[2].choice[1].any_order[1]: 5",
            "pattern[2].choice[1].any_order[2]: 6",
            "pattern[3].mim: unknown key; did you mean 'min'?",
            "pattern[3].repeat: 7",
        ],
    ),
    (
        {"type": "trajectory_pattern", "pattern": {"repeat": "a", "min": -1, "max": "x"}},
        ["pattern.min: -1", "pattern.max: 'x'"],
    ),
]


@pytest.mark.parametrize(("spec", "begins"), SEVERAL, ids=[str(spec)[:60] for spec, _ in SEVERAL])
def test_every_problem_of_a_specification_is_reported_at_once(spec, begins):
    """They are in the order of the specification, without duplicates."""
    with pytest.raises(ConfigError) as refused:
        create_scorer(spec)
    problems = refused.value.problems
    assert [
        problem[: len(begin)] for problem, begin in zip(problems, begins, strict=True)
    ] == begins
    assert str(refused.value) == "; ".join(problems)
