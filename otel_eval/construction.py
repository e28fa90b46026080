"""Make instances of frozen dataclasses without the cost of frozen fields."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Any, TypeVar

__all__ = ["constructor", "copier"]

_T = TypeVar("_T")


def constructor(cls: type[_T]) -> Callable[..., _T]:
    """A function that makes instances of a frozen dataclass with slots from the values of all its fields in their order.

    The `__init__` of a frozen dataclass sets each field through `object.__setattr__`, which takes nine times as long. Here an
    object of a twin class with the same slots is filled and then becomes one of the class. For the few classes of which each
    trace makes many; `__post_init__` is not called.
    """
    names = [each.name for each in fields(cls)]  # type: ignore[arg-type]  # only dataclasses come here
    return _compiled(cls, names, {name: name for name in names})


def copier(cls: type[_T], *changed: str) -> Callable[..., _T]:
    """A function that copies an instance, its first argument, with these fields changed, as `dataclasses.replace` does."""
    held = {each.name: f"made_of.{each.name}" for each in fields(cls)}  # type: ignore[arg-type]
    return _compiled(cls, ["made_of", *changed], held | {name: name for name in changed})


def _compiled(cls: type[_T], parameters: list[str], values: dict[str, str]) -> Callable[..., _T]:
    twin = type(cls.__name__, (), {"__slots__": tuple(values)})
    lines = [f"def make({', '.join(parameters)}):", " made = new(twin)", *(f" made.{each} = {values[each]}" for each in values)]
    scope: dict[str, Any] = {"new": object.__new__, "twin": twin, "cls": cls}
    exec("\n".join([*lines, " made.__class__ = cls", " return made"]), scope)
    made: Callable[..., _T] = scope["make"]
    return made
