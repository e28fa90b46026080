"""Every key that a configuration or a scorer may have, and the smallest values around it."""

from __future__ import annotations

import typing
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from pydantic import BaseModel

from otel_eval.config import EvalConfig
from otel_eval.errors import ConfigError
from otel_eval.scorers import create_scorer, get_scorer, list_scorers
from otel_eval.scorers.base_scorer import parameters_of

MODEL = {"base_url": "http://models.example/v1", "model": "m"}
TREE = {
    "a": {
        "type": "binary",
        "cel": "true",
        "children": [{"verdict": True, "score": 1}, {"verdict": False, "score": 0}],
    }
}
REQUIRED: dict[str, dict[str, Any]] = {
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
# Tests of plug-ins register scorers of their own when they are collected in the same process.
BUILT_IN = [kind for kind in list_scorers() if get_scorer(kind).__module__.startswith("otel_eval.")]
MINIMAL: Mapping[str, dict[str, Any]] = {
    kind: {"type": kind, **REQUIRED.get(kind, {})} for kind in BUILT_IN
}
PARAMETERS = [(kind, key) for kind in BUILT_IN for key in parameters_of(get_scorer(kind))]


def pattern_of(written: Any) -> Any:
    """The automaton of a pattern, as a scorer has it."""
    return create_scorer({"type": "trajectory_pattern", "pattern": written}).pattern


def scored_by(*scorers: Any, **more: Any) -> dict[str, Any]:
    """A configuration of one evaluation, with other keys of it."""
    return {"evaluations": [{"name": "one", "scorers": list(scorers), **more}]}


def problems_of(build: Callable[[], object]) -> tuple[str, ...]:
    """What is wrong with what is built, each problem by itself; nothing if it can be built."""
    try:
        build()
    except ConfigError as error:
        return error.problems
    return ()


def configuration_with(path: str, value: Any, spell: Callable[[str], str] = str) -> Any:
    """A configuration of the value at the path; `spell` may change the last key."""
    *outer, last = path.split(".")
    whole: Any = {spell(last): value}
    for step in reversed(outer):
        key, in_list, _ = step.partition("[")
        whole = {key: [whole] if in_list else whole}
    return whole


def _paths(model: type[BaseModel], path: str = "") -> Iterator[str]:
    """The path of every key below a model; entries of lists are [0], names of mappings main."""
    for key, field in model.model_fields.items():
        yield path + key
        inner, step = _inner_model(field.annotation)
        if inner is not None:
            yield from _paths(inner, f"{path}{key}{step}.")


def _inner_model(annotation: Any) -> tuple[type[BaseModel] | None, str]:
    """The model in an annotation, and the step to it in a path."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation, ""
    container = {tuple: "[0]", Mapping: ".main"}.get(typing.get_origin(annotation), "")
    for argument in typing.get_args(annotation):
        inner, step = _inner_model(argument)
        if inner is not None:
            return inner, container + step
    return None, ""


KEYS = [*_paths(EvalConfig)]
