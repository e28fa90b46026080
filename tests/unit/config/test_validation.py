"""Errors in a configuration: all are reported at once, each with its path, and the nearest word
there is.

The words that may be misspelt are taken from the models and the registry, so that a new key or
scorer is tried as well.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from otel_eval.config import EvalConfig, Evaluation, Exporters, Traces, load
from otel_eval.errors import ConfigError
from tests.support.configurations import (
    BUILT_IN,
    KEYS,
    MINIMAL,
    PARAMETERS,
    configuration_with,
    problems_of,
    scored_by,
)


def misspelt(word: str) -> str:
    """The word with its last letter twice, as when a key sticks."""
    return word + word[-1]


def problems_of_file(given: Any) -> tuple[str, ...]:
    """What is wrong with a configuration."""
    return problems_of(partial(load, given))


def test_every_misspelt_key_of_a_file_gets_a_suggestion() -> None:
    """Wherever it stands: in sections, in lists and below names."""
    assert {"evaluations[0].match.service", "judges.main.base_url", "exporters.otlp.endpoint"} <= {
        *KEYS
    }
    without_suggestion = [
        path
        for path in KEYS
        if not any(
            problem.startswith(
                f"{misspelt(path)}: unknown key; did you mean {path.rpartition('.')[2]!r}?"
            )
            for problem in problems_of_file(configuration_with(path, 1, misspelt))
        )
    ]
    assert without_suggestion == []


def test_every_misspelt_type_and_parameter_of_a_scorer_gets_a_suggestion() -> None:
    """The parameters are looked at when the type is known, beside those that are missing."""
    at = "evaluations[0].scorers[0]"
    for kind in BUILT_IN:
        assert problems_of_file(scored_by({"type": misspelt(kind), "threshold": 7})) == (
            f"{at}.type: {misspelt(kind)!r} is not a scorer; did you mean {kind!r}?",
        )
    for kind, key in PARAMETERS:
        spec = {**MINIMAL[kind]}
        spec[misspelt(key)] = spec.pop(key, 1)
        problems = problems_of_file(scored_by(spec))
        assert problems[0] == f"{at}.{misspelt(key)}: unknown key; did you mean {key!r}?"


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
    "evaluations[1].match.runs: 'outer' is invalid; write 'outermost', 'all' or 'tools'",
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
    reported = problems_of_file(path)
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
    assert problems_of_file(path) == problems_of_file(MANY) == built.value.problems
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
    inner = [problem for problem in problems_of_file(MANY) if problem.startswith(f"{path}.")]
    assert [f"{path}.{problem}" for problem in built.value.problems] == inner


def test_values_are_compared_when_each_of_them_is_valid() -> None:
    """All that is wrong between them at once; while one is invalid its default would be compared in
    its place.
    """
    reported = problems_of_file({"traces": {"decision_wait": "10s", "max_age": "1m"}})
    assert reported == (
        (
            "traces.decision_wait: 10s is more than decision_wait_partial (6s); lower it or raise"
            " decision_wait_partial"
        ),
        "traces.idle_timeout: 900s is more than max_age (60s); lower it or raise max_age",
    )
    assert [
        each.split(":")[0]
        for each in problems_of_file(
            {"traces": {"decision_wait": "x", "decision_wait_partial": 0.5}}
        )
    ] == ["traces.decision_wait"]
    assert [
        each.split(":")[0]
        for each in problems_of_file(
            {"traces": {"decision_wiat": "1ms", "decision_wait_partial": 0.5}}
        )
    ] == ["traces.decision_wiat"]


def test_a_variable_that_is_not_set_hides_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """And what it would have stood for is not reported as well."""
    monkeypatch.delenv("NOWHERE", raising=False)
    reported = problems_of_file(
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


def test_a_request_that_could_never_be_sent_is_refused() -> None:
    """Every result would be lost at its first attempt; the value of a header is never shown."""
    for section, key in (("exporters", "otlp"), ("exporters", "forward"), ("telemetry", "otlp")):
        for options, message in (
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
        ):
            (problem,) = problems_of_file({section: {key: {"endpoint": "http://h"} | options}})
            assert problem.startswith(f"{section}.{key}.{message}")
            assert "secret" not in problem


def test_a_path_before_the_signals_is_accepted() -> None:
    """Some products have one; over gRPC it is not used."""
    for to in (
        {"endpoint": "http://h/api/otel", "protocol": "http/protobuf"},
        {"endpoint": "http://h/v1/traces"},
    ):
        assert load({"exporters": {"otlp": to}})
