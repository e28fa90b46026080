"""Invalid specifications are rejected when the scorer is built, with one line that names the
remedy.
"""

from __future__ import annotations

from dataclasses import fields

import pytest

from otel_eval.errors import ConfigError
from otel_eval.interfaces import Scorer
from otel_eval.scorers import create_scorer, list_scorers

COUNT = {"type": "tool_call_count"}
ORDER = {"type": "tool_call_order"}
ARGS = {"type": "tool_call_args"}
TOOLS = {"type": "tool_correctness", "expected": []}
PATTERN = {"type": "trajectory_pattern"}
MODEL = {"base_url": "http://models.example/v1", "model": "m"}
LLM = {"type": "llm_judge", "judge": MODEL, "criteria": "It is polite."}

REFUSED = [
    # what is given, the key and the remedy that the message names
    ("text", "'text'", "write a mapping"),
    ({}, "type", "write a mapping"),
    ({"type": 3}, "type: 3", "write a mapping"),
    ({"type": "tool_call_cuont"}, "'tool_call_cuont'", "did you mean 'tool_call_count'?"),
    ({"type": "xyzzy"}, "'xyzzy'", "choose one of"),
    ({"type": "no.such:thing"}, "type: 'no.such:thing'", "package.module:attribute"),
    ({"type": "otel_eval.model:UNRECORDED"}, "UNRECORDED", "can be called"),
    ({"type": "dag"}, "nodes: is missing", "add it"),
    ({"type": "llm_judge"}, "judge: is missing; add it", "criteria: is missing; add it"),
    ({**LLM, "judge": "main"}, "judge: 'main'", "write judge: {base_url:"),
    ({**LLM, "judge": len}, "judge: <built-in function len>", "write async def"),
    (
        {**LLM, "judge": {"model": "m", "base_url": "models.example"}},
        "judge.base_url: 'models.example'",
        "write e.g.",
    ),
    (
        {**LLM, "judge": {"model": "m", "base_url": "http://u:pw@models.example"}},
        "judge.base_url",
        "leave them out",
    ),
    ({**LLM, "judge": {"base_url": "http://models.example"}}, "judge.model", "is missing"),
    (
        {**LLM, "judge": {**MODEL, "api_key": "k"}},
        "judge.api_key: unknown key",
        "did you mean 'api_key_env'?",
    ),
    (
        {**LLM, "judge": {**MODEL, "api_key_env": "sk-1"}},
        "judge.api_key_env: the value is not the name",
        "never the key",
    ),
    (
        {**LLM, "judge": {**MODEL, "api_key_env": "NO_SUCH_KEY"}},
        "judge.api_key_env: the environment variable 'NO_SUCH_KEY' is unset",
        "set it",
    ),
    (
        {**LLM, "judge": {**MODEL, "api_key_file": "/no/such"}},
        "judge.api_key_file: '/no/such' cannot be read",
        "name a file",
    ),
    (
        {**LLM, "judge": {**MODEL, "api_key_file": "/dev/zero"}},
        "'/dev/zero' cannot be read (no regular file)",
        "name a file",
    ),
    ({**LLM, "judge": {**MODEL, "retries": -1}}, "judge.retries: -1", "is less than 0; raise it"),
    (
        {**LLM, "judge": {**MODEL, "per_minute": 0}},
        "judge.per_minute: 0",
        "is less than 1; raise it",
    ),
    ({**LLM, "judge": {**MODEL, "timeout": "soon"}}, "judge.timeout: 'soon'", "write e.g."),
    ({**LLM, "judge": {**MODEL, "timeout": 0}}, "judge.timeout: 0", "greater than 0"),
    (
        {**LLM, "judge": {**MODEL, "parameters": {"model": "x"}}},
        "judge.parameters.model",
        "leave it out",
    ),
    ({**LLM, "rubric": {2: "more"}}, "rubric: {2: 'more'}", "from 0 to 1"),
    ({**LLM, "rubric": {-0.5: "less"}}, "rubric: {-0.5: 'less'}", "from 0 to 1"),
    (
        {**LLM, "rubric": {0: "rude", True: "polite"}},
        "rubric: {0: 'rude', True: 'polite'}",
        "from 0 to 1",
    ),
    ({**LLM, "rubric": {0: "rude", 1: 3}}, "rubric: {0: 'rude', 1: 3}", "with a text each"),
    ({**LLM, "rubric": {}}, "rubric: {}", "from 0 to 1"),
    ({**LLM, "rubric": " "}, "rubric: ' '", "a non-empty text"),
    ({**LLM, "sample": 2}, "sample: 2", "0 to 1"),
    ({**TOOLS, "available_tools": "a"}, "available_tools: 'a'", "a list of tools"),
    (
        {**TOOLS, "available_tools": [{"title": "a"}, 3]},
        "available_tools[0]: {'title': 'a'}",
        "available_tools[1]: 3",
    ),
    (
        {**TOOLS, "available_tools": ["", {"name": ""}]},
        "available_tools[0]: ''",
        "available_tools[1]: {'name': ''}",
    ),
    ({"type": "tool_errors", "treshold": 1}, "treshold", "did you mean 'threshold'?"),
    ({"type": "tool_errors", "threshold": -0.1}, "threshold: -0.1", "0 to 1"),
    ({"type": "tool_errors", "threshold": 1.1}, "threshold: 1.1", "0 to 1"),
    ({"type": "tool_errors", "threshold": float("nan")}, "threshold: nan", "0 to 1"),
    ({"type": "tool_errors", "threshold": True}, "threshold: True", "0 to 1"),
    ({"type": "tool_errors", "strict": "yes"}, "strict: 'yes'", "true or false"),
    ({"type": "tool_errors", "name": ""}, "name: ''", "text"),
    ({"type": "tool_errors", "tools": ["a"]}, "tools: ['a']", "include"),
    (
        {"type": "tool_errors", "tools": {"includes": ["a"]}},
        "tools.includes",
        "did you mean 'include'?",
    ),
    (
        {"type": "tool_errors", "tools": {"excluded": ["a"]}},
        "tools.excluded",
        "did you mean 'exclude'?",
    ),
    ({"type": "tool_errors", "tools": {"include": "a"}}, "tools.include: 'a'", "list"),
    ({"type": "tool_errors", "tools": {"include": ["a", ""]}}, "tools.include: ['a', '']", "list"),
    ({"type": "tool_errors", "tools": {"include": ["a", 3]}}, "tools.include: ['a', 3]", "list"),
    ({"type": "tool_errors", "failed_calls": "drop"}, "failed_calls: 'drop'", "include, exclude"),
    (
        {"type": "tool_errors", "failed_calls": ["include"]},
        "failed_calls: ['include']",
        "include, exclude",
    ),
    (COUNT, "criteria", "missing"),
    ({**COUNT, "criteria": {}}, "criteria: {}", "write e.g."),
    ({**COUNT, "criteria": {"a": 3}}, "criteria.a: 3", '"<= 3"'),
    (
        {**COUNT, "criteria": {"a": f"<= {10**18}", "b": ["<=", 10**18]}},
        "criteria.a: '<= 1000000",
        "criteria.b: 1000000",
    ),
    ({**COUNT, "criteria": {"a": "=> 3"}}, "criteria.a: '=> 3'", "operator"),
    ({**COUNT, "criteria": {"a": "<= -3"}}, "criteria.a: '<= -3'", "0 or more"),
    ({**COUNT, "criteria": {"a": "<= 3.5"}}, "criteria.a: '<= 3.5'", "whole number"),
    ({**COUNT, "criteria": {"a": "<= " + "9" * 5000}}, "criteria.a", "whole number"),
    ({**COUNT, "criteria": {"a": ["~", 3]}}, "criteria.a: '~'", "operators"),
    ({**COUNT, "criteria": {"a": ["<= ", 3]}}, "criteria.a: '<= '", "'<='"),
    ({**COUNT, "criteria": {"a": ["<=", "3"]}}, "criteria.a: '3'", "whole number"),
    ({**COUNT, "criteria": {"a": ["<=", True]}}, "criteria.a: True", "whole number"),
    ({**COUNT, "criteria": {"a": ["<=", 3, 4]}}, "criteria.a: ['<=', 3, 4]", "write e.g."),
    ({**COUNT, "criteria": {1: "<= 3"}}, "criteria: 1", "name of a tool"),
    (ORDER, "expected", "missing"),
    ({**ORDER, "expected": "a"}, "expected: 'a'", "[search, [open, read]]"),
    ({**ORDER, "expected": ["a", 3]}, "expected[1]: 3", "quotes"),
    (
        {**ORDER, "expected": {"dataset": "cases.jsonl", "key": "id"}},
        "expected: names a dataset",
        "write it as reference: {dataset:",
    ),
    ({**ORDER, "expected": ["a", []]}, "expected[1]: []", "leave the group out"),
    ({**ORDER, "expected": ["a", ["b", ["c"]]]}, "expected[1][1]: ['c']", "name of a tool"),
    ({**ORDER, "expected": [{"name": "a"}]}, "expected[0]", "name of a tool"),
    ({**ORDER, "expected": [], "match": "exact"}, "match", "choose one of"),
    ({**ORDER, "expected": [], "concurrency": "off"}, "concurrency: 'off'", "ignore"),
    ({**ARGS, "expected": [{"arguments": {}}]}, "expected[0].name", "missing"),
    (
        {**ARGS, "expected": [{"name": "a", "argumnts": {}}]},
        "expected[0].argumnts",
        "did you mean 'arguments'?",
    ),
    (
        {**ARGS, "expected": [{"name": "a", "args": {}, "arguments": {}}]},
        "expected[0]: args and arguments are the same in two spellings",
        "keep arguments",
    ),
    (
        {**ARGS, "expected": [{"name": "a", "function": {"name": "a"}}]},
        "expected[0]: function and name are two spellings of a call",
        "keep one of them",
    ),
    (
        {**ARGS, "expected": [{"function": {"name": "a", "arguments": "[1]"}}]},
        "expected[0].function.arguments: '[1]' is not the JSON text of an object",
        "write e.g.",
    ),
    (
        {**ARGS, "expected": [{"function": "a"}]},
        "expected[0].function: 'a' is not a mapping",
        "write {name: search",
    ),
    ({**ARGS, "expected": [{"nam": "a"}]}, "expected[0].nam: unknown key", "did you mean 'name'?"),
    ({**ARGS, "expected": [{"name": "a", "result": 1}]}, "expected[0].result", "choose one of"),
    ({**ARGS, "expected": [], "arguments": "some"}, "arguments: 'some'", "subset"),
    ({**ARGS, "expected": [], "arguments": []}, "arguments: []", "a list of keys"),
    ({**ARGS, "expected": [], "arguments": ["id", ""]}, "arguments: ['id', '']", "a list of keys"),
    ({**ARGS, "expected": [], "arguments": ["id", 3]}, "arguments: ['id', 3]", "a list of keys"),
    ({**ARGS, "expected": [{"name": ""}]}, "expected[0].name: ''", "name of a tool"),
    (
        {"type": "execution_order", "expected": [], "match": "inorder"},
        "match: 'inorder'",
        "did you mean 'in_order'?",
    ),
    ({**ARGS, "arguments": "supset"}, "arguments: 'supset'", "did you mean 'superset'?"),
    (
        {**ARGS, "arguments": 7},
        "arguments: 7",
        "write e.g. arguments: subset or arguments: [user.id]",
    ),
    ({**TOOLS, "compare": ["results"]}, "compare[0]: 'results'", "did you mean 'result'?"),
    ({**TOOLS, "available_tools": ["a"]}, "available_tools: ['a']", "needs a judge"),
    ({**TOOLS, "judge": {"model": "x"}}, "judge.base_url", "is missing"),
    ({**TOOLS, "measure": "accuracy"}, "measure: 'accuracy'", "recall"),
    (
        {"type": "time_cost", "max_ms": 0},
        "max_ms: 0 is not a positive number of milliseconds;",
        "write e.g. max_ms: 30000",
    ),
    ({"type": "time_cost", "max_ms": -5}, "max_ms: -5", "positive"),
    ({"type": "time_cost", "max_ms": float("inf")}, "max_ms: inf", "positive"),
    ({"type": "time_cost", "max_ms": 10**400}, "max_ms: 1000", "positive"),
    ({"type": "time_cost", "max_ms": "5s"}, "max_ms: '5s'", "positive"),
    (
        {"type": "trajectory_structure", "required_keys": ["argument"]},
        "'argument'",
        "did you mean 'arguments'?",
    ),
    (
        {"type": "trajectory_structure", "required_keys": "result"},
        "required_keys: 'result'",
        "[arguments, result]",
    ),
    ({"type": "trajectory_structure", "required_keys": []}, "required_keys", "leave it out"),
    (
        {"type": "trajectory_structure", "required_keys": ["result", ""]},
        "required_keys: ['result', '']",
        "[arguments, result]",
    ),
    (
        {"type": "trajectory_structure", "required_keys": ["result", 3]},
        "required_keys: ['result', 3]",
        "[arguments, result]",
    ),
    ({"type": "forbidden_tools", "patterns": []}, "patterns: []", "write e.g."),
    ({"type": "required_tools", "patterns": "a"}, "patterns: 'a'", "write e.g."),
    ({"type": "precedence", "rules": ["a after b"]}, "rules[0]: 'a after b'", "b only after a"),
    ({"type": "precedence", "rules": []}, "rules: []", "write e.g."),
    (
        {"type": "precedence", "rules": ["a then b within 5"]},
        "'b within 5' has the word 'within'",
        "a then b within 5s",
    ),
    (
        {"type": "precedence", "rules": ["never b before a"]},
        "'never b' has the word 'never'",
        "never b after a",
    ),
    (
        {"type": "precedence", "rules": ["a before b before c"]},
        "'b before c' has the word 'before'",
        "as a pattern, befor?",
    ),
    (
        {"type": "loop_detection", "max_repeats": 0},
        "0 is not a whole number of repetitions, 1 or",
        "write e.g. max_repeats: 3",
    ),
    (
        {"type": "loop_detection", "max_cycle": 0},
        "0 is not a whole number of calls, 1 or more",
        "write e.g. max_cycle: 4",
    ),
    (
        {"type": "error_recovery", "within": 1.5},
        "1.5 is not a whole number of calls, 1 or more",
        "write e.g. within: 3",
    ),
    (
        {"type": "error_recovery", "within": 0},
        "0 is not a whole number of calls, 1 or more",
        "write e.g. within: 3",
    ),
    ({"type": "step_efficiency"}, "max_calls", "max_tokens"),
    (
        {"type": "step_efficiency", "max_calls": 0},
        "0 is not a whole number of calls, 1 or more",
        "e.g. max_calls: 10",
    ),
    (
        {"type": "step_efficiency", "max_model_calls": 0},
        "number of model calls, 1 or more",
        "e.g. max_model_calls: 10",
    ),
    (
        {"type": "step_efficiency", "max_tokens": True},
        "number of tokens, 1 or more",
        "write e.g. max_tokens: 20000",
    ),
    (
        {"type": "label_distribution", "label": "x", "window": 0},
        "whole number of runs, 1 or more",
        "write e.g. window: 1000",
    ),
    ({"type": "label_distribution"}, "label", "missing"),
    (PATTERN, "pattern", "missing"),
    ({**PATTERN, "pattern": 3}, "pattern: 3", "any_order"),
    ({**PATTERN, "pattern": {"sequences": ["a"]}}, "pattern.sequences", "did you mean 'sequence'?"),
    ({**PATTERN, "pattern": {"sequence": "a"}}, "pattern.sequence: 'a'", "[search, open]"),
    ({**PATTERN, "pattern": {"choice": []}}, "pattern.choice: []", "[search, open]"),
    ({**PATTERN, "pattern": {"sequence": [], "choice": ["a"]}}, "pattern", "one kind"),
    (
        {**PATTERN, "pattern": {"repeat": "a", "min": 3, "max": 1}},
        "pattern.max: 1",
        "min: 1, max: 3",
    ),
    (
        {**PATTERN, "pattern": {"repeat": "a", "min": -1}},
        "a whole number of repetitions, 0 or",
        "write e.g. pattern.min: 1",
    ),
    (
        {**PATTERN, "pattern": {"repeat": "a", "max": -1}},
        "a whole number of repetitions, 0 or",
        "write e.g. pattern.max: 3",
    ),
    (
        {**PATTERN, "pattern": {"repeat": {"of": "a", "mix": 1}}},
        "pattern.repeat.mix: unknown key",
        "did you mean 'mi",
    ),
    (
        {**PATTERN, "pattern": {"repeat": {"of": "a", "on": 1}}},
        "pattern.repeat.on: unknown key",
        "choose one of max, min, of",
    ),
    (
        {**PATTERN, "pattern": {"choice": ["a"], "min": 1}},
        "pattern.min: unknown key",
        "choose one of any_order",
    ),
    ({**PATTERN, "pattern": ""}, "pattern: ''", "any_order"),
    ({**PATTERN, "pattern": {}}, "pattern: {}", "one kind"),
    (
        {**PATTERN, "pattern": {"any_order": list("abcdefghijkl")}},
        "pattern.any_order",
        "at most 10",
    ),
    (
        {**PATTERN, "pattern": {"repeat": {"any_order": list("abcdefgh")}, "max": 900}},
        "pattern",
        "smaller any_order",
    ),
]


@pytest.mark.parametrize(
    ("spec", "names", "remedy"), REFUSED, ids=[str(spec)[:70] for spec, _, _ in REFUSED]
)
def test_an_unusable_specification_is_refused_with_key_value_and_remedy(spec, names, remedy):
    """The message is one line, and cuts a long value."""
    with pytest.raises(ConfigError) as refused:
        create_scorer(spec)
    message = str(refused.value)
    assert names in message
    assert remedy in message
    assert "\n" not in message
    assert len(message) < 700


SMALLEST = {
    "tool_call_count": {"criteria": {"a": "> 0"}},
    "forbidden_tools": {"patterns": ["a"]},
    "required_tools": {"patterns": ["a"]},
    "precedence": {"rules": ["a before b"]},
    "step_efficiency": {"max_calls": 3},
    "label_distribution": {"label": "intent"},
    "trajectory_pattern": {"pattern": ["a"]},
    "execution_order": {"expected": ["a"]},
    "tool_call_order": {"expected": ["a"]},
    "tool_call_args": {"expected": ["a"]},
    "tool_call_output": {"expected": ["a"]},
    "tool_correctness": {"expected": ["a"], "available_tools": []},
    "trajectory_match": {"expected": ["a"]},
    "expression": {"expression": "true"},
    "dag": {
        "root": "a",
        "nodes": {
            "a": {"type": "choice", "cel": "'b'", "children": [{"verdict": "b", "score": 1}]}
        },
    },
    "answer_accuracy": {"judge": MODEL},
    "llm_judge": {"judge": MODEL, "criteria": "It is polite."},
}
COMMON = {
    "name": "mine",
    "threshold": 1,
    "strict": False,
    "tools": {"include": ["*"]},
    "failed_calls": "exclude",
}


# those of other tests have one
@pytest.mark.parametrize("kind", [kind for kind in list_scorers() if "." not in kind])
def test_every_scorer_takes_the_common_parameters(kind):
    """The scorer satisfies the protocol `Scorer`."""
    scorer = create_scorer({"type": kind, **SMALLEST.get(kind, {}), **COMMON})
    assert isinstance(scorer, Scorer)
    assert (scorer.name, scorer.type, scorer.version) == ("mine", kind, "1")
    assert create_scorer({"type": kind, **SMALLEST.get(kind, {})}).name == kind


# those of other tests have one
@pytest.mark.parametrize("kind", [kind for kind in list_scorers() if "." not in kind])
def test_a_word_that_holds_where_none_is_written_may_be_written(kind):
    """The default of a choice is one of the allowed words."""
    given = {"type": kind, **SMALLEST.get(kind, {})}
    words = {
        key.name: key.default
        for key in fields(create_scorer(given))
        if key.default and isinstance(key.default, str)
    }
    again = create_scorer({**given, **words})
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
            "criteria.c: '~'",
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
            "expected[0].name: missing",
            "expected[1]: 3",
            "expected[2][1].argumnts: unknown",
            "expected[2][1].name: missing",
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
    ({"type": "tool_call_count", "a": 1}, ["a: unknown key", "criteria: is missing"]),
    ({"type": "tool_call_count", "threshold": 2}, ["criteria: is missing", "threshold: 2"]),
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
        ],
    ),
    (
        {"type": "trajectory_pattern", "pattern": {"repeat": {"of": "a", "min": -1, "max": "x"}}},
        ["pattern.repeat.min: -1", "pattern.repeat.max: 'x'"],
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
