"""The JSON Schema of scorers' specifications, made of what their parameters take, for editors."""

from __future__ import annotations

import inspect
from dataclasses import MISSING, Field
from typing import Any, Final

from otel_eval.scorers.building import parameters_of
from otel_eval.scorers.built_in import BuiltIn
from otel_eval.scorers.parameters import STRING, Schema, schema_of
from otel_eval.scorers.registry import ALIASES, get_scorer, list_scorers

__all__ = ["scorer_schema"]

_PREFIX: Final = "Scorer_"


def scorer_schema() -> tuple[Schema, dict[str, Schema]]:
    """The schema of one specification, and the definitions that it refers to.

    Each built-in type has a definition with its parameters; the `type` decides which one holds. Other types, which packages
    register or which a dotted path names, take any parameters.
    """
    types = {name: thing for name in list_scorers() if _is_built_in(thing := get_scorer(name))}
    aliases = {name: [name, *(alias for alias, meant in ALIASES.items() if meant == name)] for name in types}
    definitions: dict[str, Schema] = {}
    for name, thing in types.items():
        definition, inner = _hoisted(_definition(thing))
        definitions |= inner
        definitions[_PREFIX + name] = definition
    cases = [
        {"if": {"properties": {"type": {"enum": aliases[name]}}}, "then": {"$ref": f"#/$defs/{_PREFIX}{name}"}} for name in types
    ]
    known = [word for words in aliases.values() for word in words]
    kind = {"description": "Which scorer.", "anyOf": [{"enum": known}, STRING]}
    specification = {"type": "object", "properties": {"type": kind}, "required": ["type"], "allOf": cases}
    return specification, definitions


def _is_built_in(thing: Any) -> bool:
    return inspect.isclass(thing) and issubclass(thing, BuiltIn) and thing.__module__.startswith("otel_eval.")


def _definition(scorer: type[BuiltIn]) -> dict[str, Any]:
    parameters = parameters_of(scorer)
    return {
        "type": "object",
        "description": (scorer.__doc__ or "").partition("\n")[0],
        "properties": {"type": {"type": "string"}, **{name: _property(each) for name, each in parameters.items()}},
        "required": ["type", *(name for name, each in parameters.items() if _is_required(each))],
        "additionalProperties": False,
    }


def _property(parameter: Field[Any]) -> dict[str, Any]:
    schema = dict(schema_of(parameter.metadata["read"]))
    # None stands for "left out", whatever the reader says of null.
    if isinstance(parameter.default, bool | int | float | str) and parameter.default != "":
        schema["default"] = parameter.default
    return schema


def _is_required(parameter: Field[Any]) -> bool:
    return parameter.default is MISSING and parameter.default_factory is MISSING


def _hoisted(definition: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Schema]]:
    """The definition without definitions of its own, which are found only at the top of a document."""
    found: dict[str, Schema] = {}
    properties = {}
    for name, each in definition["properties"].items():
        found |= each.get("$defs", {})
        properties[name] = {key: value for key, value in each.items() if key != "$defs"}
    return {**definition, "properties": properties}, found
