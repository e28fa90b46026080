"""An attribute that is computed when it is first read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

_T = TypeVar("_T")


class cached_property(Generic[_T]):
    """Compute the attribute once for each object; threads that read it at the same time may each
    compute it, and get the same value.

    That of `functools` has one lock for all objects of a class in Python 3.11. A process that forks
    while a thread holds it leaves a child that waits for it for ever.
    """

    def __init__(self, compute: Callable[[Any], _T]) -> None:
        self._compute = compute
        self.__doc__ = compute.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, instance: Any, owner: type) -> _T:
        value: _T = instance.__dict__.setdefault(self._name, self._compute(instance))
        return value
