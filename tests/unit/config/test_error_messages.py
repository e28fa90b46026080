"""What a user reads who made a mistake: which key, what was written there, and what to write.

These are the messages that matter, in full; what holds for all of them is in `test_any_values.py`.
"""

from __future__ import annotations

from typing import Any

import pytest

from otel_eval.config import load
from otel_eval.errors import ConfigError
from otel_eval.scorers import create_scorer
from tests.support.configurations import MINIMAL, MODEL, scored_by

OTLP = {"endpoint": "http://h"}
FILE_MESSAGES = [
    # a configuration, and what is said of it
    ({"evaluation": []}, "evaluation: unknown key; did you mean 'evaluations'?"),
    (
        {"traces": {"decision_wiat": "1s"}},
        "traces.decision_wiat: unknown key; did you mean 'decision_wait'?",
    ),
    (
        {"traces": {"decision_wait": "1 fortnight"}},
        "traces.decision_wait: '1 fortnight' is not a duration between 0 and 365 days; write e.g."
        " 250ms, 1s, 5m or 1h",
    ),
    ({"traces": {"max_traces": 0}}, "traces.max_traces: 0 is less than 1; raise it"),
    (
        {"traces": {"decision_wait": "7s"}},
        "traces.decision_wait: 7s is more than decision_wait_partial (6s); lower it or raise"
        " decision_wait_partial",
    ),
    (
        {"traces": {"max_bytes": "1MiB"}},
        "traces.max_bytes_per_trace: 64MiB is more than max_bytes (1MiB); lower it or raise"
        " max_bytes",
    ),
    (
        {"traces": {"decision_wait": "${env:NOT_SET_ANYWHERE}"}},
        "traces.decision_wait: the environment variable NOT_SET_ANYWHERE is not set; set it or"
        " write ${env:NOT_SET_ANYWHERE:-default}",
    ),
    ({"evaluations": []}, "evaluations: [] is empty; name at least one"),
    (
        {"evaluations": {"name": "x"}},
        "evaluations: {'name': 'x'} is not a list; write one, in brackets or with `- ` before"
        " each entry",
    ),
    (
        scored_by({"type": "tool_errors"}, sample=2),
        "evaluations[0].sample: 2 is more than 1; lower it",
    ),
    (
        scored_by({"type": "tool_errors"}, match={"runs": "inner"}),
        "evaluations[0].match.runs: 'inner' is invalid; write 'outermost', 'all' or 'tools'",
    ),
    (
        scored_by({"type": "tool_errors"}, match={"service": 5}),
        "evaluations[0].match.service: 5 is not text; write text, in quotes where it looks like a"
        " number",
    ),
    (
        scored_by({"type": "tool_eror"}),
        "evaluations[0].scorers[0].type: 'tool_eror' is not a scorer; did you mean 'tool_errors'?",
    ),
    (
        scored_by({"type": "tool_errors"}, {"type": "time_cost", "max_ms": -5}),
        "evaluations[0].scorers[1].max_ms: -5 is not a positive number of milliseconds; write"
        " e.g. 30000",
    ),
    (
        scored_by({"type": "tool_errors"}, {"type": "tool_errors"}),
        "evaluations[0].scorers: the name 'tool_errors' is used twice; give one of them another"
        " name",
    ),
    (
        {"evaluations": scored_by({"type": "tool_errors"})["evaluations"] * 2},
        "evaluations: the name 'one' is used twice; rename one of them",
    ),
    (
        {"receivers": {"otlp": {"protocols": {"grpc": {"endpoint": "4317"}}}}},
        "receivers.otlp.protocols.grpc.endpoint: '4317' is not host:port; write e.g."
        " 127.0.0.1:4317",
    ),
    (
        {"exporters": {"otlp": {"endpoint": "localhost:4317"}}},
        "exporters.otlp.endpoint: 'localhost:4317' is not a URL with a host; write e.g."
        " http://127.0.0.1:5317",
    ),
    (
        {"exporters": {"otlp": OTLP | {"signals": ["log"]}}},
        "exporters.otlp.signals[0]: 'log' is invalid; write 'logs', 'metrics' or 'spans'",
    ),
    (
        {"exporters": {"otlp": OTLP | {"signals": []}}},
        "exporters.otlp.signals: [] is empty; name at least one",
    ),
    ({"exporters": {"jsonl": {}}}, "exporters.jsonl.path: is missing; add it"),
    (
        {"exporters": {"jsonl": {"path": "r", "mode": "0777"}}},
        "exporters.jsonl.mode: '0777' must let the owner read and write, and no one execute; write"
        ' e.g. "0640"',
    ),
    ({"conventions": [3]}, "conventions[0]: 3 is not a convention; write a mapping"),
]
SCORER_MESSAGES = [
    # a scorer's specification, and what is said of it
    (
        "text",
        "'text' is not a scorer's specification; write a mapping, e.g. {type: tool_errors};"
        " register a function or class by @scorer('my_metric') first",
    ),
    (
        {"type": "no.such:thing"},
        "type: 'no.such:thing' cannot be imported (ModuleNotFoundError: no module named 'no');"
        " write package.module:attribute of something that can be imported",
    ),
    ({"type": "tool_errors", "treshold": 1}, "treshold: unknown key; did you mean 'threshold'?"),
    (
        {"type": "tool_errors", "threshold": 1.1},
        "threshold: 1.1 is more than 1; lower it",
    ),
    (
        {"type": "tool_errors", "strict": "yes"},
        "strict: 'yes' is not true or false; write one of them, without quotes",
    ),
    (
        {"type": "tool_errors", "name": ""},
        "name: '' is not a non-empty text; write e.g. some-name",
    ),
    (
        {"type": "tool_errors", "tools": ["a"]},
        "tools: ['a'] is not a mapping; its keys are exclude, include",
    ),
    (
        {"type": "tool_errors", "tools": {"include": "a"}},
        "tools.include: 'a' is not a list of names or patterns; write e.g. [search, \"delete_*\"]",
    ),
    (
        {"type": "tool_errors", "failed_calls": "drop"},
        "failed_calls: 'drop' is invalid; write 'include' or 'exclude'",
    ),
    (
        {"type": "tool_call_count"},
        'criteria: missing; write e.g. criteria: {search: "<= 3"}, or name the attribute that holds'
        " them: reference: my.criteria",
    ),
    ({"type": "forbidden_tools"}, "patterns: is missing; add it"),
    (
        {"type": "tool_call_count", "criteria": {"a": 3}},
        'criteria.a: 3 is not an operator and a number; write e.g. "<= 3" or ["==", 1], operators'
        " in quotes",
    ),
    (
        {"type": "tool_call_count", "criteria": {"a": "=> 3"}},
        "criteria.a: '=> 3' is not an operator (= == != < <= > >=) and a whole number, 0 or more;"
        " did you mean '>='?",
    ),
    (
        {"type": "tool_call_count", "criteria": {"a": ["≤", 3]}},
        "criteria.a[0]: '≤' is not one of the operators = == != < <= > >=; did you mean '<='?",
    ),
    (
        {"type": "tool_call_order"},
        "expected: missing; list the expected calls, or name the attribute that does: reference:"
        " my.expected",
    ),
    (
        {"type": "tool_call_order", "expected": "a"},
        "expected: 'a' is not a list of tool names; write e.g. [search, [open, read]]",
    ),
    (
        {"type": "tool_call_order", "expected": ["a", 3]},
        "expected[1]: 3 is not the name of a tool; write e.g. search (names like 3 or true need"
        " quotes in YAML)",
    ),
    (
        {"type": "tool_call_order", "expected": {"dataset": "cases.jsonl", "key": "id"}},
        "expected: names a dataset; write it as reference: {dataset: cases.jsonl, key:"
        " test.case.id}",
    ),
    (
        {"type": "tool_call_order", "expected": ["a", []]},
        "expected[1]: [] is not a group of calls; name at least one call or leave the group out",
    ),
    (
        {"type": "tool_call_args", "expected": [{"arguments": {}}]},
        "expected[0].name: is missing; add it",
    ),
    (
        {"type": "tool_call_args", "expected": [{"name": "a", "args": {}, "arguments": {}}]},
        "expected[0]: arguments and args are the same in two spellings; keep arguments",
    ),
    (
        {"type": "tool_call_args", "expected": [{"function": {"name": "a", "arguments": "[1]"}}]},
        "expected[0].function.arguments: '[1]' is not the JSON text of an object; write e.g."
        ' \'{"q": "rates"}\'',
    ),
    (
        {"type": "tool_call_args", "expected": [], "arguments": "some"},
        "arguments: 'some' is not one of exact, subset, superset, overlap or a list of keys; write"
        " e.g. subset or [user.id]",
    ),
    (
        {"type": "execution_order", "expected": [], "match": "inorder"},
        "match: 'inorder' is invalid; write 'exact', 'in_order' or 'any_order'",
    ),
    (
        {"type": "trajectory_structure", "required_keys": ["argument"]},
        "required_keys: no call can have 'argument'; did you mean 'arguments'?",
    ),
    (
        {"type": "forbidden_tools", "patterns": []},
        'patterns: [] is not a list of names or patterns; write e.g. [search, "delete_*"]',
    ),
    (
        {"type": "precedence", "rules": ["a after b"]},
        "rules[0]: 'a after b' is no rule; write one of: a before b, b only after a, a then b"
        " within 5s, never b after a",
    ),
    (
        {"type": "precedence", "rules": ["a then b within 5"]},
        "rules[0]: 'a then b within 5' is no rule, 'b within 5' has the word 'within' in it; write"
        " one of: a before b, b only after a, a then b within 5s, never b after a; in the name of"
        " a tool write 'within' as a pattern, withi?",
    ),
    (
        {"type": "loop_detection", "max_repeats": 0},
        "max_repeats: 0 is less than 1; raise it",
    ),
    (
        {"type": "step_efficiency"},
        "max_calls: missing; give at least one of max_calls, max_model_calls and max_tokens",
    ),
    (
        {"type": "trajectory_pattern", "pattern": 3},
        "pattern: 3 is not a pattern; write a tool's name, a list, or one of sequence, any_order,"
        " choice, optional, repeat",
    ),
    (
        {"type": "trajectory_pattern", "pattern": {"repeat": "a", "min": 3, "max": 1}},
        "pattern.max: 1 is less than min 3; write e.g. min: 1, max: 3",
    ),
    (
        {"type": "trajectory_pattern", "pattern": {"any_order": list("abcdefghijkl")}},
        "pattern: too large for an exact answer; use smaller any_order groups or a repeat without"
        " max",
    ),
    (
        {
            "type": "trajectory_pattern",
            "pattern": {"repeat": {"any_order": list("abcdefgh")}, "max": 900},
        },
        "pattern: too large for an exact answer; use smaller any_order groups or a repeat without"
        " max",
    ),
    (
        {"type": "tool_correctness", "expected": [], "available_tools": ["a"]},
        "available_tools: ['a'] needs a judge; add judge: the name of one of `judges`, or leave it"
        " out",
    ),
    (
        {**MINIMAL["llm_judge"], "judge": "main"},
        "judge: 'main' is a name of `judges`, and there is no configuration here; write"
        " {base_url: https://models.example/v1, model: name, api_key_env: JUDGE_API_KEY}",
    ),
    (
        {**MINIMAL["llm_judge"], "judge": {**MODEL, "api_key": "k"}},
        "judge.api_key: unknown key; did you mean 'api_key_env'?",
    ),
    (
        {**MINIMAL["llm_judge"], "judge": {**MODEL, "api_key_env": "sk-1"}},
        "judge.api_key_env: the value is not the name of an environment variable; write e.g."
        " OTEL_EVAL_TOKEN, and never the key",
    ),
    (
        {**MINIMAL["llm_judge"], "judge": {**MODEL, "api_key_file": "/no/such"}},
        "judge.api_key_file: '/no/such' cannot be read (No such file or directory); name a file"
        " that holds the key",
    ),
    (
        {**MINIMAL["llm_judge"], "rubric": {2: "more"}},
        "rubric: {2: 'more'} is not a text, or scores from 0 to 1 with a text each; write e.g."
        " {0: rude, 1: polite}",
    ),
    (
        {**MINIMAL["llm_judge"], "rubric": " "},
        "rubric: ' ' is not a non-empty text; write e.g. some-name",
    ),
    (
        {"type": "tool_correctness", "expected": [], "compare": "result"},
        "compare: 'result' is not a list of arguments and result; write e.g. [arguments]",
    ),
    (
        {"type": "tool_correctness", "expected": [], "available_tools": "a"},
        "available_tools: 'a' is not a list of tools; write e.g. [search,"
        " {name: refund, description: pays back}]",
    ),
    (
        {"type": "tool_correctness", "expected": [], "available_tools": [3]},
        "available_tools[0]: 3 is not a tool's name, or a mapping with one; write e.g."
        " {name: search}",
    ),
    (
        {"type": "trajectory_pattern", "pattern": {}},
        "pattern: {} is not a pattern; write a tool's name, a list, or one of"
        " sequence, any_order, choice, optional, repeat",
    ),
    (
        {"type": "trajectory_pattern", "pattern": {"sequence": "a"}},
        "pattern.sequence: 'a' is not a list of patterns; write e.g. [search, open]",
    ),
    (
        {"type": "tool_call_args", "expected": [{"name": "a", "function": {"name": "a"}}]},
        "expected[0].name: unknown key; write it inside function",
    ),
    (
        {"type": "tool_call_args", "expected": [{"function": "a"}]},
        "expected[0].function: 'a' is not a mapping; its keys are args, arguments, description, id,"
        " input_parameters, name, reasoning, type",
    ),
    (
        {"type": "trajectory_structure", "required_keys": []},
        "required_keys: an empty list asks for nothing; name a field such as result or"
        " leave it out",
    ),
    (
        {"type": "precedence", "rules": []},
        'rules: [] is not a list of rules; write e.g. ["search before answer"]',
    ),
]


@pytest.mark.parametrize(
    ("build", "given", "message"),
    [
        *((load, configuration, message) for configuration, message in FILE_MESSAGES),
        *((create_scorer, spec, message) for spec, message in SCORER_MESSAGES),
    ],
    ids=[message[:60] for _, message in [*FILE_MESSAGES, *SCORER_MESSAGES]],
)
def test_a_mistake_is_reported_with_its_key_its_value_and_the_remedy(
    build: Any, given: Any, message: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        build(given)
    assert str(caught.value) == message
