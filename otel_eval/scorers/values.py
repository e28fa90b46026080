"""Compare arguments and results with expected ones, and look up recorded values by name.

Equality is Python's `==`, so 1, 1.0 and True are equal.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Mapping
from math import fsum
from typing import Any, Final

from otel_eval.model import UNRECORDED, Trajectory

__all__ = [
    "MODES",
    "Agreement",
    "agreement",
    "as_object",
    "decode_json",
    "hashable",
    "is_bare_value",
    "is_object",
    "overlap_share",
    "recorded_field",
    "value_at",
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
    return lambda expected, actual: float(all(value_at(expected, key) == value_at(actual, key) for key in mode))


def _exact(expected: Any, actual: Any) -> float:
    return float(expected == actual)


def _subset(expected: Any, actual: Any) -> float:
    """Every expected key present with an equal value; anything else may be there as well."""
    expected, actual = as_object(expected), as_object(actual)
    return float(all(key in actual and actual[key] == value for key, value in expected.items()))


def _superset(expected: Any, actual: Any) -> float:
    """Every key that is there is expected, with an equal value."""
    return _subset(actual, expected)


def _overlap(expected: Any, actual: Any) -> float:
    """The share of the union of keys whose values are equal; objects below count by their own share."""
    return overlap_share(as_object(expected), as_object(actual))


def overlap_share(expected: Any, actual: Any) -> float:
    """1 where equal; of two objects the share of the union of their keys, each counted by its own share."""
    if expected == actual:
        return 1.0
    if not (is_object(expected) and is_object(actual)):
        return 0.0
    union = len(expected.keys() | actual.keys())
    return fsum(overlap_share(expected[key], actual[key]) for key in expected.keys() & actual.keys()) / union


MODES: Final[Mapping[str, Agreement]] = {
    "exact": _exact,
    "subset": _subset,
    "superset": _superset,
    "overlap": _overlap,
}


def as_object(arguments: Any) -> Mapping[str, Any]:
    """Arguments as an object; a bare value under the key that stands for none."""
    return arguments if is_object(arguments) else {"__value__": arguments}


def is_bare_value(arguments: Any) -> bool:
    """Whether the arguments are a bare value, alone or as it is written down."""
    return not is_object(arguments) or arguments.keys() == {"__value__"}


def is_object(value: Any) -> bool:
    """Whether it is a mapping."""
    return type(value) is dict or isinstance(value, Mapping)  # the second looks at abstract classes, which takes long


def value_at(value: Any, path: str) -> Any:
    """What a dotted key leads to; a key that is written with dots itself is found as it is, before any way down."""
    if not isinstance(value, Mapping):
        return _ABSENT
    if path in value:
        return value[path]
    key, dot, below = path.partition(".")
    return value_at(value[key], below) if dot and key in value else _ABSENT


def decode_json(value: Any) -> Any:
    """JSON text as the value it spells, however often it was encoded; anything else as it is.

    >>> decode_json('{"a": 1}'), decode_json("plain"), decode_json(3)
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


def hashable(value: Any) -> Hashable:
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
            return _OBJECT, frozenset([(key, hashable(below)) for key, below in value.items()])
    if isinstance(value, list | tuple):
        return _TUPLE if isinstance(value, tuple) else _LIST, tuple([hashable(below) for below in value])
    raise TypeError(f"{kind.__name__} cannot be hashed")


_OBJECT, _LIST, _TUPLE = object(), object(), object()  # equal to nothing that is in a value


def recorded_field(trajectory: Trajectory, name: str, *, within: tuple[str, ...] = ("output",)) -> Any:
    """The value that the name leads to, or `UNRECORDED`.

    An attribute of that name comes first; then, in the parts listed, the part itself if it is called so (`output`),
    or the field of an object at that dotted path.

    >>> from otel_eval.testing import trajectory
    >>> recorded_field(trajectory(output={"plan": {"steps": [1]}}), "plan.steps")
    [1]
    """
    if name in trajectory.attributes:
        return trajectory.attributes[name]
    for part in within:
        value = getattr(trajectory, part)
        if value is UNRECORDED:
            continue
        if name == part:
            return value
        found = _below(decode_json(value), name)
        if found is not UNRECORDED:
            return found
    return UNRECORDED


def _below(value: Any, path: str) -> Any:
    if isinstance(value, Mapping) and path in value:
        return value[path]
    for key in path.split("."):
        if not isinstance(value, Mapping) or key not in value:
            return UNRECORDED
        value = value[key]
    return value
