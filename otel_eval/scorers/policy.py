"""The digest of a policy: which scorer, with which parameters, gave a result.

Two scorers have the same digest if they have the same type, version and parameters, apart from the
name of the score and from `include_content`. Records of datasets and references of runs are not
part of a policy.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import fields, is_dataclass
from hashlib import blake2b
from inspect import isroutine
from typing import Any, Final

from otel_eval.interfaces import Scorer
from otel_eval.model import UNRECORDED, Severity

_DIGEST_BYTES: Final = 8


def policy_of(scorer: Scorer) -> str:
    """The digest of a scorer's policy, 16 hex digits; an object that has a `policy` of its own
    keeps it.

    >>> from otel_eval.scorers import create_scorer
    >>> one, other = ({"type": "time_cost", "max_ms": limit} for limit in (10, 1))
    >>> policy_of(create_scorer(one)) == policy_of(create_scorer({**one, "name": "speed"}))
    True
    >>> policy_of(create_scorer(one)) == policy_of(create_scorer(other))
    False
    """
    policy = getattr(scorer, "policy", None)
    if isinstance(policy, str) and policy:
        return policy
    parameters = scorer.parameters_given() if hasattr(scorer, "parameters_given") else {}
    return _digest(scorer, parameters)


def severity_of(scorer: Scorer) -> Severity:
    """The severity of a scorer; `error` for an object that has none."""
    return "warn" if getattr(scorer, "severity", "") == "warn" else "error"


def note_policy(scorer: Scorer, parameters: Mapping[str, Any]) -> None:
    """Set the `policy` of an object of a user's class, which cannot tell what it was made from;
    an object that refuses the attribute, or has one, stays as it is.
    """
    if not hasattr(scorer, "policy"):
        with suppress(AttributeError, TypeError):  # frozen, or with slots
            vars(scorer)["policy"] = _digest(scorer, parameters)


def _digest(scorer: Scorer, parameters: Mapping[str, Any]) -> str:
    values = {"type": scorer.type, "version": scorer.version, "parameters": parameters}
    text = json.dumps(_json_value(values), sort_keys=True, separators=(",", ":"))
    return blake2b(text.encode(), digest_size=_DIGEST_BYTES).hexdigest()


def _json_value(value: object) -> object:
    """A parameter as a JSON value: objects of this package by what they were made from, functions
    by their names, other objects by their types.
    """
    if isinstance(value, float) and value.is_integer():
        return int(value)  # 30000 and 30000.0 are the same limit
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Mapping):
        return {str(key): _json_value(member) for key, member in value.items()}
    if isinstance(value, list | tuple | range):
        return [_json_value(member) for member in value]
    if isinstance(value, set | frozenset):
        return sorted(json.dumps(_json_value(member), sort_keys=True) for member in value)
    return _object_value(value)


def _object_value(value: Any) -> object:
    """The JSON value of an object, as `_json_value` describes it."""
    if hasattr(type(value), "as_given"):
        return _json_value(value.as_given)
    if isroutine(value):
        return f"{value.__module__}:{value.__qualname__}"
    if isinstance(value, Scorer):
        return policy_of(value)
    if is_dataclass(value) and not isinstance(value, type):
        return {
            key.name: _json_value(member)
            for key in fields(value)
            if key.compare and (member := getattr(value, key.name)) is not UNRECORDED
        }
    return f"{type(value).__module__}.{type(value).__qualname__}"
