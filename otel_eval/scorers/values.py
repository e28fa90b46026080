"""Recorded values: how they are compared with expected ones and looked up by name.

Equality is Python's `==`, so 1, 1.0 and True are equal.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Mapping
from math import fsum
from typing import Any, Final

from otel_eval.model import UNRECORDED, Trajectory

Agreement = Callable[[Any, Any], float]


def agreement(mode: str | tuple[str, ...]) -> Agreement:
    """The function (expected, actual) → [0, 1] of a mode: one of `MODES`, or the dotted keys to
    compare.

    >>> agreement("overlap")({"a": 1, "b": 2}, {"a": 1, "c": 3})
    0.3333333333333333
    >>> agreement(("user.id",))({"user": {"id": 7, "at": 1}}, {"user": {"id": 7, "at": 2}})
    1.0
    """
    if isinstance(mode, str):
        return MODES[mode]
    return lambda expected, actual: float(
        all(value_at(as_object(expected), key) == value_at(as_object(actual), key) for key in mode)
    )


def _subset(expected: object, actual: object) -> float:
    """1 if every expected key is present with an equal value, else 0; further actual keys are
    allowed.
    """
    return float(as_object(expected).items() <= as_object(actual).items())


def overlap_share(expected: Any, actual: Any) -> float:
    """1 for equal values; for two objects, the sum of the overlap shares of common keys / keys in
    the union; else 0.
    """
    if expected == actual:
        return 1.0
    if not (is_object(expected) and is_object(actual)):
        return 0.0
    union = len(expected.keys() | actual.keys())
    return (
        fsum(overlap_share(expected[key], actual[key]) for key in expected.keys() & actual.keys())
        / union
    )


MODES: Final[Mapping[str, Agreement]] = {
    "exact": lambda expected, actual: float(as_object(expected) == as_object(actual)),
    "subset": _subset,
    "superset": lambda expected, actual: _subset(actual, expected),  # every actual key is expected
    "overlap": lambda expected, actual: overlap_share(as_object(expected), as_object(actual)),
}


def as_object(arguments: Any) -> Mapping[str, Any]:
    """Arguments as an object, decoded if they are JSON text; a bare value under the key
    `__value__`.
    """
    arguments = decode_json(arguments)
    return arguments if is_object(arguments) else {"__value__": arguments}


def is_bare_value(arguments: Any) -> bool:
    """Whether the arguments are a bare value, alone or as `{"__value__": value}`."""
    return not is_object(arguments) or arguments.keys() == {"__value__"}


def is_object(value: object) -> bool:
    """Whether a value is a mapping."""
    # the second test is slow: it uses an abstract class
    return type(value) is dict or isinstance(value, Mapping)


def value_at(value: object, path: str) -> object:
    """The value at a dotted path, or `UNRECORDED`; a key that contains the dots itself takes
    precedence over nested keys.
    """
    if not isinstance(value, Mapping):
        return UNRECORDED
    if path in value:
        return value[path]
    key, dot, below = path.partition(".")
    return value_at(value[key], below) if dot and key in value else UNRECORDED


def decode_json(value: object) -> object:
    """Decode JSON text, as often as it was encoded; return anything else unchanged.

    >>> decode_json('{"a": 1}'), decode_json("plain"), decode_json(3)
    ({'a': 1}, 'plain', 3)
    """
    while isinstance(value, str):
        try:
            value = strict_json(value)
        except (ValueError, RecursionError):
            return value
    return value


def _reject_constant(constant: str) -> object:
    raise ValueError(constant)


def strict_decoder(
    object_of: Callable[[list[tuple[str, Any]]], Any] | None = None,
) -> json.JSONDecoder:
    """Return a decoder that raises `ValueError` for NaN and infinities, which are not JSON.

    Args:
        object_of: makes an object from its pairs of key and value; None: the last of equal keys
            counts.
    """
    return json.JSONDecoder(parse_constant=_reject_constant, object_pairs_hook=object_of)


strict_json: Final = strict_decoder().decode
"""Decode JSON text. Raises `ValueError` for NaN and infinities as well, which are not JSON."""


def text_of(value: object) -> str:
    """A scalar as text; bools are `true` and `false`, as in YAML and JSON."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def hashable(value: Any) -> Hashable:
    """A hashable substitute for a value: two are equal if and only if the values are; a list never
    equals a tuple.

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
        if not value:
            return _EMPTY_OBJECT
        try:
            return _OBJECT, frozenset(value.items())
        except TypeError:  # a list or an object is inside
            return _OBJECT, frozenset([(key, hashable(below)) for key, below in value.items()])
    if isinstance(value, list | tuple):
        if not value:
            return _EMPTY_TUPLE if isinstance(value, tuple) else _EMPTY_LIST
        return _TUPLE if isinstance(value, tuple) else _LIST, tuple(
            [hashable(below) for below in value]
        )
    raise TypeError(f"{kind.__name__} cannot be hashed")


_OBJECT, _LIST, _TUPLE = object(), object(), object()  # equal to nothing in a recorded value
# Shared, since arguments may hold very many empty collections.
_EMPTY_OBJECT: Final = (_OBJECT, frozenset[Hashable]())
_EMPTY_LIST: Final = (_LIST, ())
_EMPTY_TUPLE: Final = (_TUPLE, ())


def recorded_field(
    trajectory: Trajectory, name: str, *, within: tuple[str, ...] = ("output",)
) -> object:
    """The recorded value with a name, or `UNRECORDED`.

    An attribute of that name takes precedence. Then each part in `within` is searched: the part
    itself if that is its name (`output`), or else the field at that dotted path of the part.

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
        field_value = value_at(decode_json(value), name)
        if field_value is not UNRECORDED:
            return field_value
    return UNRECORDED
