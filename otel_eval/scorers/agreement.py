"""How far the arguments, or the result, of a call agree with what was expected.

Knows JSON values; knows no names, no order. Equality is Python's `==`, so 1, 1.0 and True are equal.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from math import fsum
from typing import Any, Final

from otel_eval.conventions.decode import frozen

__all__ = ["MODES", "Agreement", "agreement", "decoded", "frozen"]

Agreement = Callable[[Any, Any], float]

_ABSENT: Final = object()


def agreement(mode: str | tuple[str, ...]) -> Agreement:
    """The function (expected, actual) → [0, 1] of a mode: one of `MODES`, or the dotted keys to compare.

    >>> agreement("overlap")({"a": 1, "b": 2}, {"a": 1, "c": 3})
    0.3333333333333333
    >>> agreement(("user.id",))({"user": {"id": 7, "at": 1}}, {"user": {"id": 7, "at": 2}})
    1.0
    """
    if isinstance(mode, str):
        return MODES[mode]
    return lambda expected, actual: float(all(_at(expected, key) == _at(actual, key) for key in mode))


def _exact(expected: Any, actual: Any) -> float:
    return float(expected == actual)


def _subset(expected: Any, actual: Any) -> float:
    """Every expected key present with an equal value; anything else may be there as well."""
    expected, actual = _named(expected), _named(actual)
    return float(all(key in actual and actual[key] == value for key, value in expected.items()))


def _superset(expected: Any, actual: Any) -> float:
    """Every key that is there is expected, with an equal value."""
    return _subset(actual, expected)


def _overlap(expected: Any, actual: Any) -> float:
    """The share of the union of keys whose values are equal; objects below count by their own share."""
    return _share(_named(expected), _named(actual))


def _share(expected: Any, actual: Any) -> float:
    if expected == actual:
        return 1.0
    if not (_is_object(expected) and _is_object(actual)):
        return 0.0
    union = len(expected.keys() | actual.keys())
    return fsum(_share(expected[key], actual[key]) for key in expected.keys() & actual.keys()) / union


MODES: Final[Mapping[str, Agreement]] = {
    "exact": _exact,
    "subset": _subset,
    "superset": _superset,
    "overlap": _overlap,
}


def _named(arguments: Any) -> Mapping[str, Any]:
    return arguments if _is_object(arguments) else {"__value__": arguments}


def is_unnamed(arguments: Any) -> bool:
    """Whether the arguments are a bare value, alone or as it is written down."""
    return not _is_object(arguments) or arguments.keys() == {"__value__"}


def _is_object(value: Any) -> bool:
    return type(value) is dict or isinstance(value, Mapping)  # the second looks at abstract classes, which takes long


def _at(value: Any, path: str) -> Any:
    """What a dotted key leads to; a key that is written with dots itself is found as it is, before any way down."""
    if not isinstance(value, Mapping):
        return _ABSENT
    if path in value:
        return value[path]
    key, dot, below = path.partition(".")
    return _at(value[key], below) if dot and key in value else _ABSENT


def decoded(value: Any) -> Any:
    """JSON text as the value it spells, however often it was encoded; anything else as it is.

    >>> decoded('{"a": 1}'), decoded("plain"), decoded(3)
    ({'a': 1}, 'plain', 3)
    """
    while isinstance(value, str):
        try:
            value = json.loads(value, parse_constant=_refused)
        except (ValueError, RecursionError):
            return value
    return value


def _refused(constant: str) -> Any:
    raise ValueError(constant)
