"""Find the optional shortcuts in C.

Knows how an extension is found, and that `OTEL_EVAL_PURE=1` in the environment does without any. What an extension
gives equals what Python gives, so nobody above needs to know more than whether it is there.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import fields
from importlib import import_module
from types import ModuleType
from typing import Any, TypeVar

__all__ = ["extension", "maker"]

_T = TypeVar("_T")


def extension(name: str) -> ModuleType | None:
    """The extension of that name; None where the package was installed without a compiler, or is to do without."""
    if os.environ.get("OTEL_EVAL_PURE") == "1":
        return None
    try:
        return import_module(f"otel_eval.{name}")
    except ImportError:
        return None


def maker(cls: type[_T], *names: str) -> Callable[..., _T]:
    """Makes instances of a class with slots from the values of these, or of all fields of a dataclass in their order.

    For the few classes that are made by the thousand: a frozen dataclass sets each field through `object.__setattr__`,
    which takes six times as long as the shortcut. The class must not have a `__post_init__`.
    """
    names = names or tuple(each.name for each in fields(cls))  # type: ignore[arg-type]  # else only dataclasses come here
    forest = extension("_forest")
    if forest is not None:
        made: Callable[..., _T] = forest.maker(cls, names)
        return made

    def make(*values: Any) -> _T:
        made = cls.__new__(cls)
        for name, value in zip(names, values, strict=True):
            object.__setattr__(made, name, value)
        return made

    return make
