"""Build a scorer from its specification.

Knows mappings and the registry; what each key may hold is the scorer's own business.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import MISSING, Field, fields
from typing import Any

from otel_eval.errors import ConfigError
from otel_eval.ports import Scorer
from otel_eval.scorers.built_in import BuiltIn
from otel_eval.scorers.functions import FunctionScorer
from otel_eval.scorers.parameters import did_you_mean, shown
from otel_eval.scorers.registry import declared, resolve

__all__ = ["create_scorer", "parameters_of"]


def create_scorer(spec: Mapping[str, Any]) -> Scorer:
    """The scorer that a specification describes: its `type`, the parameters common to all, and its own.

    Raises:
        ConfigError: it cannot be used; one line names the key, the value, what would be right and the remedy.

    >>> from otel_eval.testing import call, trajectory
    >>> count = create_scorer({"type": "tool_call_count", "criteria": {"search": "<= 3"}})
    >>> count(trajectory(call("search"), call("open"))).value
    1.0
    """
    if not isinstance(spec, Mapping):
        raise ConfigError(f"{shown(spec)} is not a scorer's specification; write a mapping such as {{type: tool_errors}}")
    if "type" not in spec:
        raise ConfigError("type: missing; write e.g. type: tool_errors")
    kind = spec["type"]
    if not isinstance(kind, str):
        raise ConfigError(f"type: {shown(kind)} is not the name of a scorer; write e.g. type: tool_errors")
    name, thing = resolve(kind)
    given = {key: value for key, value in spec.items() if key != "type"}
    if inspect.isclass(thing) and issubclass(thing, BuiltIn):
        return _built_in(thing, given)
    return _foreign(name, thing, given)


def parameters_of(scorer: type[BuiltIn]) -> dict[str, Field[Any]]:
    """The parameters of a built-in scorer by key."""
    return {each.name: each for each in fields(scorer) if "read" in each.metadata}


def _built_in(scorer: type[BuiltIn], given: Mapping[str, Any]) -> Scorer:
    known = parameters_of(scorer)
    values = _read(known, given, list(known))
    for key, parameter in known.items():
        if key not in values and parameter.default is MISSING and parameter.default_factory is MISSING:
            raise ConfigError(f"{key}: missing; {scorer.type} cannot do without it")
    return scorer(**values)


def _read(known: Mapping[str, Field[Any]], given: Mapping[str, Any], keys: list[str]) -> dict[str, Any]:
    values = {}
    for key, value in given.items():
        if key not in known:
            raise ConfigError(f"{key}: unknown key; {did_you_mean(key, keys)}")
        values[key] = known[key].metadata["read"](key, value)
    return values


def _foreign(name: str, thing: Any, given: Mapping[str, Any]) -> Scorer:
    """A registered or imported function, or a class that makes one."""
    common = parameters_of(FunctionScorer)
    own = {key: value for key, value in given.items() if key not in common}
    values = _read(common, {key: value for key, value in given.items() if key in common}, list(common))
    takes = _keywords(thing, instance=inspect.isclass(thing))
    if takes is not None:
        for key in own:
            if key not in takes:
                raise ConfigError(f"{key}: unknown key; {did_you_mean(key, [*common, *takes])}")
    if inspect.isclass(thing):
        thing, own = _instance(name, thing, own, given), {}
        if isinstance(thing, Scorer) and not values:
            return thing
    elif takes is not None:
        for key, required in takes.items():
            if required and key not in own:
                raise ConfigError(f"{key}: missing; {name} cannot do without it")
    return FunctionScorer(**values, **declared(name), kind=name, function=thing, arguments=own, decides="threshold" in values)


def _instance(name: str, thing: Any, own: Mapping[str, Any], given: Mapping[str, Any]) -> Any:
    try:
        return thing(**own)
    except ConfigError:
        raise
    except Exception as error:
        received = ", ".join(given) or "no parameters"
        why = f"{type(error).__name__}: {shown(str(error))}"
        raise ConfigError(f"type: {name!r} refused {received} ({why}); see its documentation") from error


def _keywords(thing: Any, *, instance: bool) -> dict[str, bool] | None:
    """The keyword parameters of a function (after the trajectory) or a class → required; None if it takes any."""
    try:
        parameters = list(inspect.signature(thing).parameters.values())
    except (TypeError, ValueError):
        return None
    if any(each.kind is each.VAR_KEYWORD for each in parameters):
        return None
    own = parameters if instance else parameters[1:]
    named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return {each.name: each.default is each.empty for each in own if each.kind in named}
