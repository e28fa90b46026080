"""The JSON Schema of the configuration: what is accepted fits it, and common mistakes do not."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator

from otel_eval.app.build import config_schema
from otel_eval.config import load
from otel_eval.errors import ConfigError
from otel_eval.scorers import create_scorer, get_scorer
from otel_eval.scorers.base_scorer import BaseScorer, parameters_of
from tests.support.configurations import BUILT_IN

ROOT = Path(__file__).parents[3]
CASES = [
    json.loads(line)
    for line in (ROOT / "tests/conformance/cases.jsonl").read_text(encoding="utf-8").splitlines()
]
FILES = sorted([*ROOT.glob("collector_config/*/eval*.yaml"), *ROOT.glob("examples/*.yaml")])


@functools.cache
def validator() -> Draft202012Validator:
    return Draft202012Validator(config_schema())


def problems(*scorers: Any, **more: Any) -> list[str]:
    """What the schema has against a configuration of these scorers."""
    config = {"evaluations": [{"name": "one", "scorers": list(scorers)}], **more}
    return [error.message for error in validator().iter_errors(config)]


def test_the_schema_has_a_dialect_and_an_id():
    """Which editors need to use it."""
    schema = config_schema()
    Draft202012Validator.check_schema(schema)
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert schema["$id"].startswith("urn:")


def test_every_recorded_specification_that_can_be_built_fits():
    """The schema may allow more than the scorer, never less."""
    for case in CASES:
        try:
            create_scorer(case["scorer"])
        except ConfigError:
            continue
        assert problems(case["scorer"]) == [], case["id"]


@pytest.mark.parametrize("file", FILES, ids=[str(file.relative_to(ROOT)) for file in FILES])
def test_the_configurations_that_come_with_the_project_fit(file: Path):
    """Each can be loaded, and an editor finds nothing wrong."""
    load(file)
    assert [
        error.message
        for error in validator().iter_errors(yaml.safe_load(file.read_text(encoding="utf-8")))
    ] == []


def test_every_parameter_of_every_scorer_is_described():
    """With more than "anything"."""
    schema = config_schema()
    for kind in BUILT_IN:
        scorer = get_scorer(kind)
        assert issubclass(scorer, BaseScorer)
        described = schema["$defs"][scorer.__name__]["properties"]
        assert described.keys() == {"type", *parameters_of(scorer)}
        assert all(described.values()), kind


@pytest.mark.parametrize(
    "spec",
    [
        {"type": "time_cost", "max_ms": "5s"},
        {"type": "forbidden_tools"},
        {"type": "tool_call_count", "criteria": {"search": 3}},
        {"type": "tool_call_count", "criteria": {"search": "=< 3"}},
        {"type": "tool_call_count", "criteria": {"search": "<= 3"}, "treshold": 1},
        {"type": "tool-call-count", "criteria": {}},
        {"type": "tool_errors", "threshold": 2},
        {"type": "tool_errors", "strict": 1},
        {"type": "tool_errors", "tools": {"includes": ["a"]}},
        {"type": "trajectory_match", "expected": ["a"], "match": "inorder"},
        {"type": "tool_call_order", "expected": "a"},
        {"type": "tool_call_order", "reference": {"dataset": "cases.jsonl"}},
        {"type": "trajectory_pattern", "pattern": {"sequnce": ["a"]}},
        {"type": "time_cost", "max_ms": 0},
        {"type": "dag", "root": "a", "nodes": {"a": {"type": "binry"}}},
        {"name": "a"},
    ],
)
def test_a_mistake_does_not_fit(spec: dict[str, Any]):
    """Nor can the scorer be built."""
    with pytest.raises(ConfigError):
        create_scorer(spec)
    assert problems(spec)


def test_other_types_take_any_parameters():
    """What packages register, and dotted paths."""
    assert problems({"type": "their_scorer", "limit": 3}, {"type": "package.module:function"}) == []
