"""Errors in a configuration: each is reported with its path, what was written and what would be
right.

The words that may be misspelt are taken from the shapes and the registry, so that a new key or
scorer is tried as well.
"""

from __future__ import annotations

import typing
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import BaseModel

from otel_eval.config import EvalConfig, Evaluation, Exporters, Match, OtlpExporter, Traces, load
from otel_eval.config.models import JudgeEndpoint
from otel_eval.errors import ConfigError
from otel_eval.scorers import create_scorer, list_scorers
from otel_eval.scorers.build import parameters_of
from otel_eval.scorers.registry import get_scorer

MODEL = {"base_url": "http://models.example/v1", "model": "m"}
TREE = {
    "a": {
        "type": "binary",
        "cel": "true",
        "children": [{"verdict": True, "score": 1}, {"verdict": False, "score": 0}],
    }
}
NEEDED: dict[str, dict[str, Any]] = {
    "answer_accuracy": {"judge": MODEL},
    "dag": {"root": "a", "nodes": TREE},
    "execution_order": {"expected": ["a"]},
    "expression": {"expression": "true"},
    "forbidden_tools": {"patterns": ["a"]},
    "label_distribution": {"label": "intent"},
    "llm_judge": {"judge": MODEL, "criteria": "It is polite."},
    "precedence": {"rules": ["a before b"]},
    "required_tools": {"patterns": ["a"]},
    "step_efficiency": {"max_calls": 3},
    "tool_call_args": {"expected": ["a"]},
    "tool_call_count": {"criteria": {"a": "> 0"}},
    "tool_call_order": {"expected": ["a"]},
    "tool_call_output": {"expected": ["a"]},
    "tool_correctness": {"expected": ["a"]},
    "trajectory_match": {"expected": ["a"]},
    "trajectory_pattern": {"pattern": ["a"]},
}


def problems_of(given: Any) -> tuple[str, ...]:
    """What is wrong with a configuration, each problem by itself and in one line."""
    with pytest.raises(ConfigError) as caught:
        load(given)
    assert "\n" not in str(caught.value)
    assert all(len(problem) < 900 for problem in caught.value.problems)
    return caught.value.problems


def refusal(build: Callable[[], object]) -> tuple[str, ...]:
    """The problems of what is built; none if it can be."""
    try:
        build()
    except ConfigError as error:
        return error.problems
    return ()


def misspelt(word: str) -> str:
    """The word with its last letter twice, as when a key sticks."""
    return word + word[-1]


def shapes(
    shape: type[BaseModel], path: str = "", nest: Any = lambda given: given
) -> Iterator[tuple[str, type[BaseModel], Any]]:
    """Every shape below one: its path, itself, and what puts values for it into a whole
    configuration.
    """
    yield path, shape, nest
    for key, field in shape.model_fields.items():
        inner, wrapped, step = _inner(field.annotation)
        if inner is not None:
            place = f"{path}.{key}" if path else key
            yield from shapes(
                inner,
                place + step,
                lambda given, key=key, wrapped=wrapped, nest=nest: nest({key: wrapped(given)}),
            )


def _inner(annotation: Any) -> tuple[type[BaseModel] | None, Any, str]:
    """The shape in an annotation, what makes its values those of the annotation, and the step that
    this is in a path.
    """
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation, lambda given: given, ""
    found, wrapped, step = next(
        (each for each in map(_inner, typing.get_args(annotation)) if each[0]), (None, None, "")
    )
    if found is not None and typing.get_origin(annotation) is tuple:
        return found, lambda given: [wrapped(given)], f"[0]{step}"
    if found is not None and typing.get_origin(annotation) is Mapping:
        return found, lambda given: {"main": wrapped(given)}, f".main{step}"
    return found, wrapped, step


SHAPES = [*shapes(EvalConfig)]
KEYS = [
    (f"{path}.{key}".lstrip("."), key, nest)
    for path, shape, nest in SHAPES
    for key in shape.model_fields
]
# Tests of plug-ins register scorers of their own when they are collected in the same process.
TYPES = [kind for kind in list_scorers() if get_scorer(kind).__module__.startswith("otel_eval.")]
PARAMETERS = [(kind, key) for kind in TYPES for key in parameters_of(get_scorer(kind))]


def test_every_shape_is_tried() -> None:
    """Those of judges and evaluations stand in mappings and lists."""
    assert {Evaluation, Match, Traces, Exporters, OtlpExporter, JudgeEndpoint} <= {
        shape for _, shape, _ in SHAPES
    }
    assert {"evaluations[0].match.service", "judges.main.base_url", "exporters.otlp.endpoint"} <= {
        path for path, _, _ in KEYS
    }


@pytest.mark.parametrize(("path", "key", "nest"), KEYS, ids=[path for path, _, _ in KEYS])
def test_a_misspelt_key_of_the_file_gets_a_suggestion(path: str, key: str, nest: Any) -> None:
    """Wherever it stands."""
    reported = problems_of(nest({misspelt(key): 1}))
    begin = f"{path[: -len(key)]}{misspelt(key)}: unknown key; did you mean {key!r}?"
    assert [problem for problem in reported if problem.startswith(begin)]


@pytest.mark.parametrize(("path", "key", "nest"), KEYS, ids=[path for path, _, _ in KEYS])
@pytest.mark.parametrize("value", [[[]], {"a": {1: [None]}}, -7, "= 3", float("nan"), "", object()])
def test_a_value_that_a_key_cannot_hold_is_reported_in_our_words(
    path: str, key: str, nest: Any, value: Any
) -> None:
    """Or the value may stand there; nothing else happens."""
    reported = refusal(lambda: load(nest({key: value})))
    assert not [problem for problem in reported if "\n" in problem or "Input should" in problem]


def scored(kind: str, **more: Any) -> dict[str, Any]:
    """A configuration whose second evaluation has one scorer of that type."""
    first = {"name": "first", "scorers": [{"type": "tool_errors"}]}
    return {
        "evaluations": [
            first,
            {"name": "second", "scorers": [{"type": kind, **NEEDED.get(kind, {}), **more}]},
        ]
    }


@pytest.mark.parametrize("kind", TYPES)
def test_a_misspelt_type_gets_a_suggestion(kind: str) -> None:
    """The keys of the scorer are looked at when it is known."""
    at = "evaluations[1].scorers[0]"
    (reported,) = problems_of(scored(misspelt(kind), threshold=7))
    assert reported == f"{at}.type: {misspelt(kind)!r} is not a scorer; did you mean {kind!r}?"


@pytest.mark.parametrize(("kind", "key"), PARAMETERS)
def test_a_misspelt_key_of_a_scorer_gets_a_suggestion(kind: str, key: str) -> None:
    """Beside those that are missing."""
    given = scored(kind)
    spec = given["evaluations"][1]["scorers"][0]
    spec[misspelt(key)] = spec.pop(key, 1)
    reported = [
        problem
        for problem in problems_of(given)
        if problem.startswith("evaluations[1].scorers[0].")
    ]
    assert (
        reported[0]
        == f"evaluations[1].scorers[0].{misspelt(key)}: unknown key; did you mean {key!r}?"
    )


WRONG = [
    None,
    True,
    -1,
    1.5,
    float("nan"),
    10**5000,
    "",
    " ",
    "= 3",
    [],
    [None],
    [[]],
    {},
    {"a": 1},
    {1: 2},
    b"x",
    object(),
    {1},
]


@pytest.mark.parametrize(("kind", "key"), PARAMETERS)
def test_a_value_that_a_parameter_cannot_hold_is_reported_alike_from_a_file_and_from_python(
    kind: str, key: str
) -> None:
    """`create_scorer` says what the configuration says, which puts the path before it."""
    refused = 0
    for value in WRONG:
        if key == "judge" and isinstance(value, str) and value:
            continue  # a name, which means something only in a configuration
        given = scored(kind, **{key: value})
        reported = refusal(partial(create_scorer, given["evaluations"][1]["scorers"][0]))
        assert [f"evaluations[1].scorers[0].{each}" for each in reported] == [
            *refusal(partial(load, given))
        ]
        assert not reported or reported[0].startswith(key)
        refused += bool(reported)
    assert refused > len(WRONG) / 3


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("=< 3", "<="),
        ("=> 3", ">="),
        ("<> 3", "!="),
        ("=!3", "!="),
        ("≤ 3", "<="),
        ("lt 3", "<"),
        ("=== 3", "=="),
        (["=<", 3], "<="),
        (["gte", 3], ">="),
        (["<= ", 3], "<="),
        (["≠", 3], "!="),
    ],
)
def test_a_misspelt_operator_gets_a_suggestion(written: Any, meant: str) -> None:
    """In both ways to write one."""
    (reported,) = problems_of(scored("tool_call_count", criteria={"search": written}))
    assert reported.startswith("evaluations[1].scorers[0].criteria.search: ")
    assert reported.endswith(f"; did you mean {meant!r}?")


@pytest.mark.parametrize(
    ("kind", "key", "value", "near"),
    [
        ("trajectory_match", "match", "inorder", "in_order"),
        ("trajectory_match", "measure", "recal", "recall"),
        ("trajectory_match", "arguments", "subst", "subset"),
        ("trajectory_match", "extra", "forbidden", "forbid"),
        ("execution_order", "of", "span", "spans"),
        ("tool_call_order", "concurrency", "ignored", "ignore"),
        ("tool_errors", "failed_calls", "excluded", "exclude"),
    ],
)
def test_a_misspelt_word_gets_a_suggestion(kind: str, key: str, value: str, near: str) -> None:
    """Where one of a few words is wanted."""
    (reported,) = problems_of(scored(kind, **{key: value}))
    assert reported.startswith(f"evaluations[1].scorers[0].{key}: {value!r} is not ")
    assert reported.endswith(f"did you mean {near!r}?")


MANY = {
    "traces": {"decision_wait": "10s", "grace_period": "soon"},
    "judges": {"main": {"base_url": "models.example", "modl": "m"}},
    "evaluations": [
        {
            "name": "policy",
            "scorers": [
                {"type": "tool_call_cuont", "strict": 1},
                {
                    "type": "tool_call_count",
                    "criteria": {"search": "=< 3", "open": 1},
                    "treshold": 1,
                },
                {"type": "llm_judge", "judge": "mian", "criteria": "It is polite."},
                {
                    "type": "tool_call_order",
                    "reference": {"dataset": "/nowhere.jsonl", "key": "case"},
                },
            ],
        },
        {
            "name": "policy",
            "sample": 7,
            "match": {"servce": "x", "runs": "outer", "attributes": {"tier": [1]}},
            "scorers": [
                {"type": "tool_errors"},
                {"type": "tool_errors"},
                {"type": "dag", "root": "a", "nodes": {"a": {"type": "binry"}}},
            ],
        },
    ],
    "conventions": [
        {"name": "mine", "rules": [{"kind": "robot", "key": "k"}, {"kid": "tool"}], "filds": {}}
    ],
    "exporters": {"otlp": {"endpoint": "localhost:4317", "protocol": "gprc"}},
    "signals": ["log"],
}
REPORTED = [
    # how each problem of it begins
    "traces.grace_period: 'soon' is not a duration",
    "judges.main.base_url: 'models.example' is not a URL",
    "judges.main.modl: unknown key; did you mean 'model'?",
    (
        "evaluations[0].scorers[0].type: 'tool_call_cuont' is not a scorer; did you mean"
        " 'tool_call_count'?"
    ),
    "evaluations[0].scorers[1].treshold: unknown key; did you mean 'threshold'?",
    "evaluations[0].scorers[1].criteria.search: '=< 3' is not an operator",
    "evaluations[0].scorers[1].criteria.open: 1 is not an operator",
    "evaluations[0].scorers[2].judge: 'mian' is not one of the judges; did you mean 'main'?",
    "evaluations[0].scorers[3].reference.dataset: '/nowhere.jsonl' cannot be read",
    "evaluations[1].sample: 7 is more than 1; lower it",
    "evaluations[1].match.servce: unknown key; did you mean 'service'?",
    "evaluations[1].match.runs: 'outer' is invalid; write 'outermost' or 'all'",
    "evaluations[1].match.attributes.tier: [1] is neither text nor a number",
    "evaluations[1].scorers[2].nodes.a.type: 'binry' is not a kind of node; did you mean 'binary'?",
    "conventions[0].rules[0].kind: 'robot' is invalid; write 'agent', 'model', 'tool' or 'other'",
    "conventions[0].rules[1].kid: unknown key; did you mean 'kind'?",
    "conventions[0].filds: unknown key; did you mean 'fields'?",
    "exporters.otlp.endpoint: 'localhost:4317' is not a URL",
    "exporters.otlp.protocol: 'gprc' is invalid; write 'grpc' or 'http/protobuf'",
    "signals[0]: 'log' is invalid; write 'logs', 'metrics' or 'spans'",
]


def test_all_errors_of_a_file_are_reported_at_once(tmp_path: Path) -> None:
    """Of every evaluation, each once, and nothing that is a consequence only."""
    path = tmp_path / "eval.yaml"
    path.write_text(yaml.safe_dump(MANY, sort_keys=False), encoding="utf-8")
    reported = problems_of(path)
    assert [
        begin for begin in REPORTED if not any(problem.startswith(begin) for problem in reported)
    ] == []
    assert [problem for problem in reported if not problem.startswith(tuple(REPORTED))] == []
    assert len(reported) == len({*reported})


def test_a_file_a_mapping_and_objects_say_the_same(tmp_path: Path) -> None:
    """Only the file's name is before the first."""
    path = tmp_path / "eval.yaml"
    path.write_text(yaml.safe_dump(MANY, sort_keys=False), encoding="utf-8")
    with pytest.raises(ConfigError) as built:
        EvalConfig(**MANY)
    assert problems_of(path) == problems_of(MANY) == built.value.problems
    with pytest.raises(ConfigError) as read:
        load(path)
    assert str(read.value) == f"{path}: {'; '.join(built.value.problems)}"


@pytest.mark.parametrize(
    ("part", "key"), [(Evaluation, "evaluations"), (Traces, "traces"), (Exporters, "exporters")]
)
def test_a_part_that_is_built_by_itself_says_what_it_says_in_the_whole(
    part: type, key: str
) -> None:
    """Without the path to it."""
    given = MANY[key][1] if key == "evaluations" else MANY[key]
    path = "evaluations[1]" if key == "evaluations" else key
    with pytest.raises(ConfigError) as built:
        part(**given)
    inner = [problem for problem in problems_of(MANY) if problem.startswith(f"{path}.")]
    assert [f"{path}.{problem}" for problem in built.value.problems] == inner


def test_values_are_compared_when_each_of_them_is_valid() -> None:
    """All that is wrong between them at once; while one is invalid its default would be compared in
    its place.
    """
    reported = problems_of({"traces": {"decision_wait": "10s", "max_age": "1m"}})
    assert reported == (
        (
            "traces.decision_wait: 10s is more than decision_wait_partial (6s); lower it or raise"
            " decision_wait_partial"
        ),
        "traces.idle_timeout: 300s is more than max_age (60s); lower it or raise max_age",
    )
    assert [
        each.split(":")[0]
        for each in problems_of({"traces": {"decision_wait": "x", "decision_wait_partial": 0.5}})
    ] == ["traces.decision_wait"]
    assert [
        each.split(":")[0]
        for each in problems_of({"traces": {"decision_wiat": "1ms", "decision_wait_partial": 0.5}})
    ] == ["traces.decision_wiat"]


def test_a_variable_that_is_not_set_hides_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """And what it would have stood for is not reported as well."""
    monkeypatch.delenv("NOWHERE", raising=False)
    reported = problems_of(
        {
            "traces": {"grace_period": "${env:NOWHERE}", "max_age": "x"},
            "signals": ["${env:NOWHERE}"],
        }
    )
    assert [each.split(":")[0] for each in reported] == [
        "traces.grace_period",
        "signals[0]",
        "traces.max_age",
    ]


@pytest.mark.parametrize("place", ["exporters.otlp", "exporters.forward", "telemetry.otlp"])
@pytest.mark.parametrize(
    ("wrong", "problem"),
    [
        (
            {"headers": {"x-tenant": "secret\n"}},
            "headers.x-tenant: is no header; write printable ASCII text, without blanks",
        ),
        ({"headers": {"x-tenant": "\u00fc"}}, "headers.x-tenant: is no header"),
        ({"headers": {"x tenant": "a"}}, "headers.x tenant: is no header"),
        ({"headers": {":path": "a"}}, "headers.:path: is no header"),
        ({"timeout": 0}, "timeout: 0.0 is not greater than 0; raise it"),
        (
            {"endpoint": "http://h/v1/logs/", "protocol": "http/protobuf"},
            "endpoint: '/v1/logs/' at its end is the path of one",
        ),
    ],
)
def test_what_no_request_can_be_sent_with_is_refused(place: str, wrong: Any, problem: str) -> None:
    """Every result would be lost at its first attempt, without a retry."""
    outer, inner = place.split(".")
    (found,) = problems_of({outer: {inner: {"endpoint": "http://h"} | wrong}})
    assert found.startswith(f"{place}.{problem}")
    assert "secret" not in found


def test_a_path_before_the_signals_is_accepted() -> None:
    """Some products have one; over gRPC it is not used."""
    for to in (
        {"endpoint": "http://h/api/otel", "protocol": "http/protobuf"},
        {"endpoint": "http://h/v1/traces"},
    ):
        assert load({"exporters": {"otlp": to}})
