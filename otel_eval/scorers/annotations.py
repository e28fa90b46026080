"""What a user's scorer declares in annotations: checked when it is registered, and when a configuration gives parameters.

Only what is certain is refused: built-in types, literals, unions and lists of these. Any other annotation passes.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping
from types import NoneType, UnionType
from typing import Any, Final, Literal, Union, get_args, get_origin, get_type_hints

from otel_eval.model import Failed, Scored, Skipped
from otel_eval.redaction import redacted_repr

__all__ = ["refused_return", "wrong_parameters"]

_OUTCOMES: Final = (Scored, Skipped, Failed, int, float)  # a bool is an int
_AWAITABLE: Final = (Awaitable, Coroutine)
_SIMPLE: Final[Mapping[type, str]] = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "a text",
    list: "a list",
    dict: "a mapping",
    NoneType: "null",
}
_EXAMPLES: Final[Mapping[type, str]] = {bool: "true", int: "3", float: "0.5", str: "some-text", list: "[a, b]", dict: "{a: 1}"}


def refused_return(thing: Any) -> str:
    """What a scorer declares to return, if that can be neither an outcome, a number nor a bool; else ""."""
    called = thing if inspect.isfunction(thing) else getattr(thing, "__call__", None)  # noqa: B004 - of a class, its instances'
    declared = _hints(called).get("return", Any)
    return "" if _may_be_outcome(declared) else _written(declared)


def wrong_parameters(thing: Any, given: Mapping[str, Any]) -> list[str]:
    """A line for each given parameter whose value the annotation of the function, or of the class's `__init__`, excludes."""
    hints = _hints(thing.__init__ if inspect.isclass(thing) else thing)
    return [
        f"{key}: {redacted_repr(value)} is not {_expected(hints[key])}; write e.g. {key}: {_example(hints[key])}"
        for key, value in given.items()
        if key in hints and not _fits(value, hints[key])
    ]


def _hints(called: Callable[..., Any] | None) -> dict[str, Any]:
    try:
        return get_type_hints(called) if called is not None else {}
    except Exception:  # noqa: BLE001 - an annotation may name anything, also what is not there yet
        return {}


def _may_be_outcome(declared: Any) -> bool:
    origin = get_origin(declared)
    if origin in (Union, UnionType):
        return any(map(_may_be_outcome, get_args(declared)))
    if origin in _AWAITABLE:
        return _may_be_outcome(get_args(declared)[-1])
    if origin is Literal:
        return any(isinstance(each, int) for each in get_args(declared))
    kind = origin or declared
    return not isinstance(kind, type) or issubclass(kind, _OUTCOMES) or kind in (Any, object, *_AWAITABLE)


def _fits(value: Any, declared: Any) -> bool:
    origin = get_origin(declared)
    if origin in (Union, UnionType):
        return any(_fits(value, each) for each in get_args(declared))
    if origin is Literal:
        return any(type(value) is type(each) and value == each for each in get_args(declared))
    if origin is list and isinstance(value, list):
        return all(_fits(each, get_args(declared)[0]) for each in value)
    kind = origin or declared
    if kind not in _SIMPLE:
        return True
    if isinstance(value, bool):
        return kind is bool
    return isinstance(value, int | float) if kind is float else isinstance(value, kind)


def _expected(declared: Any) -> str:
    if get_origin(declared) is Literal:
        return f"one of {', '.join(map(str, get_args(declared)))}"
    if get_origin(declared) in (Union, UnionType):
        return " or ".join(dict.fromkeys(map(_expected, get_args(declared))))
    return _SIMPLE.get(get_origin(declared) or declared, _written(declared)) + "".join(_items(declared))


def _items(declared: Any) -> Iterator[str]:
    if get_origin(declared) is list:
        yield f" whose items are each {_expected(get_args(declared)[0])}"


def _example(declared: Any) -> str:
    if get_origin(declared) is Literal:
        return str(get_args(declared)[0])
    kinds = get_args(declared) if get_origin(declared) in (Union, UnionType) else (declared,)
    return next((_EXAMPLES[kind] for each in kinds if (kind := get_origin(each) or each) in _EXAMPLES), "null")


def _written(declared: Any) -> str:
    if declared is NoneType:
        return "None"
    return declared.__name__ if isinstance(declared, type) and get_origin(declared) is None else str(declared)
