"""How far the arguments, or the result, of a call agree with what was expected.

Equality is Python's `==`, so 1, 1.0 and True are equal.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Mapping
from math import fsum
from typing import Any, Final

__all__ = [
    "MODES",
    "Agreement",
    "agreement",
    "at_key",
    "decoded",
    "frozen",
    "is_object",
    "is_unnamed",
    "named",
    "share",
]

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
    return lambda expected, actual: float(all(at_key(expected, key) == at_key(actual, key) for key in mode))


def _exact(expected: Any, actual: Any) -> float:
    return float(expected == actual)


def _subset(expected: Any, actual: Any) -> float:
    """Every expected key present with an equal value; anything else may be there as well."""
    expected, actual = named(expected), named(actual)
    return float(all(key in actual and actual[key] == value for key, value in expected.items()))


def _superset(expected: Any, actual: Any) -> float:
    """Every key that is there is expected, with an equal value."""
    return _subset(actual, expected)


def _overlap(expected: Any, actual: Any) -> float:
    """The share of the union of keys whose values are equal; objects below count by their own share."""
    return share(named(expected), named(actual))


def share(expected: Any, actual: Any) -> float:
    """1 where equal; of two objects the share of the union of their keys, each counted by its own share."""
    if expected == actual:
        return 1.0
    if not (is_object(expected) and is_object(actual)):
        return 0.0
    union = len(expected.keys() | actual.keys())
    return fsum(share(expected[key], actual[key]) for key in expected.keys() & actual.keys()) / union


MODES: Final[Mapping[str, Agreement]] = {
    "exact": _exact,
    "subset": _subset,
    "superset": _superset,
    "overlap": _overlap,
}


def named(arguments: Any) -> Mapping[str, Any]:
    """Arguments as an object; a bare value under the key that stands for none."""
    return arguments if is_object(arguments) else {"__value__": arguments}


def is_unnamed(arguments: Any) -> bool:
    """Whether the arguments are a bare value, alone or as it is written down."""
    return not is_object(arguments) or arguments.keys() == {"__value__"}


def is_object(value: Any) -> bool:
    """Whether it is a mapping."""
    return type(value) is dict or isinstance(value, Mapping)  # the second looks at abstract classes, which takes long


def at_key(value: Any, path: str) -> Any:
    """What a dotted key leads to; a key that is written with dots itself is found as it is, before any way down."""
    if not isinstance(value, Mapping):
        return _ABSENT
    if path in value:
        return value[path]
    key, dot, below = path.partition(".")
    return at_key(value[key], below) if dot and key in value else _ABSENT


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


def frozen(value: Any) -> Hashable:
    """A hashable stand-in: two are equal if and only if the values are, a list and a tuple never.

    Raises:
        TypeError: some value inside is neither JSON nor hashable.
    """
    kind = type(value)
    if kind is not dict and kind is not list:
        try:
            hash(value)
        except TypeError:
            pass
        else:
            return value  # type: ignore[no-any-return]
    if is_object(value):
        try:
            return _OBJECT, frozenset(value.items())
        except TypeError:  # of lists or objects inside
            return _OBJECT, frozenset([(key, frozen(below)) for key, below in value.items()])
    if isinstance(value, list | tuple):
        return _TUPLE if isinstance(value, tuple) else _LIST, tuple([frozen(below) for below in value])
    raise TypeError(f"{kind.__name__} cannot be hashed")


_OBJECT, _LIST, _TUPLE = object(), object(), object()  # equal to nothing that is in a value
